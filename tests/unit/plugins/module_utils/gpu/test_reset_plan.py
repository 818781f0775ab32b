# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps GPUs from being reset, and what is planned where nothing does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_blockers import Choices, Host, instance_by_name
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_drm import Drm
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_needs import need_of
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_peers import Links
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_plan import plan_reset, targets_of
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits, bus_id
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_units import Unit
from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import container_of
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    holder,
    identity,
    reading,
    uuid,
)

DCGM = Unit("nvidia-dcgm.service", "dcgm")
NVSM = Unit("nvsm.service", "nvsm")
IMEX = Unit("nvidia-imex.service", "imex")
FM = Unit("nvidia-fabricmanager.service", "fabric_manager")
PERSISTENCED = Unit("nvidia-persistenced.service", "persistenced")
DOCKER = "/system.slice/docker-" + "a" * 64 + ".scope"


def host(*readings, holders=(), units=(), when="always", traits=None, manager=True, held=False, **changes):
    """A host with these GPUs, all of which are selected and without links unless traits say so."""
    readings = readings or (reading(0),)
    known = {r.index: GpuTraits(r.index, "hopper", links_read=True) for r in readings}
    known.update(traits or {})
    buses = {index: bus_id(identity(index).pci_bus_id) for index in known}
    needs = {r.index: need_of(r, held, when) for r in readings}
    return Host(readings, tuple(holders), needs, Links(known, buses, manager), tuple(units), **changes)


def plan(found, keep=(), more=(), **choices):
    """The plan with these choices; more: readings of GPUs that are not selected."""
    readings = {r.index: r for r in (*found.readings, *more)}
    return plan_reset(found, readings, Choices(**choices), keep)


def codes(made):
    return [blocker.code for blocker in made.blockers]


def steps(made):
    return [(step.action, step.target) for step in made.steps]


# ---- what is planned


def test_an_idle_gpu_is_reset_and_nothing_else_is_touched():
    made = plan(host(reading(0, persistence_mode="disabled"), reading(1, persistence_mode="disabled")))
    assert made.line == "nvidia-smi --gpu-reset -i %s,%s" % (uuid(0), uuid(1)) and codes(made) == []
    assert [action for action, _target in steps(made)] == ["reset", "prove"]


def test_everything_that_is_stopped_comes_back_in_reverse():
    daemons = [holder(50, (), attached=(0,), unit="nvidia-imex.service", exe="/usr/bin/nvidia-imex", uid=0)]
    made = plan(
        host(holders=daemons, units=(NVSM, DCGM, IMEX, FM, PERSISTENCED), drm=Drm(True, "on")), nvidia_drm="unload"
    )
    assert codes(made) == []
    assert steps(made) == [
        ("stop_unit", "nvsm.service"),
        ("stop_unit", "nvidia-dcgm.service"),
        ("stop_unit", "nvidia-imex.service"),
        ("persistence_off", uuid(0)),
        ("stop_unit_if_still_open", "nvidia-persistenced.service"),
        ("unload_module", "the module nvidia_drm"),
        ("reset", uuid(0)),
        ("load_module", "the module nvidia_drm"),
        ("start_unit", "nvidia-persistenced.service"),
        ("start_unit", "nvidia-imex.service"),
        ("start_unit", "nvidia-dcgm.service"),
        ("start_unit", "nvsm.service"),
        ("persistence_on", uuid(0)),
        ("prove", uuid(0)),
    ]
    assert all(step.why for step in made.steps)


def test_a_daemon_that_has_no_gpu_open_is_left_alone_unless_it_is_restless():
    assert plan(host(units=(DCGM, IMEX))).stop == (DCGM,)
    assert plan(host(units=(DCGM, IMEX)), keep=["nvidia-dcgm.service"]).stop == ()


def test_only_what_needs_it_is_reset():
    wants = reading(1, recovery_action="reset")
    made = plan(host(reading(0), wants, when="needed", holders=[holder(900, (0,))]))
    assert made.targets == (1,) and codes(made) == []
    nothing = plan(host(reading(0), when="needed", holders=[holder(900, (0,))], root=False))
    assert (nothing.commands, nothing.blockers, nothing.steps) == ((), (), [])


def test_a_bus_reset_is_a_command_of_its_own():
    made = plan(host(reading(0, recovery_action="bus_reset"), reading(1, recovery_action="reset"), when="needed"))
    assert [command.line for command in made.commands] == [
        "nvidia-smi --gpu-reset -i %s" % uuid(1),
        "nvidia-smi -r bus -i %s" % uuid(0),
    ]


# ---- processes


