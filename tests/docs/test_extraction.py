# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read from a page, and what is refused in it."""

from __future__ import annotations

import pytest

from .blocks import Block, BlockError, blocks_of
from .console import Command, commands_of, matches
from .content import Kind, kind_of, variable_problems
from .languages import problems_of
from .steps import lighter, steps_of
from .substitutions import SUBSTITUTIONS, typed


def block(text, language="yaml", **notes):
    """Return a block of a page."""
    return Block("page.md", 1, language, text, {name.replace("_", "-"): value for name, value in notes.items()})


def test_blocks_with_their_place_language_and_notes():
    page = (
        "# Title\n\n```console\n$ a\n```\n\n* in a list\n\n  <!-- test: story=other expect=2 -->\n"
        '  ```yaml\n  # hosts.yml\n  a: 1\n  ```\n\n<!-- test: not-run="no such device" -->\n```text\nx\n```\n'
    )
    assert blocks_of("p.md", page) == [
        Block("p.md", 3, "console", "$ a\n"),
        Block("p.md", 10, "yaml", "# hosts.yml\na: 1\n", {"story": "other", "expect": "2"}),
        Block("p.md", 16, "text", "x\n", {"not-run": "no such device"}),
    ]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```\nx\n```\n", "p.md:1: a block without a language"),
        ("text\n\n    indented\n", "p.md:3: an indented block"),
        ("<!-- test: check -->\n\ntext\n", "p.md:1: this comment for the tests is not directly above a block"),
        ("```text\n```\n<!-- test: check -->\n", "p.md:3: this comment"),
        ("<!-- test: check -->\n\n<!-- test: syntax -->\n```text\n```\n", "p.md:1: this comment"),
        ("<!-- test: chek -->\n```text\n```\n", "p.md:1: there is no note 'chek'"),
        ("<!-- test: expect= -->\n```text\n```\n", "the note 'expect' takes a value"),
        ("<!-- test: check=yes -->\n```text\n```\n", "the note 'check' takes no value"),
        ("<!-- test: check check -->\n```text\n```\n", "the note 'check' takes no value, and stands once"),
        ("<!-- test: -->\n```text\n```\n", "says nothing"),
    ],
)
def test_pages_that_are_refused(page, message):
    with pytest.raises(BlockError, match="^.*" + message.replace(".", r"\.")):
        blocks_of("p.md", page)


@pytest.mark.parametrize(
    ("text", "language", "notes", "file"),
    [
        ("# hosts.yml\na: 1\n", "yaml", {}, "hosts.yml"),
        ("# group_vars/all/main.yml\na: 1\n", "yaml", {}, "group_vars/all/main.yml"),
        ("; ansible.cfg\n[defaults]\n", "ini", {}, "ansible.cfg"),
        ("# a remark on hosts.yml\na: 1\n", "yaml", {}, ""),
        ("# /etc/sudoers.d/deploy\n", "sudoers", {}, ""),
        ("# site.yml\n", "console", {}, ""),
        ("{}\n", "json", {"file": "report.json"}, "report.json"),
    ],
)
def test_file_of_a_block(text, language, notes, file):
    assert block(text, language, **notes).file == file


def test_commands_with_their_output_and_further_lines():
    text = "$ a \\\n    b\nprinted\n\nmore\n# c\n$ d # remark\n"
    assert commands_of(text) == [
        Command("$", "a \\\nb", ("printed", "", "more")),
        Command("#", "c"),
        Command("$", "d # remark"),
    ]


def test_output_without_a_command_is_refused():
    with pytest.raises(ValueError, match="the first line is no command"):
        commands_of("ansible-playbook x\n")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (["a"], "a\n", True),
        (["a"], "a  \n\n", True),
        (["a"], "b\n", False),
        (["a"], "a\nb\n", False),
        (["a", "..."], "a\nb\nc\n", True),
        (["a", "..."], "a\n", True),
        (["...", "c"], "a\nb\n", False),
        (["took … s"], "took 1.5 s\n", True),
        (["took ... s"], "took 1.5 h\n", False),
        (["(x) [y]* ..."], "(x) [y]* z\n", True),
    ],
)
def test_output_is_compared(expected, printed, same):
    assert matches(expected, printed) is same


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("all:\n  hosts:\n    a:\n", Kind.INVENTORY),
        ("gpu_hosts:\n  children:\n    x: {hosts: {a: }}\n", Kind.INVENTORY),
        ("- hosts: all\n  tasks: []\n", Kind.PLAYBOOK),
        ("- ansible.builtin.import_playbook: x.yml\n", Kind.PLAYBOOK),
        ("- name: x\n  ansible.builtin.ping:\n", Kind.TASKS),
        ("sglang_port: 1\n", Kind.VARIABLES),
        ("sglang_spec_profiles:\n  a: {algorithm: EAGLE3}\n", Kind.VARIABLES),
        ("collections:\n  - inferops.sglang\n", Kind.COLLECTIONS),
        ("plugin: ansible.builtin.constructed\nstrict: true\n", Kind.SOURCE),
        ("[a, b]\n", Kind.OTHER),
        ("just words\n", Kind.OTHER),
    ],
)
def test_kind_of_yaml(text, kind):
    assert kind_of(block(text)) is kind


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sglang_prot: 1\n", "sglang_prot: nobody reads"),
        ("sglang_port: many\n", "sglang_port: "),
        ("sglang_manager: upstart\n", "sglang_manager: value of sglang_manager must be one of"),
        ("sglang_spec_nmu_steps: 1\n", "nobody reads"),
        ("sglang_container: {image: x, engin: docker}\n", "engin"),
        ("sglang_spec_profile: mine\nsglang_spec_profiles: {mine: {num_step: 3}}\n", "no setting 'num_step'"),
        (
            "sglang_spec_num_steps: 2\nsglang_spec_profile: a\nsglang_spec_profiles: {a: {num_steps: 3}}\n",
            "sets num_steps to 3",
        ),
        ("gpu_hosts:\n  hosts: {a: {ansible_hots: b}}\n", "a: ansible_hots: nobody reads"),
        ("gpu_free_gpus: {a: 1}\n", "gpu_free_gpus: "),
        ("plugin: x.y.z\ncompose: {sglang_replica_grup: a}\n", "sglang_replica_grup: nobody reads"),
        ("just words\n", "it is no inventory"),
    ],
)
def test_variables_that_are_wrong(text, problem):
    problems = variable_problems(block(text))
    assert len(problems) == 1
    assert problem in problems[0]


