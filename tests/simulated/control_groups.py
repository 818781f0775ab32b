# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control groups of version 1 for the processes of a test: to be part of a unit or container, or to be frozen."""

from __future__ import annotations

import os
import pathlib
import signal

import pytest

from .waiting import wait_until


def cgroup_mount(wanted):
    """Where a version 1 hierarchy is mounted ("freezer", "name=systemd"); skips the test where it is not."""
    with open("/proc/mounts", encoding="ascii") as mounts:
        for line in mounts:
            _device, where, kind, options = line.split()[:4]
            if kind == "cgroup" and wanted in options.split(",") and os.access(where, os.W_OK):
                return pathlib.Path(where)
    pytest.skip("needs root and the cgroup version 1 hierarchy %s" % wanted)


class ControlGroups:
    """Control groups of a test, gone after it with all processes in them.

    slice: the slice of systemd that its units are in, of its own, as other runs may test on the same machine.
    """

    def __init__(self):
        self.slice = "gputest%d.slice" % os.getpid()
        self.made = []
        self.mine = []

    def systemd(self, path):
        """A group by its path as /proc/PID/cgroup shows it."""
        return self._make(cgroup_mount("name=systemd"), path.lstrip("/"))

    def freezer(self):
        """A group whose processes can be frozen."""
        return self._make(cgroup_mount("freezer"), "gpu-test-%d-%d" % (os.getpid(), len(self.made)))

    def _make(self, mount, path):
        folder = mount / path
        for made in [*reversed(folder.parents), folder]:
            if mount in made.parents and not made.exists():
                made.mkdir()
                self.made.append(made)
        self.mine.append(folder)
        return folder

    def clean_up(self):
        """Thaw, end and remove what the test made."""
        for folder in filter(pathlib.Path.exists, self.mine):
            if (folder / "freezer.state").exists():
                thaw(folder)
            for pid in members(folder):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for folder in reversed(self.made):
            wait_until(lambda folder=folder: removed(folder))


def removed(folder):
    """Whether a control group could be removed: that takes until its processes are gone, and reaped."""
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True


def members(folder):
    """The processes in a control group."""
    return [int(line) for line in (folder / "cgroup.procs").read_text().split()]


def join(folder, pid):
    """Put a process into a control group."""
    (folder / "cgroup.procs").write_text(str(pid))


def freeze(folder):
    """Stop the processes of a freezer where no signal reaches them: they are in state D, SIGKILL included."""
    (folder / "freezer.state").write_text("FROZEN")
    wait_until(lambda: (folder / "freezer.state").read_text().strip() == "FROZEN")


def thaw(folder):
    """Let them run on, and take the signals that came meanwhile."""
    (folder / "freezer.state").write_text("THAWED")
