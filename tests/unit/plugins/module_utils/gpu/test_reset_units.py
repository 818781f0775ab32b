# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Daemons as units."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_units
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_units import Unit, Units
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import LATE, FakeRun

LISTING = """\
dcgm-exporter.service          loaded active   running DCGM exporter
nvidia-dcgm.service            loaded active   running DCGM
\u25cf nvsm-core.service       loaded active   running NVSM
nvidia-persistenced.service    loaded active   running Persistence
nvidia-fabricmanager.service   loaded active   running FM
nvidia-imex.service            loaded inactive dead    IMEX
nvidia-powerd.service          loaded activating start Power
nvidia-suspend.service         loaded active   exited  Suspend
gpu-telegraf.service           loaded active   running Telegraf
sshd.service                   loaded active   running SSH
nvidia-dcgm$(x).service        loaded active   running Odd
"""


def test_what_runs_in_the_order_of_its_stopping():
    run = FakeRun({"systemctl list-units": LISTING})
    assert [(unit.name, unit.kind) for unit in Units(run).running(["gpu-*"])] == [
        ("nvsm-core.service", "nvsm"),
        ("dcgm-exporter.service", "dcgm_exporter"),
        ("nvidia-dcgm.service", "dcgm"),
        ("gpu-telegraf.service", "other"),
        ("nvidia-fabricmanager.service", "fabric_manager"),
        ("nvidia-powerd.service", "powerd"),
        ("nvidia-persistenced.service", "persistenced"),
    ]
    assert "gpu-telegraf.service" not in [unit.name for unit in Units(run).running()]


def test_a_host_without_systemd_has_none_and_says_why():
    units = Units(FakeRun({}))
    assert units.running() == () and "no program" in units.problem


@pytest.mark.parametrize(
    ("answers", "ok", "words"),
    [
        ({"systemctl stop": "", "systemctl show": "ActiveState=inactive\n"}, True, "stopped"),
        # Late, and stopped all the same.
        ({"systemctl stop": LATE, "systemctl show": "ActiveState=failed\n"}, True, "stopped"),
        ({"systemctl stop": "", "systemctl show": "ActiveState=active\n"}, False, "still runs"),
        ({"systemctl stop": Completed(1, err="no"), "systemctl show": LATE}, False, "cannot be read"),
    ],
)
def test_stop(answers, ok, words):
    changed = Units(FakeRun(answers)).stop("nvidia-dcgm.service", 5)
    assert changed.ok is ok and words in changed.message


@pytest.mark.parametrize(
    ("answers", "ok", "words"),
    [
        ({"systemctl start": "", "systemctl show": "ActiveState=active\n"}, True, "started"),
        ({"systemctl start": "", "systemctl show": "ActiveState=failed\n"}, False, "does not run"),
        ({"systemctl start": Completed(1, err="Job failed.")}, False, "Job failed."),
    ],
)
def test_start(answers, ok, words):
    changed = Units(FakeRun(answers)).start("nvidia-dcgm.service", 5)
    assert changed.ok is ok and words in changed.message
    assert ok or "systemctl start nvidia-dcgm.service" in changed.message


def test_order():
    units = [Unit("b.service", "persistenced"), Unit("c.service", "dcgm"), Unit("a.service", "dcgm")]
    assert [unit.name for unit in reset_units.in_order(units)] == ["a.service", "c.service", "b.service"]
    assert Unit("x", "dcgm").what == "the DCGM host engine"
    assert reset_units.kind_of("sshd.service") is None
