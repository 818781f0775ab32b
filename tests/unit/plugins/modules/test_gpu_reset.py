# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's own part: options, what is returned when, and that everything comes back after an exception.

What it decides is tested beside its parts, and with real processes in tests/simulated/test_reset_cases.py.
"""

from __future__ import annotations

import os
import signal

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_drm
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.modules import gpu_reset
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeClock,
    FakeSession,
    listed,
    process,
    reading,
    uuid,
)

PROCESSES = {900: process(900, user="alice", unit="sglang-main.service")}
LINE = "/usr/bin/nvidia-smi --gpu-reset -i "


class FakeProcFs:
    root = "/nowhere"

    def read(self, pid):
        return PROCESSES.get(pid)

    def ancestors(self, pid):
        return [1]

    def in_pid_namespace(self):
        return False

    def hidden(self):
        return ""

    def environ(self, pid):
        return {}

    def pids(self):
        return []


class Session(FakeSession):
    """A session that can be closed and asked for traits."""

    fabric = "not_supported"

    def close(self):
        self.closed = True

    def traits(self, indices):
        return tuple(
            GpuTraits(i, "hopper", links_read=True, virtualization="none", fabric=self.fabric) for i in indices
        )


class World:
    """A host that runs commands by table: answers by the beginning of the command line."""

    def __init__(self):
        self.calls = []
        self.answers = {}
        self.units = ""
        self.gpus = {}
        self.count = 2
        self.sessions = []

    def run(self, argv, timeout, input="", env=None, inherit=True):
        line = " ".join(argv)
        if line.startswith("systemctl list-units"):
            return Completed(0, out=self.units)
        if line.startswith("systemctl show"):
            stopped = line.split()[-1] in self.stopped
            return Completed(0, out="ActiveState=%s\n" % ("inactive" if stopped else "active"))
        self.calls.append(line)
        answer = next((value for key, value in self.answers.items() if line.startswith(key)), Completed(0))
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    @property
    def stopped(self):
        state = {}
        for line in self.calls:
            words = line.split()
            if words[0] == "systemctl":
                state[words[2]] = words[1]
        return [name for name, verb in state.items() if verb == "stop"]

    def open(self, *_arguments):
        session = Session(lambda index: reading(index, **self.gpus.get(index, {})), count=self.count)
        self.sessions.append(session)
        return session


@pytest.fixture
def world(monkeypatch, tmp_path):
    value, clock = World(), FakeClock()
    monkeypatch.setattr(gpu_reset, "run_command", value.run)
    monkeypatch.setattr(gpu_reset, "open_session", value.open)
    monkeypatch.setattr(gpu_reset, "find_nvidia_smi", lambda: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(gpu_reset, "ProcFs", FakeProcFs)
    monkeypatch.setattr(gpu_reset, "time", clock)
    monkeypatch.setattr(gpu_reset.os, "geteuid", lambda: 0)
    monkeypatch.setattr(reset_drm, "ROOT", str(tmp_path))
    for index in range(2):
        value.gpus[index] = {"persistence_mode": "disabled"}
    return value


@pytest.fixture
def reset(world, run_module):
    def run(check=False, diff=False, **arguments):
        return run_module(gpu_reset, {"allocation_test": "never", **arguments}, check=check, diff=diff)

    return run


KEYS = {
    *("changed", "reader", "driver_version", "nvml_version", "selected", "gpus", "holders", "uninspected"),
    *("decisions", "plan", "blockers", "command", "resettable", "resets", "stopped", "restored", "reboot_needed"),
    *("drain_needed", "health", "allocations", "elapsed"),
}


def test_nothing_is_needed(world, reset):
    code, result = reset()
    assert code == 0 and not result["changed"] and set(result) - {"invocation"} == KEYS
    assert [row["action"] for row in result["decisions"]] == ["leave", "leave"] and result["command"] == ""
    assert world.calls == [] and world.sessions[0].closed


def test_a_reset(world, reset):
    world.units = "nvidia-dcgm.service loaded active running DCGM\n"
    world.gpus[1]["recovery_action"] = "reset"
    world.answers["/usr/bin/nvidia-smi --gpu-reset"] = lambda: (
        world.gpus[1].update(recovery_action="none") or Completed(0)
    )
    code, result = reset(diff=True)
    assert code == 0 and result["changed"] and set(result) - {"invocation", "diff"} == KEYS
    assert world.calls == ["systemctl stop nvidia-dcgm.service", LINE + uuid(1), "systemctl start nvidia-dcgm.service"]
    assert result["resets"][0]["done"] == [uuid(1)] and result["resettable"] == [uuid(1)]
    assert result["restored"] == [{"kind": "unit", "target": "nvidia-dcgm.service", "ok": True, "message": "started"}]
    # The reader itself holds the GPUs, so it was closed, and another one looked afterwards.
    assert len(world.sessions) == 2 and world.sessions[0].closed
    assert result["diff"]["before"].count("wanted") == 1 and "wanted" not in result["diff"]["after"]


def test_check_mode_returns_the_plan_and_the_blockers_and_touches_nothing(world, reset):
    world.gpus[0]["processes"] = (listed(900),)
    world.gpus[0]["used"] = 1000
    code, result = reset(check=True, when="always")
    assert code == 0 and not result["changed"] and set(result) - {"invocation"} == KEYS
    assert [(row["code"], row["pid"], row["instance"]) for row in result["blockers"]] == [("server", 900, "main")]
    assert [step["action"] for step in result["plan"]] == ["reset", "prove"]
    code, result = reset(check=True, when="always", gpus=["1"])
    assert code == 0 and result["changed"] and result["blockers"] == []
    assert world.calls == []


def test_blockers_fail_the_task(world, reset):
    world.gpus[0]["mig_mode"] = "enabled"
    code, result = reset(when="always")
    assert code == 1 and result["reason"] == "mig" and result["msg"].startswith("Nothing was touched")
    assert world.calls == []


def test_an_exception_in_the_middle_puts_everything_back(world, reset):
    world.units = "nvidia-dcgm.service loaded active running DCGM\n"
    world.gpus[0]["persistence_mode"] = "enabled"
    world.answers["/usr/bin/nvidia-smi --gpu-reset"] = RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        reset(when="always", gpus=["0"])
    assert world.calls[-2:] == ["systemctl start nvidia-dcgm.service", "/usr/bin/nvidia-smi -pm 1 -i " + uuid(0)]


def test_a_signal_in_the_middle_is_noted_and_everything_comes_back(world, reset):
    before = signal.getsignal(signal.SIGTERM)
    world.units = "nvidia-dcgm.service loaded active running DCGM\nnvsm.service loaded active running NVSM\n"
    world.answers["systemctl stop nvsm"] = lambda: os.kill(os.getpid(), signal.SIGTERM) or Completed(0)
    code, result = reset(when="always", gpus=["0"])
    assert code == 1 and result["reason"] == "interrupted" and result["resets"] == []
    assert world.calls == ["systemctl stop nvsm.service", "systemctl start nvsm.service"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_number_of_gpus_afterwards_is_told(world, reset):
    world.answers["/usr/bin/nvidia-smi --gpu-reset"] = lambda: setattr(world, "count", 1) or Completed(0)
    code, result = reset(when="always", gpus=["0"])
    assert code == 1 and result["reason"] == "unhealthy" and "had 2 GPUs before and has 1" in result["msg"]


def test_a_gpu_on_its_way_into_the_fabric_is_waited_for(world, reset, monkeypatch):
    looks = []

    def traits(self, indices):
        looks.append(1)
        fabric = "completed" if len(looks) in (1, 5) else "in_progress"
        return tuple(GpuTraits(i, "hopper", links_read=True, fabric=fabric) for i in indices)

    monkeypatch.setattr(Session, "traits", traits)
    code, result = reset(when="always", gpus=["0"], settle_timeout=10)
    assert code == 0 and len(looks) == 5 and result["health"] == []
    monkeypatch.setattr(Session, "fabric", "not_started")
    monkeypatch.setattr(
        Session, "traits", lambda self, indices: tuple(GpuTraits(i, "hopper", fabric="not_started") for i in indices)
    )
    code, result = reset(when="always", gpus=["0"], settle_timeout=3)
    assert code == 1 and result["reason"] == "unhealthy" and "fabric manager" in result["msg"]


def test_a_driver_that_cannot_be_asked_afterwards(world, reset, monkeypatch):
    def broken(*_arguments):
        raise GpuError(Failure("driver_not_loaded", "It is not loaded", "Load it"))

    world.answers["/usr/bin/nvidia-smi --gpu-reset"] = lambda: (
        monkeypatch.setattr(gpu_reset, "open_session", broken) or Completed(0)
    )
    code, result = reset(when="always", gpus=["0"])
    assert code == 1 and result["reason"] == "driver_not_loaded" and result["changed"]


def test_a_new_holder_after_the_plan_is_respected(world, reset):
    world.units = "nvidia-dcgm.service loaded active running DCGM\n"
    world.answers["systemctl stop"] = lambda: world.gpus[0].update(processes=(listed(900),)) or Completed(0)
    code, result = reset(when="always", gpus=["0"])
    assert code == 1 and result["reason"] == "server" and result["resets"] == []
    assert world.calls == ["systemctl stop nvidia-dcgm.service", "systemctl start nvidia-dcgm.service"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("reset_timeout", 0),
        ("service_timeout", -1),
        ("settle_timeout", 0),
        ("allocation_timeout", 0),
        ("stop_units", ["*"]),
        ("stop_units", [" "]),
        ("keep_units", [""]),
        ("gpus", ["MIG-00000000-0000-0000-0000-000000000000"]),
        ("expected_count", 0),
    ],
)
def test_values_that_cannot_be(reset, world, option, value):
    code, result = reset(**{option: value})
    assert code == 1 and result["reason"] == "option" and option in result["msg"] and world.sessions == []


def test_without_root_and_without_nvidia_smi(world, reset, monkeypatch):
    monkeypatch.setattr(gpu_reset.os, "geteuid", lambda: 1000)
    assert reset(when="always")[1]["reason"] == "not_root"

    def missing():
        raise GpuError(Failure("nvidia_smi_missing", "It is not installed", "Install it", True))

    monkeypatch.setattr(gpu_reset, "find_nvidia_smi", missing)
    assert reset(when="always")[1]["reason"] == "nvidia_smi_missing"
    # Where nothing is to be reset, nobody needs it.
    assert reset()[0] == 0


@pytest.mark.parametrize(
    ("wish", "outcome", "code", "reason"),
    [
        ("auto", "passed", 0, None),
        ("auto", "absent", 0, None),
        ("required", "absent", 1, "allocation_failed"),
        ("auto", "failed", 1, "allocation_failed"),
    ],
)
def test_the_allocation(world, reset, monkeypatch, wish, outcome, code, reason):
    asked = []

    def allocate(uuid, timeout):
        asked.append((uuid, timeout))
        return gpu_reset.reset_allocation.Allocation(uuid, outcome, "words")

    monkeypatch.setattr(gpu_reset.reset_allocation, "allocate_on", allocate)
    got, result = reset(when="always", allocation_test=wish, allocation_timeout=7)
    assert (got, result.get("reason")) == (code, reason)
    # Where the library is absent, the second GPU has none either.
    assert asked == [(uuid(0), 7.0), (uuid(1), 7.0)][: 1 if outcome == "absent" else 2]


def test_a_fabric_manager_that_was_restarted_for_nothing_is_told(world, reset, monkeypatch):
    world.units = "nvidia-fabricmanager.service loaded active running FM\n"
    monkeypatch.setattr(
        Session,
        "traits",
        lambda self, indices: tuple(GpuTraits(i, "hopper", (), True, links_read=True) for i in indices),
    )
    world.answers["/usr/bin/nvidia-smi --gpu-reset"] = Completed(3, out="GPU 00000000:01:00.0: Not Supported")
    code, result = reset(when="always", fabric_manager="stop")
    assert code == 1 and result["reason"] == "not_supported" and "NVLS" in result["msg"]
    assert world.calls[-1] == "systemctl start nvidia-fabricmanager.service"
    assert reset(when="always", gpus=["0"], fabric_manager="stop")[1]["reason"] == "fabric_manager"