@pytest.mark.parametrize(
    "text",
    [
        "sglang_port: '{{ my_port }}'\nansible_pct_vmid: 129\nvault_key: x\nansible_become: true\n",
        "sglang_spec_profiles: {a: {num_steps: 3}, b: {num_steps: 4}}\nsglang_spec_num_steps: 2\n",
        "plugin: ansible.builtin.constructed\ncompose: {sglang_replica_group: service}\n",
        "sglang_hosts: all\nsglang_ramp: 1\nsglang_report_path: x\ngpu_free_users: [a]\n",
    ],
)
def test_variables_that_are_right(text):
    assert variable_problems(block(text)) == []


@pytest.mark.parametrize(
    ("text", "language", "problem"),
    [
        ("x", "fortran", "nobody knows how to test the language 'fortran'"),
        ("{", "json", "no JSON"),
        ("{{ x", "jinja", "no template"),
        ("a\n", "ini", "not the format"),
        ("# ansible.cfg\n[defaults]\nfroks = 3\n", "ini", "knows no froks in [defaults]"),
        ("a: 1\na: 2\n", "yaml", "a stands twice"),
        ("rm $x\n", "sh", "SC2086"),
        ("$ if\n", "console", "bash cannot read 'if'"),
        ("$ ansible-playbook inferops.sglang.rollback -e sglang_realese=1\n", "console", "sglang_realese: nobody"),
        ('$ ansible-playbook inferops.sglang.rollback -e \'{"sglang_gpus": {"a": 1}}\'\n', "console", "sglang_gpus: "),
        ("ansible-playbook x.yml\n", "text", "looks like a command"),
    ],
)
def test_blocks_that_are_wrong(text, language, problem):
    assert problem in "\n".join(problems_of(block(text, language)))


def test_tasks_that_follow_each_other_are_one_step():
    task = "- ansible.builtin.ping:\n"
    blocks = [
        block(task),
        block("sglang_port: 1\n"),
        block(task),
        block("$ a\n", "console"),
        block(task),
        block(task, check=""),
        block("$ b\n", "console", not_run="why"),
        block("# x.yml\n- hosts: all\n"),
    ]
    assert steps_of(blocks) == [[blocks[0], blocks[2]], [blocks[3]], [blocks[4]], [blocks[5]]]


@pytest.mark.parametrize(
    ("text", "notes", "expected"),
    [
        ("ansible-playbook x.yml", {"check": ""}, "ansible-playbook x.yml --check"),
        ("ansible-playbook x.yml   # remark", {"syntax": ""}, "ansible-playbook x.yml   --syntax-check"),
        ("ansible-playbook x.yml", {}, "ansible-playbook x.yml"),
        ("make unit", {"check": ""}, "make unit"),
    ],
)
def test_lighter_commands(text, notes, expected):
    assert lighter(text, block("", "console", **notes)).split() == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ansible-galaxy collection install inferops.sglang", "ansible-galaxy collection install --offline <archive>"),
        (
            "ansible-galaxy collection install -U inferops.sglang:1.2.3",
            "ansible-galaxy collection install -U --offline <archive>",
        ),
        ("make unit PYTEST_ARGS='-k x'", "make --directory=<root> --dry-run unit PYTEST_ARGS='-k x'"),
        ("x -e sglang_release=20261129T18", "x -e sglang_release=<oldest_release>"),
        ("ansible-playbook inferops.sglang.rollback", "ansible-playbook inferops.sglang.rollback"),
    ],
)
def test_substitutions(text, expected):
    assert typed(text, lambda name: f"<{name}>") == expected


def test_every_substitution_has_a_reason():
    assert all(reason for _pattern, _typed, reason in SUBSTITUTIONS)
