# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files are replaced whole, keep their mode, and nothing is left where that cannot be."""

from __future__ import annotations

import os
import stat

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils import whole_file


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_its_owners_and_an_old_one_keeps_its_mode(tmp_path):
    file = tmp_path / "report"
    whole_file.replace("html", str(file), "one\n")
    assert file.read_text() == "one\n" and mode(file) == 0o600
    file.chmod(0o644)
    before = file.stat().st_ino
    whole_file.replace("html", str(file), "zw\u00f6lf\r\n")
    assert file.read_bytes() == "zw\u00f6lf\r\n".encode() and mode(file) == 0o644 and file.stat().st_ino != before
    assert os.listdir(tmp_path) == ["report"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "report"
    file.write_text("old")

    def refuse(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(whole_file.FileError, match=r"^html: .*report cannot be written: No space left on device. Give"):
        whole_file.replace("html", str(file), "new")
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["report"]


def test_what_differs(tmp_path):
    file = tmp_path / "report"
    assert whole_file.differs(str(file), "x")
    file.write_text("x")
    assert not whole_file.differs(str(file), "x")
    assert whole_file.differs(str(file), "xy") and whole_file.differs(str(file), "")
    os.mkfifo(tmp_path / "pipe")
    assert whole_file.differs(str(tmp_path / "pipe"), "x")


def test_targets_are_refused_with_the_remedy(tmp_path):
    whole_file.check_target("json", str(tmp_path / "report"))
    for path, words in ((tmp_path / "none" / "x", "there is no folder"), (tmp_path, "is a folder. Give a file in it")):
        with pytest.raises(whole_file.FileError, match=f"^json: .*{words}"):
            whole_file.check_target("json", str(path))
    with pytest.raises(whole_file.FileError, match="may not be written to"):
        whole_file.check_target("json", "/proc/1/report")
