# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""restart_eagle3 with a real SGLang: one story, told in order; each step needs the one before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

PYTHON = os.environ.get("GPU_TEST_SGLANG_PYTHON")
TARGET, DRAFT = os.environ.get("GPU_TEST_TARGET"), os.environ.get("GPU_TEST_DRAFT")
ENVIRONMENT = json.loads(os.environ.get("GPU_TEST_SGLANG_ENV", "{}"))
ARGUMENTS = json.loads(os.environ.get("GPU_TEST_SGLANG_ARGS", "[]"))
MEM_FRACTION = float(os.environ.get("GPU_TEST_MEM_FRACTION", "0.2"))
ACCEPT = json.loads(os.environ.get("GPU_TEST_ACCEPT", "{}"))
PORT = 30117
INSTANCE = "gputest"

pytestmark = pytest.mark.skipif(
    not (PYTHON and TARGET and DRAFT),
    reason="GPU_TEST_SGLANG_PYTHON, GPU_TEST_TARGET and GPU_TEST_DRAFT name no SGLang to test with",
)


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory, module):
    """The instance's folder; what runs at the end is stopped by the module that started it."""
    folder = tmp_path_factory.mktemp("state")
    yield folder
    module("sglang_process", instance=INSTANCE, state="stopped", state_dir=str(folder), grace=30)


@pytest.fixture(scope="module")
def restart(collections, state_dir, tmp_path_factory, note, idle):
    """Run the playbook as an operator does; returns (exit status, report of the host, output)."""
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
                    },
                }
            }
        )
    )

    def run(title, **extra):
        report = folder / "report.json"
        if report.exists():
            report.unlink()
        began = time.monotonic()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ansible", "playbook", "-i", str(inventory)),
                *("inferops.sglang.restart_eagle3", "-e", json.dumps(dict(extra, sglang_report_path=str(report)))),
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


def ask(path, body=None):
    """One request to the server, without any proxy."""
    request = urllib.request.Request(
        "http://127.0.0.1:%d%s" % (PORT, path),
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.load(answer)


def running(field="speculative_num_steps"):
    return ask("/server_info")[field]


def generate():
    return ask("/generate", {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 8}})["text"]


def check_acceptance(report, steps):
    assert report["accept_length"] > 1.2
    if str(steps) in ACCEPT:
        assert report["accept_length"] == pytest.approx(ACCEPT[str(steps)], rel=0.15)


def test_1_first_deployment_with_three_steps(restart):
    rc, report, output = restart("deploy 3/1/4", sglang_spec_num_steps=3, sglang_spec_num_draft_tokens=4)
    assert rc == 0, output
    assert report["outcome"] == "restarted" and report["effective"] == "EAGLE3 3/1/4"
    assert running() == 3
    check_acceptance(report, 3)


def test_2_restart_to_two_steps(restart):
    rc, report, output = restart("restart to 2/1/3", sglang_spec_num_steps=2, sglang_spec_num_draft_tokens=3)
    assert rc == 0, output
    assert report["stopped"][0] == INSTANCE
    assert report["effective"] == "EAGLE3 2/1/3" and running() == 2
    check_acceptance(report, 2)


def test_3_restart_without_speculation(restart):
    rc, report, output = restart("restart to none", sglang_spec_algorithm="none")
    assert rc == 0, output
    assert report["effective"] == "no speculation" and report["accept_length"] is None
    assert running("speculative_algorithm") is None


def test_4_a_missing_draft_is_refused_and_the_old_server_answers(restart, module, state_dir):
    before = module("sglang_process", instance=INSTANCE, state="inspected", state_dir=str(state_dir))["process"]
    rc, report, output = restart(
        "draft folder missing",
        sglang_spec_draft_model_path=DRAFT + "-missing",
        sglang_spec_num_steps=2,
        sglang_spec_num_draft_tokens=3,
    )
    assert rc != 0 and DRAFT + "-missing" in output
    assert report is None  # refused before anything was stopped
    after = module("sglang_process", instance=INSTANCE, state="inspected", state_dir=str(state_dir))["process"]
    assert (before["pid"], before["start_ticks"]) == (after["pid"], after["start_ticks"])
    assert generate()


def test_5_one_that_dies_at_its_start_brings_the_old_one_back(restart):
    rc, report, output = restart(
        "too little memory for the weights",
        sglang_spec_num_steps=2,
        sglang_spec_num_draft_tokens=3,
        sglang_mem_fraction_static=0.001,
    )
    assert rc != 0
    assert report["outcome"] == "restored", output
    assert report["effective"] == "no speculation"
    assert "memory" in report["failure"].lower()
    assert running("speculative_algorithm") is None
    assert generate()


def test_6_after_the_stop_the_gpu_is_free(module, state_dir, note):
    stopped = module("sglang_process", instance=INSTANCE, state="stopped", state_dir=str(state_dir), grace=30)
    assert stopped["changed"]
    free = module("gpu_wait_free", gpus=["0"], timeout=30, stable_for=1)
    assert not free.get("failed")
    with pytest.raises(urllib.error.URLError):
        ask("/health")
    note("stop of the server", ended=stopped["ended"], free_after=free["free_after"])
