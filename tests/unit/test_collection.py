# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for the collection as a whole: metadata, roles, licences, and that nothing is without a test."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import options

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
ON_THE_HOST = sorted((ROOT / "plugins").glob("module*/**/*.py"))


def load(path):
    """Read a YAML file of the collection."""
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def sources():
    """List the files that git tracks or would track; all files where this is no checkout."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if listing.returncode == 0:
        return sorted(ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file())
    return sorted(path for path in ROOT.rglob("*") if path.is_file())


class TestMetadata:
    def test_no_dependencies(self):
        assert load("galaxy.yml")["dependencies"] == {}

    def test_ansible_core_has_a_lower_bound_only(self):
        assert re.fullmatch(r">=\d+\.\d+\.\d+", load("meta/runtime.yml")["requires_ansible"])

    def test_action_group_names_every_module(self):
        assert sorted(load("meta/runtime.yml")["action_groups"]["all"]) == MODULES

    def test_every_action_plugin_has_a_module(self):
        assert {path.stem for path in (ROOT / "plugins/action").glob("*.py")} <= set(MODULES)

    def test_versions_agree(self):
        current = tuple(map(int, load("galaxy.yml")["version"].split(".")))
        for module in MODULES:
            text = (ROOT / f"plugins/modules/{module}.py").read_text(encoding="utf-8")
            added = re.search(r"^version_added: ['\"]?(\d+)\.(\d+)\.(\d+)", text, re.MULTILINE)
            assert added, f"{module} does not say since when it exists"
            assert tuple(map(int, added.groups())) <= current, module

    def test_what_is_built_is_not_packed(self):
        ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
        folders = {line.strip("/") for line in ignored if line.startswith("/") and line.endswith("/")}
        assert folders <= set(load("galaxy.yml")["build_ignore"])


class TestChangelog:
    SECTIONS = frozenset(section for section, _title in load("changelogs/config.yaml")["sections"])
    FRAGMENTS = sorted((ROOT / "changelogs/fragments").glob("*.y*ml"))

    @pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
    def test_fragment_has_known_sections(self, fragment):
        content = yaml.safe_load(fragment.read_text(encoding="utf-8"))
        assert content
        for section, entries in content.items():
            if section == "release_summary":
                assert isinstance(entries, str)
            else:
                assert section in self.SECTIONS | {"trivial"}
                assert entries
                assert all(isinstance(entry, str) for entry in entries)


@pytest.mark.parametrize("role", ROLES)
class TestRoles:
    def specs(self, role):
        return load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]

    def test_has_a_readme(self, role):
        assert (ROOT / "roles" / role / "README.md").stat().st_size > 0

    def test_main_entry_point_describes_every_default(self, role):
        # An entry point of its own part of the role may have fewer options; the main one has all.
        options = self.specs(role)["main"]["options"]
        optional = {name for name, option in options.items() if not option.get("required")}
        assert optional == set(load(f"roles/{role}/defaults/main.yml"))

    def test_entry_points_are_task_files(self, role):
        public = {path.stem for path in (ROOT / "roles" / role / "tasks").glob("*.yml")}
        assert set(self.specs(role)) <= public

    def test_entry_points_know_no_other_options(self, role):
        specs = self.specs(role)
        for name, spec in specs.items():
            assert set(spec.get("options", {})) <= set(specs["main"]["options"]), name

    def test_variables_carry_the_role_name(self, role):
        for name in load(f"roles/{role}/defaults/main.yml"):
            assert name.startswith(f"{role}_"), name

    def test_readme_names_no_variable_that_is_gone(self, role):
        spec = (ROOT / "roles" / role / "meta/argument_specs.yml").read_text(encoding="utf-8")
        named = re.findall(rf"\b{role}_\w+", (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8"))
        assert set(named) <= set(re.findall(rf"\b{role}_\w+", spec))


class TestCompleteness:
    def test_the_role_gives_gpu_reclaim_every_option(self):
        given = load("roles/gpu_free/vars/main.yml")["__gpu_free_reclaim_arguments"]
        specs = (options.selection_spec(), options.reclaim_spec(), options.allow_spec())
        assert set(given) == {name for spec in specs for name in spec}

    @pytest.mark.parametrize("module", MODULES)
    def test_every_module_has_a_unit_test(self, module):
        tests = ROOT / "tests/unit/plugins"
        # What an action plugin does for its module is tested there.
        candidates = [tests / "modules" / f"test_{module}.py", tests / "action" / f"test_{module}.py"]
        assert any(path.is_file() for path in candidates), f"none of {[str(path) for path in candidates]}"

    @pytest.mark.parametrize("source", ON_THE_HOST, ids=lambda path: str(path.relative_to(ROOT)))
    def test_host_code_parses_as_python_3_8(self, source):
        ast.parse(source.read_text(encoding="utf-8"), filename=str(source), feature_version=(3, 8))

    def test_module_utils_know_nothing_of_ansible(self):
        for source in (ROOT / "plugins/module_utils").rglob("*.py"):
            text = source.read_text(encoding="utf-8")
            assert "AnsibleModule" not in re.sub(r'""".*?"""', "", text, flags=re.DOTALL), source


class TestLicences:
    # In two pieces: the licence tool takes the whole for this file's own, with what follows on the line.
    TAG = "SPDX-License-" + "Identifier: GPL-3.0-or-later"
    # Their licence stands in REUSE.toml: they are generated, or have no room for a comment.
    ANNOTATED = re.compile(
        r"COPYING|CHANGELOG\.rst|changelogs/changelog\.yaml|LICENSES/.*|.*\.json|tests/sanity/ignore-.*"
    )

    def test_every_file_names_its_licence(self):
        silent = []
        for path in sources():
            name = str(path.relative_to(ROOT))
            if self.ANNOTATED.fullmatch(name) or path.stat().st_size == 0:
                continue
            if self.TAG not in path.read_text(encoding="utf-8")[:1000]:
                silent.append(name)
        assert not silent

    def test_licence_text_is_in_both_places(self):
        assert (ROOT / "COPYING").read_bytes() == (ROOT / "LICENSES/GPL-3.0-or-later.txt").read_bytes()
