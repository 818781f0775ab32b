# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether another user may read a file, on real files."""

from __future__ import annotations

import os
import pwd

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import access
from ansible_collections.inferops.sglang.plugins.module_utils.system.access import readable_by

NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def folder(tmp_path):
    """A folder that everybody may enter, below folders that everybody may enter."""
    for parent in [tmp_path, *tmp_path.parents]:
        if not os.stat(parent).st_mode & 0o001:
            parent.chmod(0o711)
    return tmp_path


def a_file(folder, mode):
    path = folder / "key"
    path.write_text("secret")
    path.chmod(mode)
    return path


@as_root
def test_the_mode_of_the_file_counts(folder):
    assert readable_by(str(a_file(folder, 0o644)), NOBODY) is True
    assert readable_by(str(a_file(folder, 0o600)), NOBODY) is False
    assert readable_by(str(a_file(folder, 0o600)), None) is True


@as_root
def test_the_folders_above_count(folder):
    path = a_file(folder, 0o644)
    folder.chmod(0o700)
    assert readable_by(str(path), NOBODY) is False


@as_root
def test_the_group_counts(folder):
    path = a_file(folder, 0o640)
    os.chown(path, 0, NOBODY.pw_gid)
    assert readable_by(str(path), NOBODY) is True


def test_what_is_not_there_cannot_be_read(tmp_path):
    assert readable_by(str(tmp_path / "none"), None) is False


def test_only_root_can_tell_of_somebody_else(monkeypatch, tmp_path):
    monkeypatch.setattr(access.os, "geteuid", lambda: 12345)
    assert readable_by(str(a_file(tmp_path, 0o644)), NOBODY) is None


def test_a_file_system_that_hangs_is_unknown(monkeypatch, tmp_path, childless):
    monkeypatch.setattr(access, "_PATIENCE", 0.2)
    monkeypatch.setattr(access, "_try", lambda *_arguments: access.select.select([], [], [], 30))
    assert readable_by(str(a_file(tmp_path, 0o644)), None) is None
    childless()


def test_nothing_is_left_open_and_no_child(tmp_path, childless):
    path = str(a_file(tmp_path, 0o644))
    before = os.listdir("/proc/self/fd")
    assert readable_by(path, None) is True
    childless()
    assert len(os.listdir("/proc/self/fd")) == len(before)
