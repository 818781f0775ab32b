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


# -- replacing alike, what a crash leaves, locks


def test_a_file_is_replaced_with_its_owner_and_mode(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("old")
    path.chmod(0o750)
    files.write_alike(path, b"\xff new", 1_000_000_000)
    assert path.read_bytes() == b"\xff new"
    assert path.stat().st_mode & 0o7777 == 0o750 and path.stat().st_mtime == 1_000_000_000
    assert [item.name for item in tmp_path.iterdir()] == ["a.py"]


def test_what_a_crash_leaves_is_known_by_its_name(tmp_path):
    path = tmp_path / "a.json"
    ours = [tmp_path / ".a.json.0123456789ab", tmp_path / ".a.json.ffffffffffff"]
    ours[0].write_text("half")
    ours[1].symlink_to("nowhere")
    for name in (
        ".a.json.swp",
        ".b.json.0123456789ab",
        "a.json.0123456789ab",
        ".a.json.0123456789abc",
        ".aXjson.0123456789ab",
    ):
        (tmp_path / name).write_text("theirs")
    (tmp_path / ".a.json.aaaaaaaaaaaa").mkdir()
    assert files.leftovers(path) == ours
    assert files.leftovers(tmp_path / "none" / "a.json") == []


def test_a_file_that_is_being_written_has_such_a_name(tmp_path, monkeypatch):
    path, seen = tmp_path / "a.json", []
    monkeypatch.setattr(files.os, "fsync", lambda _descriptor: seen.append(files.leftovers(path)))
    files.write_text(path, "x", 0o644)
    assert len(seen[0]) == 1 and files.leftovers(path) == []


def test_one_at_a_time(tmp_path):
    folder, slept, now = tmp_path / "state", [], [0.0]

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    with files.locked(folder, 5.0):
        with pytest.raises(OSError, match="another run has been writing there for 1 s") as caught:
            with files.locked(folder, 1.0, clock=lambda: now[0], sleep=sleep):
                pass
        assert caught.value.filename == str(folder) and 1.0 <= now[0] < 1.3 and slept
    with files.locked(folder, 0.0):
        pass
