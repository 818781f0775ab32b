# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SGLang modules on real processes: stand-in servers on simulated GPUs, without a service manager."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import stat

import pytest

from .server import EAGLE3, succeeded
from .waiting import is_alive, wait_until

NONE = {"speculative_algorithm": "none"}


def holders(host):
    """Names and PIDs of those who hold memory, by index of the GPU."""
    info = host.module("gpu_info")
    index = {row["uuid"]: row["index"] for row in info["gpus"]}
    return {index[uuid]: (row["name"], row["pid"]) for row in info["holders"] for uuid in row["gpus"]}


# ---- the whole chain


def test_eagle3_is_started_proven_and_replaced_by_a_server_without_it(host, server):
    started = server.go(tp_size=2, **EAGLE3)
    assert started["changed"] and started["process"]["running"]
    ready = server.prove()["sglang"]
    # 0.8 of the draft tokens are accepted: 1 + 0.8 + 0.8 ** 2 + 0.8 ** 3 tokens for each verification.
    assert ready["accept_length"] == pytest.approx(2.952, abs=0.1)
    assert ready["pid"] == started["process"]["pid"]
    assert (ready["mismatches"], ready["adjusted"], ready["version"]) == ([], {}, "0.5.17")
    for field in (*EAGLE3, "tp_size", "model_path", "speculative_draft_model_path"):
        assert ready["requested"][field] == ready["effective"][field]
    assert ready["effective"]["speculative_num_steps"] == 3
    assert {index: name for index, (name, _pid) in holders(host).items()} == {
        0: "sglang::scheduler_TP0",
        1: "sglang::scheduler_TP1",
    }

    again = server.start()
    assert again["changed"] is False and again["process"] == started["process"]

    checked = succeeded(server.preflight(tp_size=2, **dict(EAGLE3, **NONE)))
    assert checked["sglang"]["running"]["pid"] == started["process"]["pid"]
    assert checked["sglang"]["has_last_good"] is True
    stopped = server.stop()
    assert [(row["pid"], row["role"], row["action"]) for row in stopped["ended"][:1]] == [
        (started["process"]["pid"], "main", "terminated")
    ]
    assert holders(host) == {}

    present = server.present(checked)
    assert present["release"]["restart_needed"] and present["release"]["id"] != present["release"]["last_good_id"]
    server.start()
    plain = server.prove()["sglang"]
    assert (plain["accept_length"], plain["spec_verify_ct"]) == (None, 0)
    assert plain["effective"]["speculative_algorithm"] is None
    assert plain["release"] == present["release"]["id"]


def test_a_release_that_failed_is_replaced_by_the_one_that_was_proven_last(server):
    server.go(**EAGLE3)
    good = server.prove()["sglang"]
    server.stop()
    server.go(environment={"STANDIN_ACCEPT": "1.0"}, **dict(EAGLE3, speculative_num_steps=5))
    failed = server.wait()
    assert failed["failed"] and failed["reason"] == "low_acceptance"
    assert "accept" in failed["msg"] and failed["sglang"]["accept_length"] == 1.0
    assert failed["sglang"]["release"] != good["release"]
    server.stop()
    restored = succeeded(server.module("sglang_release", state="restored"))
    assert restored["changed"] and restored["release"]["id"] == good["release"]
    succeeded(server.start())
    back = succeeded(server.wait())["sglang"]
    assert (back["release"], back["effective"]) == (good["release"], good["effective"])
    assert back["accept_length"] == good["accept_length"]


