# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks with a real SGLang: one story, told in order; each step needs the one before."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

PYTHON = os.environ.get("GPU_TEST_SGLANG_PYTHON")
TARGET, DRAFT = os.environ.get("GPU_TEST_TARGET"), os.environ.get("GPU_TEST_DRAFT")
# A draft for the same target that guesses badly, and the number of tokens per step that is too few for it.
BAD_DRAFT = os.environ.get("GPU_TEST_BAD_DRAFT")
ENVIRONMENT = json.loads(os.environ.get("GPU_TEST_SGLANG_ENV", "{}"))
ARGUMENTS = json.loads(os.environ.get("GPU_TEST_SGLANG_ARGS", "[]"))
MEM_FRACTION = float(os.environ.get("GPU_TEST_MEM_FRACTION", "0.2"))
ACCEPT = json.loads(os.environ.get("GPU_TEST_ACCEPT", "{}"))
PORT = 30117
INSTANCE = "gputest"
HAND_STARTED = [
    *("-m", "sglang.launch_server", "--model-path", str(TARGET), "--port", str(PORT)),
    *("--mem-fraction-static", str(MEM_FRACTION), "--max-running-requests", "32", *ARGUMENTS),
]

pytestmark = pytest.mark.skipif(
    not (PYTHON and TARGET and DRAFT),
    reason="GPU_TEST_SGLANG_PYTHON, GPU_TEST_TARGET and GPU_TEST_DRAFT name no SGLang to test with",
)


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory, module):
    """The instance's folder; what runs at the end is stopped by the module that started it."""
    folder = tmp_path_factory.mktemp("state")
    yield folder
    module("sglang_process", instance=INSTANCE, state="stopped", manager="process", state_dir=str(folder), grace=30)


@pytest.fixture(scope="module")
def playbook(collections, state_dir, tmp_path_factory, note, idle):
    """Run a playbook as an operator does; returns (exit status, report of the host, output)."""
    folder = tmp_path_factory.mktemp("run")
    inventory = folder / "hosts.yml"
    inventory.write_text(
        json.dumps(
            {
                "all": {
                    "hosts": {"gpu-host": {"ansible_connection": "local"}},
                    "vars": {
                        "ansible_python_interpreter": sys.executable,
                        "sglang_instance": INSTANCE,
                        "sglang_manager": "process",
                        "sglang_state_dir": str(state_dir),
                        "sglang_python": PYTHON,
                        "sglang_environment": ENVIRONMENT,
                        "sglang_extra_args": ARGUMENTS,
                        "sglang_model_path": TARGET,
                        "sglang_port": PORT,
                        "sglang_gpus": ["0"],
                        "sglang_mem_fraction_static": MEM_FRACTION,
                        "sglang_max_running_requests": 32,
                        "sglang_spec_draft_model_path": DRAFT,
                        "sglang_spec_eagle_topk": 1,
                        "sglang_ready_timeout": 240,
                        "sglang_stop_timeout": 30,
                        "sglang_progress_interval": 5,
                    },
                }
            }
        )
    )

    def run(name, title, **extra):
        report = folder / "report.json"
        if report.exists():
            report.unlink()
        began = time.monotonic()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ansible", "playbook", "-i", str(inventory)),
                *("inferops.sglang." + name, "-e", json.dumps(dict(extra, sglang_report_path=str(report)))),
            ],
            env=dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(collections), COLUMNS="160"),
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=560,
        )
        print(done.stdout)
        host = json.loads(report.read_text())["hosts"][0] if report.exists() else None
        note(title, rc=done.returncode, seconds=round(time.monotonic() - began, 1), report=host)
        return done.returncode, host, done.stdout

    return run


@pytest.fixture(scope="module")
def restart(playbook):
    """Run restart_eagle3."""

    def run(title, **extra):
        return playbook("restart_eagle3", title, **extra)

    return run


@pytest.fixture
def inspect(module, state_dir):
    """The main process as it is now."""

    def look():
        return module(
            "sglang_process", instance=INSTANCE, state="inspected", manager="process", state_dir=str(state_dir)
        )["process"]

    return look


def ask(path, body=None, timeout=60):
    """One request to the server, without any proxy."""
    request = urllib.request.Request(
        "http://127.0.0.1:%d%s" % (PORT, path),
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as answer:
        return json.load(answer)


def running(field="speculative_num_steps"):
    return ask("/server_info")[field]


def generate(tokens=8, timeout=60):
    parameters = {"max_new_tokens": tokens, "ignore_eos": True}
    return ask("/generate", {"text": "Once upon a time", "sampling_params": parameters}, timeout)["meta_info"]


def check_acceptance(report, steps):
    assert report["accept_length"] > 1.2
    if str(steps) in ACCEPT:
        assert report["accept_length"] == pytest.approx(ACCEPT[str(steps)], rel=0.15)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory, idle):
    """A server that somebody started in a shell and left; ended by its PID, if it is still there."""
    log = tmp_path_factory.mktemp("hand") / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [PYTHON, *HAND_STARTED],
            env={**os.environ, **ENVIRONMENT, "CUDA_VISIBLE_DEVICES": "0"},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        try:
            if generate(1):
                break
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def test_1_a_server_that_was_started_by_hand_is_refused_and_goes_on(restart, by_hand):
    rc, report, _output = restart("beside one started by hand", sglang_spec_num_steps=3, sglang_spec_num_draft_tokens=4)
    assert rc != 0 and report["outcome"] == "refused"
    assert "take_over" in report["failure"]
    assert by_hand.poll() is None and generate()


