# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pip is asked for, what it answers, and which half of ansible-core a host gets."""

from __future__ import annotations

import pathlib
import zipfile

import environments
import pytest
from cells import NEWEST, OLDEST

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONSTANTS = "REMOTE_ONLY_PYTHON_VERSIONS = ('3.9',)\nCONTROLLER_PYTHON_VERSIONS = (\n    '3.13',\n    '3.14',\n)\n"


class TestPipsReason:
    def test_the_cause_and_not_its_consequence(self):
        errors = (
            "ERROR: Could not find a version that satisfies the requirement ansible-core==2.99.*\n"
            "ERROR: No matching distribution found for ansible-core==2.99.*\n"
        )
        assert environments.pips_reason(errors) == (
            "Could not find a version that satisfies the requirement ansible-core==2.99.*"
        )

    def test_without_the_list_of_all_versions(self):
        versions = ", ".join(f"2.{minor}.{patch}" for minor in range(5) for patch in range(9))
        error = f"ERROR: Could not find a version that satisfies the requirement x (from versions: {versions})\n"
        assert environments.pips_reason(error) == "Could not find a version that satisfies the requirement x"

    def test_without_such_a_line(self):
        assert environments.pips_reason("Traceback\nOSError: no space\n") == "OSError: no space"

    def test_nothing(self):
        assert environments.pips_reason("") == "pip failed and says nothing"


class TestBindingRequirement:
    def test_the_ends_of_the_requirements(self):
        file = ROOT / "tests/requirements/run.txt"
        oldest, newest = (environments.binding_requirement(end, file) for end in (OLDEST, NEWEST))
        lower = oldest.partition("==")[2]
        assert lower
        assert newest.startswith(f"nvidia-ml-py>={lower},<")

    def test_a_file_that_is_written_otherwise(self, tmp_path):
        file = tmp_path / "run.txt"
        file.write_text("nvidia-ml-py\n")
        with pytest.raises(ValueError, match="has no line 'nvidia-ml-py >=VERSION, <VERSION'"):
            environments.binding_requirement(OLDEST, file)


class TestSupported:
    def test_hosts_of_both_kinds(self):
        assert environments.supported(CONSTANTS) == ["3.9", "3.13", "3.14"]

    def test_a_release_that_keeps_them_elsewhere(self):
        with pytest.raises(ValueError, match="REMOTE_ONLY_PYTHON_VERSIONS"):
            environments.supported("VERSIONS = ('3.9',)\n")


@pytest.fixture
def index(monkeypatch):
    """A package index with one release of ansible-core; `asked` has what pip was asked."""

    class Index:
        version = "2.20.1"
        asked = ()

        def pip(self, python, *words):
            assert python == "/python"
            self.asked = (*self.asked, words)
            folder = pathlib.Path(words[words.index("--dest") + 1])
            with zipfile.ZipFile(folder / f"ansible_core-{self.version}-py3-none-any.whl", "w") as wheel:
                wheel.writestr("ansible/__init__.py", "import not_on_hosts\n")
                wheel.writestr("ansible/module_utils/basic.py", f"VERSION = '{self.version}'\n")
                wheel.writestr("ansible/plugins/action/copy.py", "")
                wheel.writestr("ansible_test/_util/target/common/constants.py", CONSTANTS)
            return ""

    index = Index()
    monkeypatch.setattr(environments, "pip", index.pip)
    return index


class TestModulesHalf:
    def test_has_what_a_host_gets_and_nothing_else(self, index, tmp_path):
        half, version = environments.modules_half("2.20", tmp_path, "/python")
        assert version == "2.20.1"
        files = {str(path.relative_to(half)) for path in half.rglob("*.py")}
        assert files == {"ansible/__init__.py", "ansible/module_utils/basic.py"}
        assert (half / "ansible/__init__.py").read_text() == ""

    def test_tells_its_pythons(self, index, tmp_path):
        half, _version = environments.modules_half("2.20", tmp_path, "/python")
        assert environments.target_pythons(half) == [(3, 9), (3, 13), (3, 14)]

    def test_pip_may_not_refuse_it_for_the_controllers_python(self, index, tmp_path):
        environments.modules_half("2.20", tmp_path, "/python")
        assert {"--ignore-requires-python", "ansible-core==2.20.*"} <= set(index.asked[0])
        assert "--pre" not in index.asked[0]

    def test_a_known_line_is_fetched_once(self, index, tmp_path):
        for _time in range(2):
            environments.modules_half("2.20", tmp_path, "/python")
        assert len(index.asked) == 1

    def test_the_newest_is_asked_for_again(self, index, tmp_path):
        environments.modules_half(NEWEST, tmp_path, "/python")
        index.version = "2.21.0rc1"
        half, version = environments.modules_half(NEWEST, tmp_path, "/python")
        assert version == "2.21.0rc1"
        assert "2.21.0rc1" in (half / "ansible/module_utils/basic.py").read_text()
        assert all("--pre" in words for words in index.asked)


class TestCoreRequirement:
    def test_a_known_line_asks_nobody(self, index):
        assert environments.core_requirement("2.20", pathlib.Path("/python")) == "ansible-core==2.20.*"
        assert not index.asked

    def test_the_newest_that_this_python_can_run(self, index):
        index.version = "2.22.0rc1"
        assert environments.core_requirement(NEWEST, pathlib.Path("/python")) == "ansible-core==2.22.0rc1"
        assert "--ignore-requires-python" not in index.asked[0]
