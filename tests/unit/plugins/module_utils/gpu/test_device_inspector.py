# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_files import driver_has_devices, holds_device


@pytest.fixture
def proc(tmp_path):
    """Make /proc/42 with descriptors of the leader and of a thread, and maps."""

    def make(leader=("/dev/null",), thread=None, maps="7f00-7f01 r-xp 0 00:00 0 /usr/lib/libc.so\n"):
        base = tmp_path / "42"
        folders = {base / "fd": leader, base / "task" / "42" / "fd": leader}
        if thread is not None:
            folders[base / "task" / "43" / "fd"] = thread
        for folder, targets in folders.items():
            folder.mkdir(parents=True)
            for number, target in enumerate(targets):
                (folder / str(number)).symlink_to(target)
        (base / "maps").write_text(maps)
        return str(tmp_path)

    return make


@pytest.mark.parametrize(
    ("state", "holds"),
    [
        ({}, False),
        ({"leader": ["/dev/null", "/dev/nvidia3"]}, True),
        ({"leader": ["/dev/nvidiactl"]}, True),
        ({"leader": ["/dev/nvidia-uvm"]}, True),
        ({"leader": ["/home/x/dev/nvidia0"]}, False),
        ({"leader": [], "thread": ["/dev/nvidia0"]}, True),  # the leader has exited
        ({"leader": [], "thread": ["/dev/null"]}, False),
        ({"maps": "7f00-7f01 rw-s 0 00:05 99 /dev/nvidia0\n"}, True),  # closed after mmap()
    ],
)
def test_holds_device(proc, state, holds):
    assert holds_device(42, proc(**state)) is holds


def test_a_process_that_is_gone_cannot_be_told(tmp_path):
    assert holds_device(42, str(tmp_path)) is None


def test_files_that_may_not_be_read_cannot_be_told(proc, tmp_path):
    root = proc(maps="")
    (tmp_path / "42" / "maps").unlink()
    assert holds_device(42, root) is None


def test_whether_the_driver_has_device_files(tmp_path):
    assert driver_has_devices(str(tmp_path / "nvidiactl")) is False
    (tmp_path / "nvidiactl").touch()
    assert driver_has_devices(str(tmp_path / "nvidiactl")) is True
