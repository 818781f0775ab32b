# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Observer, select
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeSession,
    listed,
    reading,
    uuid,
)

ME = os.getpid()


def test_only_the_gpus_that_are_meant_are_opened_where_indices_tell():
    session = FakeSession(reading, count=8)
    assert select(session, ["3", "1"], 8) == (1, 3)
    assert session.identified == []


def test_all_gpus_are_identified_where_something_must_be_looked_up():
    session = FakeSession(reading, count=4)
    assert select(session, [uuid(2)[:12], "0"], None) == (0, 2)
    assert session.identified == [0, 1, 2, 3]


def test_a_wrong_number_of_gpus_comes_first():
    session = FakeSession(reading, count=7)
    with pytest.raises(GpuError, match="expected_count"):
        select(session, ["GPU-nonsense"], 8)
    assert session.identified == []


def test_a_look_joins_gpus_and_processes():
    session = FakeSession(lambda index: reading(index, processes=[listed(ME)] if index else []))
    look = Observer(session, ProcFs(), [0, 1]).look()
    assert look.uuids == {uuid(0), uuid(1)}
    (holder,) = look.holders
    assert holder.gpus == (uuid(1),)
    assert holder.protected_by == "this task itself"


def test_our_own_parents_are_protected():
    session = FakeSession(lambda index: reading(index, processes=[listed(os.getppid())]))
    (holder,) = Observer(session, ProcFs(), [0]).look().holders
    assert holder.protected_by


def test_the_children_that_ask_nvml_are_no_holders():
    session = FakeSession(lambda index: reading(index, processes=[listed(4242)]), pids=[4242])
    look = Observer(session, ProcFs(), [0]).look()
    assert look.holders == ()
    assert look.readings[0].processes == ()


def test_open_devices_are_looked_for_once_for_each_process():
    asked = []

    def holds(pid):
        asked.append(pid)
        return True

    session = FakeSession(lambda index: reading(index, processes=[listed(ME)]))
    observer = Observer(session, ProcFs(), [0], holds_device=holds)
    for _repeat in range(3):
        assert observer.look().holders[0].doubt == ""
    assert asked == [ME]


def test_a_process_without_open_devices_is_looked_at_again():
    answers = [False, True]
    session = FakeSession(lambda index: reading(index, processes=[listed(ME)]))
    observer = Observer(session, ProcFs(), [0], holds_device=lambda _pid: answers.pop(0))
    assert observer.look().holders[0].process is None
    assert observer.look().holders[0].process is not None
