# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import Who
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance, Protection
from ansible_collections.inferops.sglang.plugins.module_utils.system.containers import Container
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import holder, process

NOBODY = Protection(own=frozenset([500]), ancestors=frozenset([400, 300, 1]))


@pytest.mark.parametrize("pid", [1, 2, 500, 400, 300])
def test_the_system_and_the_task_itself(pid):
    assert NOBODY.reason(process(pid))


@pytest.mark.parametrize(
    "exe",
    [
        "/usr/bin/nvidia-persistenced",
        "/usr/bin/nv-hostengine",
        "/usr/bin/dcgm-exporter",
        "/usr/bin/nv-fabricmanager",
        "/usr/bin/nvidia-imex",
        "/usr/bin/nvidia-cuda-mps-control",
        "/usr/bin/nvidia-cuda-mps-server",
        "/usr/lib/xorg/Xorg",
        "/usr/bin/Xwayland",
        "/usr/libexec/gdm-x-session",
        "/usr/sbin/gdm3",
        "/usr/bin/sddm",
        "/usr/sbin/lightdm",
    ],
)
def test_daemons_by_executable(exe):
    assert exe in NOBODY.reason(process(900, uid=0, exe=exe))


@pytest.mark.parametrize(
    "unit",
    ["nvidia-persistenced.service", "nvidia-dcgm.service", "dcgm-exporter.service", "gdm.service", "nvsm-core.service"],
)
def test_daemons_by_unit(unit):
    assert unit in NOBODY.reason(process(900, exe="/usr/bin/python3", unit=unit))


@pytest.mark.parametrize(
    "changes",
    [
        {"comm": "nvidia-persiste", "argv": ("nvidia-persistenced", "--user")},
        {"comm": "Xorg", "argv": ("/usr/lib/xorg/Xorg",)},
        {"exe": "/home/eve/nvidia-persistenced.d/miner"},
        {"exe": "/home/eve/my-nvidia-persistenced"},
        {"unit": "my-gdm.service"},
        {"exe": ""},
    ],
)
def test_a_name_protects_nobody(changes):
    assert NOBODY.reason(process(900, **changes)) == ""


def test_by_option():
    who = Who(frozenset([1001]), ("weight-cache", "/opt/x/bin/serve"), ("llm-*",))
    protection = Protection(frozenset(), frozenset(), who)
    assert "protect_users" in protection.reason(process(900, uid=1001, user="cache"))
    assert "weight-cache" in protection.reason(process(900, exe="/any/where/weight-cache"))
    assert "/opt/x/bin/serve" in protection.reason(process(900, exe="/opt/x/bin/serve"))
    assert "protect_sessions (880)" in Protection(frozenset(), frozenset(), Who(sessions=frozenset([880]))).reason(
        process(900, session=880)
    )
    assert "protect_units (llm-*)" in protection.reason(process(900, unit="llm-cache.service"))
    assert protection.reason(process(900, exe="/opt/y/bin/serve")) == ""


def test_who_may_stay_is_protected_too():
    protection = Protection(frozenset(), frozenset(), allowance=Allowance(Who(uids=frozenset([1001]))))
    assert "allow_users" in protection.reason(process(900, uid=1001, user="cache"))


def test_an_allowance_covers_users_and_executables():
    allowance = Allowance(Who(frozenset([1000]), ("cache",)))
    assert allowance.covers(holder(900))
    assert allowance.covers(holder(900, uid=7, exe="/opt/cache"))
    assert not allowance.covers(holder(900, uid=7))
    assert not Allowance().covers(holder(900))


def test_an_allowance_covers_nobody_in_doubt():
    allowance = Allowance(Who(frozenset([1000])))
    assert not allowance.covers(holder(900, info=False, doubt="gone"))
    assert not allowance.covers(holder(900, doubt="a zombie"))


