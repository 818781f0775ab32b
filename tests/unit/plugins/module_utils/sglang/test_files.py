# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import stat

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import files


def test_a_file_is_written_with_its_mode_and_missing_folders(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    files.write_text(path, "größe\n", 0o600)
    assert files.read_text(path) == "größe\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


def test_a_write_that_fails_leaves_the_old_content_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write_text(path, "old", 0o600)

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_text(path, "new", 0o600)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_is_never_readable_by_others_on_its_way(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fchmod", lambda fd, _mode: seen.append(stat.S_IMODE(os.fstat(fd).st_mode)))
    previous = os.umask(0)
    try:
        files.write_text(tmp_path / "file", "secret", 0o644)
    finally:
        os.umask(previous)
    assert seen == [0o600]


def test_a_link_is_made_and_moved(tmp_path):
    link = tmp_path / "x" / "current"
    files.point_link(link, "releases/a")
    files.point_link(link, "releases/b")
    assert os.readlink(link) == "releases/b"
    assert os.listdir(link.parent) == ["current"]


def test_a_link_does_not_replace_a_folder(tmp_path):
    (tmp_path / "current").mkdir()
    with pytest.raises(OSError):
        files.point_link(tmp_path / "current", "releases/a")
    assert os.listdir(tmp_path) == ["current"]


def test_users():
    assert files.user_id("root") == 0
    assert files.user_id("1234") == 1234
    assert files.user_id("no-such-user") is None
    with pytest.raises(OSError, match="no such user"):
        files.write_text(files.Path("/tmp/never-written"), "", 0o600, "no-such-user")


def test_no_file_is_no_text(tmp_path):
    assert files.read_text(tmp_path / "none") is None
