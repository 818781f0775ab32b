# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.interpreter import find_interpreter


@pytest.fixture
def python(tmp_path):
    path = tmp_path / "bin" / "python3"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_an_absolute_path_stays_as_it_is(python, tmp_path):
    link = tmp_path / "venv-python"
    link.symlink_to(python)
    assert find_interpreter(str(link), "") == (str(link), "")


def test_a_name_is_looked_for_in_path(python):
    assert find_interpreter("python3", f"/nowhere:{python.parent}") == (str(python), "")


@pytest.mark.parametrize(
    ("name", "part"),
    [("no-such-python", "not found in PATH"), ("bin/python3", "relative path"), ("/no/python", "does not exist")],
)
def test_says_what_is_wrong(name, part, tmp_path):
    assert part in find_interpreter(name, str(tmp_path))[1]


def test_a_file_that_cannot_be_executed_or_a_folder_is_no_interpreter(python):
    assert "not an executable" in find_interpreter(str(python.parent), "")[1]
    python.chmod(0o644)
    assert "not an executable" in find_interpreter(str(python), "")[1]
