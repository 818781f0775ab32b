# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a process is older than its release, whatever the clock did meanwhile."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.current_since import (
    Since,
    current_since,
    note_switch,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import point_link
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

OWN = ProcFs().read(os.getpid())
HOUR = 3600


class Kernel:
    """A boot, and how many ticks it has lasted."""

    def __init__(self, boot="boot-1", ticks=1000):
        self.boot, self.ticks = boot, ticks

    def boot_id(self):
        return self.boot

    def ticks_now(self):
        return self.ticks


@pytest.fixture
def paths(tmp_path):
    return InstancePaths("main", str(tmp_path))


def switch(paths, release, kernel):
    note_switch(paths, release, kernel)
    point_link(paths.current_link, "releases/" + release)


def started(ticks, at):
    """A process that was started at these ticks after boot, and as the clock now tells at that moment."""
    return replace(OWN, start_time=ticks, started_at=at)


@pytest.mark.parametrize("step", [-HOUR, 0, HOUR])
def test_a_clock_that_was_set_does_not_matter(paths, step):
    kernel = Kernel()
    switch(paths, "r1", kernel)
    moment = os.lstat(paths.current_link).st_mtime
    since = current_since(paths, kernel)
    # The clock was set after the switch, and with it what the kernel tells of all starts.
    assert since.is_after_start_of(started(990, moment - 5 + step))
    assert not since.is_after_start_of(started(1000, moment + step))
    assert not since.is_after_start_of(started(1500, moment + 5 + step))


def test_after_a_boot_everything_is_younger(paths):
    switch(paths, "r1", Kernel("boot-1", 500000))
    moment = os.lstat(paths.current_link).st_mtime
    since = current_since(paths, Kernel("boot-2", 2000))
    assert not since.is_after_start_of(started(100, moment - HOUR))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"release": "r1"}', '{"release": "r1", "boot_id": "b", "ticks": null}']
)
def test_without_a_usable_note_the_time_of_the_link_counts(paths, text):
    switch(paths, "r1", Kernel())
    paths.current_since_file.write_text(text)
    moment = os.lstat(paths.current_link).st_mtime
    assert current_since(paths, Kernel()) == Since(moment)
    assert current_since(paths, Kernel()).is_after_start_of(started(2000, moment - 10))
    assert not current_since(paths, Kernel()).is_after_start_of(started(2000, moment - 1))


def test_a_note_of_another_release_is_none_of_this_one(paths):
    switch(paths, "r1", Kernel())
    note_switch(paths, "r2", Kernel())  # the run was killed before it pointed the link
    assert current_since(paths, Kernel()).ticks is None


def test_a_kernel_that_tells_no_boot_has_no_ticks_to_compare(paths):
    switch(paths, "r1", Kernel(""))
    assert current_since(paths, Kernel("")).ticks is None


def test_no_release_no_moment(paths):
    assert current_since(paths, Kernel()) is None


def test_the_real_kernel(paths):
    switch(paths, "r1", ProcFs())
    assert current_since(paths, ProcFs()).is_after_start_of(OWN)
    note_switch(paths, "r1", Kernel(ProcFs().boot_id(), OWN.start_time))
    assert not current_since(paths, ProcFs()).is_after_start_of(OWN)
