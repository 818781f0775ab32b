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
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import options
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import audit_options

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
ON_THE_HOST = sorted((ROOT / "plugins").glob("module*/**/*.py"))


def load(path):
    """Read a YAML file of the collection."""
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def documentation(module, name):
    """One of a module's blocks of documentation, read."""
    tree = ast.parse((ROOT / f"plugins/modules/{module}.py").read_text(encoding="utf-8"))
    (text,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == [name]
    ]
    return yaml.safe_load(text)


def incomplete(keys, path):
    """Name each returned key that lacks something that its reader needs."""
    for name, key in keys.items():
        here = f"{path}.{name}"
        wanted = {"description", "returned", "type"}
        wanted |= {"elements"} if key.get("type") == "list" else set()
        # The sample of what has keys of its own is theirs.
        wanted |= set() if key.get("contains") else {"sample"}
        yield from (f"{here} has no {word}" for word in sorted(wanted - set(key)))
        yield from incomplete(key.get("contains", {}), here)


def table_rows(text):
    """The rows of tables with the columns Variable and Default: names, and the second cell."""
    in_table = False
    for line in text.splitlines():
        parts = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            in_table = False
        elif parts[:2] == ["Variable", "Default"]:
            in_table = True
        elif in_table and not set(line) <= set("|- "):
            names = re.findall(r"`(\w+)`", parts[0])
            if names:
                yield names, parts[1]


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

    def test_galaxy_is_told_everything(self):
        galaxy = load("galaxy.yml")
        links = ("repository", "documentation", "homepage", "issues")
        known = {"namespace", "name", "version", "readme", "authors", "description", "license", "tags", "dependencies"}
        assert set(galaxy) == known | set(links) | {"build_ignore"}
        assert all(galaxy[name].startswith("https://") for name in links)
        assert (ROOT / galaxy["readme"]).is_file()
        # Galaxy takes no more than 20 tags, each in this form.
        assert 0 < len(galaxy["tags"]) <= 20
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", tag) for tag in galaxy["tags"])

    def test_what_a_controller_needs_is_named_in_files_that_are_there(self):
        needed = load("meta/execution-environment.yml")["dependencies"]
        # A requirement of Python packages would be one for every controller: there is none.
        assert set(needed) == {"system"}
        assert (ROOT / needed["system"]).is_file()


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

    def options(self, role):
        return self.specs(role)["main"]["options"]

    def test_has_a_readme(self, role):
        assert (ROOT / "roles" / role / "README.md").stat().st_size > 0

    def test_main_entry_point_describes_every_default(self, role):
        # An entry point of its own part of the role may have fewer options; the main one has all.
        options = self.specs(role)["main"]["options"]
        optional = {name for name, option in options.items() if not option.get("required")}
        assert optional == set(load(f"roles/{role}/defaults/main.yml"))

    def test_defaults_are_the_same_in_both_places(self, role):
        # One that is computed stands in words in the description.
        plain = {
            name: value
            for name, value in load(f"roles/{role}/defaults/main.yml").items()
            if not (isinstance(value, str) and "{{" in value)
        }
        described = {name: spec["default"] for name, spec in self.options(role).items() if "default" in spec}
        assert described == plain
        # 1, 1.0 and true are equal in Python, and not in YAML.
        assert {name: type(value) for name, value in described.items()} == {
            name: type(value) for name, value in plain.items()
        }

    def test_computed_defaults_say_what_they_are(self, role):
        for name, spec in self.options(role).items():
            if "default" in spec or spec.get("required"):
                continue
            text = " ".join(spec["description"] if isinstance(spec["description"], list) else [spec["description"]])
            assert "Default is" in text, name
            expression = load(f"roles/{role}/defaults/main.yml")[name]
            computed = re.fullmatch(r"\{\{ (sglang_\w+) \| default\((.*)\) \}\}", expression)
            if computed:
                variable, otherwise = computed.groups()
                assert f"C({variable})" in text, name
                # What an empty one means stands in words.
                if not otherwise.startswith("__") and otherwise not in ("''", "[]", "{}"):
                    value = otherwise.strip("'") if otherwise.startswith("'") else otherwise
                    assert f"else V({value})" in text, name

    def test_defaults_are_what_the_options_take(self, role):
        options = self.options(role)
        given = {name: spec["default"] for name, spec in options.items() if "default" in spec}
        words = ("type", "elements", "choices")
        spec = {name: {word: options[name][word] for word in words if word in options[name]} for name in given}
        assert ArgumentSpecValidator(spec).validate(dict(given)).error_messages == []

    def test_readme_says_the_same_defaults(self, role):
        specs = self.options(role)
        rows = list(table_rows((ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")))
        for names, cell in rows:
            literal = re.fullmatch(r"`([^`]*)`", cell)
            for name in names:
                # Words describe a computed default, and what an empty one means.
                if literal and "default" in specs[name]:
                    assert yaml.safe_load(literal.group(1)) == specs[name]["default"], name
        # A table is of all variables; a README without one refers to ansible-doc.
        assert {name for names, _cell in rows for name in names} in (set(), set(specs))

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
        # Capitals stand for any name.
        named = re.findall(rf"\b{role}_[a-z]\w*", (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8"))
        assert set(named) <= set(re.findall(rf"\b{role}_\w+", spec))


class TestCompleteness:
    def test_the_role_gives_gpu_reclaim_every_option(self):
        given = load("roles/gpu_free/vars/main.yml")["__gpu_free_reclaim_arguments"]
        specs = (options.selection_spec(), options.reclaim_spec(), options.allow_spec(), audit_options())
        assert set(given) == {name for spec in specs for name in spec}

    @pytest.mark.parametrize("module", MODULES)
    def test_every_module_has_a_unit_test(self, module):
        tests = ROOT / "tests/unit/plugins"
        # What an action plugin does for its module is tested there.
        candidates = [tests / "modules" / f"test_{module}.py", tests / "action" / f"test_{module}.py"]
        assert any(path.is_file() for path in candidates), f"none of {[str(path) for path in candidates]}"

    @pytest.mark.parametrize("module", MODULES)
    def test_every_returned_key_is_described(self, module):
        assert list(incomplete(documentation(module, "RETURN"), module)) == []

    @pytest.mark.parametrize("source", ON_THE_HOST, ids=lambda path: str(path.relative_to(ROOT)))
    def test_host_code_parses_as_python_3_8(self, source):
        ast.parse(source.read_text(encoding="utf-8"), filename=str(source), feature_version=(3, 8))

    def test_module_utils_know_nothing_of_ansible(self):
        utils = ROOT / "plugins/module_utils"
        # The code of modules, and what runs them.
        at_home = {*(utils / "modules").glob("*.py"), utils / "deploying/step_module.py"}
        for source in set(utils.rglob("*.py")) - at_home:
            text = source.read_text(encoding="utf-8")
            assert "AnsibleModule" not in re.sub(r'""".*?"""', "", text, flags=re.DOTALL), source


class TestLicences:
    # In two pieces: the licence tool takes the whole for this file's own, with what follows on the line.
    TAG = "SPDX-License-" + "Identifier: GPL-3.0-or-later"
    # Their licence stands in REUSE.toml: they are generated, or have no room for a comment.
    ANNOTATED = re.compile(
        r"COPYING|CHANGELOG\.rst|roles/[a-z_]+/files/.*\.jsonl|changelogs/changelog\.yaml|LICENSES/.*|.*\.json|tests/sanity/ignore-.*|docs/examples/.*"
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