def test_2_it_is_taken_over(restart, by_hand):
    rc, report, output = restart(
        "take it over: 3/1/4", sglang_spec_num_steps=3, sglang_spec_num_draft_tokens=4, sglang_unmanaged="take_over"
    )
    assert rc == 0, output
    assert by_hand.wait(timeout=5) is not None
    assert report["outcome"] == "restarted" and report["effective"] == "EAGLE3 3/1/4"
    assert running() == 3
    check_acceptance(report, 3)


def test_3_what_runs_already_is_left_alone(restart, inspect):
    before = inspect()
    rc, report, output = restart("the same again", sglang_spec_num_steps=3, sglang_spec_num_draft_tokens=4)
    assert rc == 0, output
    assert report["outcome"] == "unchanged" and "changed=0" in output
    assert before == inspect()


def test_4_requests_that_run_are_finished_before_the_restart(restart, note):
    answers = []

    def client():
        answers.append(generate(tokens=4000, timeout=120))

    clients = [threading.Thread(target=client) for _number in range(4)]
    for thread in clients:
        thread.start()
    time.sleep(1)
    rc, report, output = restart(
        "restart to 2/1/3 under load",
        sglang_spec_num_steps=2,
        sglang_spec_num_draft_tokens=3,
        sglang_drain_timeout=60,
    )
    for thread in clients:
        thread.join()
    assert rc == 0, output
    note("requests that ran during the restart", finished=[meta["completion_tokens"] for meta in answers])
    assert [meta["completion_tokens"] for meta in answers] == [4000] * 4
    assert report["stopped"][0] == INSTANCE
    assert report["effective"] == "EAGLE3 2/1/3" and running() == 2
    check_acceptance(report, 2)


def test_5_a_missing_draft_is_refused_and_the_old_server_answers(restart, inspect):
    before = inspect()
    rc, report, output = restart(
        "draft folder missing",
        sglang_spec_draft_model_path=DRAFT + "-missing",
        sglang_spec_num_steps=2,
        sglang_spec_num_draft_tokens=3,
    )
    assert rc != 0 and DRAFT + "-missing" in output
    assert report["outcome"] == "refused"  # before anything was stopped
    assert before == inspect()
    assert generate()


def test_6_another_port_that_is_taken_is_refused_and_the_old_server_answers(restart, inspect):
    before = inspect()
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen(1)
        taken = foreign.getsockname()[1]
        rc, report, output = restart(
            "port taken", sglang_port=taken, sglang_spec_num_steps=2, sglang_spec_num_draft_tokens=3
        )
    assert rc != 0 and report["outcome"] == "refused"
    assert str(taken) in output and str(os.getpid()) in output
    assert before == inspect()
    assert generate()


@pytest.mark.skipif(not BAD_DRAFT, reason="GPU_TEST_BAD_DRAFT names no draft that guesses badly")
def test_7_a_draft_that_guesses_badly_brings_the_old_one_back(restart):
    rc, report, output = restart(
        "wrong draft",
        sglang_spec_draft_model_path=BAD_DRAFT,
        sglang_spec_num_steps=3,
        sglang_spec_num_draft_tokens=4,
        sglang_min_accept_length=1.8,
    )
    assert rc != 0
    assert report["outcome"] == "restored", output
    assert "accept" in report["failure"]
    assert report["effective"] == "EAGLE3 2/1/3" and running() == 2
    check_acceptance(report, 2)


def test_8_back_to_the_release_before(playbook):
    rc, report, output = playbook("rollback", "rollback to the one before")
    assert rc == 0, output
    assert report["outcome"] == "restarted" and report["effective"] == "EAGLE3 3/1/4"
    assert running() == 3
    check_acceptance(report, 3)


def test_9_a_server_killed_while_it_imports_leaves_orphans_that_the_stop_finds(module, state_dir, inspect, note):
    common = {"instance": INSTANCE, "manager": "process", "state_dir": str(state_dir)}
    stopped = module("sglang_process", state="stopped", grace=30, **common)
    assert stopped["changed"] and not stopped.get("failed"), stopped
    free = module("gpu_wait_free", gpus=["0"], timeout=30, stable_for=1)
    assert not free.get("failed")
    with pytest.raises(urllib.error.URLError):
        ask("/health")
    note("stop of the server", ended=stopped["ended"], free_after=free["free_after"], stop=stopped)

    started = module("sglang_process", state="started", **common)["process"]
    children = []
    deadline = time.monotonic() + 90
    while not children and time.monotonic() < deadline:
        time.sleep(0.05)
        children = [pid for pid in children_of(started["pid"]) if b"spawn_main" in command_of(pid)]
    assert children, "no child was seen while it imports"
    os.kill(started["pid"], signal.SIGKILL)
    time.sleep(0.5)
    orphans = [pid for pid in children if command_of(pid)]
    note("killed while its children import", children=children, orphans=orphans)
    again = module("sglang_process", state="stopped", grace=30, **common)
    assert not again.get("failed"), again
    assert [pid for pid in orphans if command_of(pid)] == []
    assert {row["pid"] for row in again["ended"]} >= set(orphans)
    free = module("gpu_wait_free", gpus=["0"], timeout=30, stable_for=1)
    assert not free.get("failed")


def children_of(pid):
    found = []
    for task in pathlib.Path("/proc/%d/task" % pid).glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            pass
    return found


def command_of(pid):
    """The command line, empty where the process is gone or a zombie."""
    try:
        return pathlib.Path("/proc/%d/cmdline" % pid).read_bytes()
    except OSError:
        return b""
