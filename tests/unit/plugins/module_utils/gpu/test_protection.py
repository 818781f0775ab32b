# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import Who
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance, Protection
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
    assert exe in NOBODY.reason(process(900, exe=exe))


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
