# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure
from ansible_collections.inferops.sglang.plugins.module_utils.modules import gpu_wait_free
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeClock,
    FakeSession,
    listed,
    process,
    reading,
)

HUNG = Failure("hung", "No answer", "Reset it", False)
LOST = Failure("lost", "It is gone", "Reset it", True)
# Processes of this fake host.  Nobody is signalled here, so they need not exist.
PROCESSES = {
    900: process(900, start_time=1),
    901: process(901, start_time=2, user="cache", uid=1001, exe="/opt/cache/weight-cache", argv=("weight-cache",)),
    902: process(902, start_time=3, user="root", uid=0, exe="/usr/lib/xorg/Xorg", argv=("Xorg",), unit="gdm.service"),
}


class FakeProcFs:
    root = "/nowhere"

    def read(self, pid):
        return PROCESSES.get(pid)

    def ancestors(self, pid):
        return [1]

    def hidden(self):
        return ""

    def in_pid_namespace(self):
        return False

    def pids(self):
        return []


@pytest.fixture
def clock(monkeypatch):
    value = FakeClock()
    monkeypatch.setattr(gpu_wait_free, "time", value)
    return value


@pytest.fixture
def host(monkeypatch, clock):
    """A host whose GPUs follow a script: (index, seconds since the start) -> keyword arguments of `reading`."""

    def use(script, count=2):
        began = clock.now
        session = FakeSession(lambda index: reading(index, **script(index, clock.now - began)), count=count)
        monkeypatch.setattr(gpu_wait_free, "open_session", lambda timeout, procfs, reader: session)
        monkeypatch.setattr(gpu_wait_free, "ProcFs", FakeProcFs)
        return session

    return use


def idle(_index, _at):
    return {}


def test_free_gpus_are_watched_for_the_whole_window(host, run_module):
    session = host(idle)
    code, result = run_module(gpu_wait_free, {})
    assert (code, result["changed"], result["free_after"]) == (0, False, 0.0)
    assert result["elapsed"] == pytest.approx(2.0, abs=0.11)
    assert result["samples"] == pytest.approx(101, abs=2)
    assert [g["verdict"] for g in result["gpus"]] == ["free", "free"]
    assert len(result["timeline"]) == 2
    assert session.closed


def release(index, at):
    """GPU 1 is released after 3 s: memory and process go together."""
    return {"used": 30000, "processes": [listed(900, 29000)]} if index == 1 and at < 3 else {}


def test_a_late_release_is_waited_for(host, run_module):
    host(release)
    code, result = run_module(gpu_wait_free, {"stable_for": 5, "interval": 0.5})
    assert code == 0
    assert result["free_after"] == pytest.approx(3.0, abs=0.51)
    assert result["elapsed"] == pytest.approx(result["free_after"] + 5, abs=0.51)
    assert [(c["index"], c["verdict"], c["reason"], c["holders"], c["used_mib"]) for c in result["timeline"]] == [
        (0, "free", "", [], 0),
        (1, "busy", "holder", [900], 30000),
        (1, "free", "", [], 0),
    ]
    assert result["timeline"][2]["at"] == result["free_after"]


def test_one_good_look_is_not_enough(host, run_module):
    # Free for a moment between the old server's end and the supervisor's new one.
    host(lambda _index, at: {} if 1 < at < 2.5 else {"processes": [listed(900)], "used": 700})
    code, result = run_module(gpu_wait_free, {"timeout": 20})
    assert (code, result["reason"]) == (1, "timeout")
    assert result["free_after"] is None


def test_a_timeout_names_each_gpu_and_who_holds_it(host, run_module):
    scripts = [
        {"used": 30000, "processes": [listed(900, 29000)]},
        {"used": 70000},
        {"used": 0},
        {"failure": HUNG, "memory": None},
    ]
    host(lambda index, _at: scripts[index], count=4)
    code, result = run_module(gpu_wait_free, {"timeout": 5})
    assert (code, result["changed"], result["reason"]) == (1, False, "timeout")
    message = result["msg"]
    assert "GPU 0" in message
    assert "PID 900 sglang::scheduler_TP0 of llm with 29000 MiB" in message
    assert "GPU 1" in message
    assert "unattributed" in message
    assert "another container" in message
    assert "GPU 2" not in message
    assert "GPU 3" in message
    assert "hung" in message
    assert [g["verdict"] for g in result["gpus"]] == ["busy", "busy", "free", "unknown"]
    assert result["elapsed"] == pytest.approx(5.0, abs=0.2)


