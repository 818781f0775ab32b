# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import device_scan
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_inspector import OpenDevices
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity

OPEN = OpenDevices(frozenset([0]))


class Inspector:
    """Finds what it is told; a look into `stuck` ones never returns, one into `deadly` ones ends the child."""

    def __init__(self, holding=(), blind=(), stuck=(), deadly=()):
        self.holding, self.blind, self.stuck, self.deadly = holding, blind, stuck, deadly

    def nodes_of(self, pid):
        if pid in self.stuck:
            time.sleep(3600)
        if pid in self.deadly:
            os._exit(3)
        if pid in self.blind:
            return None
        return {(0, "fd")} if pid in self.holding else set()

    def look(self, pid):
        return ProcessIdentity(pid, pid * 10), OPEN


def test_who_has_devices_open():
    found = device_scan.scan(Inspector(holding=[5, 7], blind=[6]), range(3, 50))
    assert found.found == {ProcessIdentity(5, 50): OPEN, ProcessIdentity(7, 70): OPEN}
    assert (found.uninspected, found.stuck) == (1, ())


def test_many_processes_are_dealt_out(monkeypatch):
    monkeypatch.setattr(device_scan, "_WORTH_A_CHILD", 10)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    holding = [3, 17, 44, 99]
    found = device_scan.scan(Inspector(holding=holding, blind=[50, 51]), range(3, 120))
    assert sorted(identity.pid for identity in found.found) == holding
    assert found.uninspected == 2


@pytest.mark.parametrize("kind", ["stuck", "deadly"])
def test_a_process_that_no_look_returns_from_is_left_out_and_named(kind):
    began = time.monotonic()
    found = device_scan.scan(Inspector(holding=[4, 9], **{kind: [6, 8]}), range(3, 12), patience=0.3)
    assert time.monotonic() - began < 10
    assert sorted(identity.pid for identity in found.found) == [4, 9]
    assert found.stuck == (6, 8)


def test_without_a_process_to_spare_the_looks_are_made_here(monkeypatch):
    def fork():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    found = device_scan.scan(Inspector(holding=[5]), range(3, 9))
    assert [identity.pid for identity in found.found] == [5]


def test_nobody_to_look_into():
    assert device_scan.scan(Inspector(), []) == device_scan.Scan()


def test_no_child_and_no_descriptor_is_left(childless):
    before = set(os.listdir("/proc/self/fd"))
    device_scan.scan(Inspector(holding=[4], stuck=[6]), range(3, 9), patience=0.2)
    assert set(os.listdir("/proc/self/fd")) == before
    childless()
