# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interpreters are found where they may be, and believed only when they run."""

from __future__ import annotations

import json
import os
import sys

import pytest
from pythons import VARIABLE, Absent, Interpreter, candidates, examine, find, managed_by_uv

OWN = "/own/python"


@pytest.fixture
def script(tmp_path):
    """Make an executable shell script: its path."""

    def make(text, path="python3.8"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n" + text)
        file.chmod(0o755)
        return str(file)

    return make


def says(**changes):
    """A script that answers as an interpreter would."""
    answer = {"implementation": "CPython", "full": "3.8.20", "version": [3, 8], "missing": []}
    return "echo '%s'\n" % json.dumps({**answer, **changes})


class TestExamine:
    def test_this_interpreter(self):
        found = examine(sys.executable)
        assert isinstance(found, Interpreter), found
        assert (found.path, found.version) == (sys.executable, sys.version_info[:2])

    def test_a_wrapper_without_a_version(self, script):
        wrapper = script("echo 'pyenv: python3.8: command not found' >&2\necho more >&2\nexit 127\n")
        assert examine(wrapper) == Absent(f"{wrapper} does not run: pyenv: python3.8: command not found")

    def test_a_wrapper_that_says_nothing(self, script):
        wrapper = script("exit 3\n")
        assert examine(wrapper) == Absent(f"{wrapper} does not run: exit status 3")

    def test_a_program_that_is_no_python(self, script):
        wrapper = script("echo hello\n")
        assert examine(wrapper).reason.startswith(f"{wrapper} does not run: ")

    def test_a_file_that_is_not_there(self, tmp_path):
        assert "does not run" in examine(str(tmp_path / "python3.8")).reason

    def test_another_implementation(self, script):
        path = script(says(implementation="PyPy"))
        assert examine(path) == Absent(f"{path} is PyPy, not CPython")

    def test_missing_modules(self, script):
        path = script(says(missing=["ensurepip", "ssl"]))
        assert examine(path) == Absent(f"{path} (Python 3.8.20) has no module ensurepip, ssl")


class TestFind:
    def find(self, wanted, known, environment=None, own=OWN):
        """Find with interpreters that are answers in a table."""
        asked = []

        def look(path):
            asked.append(path)
            return known.get(path, Absent(f"{path} does not run"))

        found = find(wanted, environment or {}, own, look)
        return found, asked

    def test_the_own_interpreter_serves_its_version(self):
        own = Interpreter(OWN, (3, 11), "3.11.2")
        found, asked = self.find([(3, 11)], {OWN: own})
        assert found == {(3, 11): own}
        assert asked == [OWN]

    def test_those_that_the_user_names_come_first(self):
        own, named = Interpreter(OWN, (3, 11), "3.11.2"), Interpreter("/named", (3, 11), "3.11.9")
        found, _asked = self.find([(3, 11)], {OWN: own, "/named": named}, {VARIABLE: "/broken:/named"})
        assert found == {(3, 11): named}

    def test_one_that_the_user_names_and_that_fails_is_told(self):
        found, _asked = self.find([(3, 8)], {OWN: Interpreter(OWN, (3, 11), "3.11.2")}, {VARIABLE: "/broken"})
        assert found[3, 8].reason == "there is no Python 3.8; /broken does not run"

    def test_a_wrapper_on_path_does_not_hide_the_real_one(self, script, tmp_path):
        wrapper = script("exit 127", "shims/python3.8")
        real = script("", ".pyenv/versions/3.8.18/bin/python3.8")
        interpreter = Interpreter(real, (3, 8), "3.8.18")
        environment = {"PATH": str(tmp_path / "shims"), "HOME": str(tmp_path)}
        found, asked = self.find([(3, 8)], {real: interpreter}, environment)
        assert found == {(3, 8): interpreter}
        assert asked == [OWN, wrapper, real]

    def test_a_name_that_lies(self, script, tmp_path):
        liar = script("")
        found, _asked = self.find([(3, 8)], {liar: Interpreter(liar, (3, 9), "3.9.1")}, {"PATH": str(tmp_path)})
        assert f"{liar} is Python 3.9.1" in found[3, 8].reason


class TestCandidates:
    def test_newest_patch_first(self, script, tmp_path):
        paths = [script("", f".pyenv/versions/{patch}/bin/python3.9") for patch in ("3.9.2", "3.9.18", "3.9.9")]
        found = [path for path in candidates((3, 9), {"HOME": str(tmp_path)}) if path.startswith(str(tmp_path))]
        assert found == [paths[1], paths[2], paths[0]]

    def test_a_folder_of_its_own_for_pyenv(self, script, tmp_path):
        path = script("", "elsewhere/versions/3.9.2/bin/python3.9")
        assert path in candidates((3, 9), {"PYENV_ROOT": str(tmp_path / "elsewhere")})

    def test_another_version_of_the_same_beginning(self, script, tmp_path):
        script("", ".pyenv/versions/3.10.1/bin/python3.10")
        assert not [path for path in candidates((3, 1), {"HOME": str(tmp_path)}) if path.startswith(str(tmp_path))]

    def test_of_uv(self, script, tmp_path):
        name = "uv/cpython-3.14.{}-linux-x86_64-gnu/bin/python3.14"
        old, new = script("", name.format(2)), script("", name.format(11))
        assert [str(path) for path in managed_by_uv(tmp_path / "uv", (3, 14))] == [new, old]
        assert new in candidates((3, 14), {"UV_PYTHON_INSTALL_DIR": str(tmp_path / "uv")})

    def test_a_path_twice_is_tried_once(self, script, tmp_path):
        path = script("")
        twice = os.pathsep.join([str(tmp_path), str(tmp_path)])
        assert list(candidates((3, 8), {"PATH": twice})).count(path) == 1

    def test_what_cannot_be_executed(self, tmp_path):
        (tmp_path / "python3.8").touch()
        assert str(tmp_path / "python3.8") not in candidates((3, 8), {"PATH": str(tmp_path)})