# ---- the preflight, while a server runs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        # Everything that is wrong is said at once.
        (
            {
                "speculative_algorithm": "EAGLE3",
                "speculative_draft_model_path": "/nowhere/draft",
                "speculative_num_steps": 3,
                "tp_size": 8,
                "environment": {"SGLANG_SIMULATE_ACC_LEN": "3"},
            },
            [
                "/nowhere/draft",
                "speculative_num_steps",
                "speculative_eagle_topk",
                "tp_size 8",
                "the host has 4",
                "SGLANG_SIMULATE_ACC_LEN",
            ],
        ),
        ({"speculative_draft_model_path": "DRAFT"}, ["speculative_draft_model_path", "speculative_algorithm"]),
        ({"extra_args": ["--no-such-option"]}, ["SGLang 0.5.17 refuses", "--no-such-option"]),
    ],
    ids=["many", "draft-without-algorithm", "unknown-argument"],
)
def test_a_refused_configuration_leaves_the_running_server_alone(standing, options, words):
    before, files = standing.identity(), standing.files()
    options = {name: standing.draft if value == "DRAFT" else value for name, value in options.items()}
    result = standing.preflight(**options)
    assert result["failed"] and result["changed"] is False
    for word in words:
        assert word in result["msg"]
    assert before is not None and standing.identity() == before
    assert standing.request("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 16}}) == 200
    assert standing.files() == files


def test_a_port_that_somebody_else_listens_on_is_refused_and_names_him(standing):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        result = standing.preflight(port=port, **EAGLE3)
    assert result["failed"]
    assert "port %d is taken" % port in result["msg"] and "PID %d " % os.getpid() in result["msg"]
    assert standing.request("/health") == 200
    # Its own port is no obstacle.
    succeeded(standing.preflight(tp_size=2, **EAGLE3))


# ---- a server that does not get ready


@pytest.mark.parametrize(("tp_size", "reason"), [(1, "not_enough_memory"), (2, "memory_unbalanced")])
def test_a_gpu_that_a_stranger_holds_fails_the_start_at_once(host, server, tp_size, reason):
    stranger = host.hold(0, 30000)
    # Long enough for the start itself to see a live process.
    server.go(tp_size=tp_size, environment={"STANDIN_IMPORT_SECONDS": "0.7"})
    result = server.wait()
    assert result["failed"] and result["reason"] == reason and result["phase"] != "warming_up"
    assert result["waited"] < 10
    assert any("memory" in line.lower() for line in result["log_tail"])
    assert is_alive(stranger["pid"])


def test_a_server_that_dies_in_its_warm_up_is_noticed_at_once(server):
    server.go(environment={"STANDIN_DIE_IN_WARMUP": "true", "STANDIN_WARMUP_SECONDS": "1"})
    result = server.wait()
    assert result["failed"] and result["phase"] == "warming_up" and result["waited"] < 10
    assert "died" in result["msg"]
    assert result["reason"] == "warmup_failed"
    assert any("warmup error" in line for line in result["log_tail"])


def test_a_server_that_never_gets_ready_fails_at_the_timeout(server):
    server.go(environment={"STANDIN_NEVER_READY": "true"})
    wait_until(lambda: server.request("/health") == 503)
    result = server.wait(timeout=1)
    assert result["failed"] and (result["reason"], result["phase"]) == ("timeout", "warming_up")
    assert "warming_up" in result["msg"] and "timeout" in result["msg"]
    assert 1 <= result["waited"] < 4
    assert server.identity() is not None


def test_a_server_that_says_it_is_healthy_and_hangs_is_not_ready(server):
    server.go(environment={"STANDIN_HANG_AFTER_REQUESTS": "1"})
    second, first = (server.wait(request_timeout=0.3) for _again in range(2))
    for result in (first, second):
        assert result["failed"] and (result["reason"], result["phase"]) == ("generation_timeout", "generating")
    assert server.request("/health") == 200
    # Where its second generation hung it had been ready, where the first one did it never was.
    assert second["sglang"]["ready_after"] > 0 and first["sglang"]["ready_after"] is None


def test_a_server_that_runs_with_something_else_is_not_proven(server):
    override = {"speculative_num_steps": 2, "max_running_requests": 48}
    server.go(environment={"STANDIN_EFFECTIVE_OVERRIDE": json.dumps(override)}, **EAGLE3)
    result = server.wait()
    assert result["failed"] and result["reason"] == "config_mismatch"
    assert [(row["field"], row["expected"], row["actual"]) for row in result["sglang"]["mismatches"]] == [
        ("speculative_num_steps", 3, 2)
    ]
    assert "speculative_num_steps is 2 instead of 3" in result["msg"]


# ---- broken files


@contextlib.contextmanager
def broken(path, text):
    """A file with another content, for a while."""
    before = path.read_bytes()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("text", ['{"pid": 47', '{"pid": 1}\n'])
def test_a_broken_pid_file_is_named_and_ends_nothing(standing, text):
    before = standing.identity()
    with broken(standing.pid_file, text):
        results = [
            standing.module("sglang_process", state="stopped", grace=0),
            standing.module("sglang_process", state="started"),
            standing.wait(timeout=5),
        ]
        assert standing.pid_file.read_text() == text
    for result in results:
        assert result["failed"] and str(standing.pid_file) in result["msg"] and not result.get("changed")
    assert before is not None and standing.identity() == before


def test_a_broken_release_is_named_and_nothing_is_overwritten(standing):
    before = standing.identity()
    path = standing.instance_dir / "current" / "release.json"
    checked = succeeded(standing.preflight(tp_size=2, **EAGLE3))
    with broken(path, '{"format": 1, "id": '):
        files = standing.files()
        results = [
            standing.present(checked),
            standing.module("sglang_release", state="proven"),
            standing.start(),
            standing.wait(timeout=5),
            standing.preflight(**EAGLE3),
        ]
        assert standing.files() == files
    for result in results:
        assert result["failed"] and "current/release.json" in result["msg"]
    assert before is not None and standing.identity() == before


# ---- secrets and stubborn servers


def test_a_key_reaches_the_server_and_nobody_else(server):
    key = "kq-3f9a77d1c05e"
    started = server.go(secret_args={"api-key": key}, **EAGLE3)
    ready = server.prove()
    assert ready["sglang"]["accept_length"] > 2
    assert [server.request("/v1/models", key=given) for given in (None, "other", key)] == [401, 401, 200]
    (file,) = (server.folder / "etc_dir" / "main").iterdir()
    assert key in file.read_text() and stat.S_IMODE(file.stat().st_mode) == 0o400
    shown = {int(path.parent.name): command_line(path) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")}
    assert str(file).encode() in shown[started["process"]["pid"]]
    assert not [pid for pid, line in shown.items() if key.encode() in line]

    refused = server.wait(api_key="another-key")
    assert refused["failed"] and refused["reason"] == "unauthorized"
    # The log has it: in SGLang's own line with all its arguments, and wherever else somebody may write it.
    assert key in server.log_file.read_text()
    with server.log_file.open("a") as log:
        log.write("a line that ends with %s\n" % key)
    failed = server.wait(expected={"speculative_num_steps": 7})
    assert failed["reason"] == "config_mismatch"
    assert any("a line that ends with" in line for line in failed["log_tail"])
    server.stop()
    assert key not in json.dumps(server.results)


def command_line(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace(host, server):
    server.go(tp_size=2, environment={"STANDIN_IGNORE_TERM": "true"})
    succeeded(server.wait())
    workers = [pid for _name, pid in holders(host).values()]
    assert len(workers) == 2
    result = server.stop(grace=0.5)
    main = result["ended"][0]
    assert (main["role"], main["action"], main["signals"]) == ("main", "killed", ["SIGTERM", "SIGKILL"])
    assert 0.5 <= main["seconds"] < 5
    assert not any(is_alive(pid) for pid in (main["pid"], *workers))
    assert holders(host) == {}