@pytest.mark.parametrize(
    ("exe", "what"),
    [
        ("/usr/bin/nvidia-persistenced", "the NVIDIA persistence daemon"),
        ("/usr/bin/nv-hostengine", "the DCGM host engine"),
        ("/usr/bin/dcgm-exporter", "the DCGM exporter"),
        ("/usr/bin/nv-fabricmanager", "the NVIDIA fabric manager"),
        ("/opt/nvidia/nvlsm/sbin/nvlsm", "the NVLink subnet manager"),
        ("/usr/bin/nvidia-imex", "the NVIDIA IMEX daemon"),
        ("/usr/bin/nvidia-powerd", "the NVIDIA power daemon"),
        ("/usr/bin/nvidia-cuda-mps-control", "the CUDA MPS control daemon"),
        ("/usr/bin/nvidia-cuda-mps-server", "the CUDA MPS server"),
        ("/usr/lib/xorg/Xorg", "the X server"),
        ("/usr/bin/X", "the X server"),
        ("/usr/bin/Xwayland", "the X server"),
        ("/usr/bin/gnome-shell", "the desktop"),
        ("/usr/bin/kwin_wayland", "the desktop"),
        ("/usr/bin/weston", "the desktop"),
        ("/usr/libexec/gdm-x-session", "a display manager"),
        ("/usr/bin/sddm-helper", "a display manager"),
        ("/usr/sbin/lightdm-session", "a display manager"),
    ],
)
def test_each_daemon_is_told_by_its_executable(exe, what):
    assert NOBODY.reason(process(900, uid=0, exe=exe)) == "%s (executable %s)" % (what, exe)


@pytest.mark.parametrize(
    ("exe", "uid", "owner", "spared"),
    [
        # The driver's daemons run as the system's users, from root's files.
        ("nvidia-persistenced", 0, 0, True),
        ("nvidia-persistenced", 999, 0, True),
        ("nvidia-persistenced", 999, None, True),
        ("nvidia-persistenced", 1000, 0, False),
        ("nvidia-persistenced", 0, 1000, False),
        ("nvidia-persistenced", 0, -1, False),
        # The desktop and MPS run as anybody, and from root's files too.
        ("Xorg", 1000, 0, True),
        ("nvidia-cuda-mps-server", 1000, 0, True),
        ("Xorg", 1000, 1000, False),
        ("Xorg", 0, -1, False),
    ],
)
def test_a_daemon_is_who_an_administrator_installed(exe, uid, owner, spared, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert bool(NOBODY.reason(process(900, exe="/usr/bin/" + exe, uid=uid, exe_owner=owner))) == spared
    inside = Container("docker", "a" * 64)
    assert NOBODY.reason(process(900, exe="/usr/bin/" + exe, uid=uid, exe_owner=owner, container=inside))


def test_without_root_ones_own_files_are_trusted(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    own = {"exe": "/home/me/nvidia-persistenced", "exe_owner": 1000}
    assert NOBODY.reason(process(900, uid=1000, **own))
    assert not NOBODY.reason(process(900, uid=1001, **own))


@pytest.mark.parametrize(
    ("unit", "what"),
    [
        ("nvidia-persistenced-2.service", "the NVIDIA persistence daemon"),
        ("nvidia-dcgm.service", "the DCGM host engine"),
        ("dcgm.service", "DCGM"),
        ("nvidia-fabricmanager-535.service", "the NVIDIA fabric manager"),
        ("nvidia-imex.service", "the NVIDIA IMEX daemon"),
        ("nvsm-core.service", "NVIDIA System Management"),
        ("display-manager.service", "a display manager"),
        ("gdm3.service", "a display manager"),
        ("sddm.service", "a display manager"),
        ("lightdm.service", "a display manager"),
    ],
)
def test_each_daemon_is_told_by_its_unit(unit, what):
    assert NOBODY.reason(process(900, unit=unit)) == "%s (unit %s)" % (what, unit)


def test_whom_the_task_runs_under_is_told_apart():
    everybody = Protection(own=frozenset([500, 2]), ancestors=frozenset([500, 400, 1, 3]))
    said = {pid: everybody.reason(process(pid)) for pid in (1, 2, 3, 400, 500)}
    assert said == {
        1: "a process of the system",
        2: "a process of the system",
        3: "a parent of this task",
        400: "a parent of this task",
        500: "this task itself",
    }


def test_the_option_that_protects_is_named_with_its_entry():
    who, allowance = Who(frozenset([1001])), Allowance(Who(executables=("cache",)))
    protection = Protection(frozenset(), frozenset(), who, allowance)
    assert protection.reason(process(900, uid=1001, user="eve", exe="/opt/cache")) == "protect_users (eve)"
    assert protection.reason(process(900, exe="/opt/cache")) == "allow_executables (cache)"
    assert protection.reason(process(900)) == ""


def test_a_user_without_a_name_is_covered_by_its_number():
    assert Allowance(Who(frozenset([4711]))).covers(holder(900, uid=4711, user=""))