def process_of(exe, unit=None, attached=True, **changes):
    fields = {"exe": exe, "unit": unit, "uid": 0, "user": "root", "exe_owner": 0, **changes}
    return holder(70, () if attached else (0,), attached=(0,) if attached else (), **fields)


@pytest.mark.parametrize(
    ("process", "code", "words"),
    [
        (holder(900, (0,), user="alice"), "busy", "PID 900 sglang::scheduler_TP0 of alice uses GPU 0"),
        (holder(900, (), attached=(0,)), "busy", "has GPU 0 open"),
        (holder(900, (), attached=(0,), monitor=True), "busy", "has GPU 0 open"),
        (holder(900, (0,), protected_by="protect_users (alice)"), "busy", "It is protected: protect_users (alice)"),
        (holder(900, (0,), info=False, doubt="there is no such process"), "busy", "is listed on GPU 0"),
        (holder(900, (0,), unit="sglang-main.service"), "server", "server main holds GPU 0"),
        (process_of("/usr/lib/xorg/Xorg", "gdm.service"), "display", "X server"),
        (process_of("/usr/bin/nvidia-cuda-mps-server"), "mps", "stop_mps=true"),
        (process_of("/usr/bin/nv-hostengine"), "daemon", "no service of systemd"),
        (process_of("/usr/bin/nv-hostengine", "nvidia-dcgm.service"), "daemon", "keep_units"),
        (process_of("/usr/bin/dcgm-exporter", cgroup=DOCKER, container=container_of(DOCKER)), "daemon", "container"),
    ],
)
def test_who_is_on_the_gpu_is_named(process, code, words):
    made = plan(host(holders=[process]))
    assert codes(made) == [code] and words in made.blockers[0].message and made.blockers[0].pid == process.pid


@pytest.mark.parametrize(
    "process",
    [
        holder(900, (0,), protected_by="this task itself"),
        process_of("/usr/bin/nv-hostengine", "nvidia-dcgm.service"),
        process_of("/usr/bin/nvidia-persistenced"),  # lets go when persistence mode ends
        process_of("/usr/bin/nv-fabricmanager", "nvidia-fabricmanager.service"),
        process_of("/opt/nvidia/nvlsm/sbin/nvlsm", "nvidia-fabricmanager.service"),
    ],
)
def test_who_is_not_in_the_way(process):
    assert codes(plan(host(holders=[process], units=(DCGM, FM)))) == []


def test_a_daemons_name_on_a_users_own_unit_counts_for_nothing():
    cgroup = "/user.slice/user-1000.slice/user@1000.service/app.slice/nvidia-dcgm.service"
    fake = holder(900, (0,), unit="nvidia-dcgm.service", cgroup=cgroup)
    made = plan(host(holders=[fake], units=(DCGM,)))
    assert codes(made) == ["busy"]
    fake = holder(900, (0,), unit="nvidia-fabricmanager.service", cgroup=cgroup.replace("dcgm", "fabricmanager"))
    assert codes(plan(host(holders=[fake], units=(FM,)))) == ["busy"]


def test_a_persistence_daemon_that_would_not_let_go_is_stopped_by_its_unit():
    process = process_of("/usr/bin/nvidia-persistenced", "nvidia-persistenced.service")
    off = reading(0, persistence_mode="disabled")
    assert codes(plan(host(off, holders=[process], units=(PERSISTENCED,)))) == []
    assert codes(plan(host(off, holders=[process]))) == ["daemon"]


def test_instances():
    assert instance_by_name(holder(1, unit="sglang-a_b.service")) == "a_b"
    assert instance_by_name(holder(1, unit="sglang-$(x).service")) == ""
    in_container = replace(container_of(DOCKER), name="sglang-main")
    assert instance_by_name(holder(1, container=in_container)) == "main"
    assert instance_by_name(holder(1, info=False)) == ""


# ---- GPUs


@pytest.mark.parametrize(
    ("changes", "traits", "code"),
    [
        ({"mig_mode": "enabled"}, {}, "mig"),
        ({}, {"virtualization": "passthrough"}, "guest"),
        ({}, {"virtualization": "vgpu"}, "guest"),
        ({}, {"virtualization": "host_vgpu"}, "vgpu_host"),
        ({"identity": None, "failure": Failure("hung", "No answer", "Wait")}, {}, "not_identified"),
    ],
)
def test_gpus_that_are_not_reset(changes, traits, code):
    one = reading(0, **changes)
    made = plan(host(one, traits={0: GpuTraits(0, "hopper", links_read=True, **traits)}))
    assert codes(made) == [code] and "GPU 0" in made.blockers[0].message


def test_a_guest_may_be_tried():
    traits = {0: GpuTraits(0, "hopper", links_read=True, virtualization="passthrough")}
    assert codes(plan(host(traits=traits), in_guest=True)) == []


