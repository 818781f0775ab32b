# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is asked for the names of containers, and when."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.keepers import container_names, own_supervisors
from ansible_collections.inferops.sglang.plugins.module_utils.system import commands
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import process
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeProc, FakeRun, show


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (SimpleNamespace(kind="docker", name="server"), "server"),
        (SimpleNamespace(kind="podman", name="server"), "server"),
        (SimpleNamespace(kind="systemd", name="server.service"), ""),
        (None, ""),
    ],
)
def test_a_container_is_named_by_its_engine(found, name):
    names = container_names(lambda: SimpleNamespace(of=lambda _process: found))
    assert names(process(5)) == name


def test_nobody_is_asked_before_there_is_a_container_and_then_one_for_all():
    made = []

    def make():
        made.append(SimpleNamespace(of=lambda _process: None))
        return made[-1]

    names = container_names(make)
    assert made == []
    for pid in (5, 6):
        names(process(pid))
    assert len(made) == 1


def test_the_unit_that_this_task_runs_in_is_nobodys_keeper(tmp_path, monkeypatch):
    run = FakeRun({"systemctl show": show()})
    monkeypatch.setattr(commands, "run", run)
    proc = FakeProc(tmp_path)
    own = proc.add(os.getpid(), cgroup="0::/system.slice/deploy.service")
    other = proc.add(4_000_001, cgroup="0::/system.slice/llm.service")
    supervisors = own_supervisors(proc.procfs)
    assert supervisors.of(own) is None and run.calls == []
    assert supervisors.of(other).name == "llm.service"


def test_a_task_that_cannot_see_itself_has_no_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "run", FakeRun({"systemctl show": show()}))
    proc = FakeProc(tmp_path)
    other = proc.add(4_000_001, cgroup="0::/system.slice/llm.service")
    assert own_supervisors(proc.procfs).of(other).name == "llm.service"
