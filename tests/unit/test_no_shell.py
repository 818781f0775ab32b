# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""No value reaches a shell: programs are started as lists of words, by modules and by tasks.

Whoever names a process, a unit, a container or a model would otherwise run what the name says, as root.
"""

from __future__ import annotations

import ast
import pathlib
import re

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.run import clear_words, end_words
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerSettings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "plugins").rglob("*.py"))
TASKS = sorted(path for folder in ("roles", "playbooks") for path in (ROOT / folder).rglob("*.yml"))

# Only there a process is started; each takes a list of words.
STARTERS = {
    "plugins/module_utils/system/commands.py",
    "plugins/module_utils/gpu/smi_runner.py",
    "plugins/module_utils/sglang/processes/server_process.py",
    "plugins/module_utils/sglang/benchmark/client_process.py",
}
# These run a command line through a shell, or take one apart as a shell does.
SHELLS = {
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "commands.getoutput",
    "asyncio.create_subprocess_shell",
    "pty.spawn",
    "shlex.split",
    "eval",
    "exec",
    "__import__",
    "pickle.load",
    "marshal.loads",
    "yaml.load",
    "yaml.unsafe_load",
}
PROCESSES = re.compile(r"(?:subprocess\.(?:Popen|run|call|check_call|check_output)|os\.(?:exec|spawn|posix_spawn)\w*)")
INTERPRETERS = {"sh", "bash", "dash", "ash", "zsh", "/bin/sh", "/bin/bash", "ssh", "su", "eval", "xargs"}
# The connection's job is to bring Ansible's own command line through ssh and pct; see test_pct_command.py.
THROUGH_A_SHELL = {"plugins/connection/pct.py", "plugins/plugin_utils/pct_command.py"}
# One script that no value is part of: they are its arguments.
FIXED_SCRIPTS = {"plugins/module_utils/sglang/containers/run.py"}
# Ansible's modules that take a command line, or parse one.
SHELL_MODULES = {"shell", "raw", "script", "expect", "win_shell"}
COMMANDS = {"command"}
WITH_TEXT = {"cmd", "_raw_params", "free_form"}


def dotted(node: ast.expr) -> str:
    """The name of what is called, "" where it is no name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""


def is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def is_text(node: ast.expr) -> bool:
    """Whether it is a text, or one is put together there."""
    if isinstance(node, ast.BinOp):
        return is_text(node.left) or is_text(node.right)
    return isinstance(node, (ast.Constant, ast.JoinedStr))


def words_of(node: ast.expr) -> list[str]:
    """The words of a list that stand there as they are."""
    if not isinstance(node, (ast.List, ast.Tuple)):
        return []
    return [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def problems_of_source(text: str, name: str = "") -> list[str]:
    """What a source does with shells."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.List, ast.Tuple)) and name not in THROUGH_A_SHELL | FIXED_SCRIPTS:
            words = words_of(node)
            if len(words) > 1 and words[0] in INTERPRETERS and any(word in ("-c", "-lc") for word in words):
                found.append("%d: a list of words that starts a shell" % node.lineno)
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        if called in SHELLS:
            found.append("%d: %s" % (node.lineno, called))
        for keyword in node.keywords:
            if keyword.arg in ("shell", "use_unsafe_shell") and not (
                is_literal(keyword.value) and not keyword.value.value
            ):
                found.append("%d: %s with %s" % (node.lineno, called, keyword.arg))
        if called.endswith("run_command") and (not node.args or is_text(node.args[0])):
            found.append("%d: run_command with no list of words" % node.lineno)
        if PROCESSES.fullmatch(called):
            if name and name not in STARTERS:
                found.append("%d: %s, which belongs into %s" % (node.lineno, called, ", ".join(sorted(STARTERS))))
            first = node.args[0] if node.args else None
            if first is not None and is_text(first):
                found.append("%d: %s with a text" % (node.lineno, called))
    return found


def tasks_of(document):
    """All tasks of a file, those in blocks too."""
    for item in document if isinstance(document, list) else []:
        if not isinstance(item, dict):
            continue
        yield item
        for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            yield from tasks_of(item.get(key))


def problems_of_tasks(text: str) -> list[str]:
    """What the tasks of a file do with shells."""
    found = []
    for task in tasks_of(yaml.safe_load(text)):
        for key, value in task.items():
            module = str(key).rpartition(".")[2]
            if module in SHELL_MODULES:
                found.append("%s: %s" % (task.get("name"), key))
            elif module in COMMANDS or key in ("action", "local_action"):
                words = value if isinstance(value, dict) else {"_raw_params": value}
                if any("{{" in str(words.get(name, "")) for name in WITH_TEXT):
                    found.append("%s: %s with a template in a text" % (task.get("name"), key))
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "plugins")))
def test_no_source_uses_a_shell(source):
    assert not problems_of_source(source.read_text(encoding="utf-8"), str(source.relative_to(ROOT)))


HOSTILE = "$(touch /tmp/pwned)`id`'\";\n%n ${HOME}"


def test_the_script_that_removes_containers_is_always_the_same():
    scripts = set()
    for engine, instance in (("/usr/bin/docker", "main"), ("/opt/" + HOSTILE, "a-b")):
        settings, paths = ContainerSettings("docker", engine, HOSTILE), InstancePaths(instance)
        words = (clear_words(settings, paths), end_words(settings, paths, 5.0))
        assert all(line[:2] == ["/bin/sh", "-c"] and line[4] == engine for line in words)
        scripts.add(tuple(line[2] for line in words))
    assert len(scripts) == 1
    # Each use of an argument is between quotes.
    ((clear, end),) = scripts
    assert re.sub(r'"(?:label=)?\$(?:[123]|id)"', "", clear + end).count("$") == 2


@pytest.mark.parametrize("tasks", TASKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_task_uses_a_shell(tasks):
    assert not problems_of_tasks(tasks.read_text(encoding="utf-8"))


def test_there_is_something_to_look_at():
    assert len(SOURCES) > 100 and len(TASKS) > 20
    assert all((ROOT / name).is_file() for name in STARTERS | THROUGH_A_SHELL | FIXED_SCRIPTS)


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.system('ls ' + name)",
        "subprocess.Popen('ls %s' % name)",
        "subprocess.run(f'ls {name}', check=True)",
        "subprocess.run(words, shell=True, check=True)",
        "subprocess.run(words, shell=flag, check=True)",
        "module.run_command('ls %s' % name)",
        "module.run_command(words, use_unsafe_shell=True)",
        "run(['sh', '-c', 'kill ' + pid], 5)",
        "run(['ssh', host, '-c', text], 5)",
        "shlex.split(line)",
        "eval(text)",
    ],
)
def test_the_look_at_sources_finds(text):
    assert problems_of_source(text)


@pytest.mark.parametrize(
    "text",
    [
        "- name: x\n  ansible.builtin.shell: kill {{ pid }}",
        "- name: x\n  ansible.builtin.raw: ls",
        "- name: x\n  ansible.builtin.command: kill {{ pid }}",
        "- name: x\n  command:\n    cmd: 'kill {{ pid }}'",
        "- name: x\n  block:\n    - name: y\n      shell: ls",
        "- hosts: all\n  tasks:\n    - local_action: command rm {{ path }}",
    ],
)
def test_the_look_at_tasks_finds(text):
    assert problems_of_tasks(text)


@pytest.mark.parametrize(
    "text", ["- name: x\n  ansible.builtin.command:\n    argv: [docker, pull, '{{ image }}']", "- hosts: all"]
)
def test_the_look_at_tasks_lets_lists_of_words_pass(text):
    assert not problems_of_tasks(text)