@pytest.mark.parametrize(
    ("action", "code", "where"),
    [
        ("node_reboot", "reboot_needed", "reboot"),
        ("drain_p2p", "drain_needed", "drain"),
        ("recover_imex_domain", "imex_domain", ""),
    ],
)
def test_what_a_reset_does_not_help_stops_all(action, code, where):
    made = plan(host(reading(0, recovery_action=action), reading(1, recovery_action="reset"), when="needed"))
    assert codes(made) == [code]
    if where:
        assert getattr(made, where) == (uuid(0),)


def test_what_is_not_said_is_not_decided():
    assert codes(plan(host(reading(0, recovery_action="not_supported"), when="needed"))) == ["undecided"]


def test_sight():
    assert codes(plan(host(root=False, hidden="x"))) == ["not_root"]
    assert codes(plan(host(hidden="/proc is mounted with hidepid=2"))) == ["not_root"]
    made = plan(host(stuck=(77,)))
    assert codes(made) == ["stuck"] and made.blockers[0].pid == 77


# ---- the kernel module


@pytest.mark.parametrize(
    ("drm", "choice", "blocked", "unloads"),
    [
        (Drm(), "refuse", False, False),
        (Drm(True, "on"), "auto", True, False),
        (Drm(True, "unknown"), "auto", True, False),
        (Drm(True, "off"), "auto", False, False),
        (Drm(True, "off"), "refuse", True, False),
        (Drm(True, "on"), "ignore", False, False),
        (Drm(True, "on", 0), "unload", False, True),
        (Drm(True, "on", 2, ("x",)), "unload", True, True),
    ],
)
def test_drm(drm, choice, blocked, unloads):
    made = plan(host(drm=drm), nvidia_drm=choice)
    assert codes(made) == (["nvidia_drm"] if blocked else []) and made.unload_drm is unloads
    assert bool(made.notes) == (drm.loaded and choice in ("auto", "ignore"))


# ---- NVLink and the fabric manager

ALL = tuple(reading(index) for index in range(4))


def switched(architecture):
    return {index: GpuTraits(index, architecture, (), True, links_read=True) for index in range(4)}


def test_peers_have_to_be_in_the_command():
    found = host(ALL[0], traits=switched("volta"))
    made = plan(found, more=ALL)
    assert codes(made) == ["nvlink_peers"] and "GPU 3" in made.blockers[0].message
    assert targets_of(found, Choices(include_peers=True)) == {0, 1, 2, 3}
    made = plan(found, more=ALL, include_peers=True)
    assert codes(made) == [] and made.commands[0].uuids == tuple(uuid(index) for index in range(4))
    assert "come along" in dict(made.whys)[uuid(3)]


def test_who_comes_along_must_be_free_as_well():
    found = host(ALL[0], traits=switched("volta"), holders=[holder(900, (3,))])
    assert codes(plan(found, more=ALL, include_peers=True)) == ["busy"]
    # Without them it is in nobody's way.
    assert codes(plan(found, more=ALL)) == ["nvlink_peers"]


def test_ampere_behind_switches_needs_the_fabric_manager():
    assert codes(plan(host(ALL[0], traits=switched("ampere"), manager=True), more=ALL)) == []
    made = plan(host(ALL[0], traits=switched("ampere"), manager=False), more=ALL)
    assert codes(made) == ["nvlink_peers"] and "fabric manager" in made.blockers[0].message


def test_unknown_links():
    traits = {index: GpuTraits(index, "volta") for index in range(4)}
    found = host(ALL[0], traits=traits)
    assert codes(plan(found, more=ALL)) == ["nvlink_unknown"]
    assert plan(found, more=ALL, include_peers=True).targets == (0, 1, 2, 3)
    assert codes(plan(host(*ALL, traits=traits))) == []


@pytest.mark.parametrize(
    ("architecture", "readings", "choice", "stops", "code"),
    [
        ("hopper", ALL, "auto", False, None),
        ("hopper", ALL[:1], "auto", False, None),
        ("hopper", ALL, "stop", True, None),
        ("hopper", ALL[:1], "stop", True, "fabric_manager"),
        ("ampere", ALL[:1], "stop", True, "fabric_manager"),
        ("volta", ALL, "auto", True, None),
        ("volta", ALL, "keep", False, None),
    ],
)
def test_the_fabric_manager_is_never_restarted_alone(architecture, readings, choice, stops, code):
    made = plan(host(*readings, traits=switched(architecture), units=(FM,)), more=ALL, fabric_manager=choice)
    assert (made.stop == (FM,)) is stops and codes(made) == ([code] if code else [])
    assert bool(made.notes) is stops