def test_a_hang_that_passes_is_waited_for(host, run_module):
    host(lambda _index, at: {"failure": HUNG} if at < 4 else {})
    code, result = run_module(gpu_wait_free, {})
    assert code == 0
    assert result["free_after"] == pytest.approx(4.0, abs=0.11)


def test_a_lost_gpu_fails_at_once(host, run_module, clock):
    host(lambda index, _at: {"failure": LOST} if index else {})
    code, result = run_module(gpu_wait_free, {})
    assert (code, result["reason"], result["samples"]) == (1, "pointless", 1)
    assert "GPU 1" in result["msg"]
    assert clock.now == 100.0


def xorg(_index, _at):
    return {"used": 90, "processes": [listed(902, 80, kind="graphics")]}


def test_a_protected_holder_fails_soon_and_says_how_to_allow_it(host, run_module):
    host(xorg)
    code, result = run_module(gpu_wait_free, {"timeout": 600, "stable_for": 3})
    assert (code, result["reason"]) == (1, "pointless")
    assert result["elapsed"] == pytest.approx(3.0, abs=0.2)
    assert "Xorg" in result["msg"]
    assert "gdm.service" in result["msg"]
    assert "allow_executables" in result["msg"]


def test_a_protected_holder_that_is_allowed_is_fine(host, run_module):
    host(xorg)
    assert run_module(gpu_wait_free, {"allow_executables": ["Xorg"]})[0] == 0


def cache(_index, _at):
    return {"used": 20000, "processes": [listed(901, 19900)]}


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({}, 1),
        ({"allow_users": ["1001"]}, 1),
        ({"allow_users": ["1001"], "allow_mib": 19743}, 1),
        ({"allow_users": ["1001"], "allow_mib": 19744}, 0),
        ({"allow_executables": ["weight-cache"], "allow_mib": 20000}, 0),
        ({"allow_executables": ["/opt/cache/weight-cache"], "allow_mib": 20000}, 0),
        ({"allow_executables": ["/bin/weight-cache"], "allow_mib": 20000}, 1),
        ({"allow_users": ["1000"], "allow_mib": 20000}, 1),
        ({"max_used_mib": 20000}, 1),  # memory alone: the holder is not allowed
    ],
)
def test_allowed_holders(host, run_module, args, code):
    host(cache)
    assert run_module(gpu_wait_free, {"timeout": 5, **args})[0] == code


def test_an_allowance_does_not_hide_a_foreign_holder(host, run_module):
    host(lambda _index, _at: {"used": 20000, "processes": [listed(901, 19000), listed(900, 500)]})
    code, result = run_module(gpu_wait_free, {"timeout": 5, "allow_users": ["1001"], "allow_mib": 20000})
    assert code == 1
    assert "PID 900" in result["msg"]


def test_only_the_selected_gpus_count(host, run_module):
    host(lambda index, _at: {"used": 70000} if index else {})
    code, result = run_module(gpu_wait_free, {"gpus": ["0"]})
    assert code == 0
    assert [g["index"] for g in result["gpus"]] == [0]


@pytest.mark.parametrize("script", [idle, cache, lambda _index, _at: {"failure": LOST}])
def test_check_mode_looks_once_and_never_fails(host, run_module, clock, script):
    host(script)
    code, result = run_module(gpu_wait_free, {}, check=True)
    assert (code, result["changed"], result["samples"], result["free_after"]) == (0, False, 1, None)
    assert len(result["gpus"]) == 2
    assert len(result["timeline"]) == 2
    assert clock.now == 100.0


@pytest.mark.parametrize(
    ("args", "option"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": -5}, "timeout"),
        ({"stable_for": -1}, "stable_for"),
        ({"timeout": 2, "stable_for": 2}, "stable_for"),
        ({"interval": 0}, "interval"),
        ({"interval": 3}, "interval"),
        ({"max_used_mib": -1}, "max_used_mib"),
        ({"allow_mib": -1}, "allow_mib"),
        ({"allow_users": ["no-such-user"]}, "allow_users"),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_bad_values_are_refused(run_module, monkeypatch, args, option, check):
    monkeypatch.setattr(gpu_wait_free, "open_session", lambda *_args: pytest.fail("opened"))
    code, result = run_module(gpu_wait_free, args, check=check)
    assert (code, result["reason"]) == (1, "option")
    assert result["msg"].startswith(option)


def test_cuda_visible_devices_changes_nothing(host, run_module, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    host(lambda index, _at: {} if index == 0 else {"used": 70000})
    assert run_module(gpu_wait_free, {"gpus": ["0"]})[0] == 0
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
