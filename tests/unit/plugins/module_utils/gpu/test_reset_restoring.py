# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stopping what is in the way, and putting it back."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_drm
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_plan import Command, Plan
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_restoring import CannotPrepare, Preparation
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_units import Unit, Units
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed

DCGM = Unit("nvidia-dcgm.service", "dcgm")
NVSM = Unit("nvsm.service", "nvsm")
PERSISTENCED = Unit("nvidia-persistenced.service", "persistenced")
PLAN = Plan((0,), (Command(("GPU-a",)),), (NVSM, DCGM), (PERSISTENCED,), ("GPU-a",), True)
ALL = (NVSM, DCGM, PERSISTENCED)


class World:
    """systemd, nvidia-smi and the kernel, in one list of what was done; fails at what it is told to."""

    def __init__(self, *failing, drags=()):
        self.done = []
        self.failing = failing
        self.active = {unit.name for unit in ALL}
        self.drags = drags
        self.events = []

    def run(self, argv, timeout, input="", env=None):
        line = " ".join(argv)
        name = argv[-1]
        if argv[1:2] == ("show",):
            return Completed(0, out="ActiveState=%s\n" % ("active" if name in self.active else "inactive"))
        self.done.append(line)
        if line in self.failing:
            return Completed(1, err="it fails")
        if "stop" in argv:
            self.active -= {name, *self.drags}
        if "start" in argv:
            self.active.add(name)
        return Completed(0)

    def tool(self, arguments, timeout):
        return self.run(("nvidia-smi", *arguments), timeout)

    # -- as an audit log

    def event(self, action, target, evidence):
        world = self

        class Event:
            outcome = detail = ""

            def __enter__(self):
                return self

            def __exit__(self, *_exc):
                world.events.append((action, target, self.outcome))

        return Event()


@pytest.fixture
def prepared(monkeypatch, tmp_path):
    """Prepares a world for a plan: the preparation, and why it failed."""
    monkeypatch.setattr(reset_drm, "ROOT", str(tmp_path))

    def prepare(world, plan=PLAN, still=(PERSISTENCED.name,), go=lambda: True):
        preparation = Preparation(Units(world.run), world.run, world.tool, world, 5.0)
        try:
            preparation.prepare(plan, ALL, lambda: still, go)
        except CannotPrepare as exc:
            return preparation, str(exc)
        return preparation, ""

    return prepare


STOPS = ["systemctl stop nvsm.service", "systemctl stop nvidia-dcgm.service", "nvidia-smi -pm 0 -i GPU-a"]
STARTS = ["systemctl start nvidia-dcgm.service", "systemctl start nvsm.service", "nvidia-smi -pm 1 -i GPU-a"]
ALL_STOPS = [*STOPS, "systemctl stop nvidia-persistenced.service", "rmmod nvidia_drm"]
ALL_STARTS = ["modprobe nvidia_drm", "systemctl start nvidia-persistenced.service", *STARTS]


def test_all_of_it_and_back(prepared):
    world = World()
    preparation, problem = prepared(world)
    assert problem == "" and world.done == ALL_STOPS
    assert preparation.restore() == [] and world.done == ALL_STOPS + ALL_STARTS
    assert [(entry.kind, entry.ok) for entry in preparation.stopped] == [
        *[("unit", True)] * 2,
        ("persistence_mode", True),
        ("unit", True),
        ("kernel_module", True),
    ]
    assert all(entry.ok for entry in preparation.restored) and len(preparation.restored) == 5
    assert world.events[0] == ("stop", {"unit": "nvsm.service"}, "done")
    assert world.events[2] == ("driver_setting", {"gpu": "GPU-a"}, "done")
    assert world.events[5] == ("driver_setting", {"kernel_module": "nvidia_drm"}, "done")
    # A second time there is nothing left to put back.
    before = list(world.done)
    preparation.restore()
    assert [line for line in world.done if line not in before] == []


def test_a_daemon_that_has_let_go_is_not_stopped(prepared):
    world = World()
    preparation, _problem = prepared(world, still=())
    assert "systemctl stop nvidia-persistenced.service" not in world.done
    preparation.restore()
    assert "systemctl start nvidia-persistenced.service" not in world.done


@pytest.mark.parametrize("number", range(5))
def test_what_was_stopped_before_a_failure_comes_back_and_so_does_what_failed(prepared, number):
    world = World(ALL_STOPS[number])
    preparation, problem = prepared(world)
    assert problem and world.done == ALL_STOPS[: number + 1]
    del world.done[:]
    assert preparation.restore() == []
    undone = {
        "rmmod nvidia_drm": "modprobe nvidia_drm",
        **{line: line.replace("stop", "start").replace("-pm 0", "-pm 1") for line in ALL_STOPS[:4]},
    }
    assert sorted(world.done) == sorted(undone[line] for line in ALL_STOPS[: number + 1])
    assert world.active == {unit.name for unit in ALL}


@pytest.mark.parametrize("line", ALL_STARTS)
def test_one_that_does_not_come_back_keeps_no_other(prepared, line):
    world = World(line)
    preparation, _problem = prepared(world)
    problems = preparation.restore()
    assert len(problems) == 1 and line in problems[0]
    assert world.done == ALL_STOPS + ALL_STARTS
    assert [entry.ok for entry in preparation.restored].count(False) == 1


def test_what_a_stop_has_dragged_along_is_started_too(prepared):
    world = World(drags=(PERSISTENCED.name,))
    preparation, _problem = prepared(world, still=())
    preparation.restore()
    assert world.done[-1] == "systemctl start nvidia-persistenced.service"


def test_nothing_is_started_where_no_unit_was_touched(prepared):
    world = World()
    world.active = set()
    preparation, _problem = prepared(world, Plan((0,), (Command(("GPU-a",)),), persistence=("GPU-a",)))
    preparation.restore()
    assert world.done == ["nvidia-smi -pm 0 -i GPU-a", "nvidia-smi -pm 1 -i GPU-a"]


def test_told_to_end_it_stops_nothing_more(prepared):
    answers = iter([True, True, False])
    world = World()
    preparation, problem = prepared(world, go=lambda: next(answers))
    assert "told to end" in problem and world.done == STOPS[:2]
    preparation.restore()
    assert world.active == {unit.name for unit in ALL}
