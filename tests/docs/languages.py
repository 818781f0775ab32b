# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be said of a block without running it, by its language.  A language without a check is an error."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
from typing import Callable, Dict, List

import yaml
from jinja2 import Environment, TemplateSyntaxError

from .blocks import Block
from .console import commands_of
from .content import variable_problems
from .variables import problems_of as variable_problems_of

_LOOKS_LIKE_COMMAND = re.compile(r"\s*(?:\$ |# (?:make|ansible)|(?:ansible|make|ssh|systemctl|docker|podman)[a-z-]* )")


def problems_of(block: Block) -> List[str]:
    """Return what is wrong with a block as it stands there."""
    check = CHECKS.get(block.language)
    if check is None:
        return [f"nobody knows how to test the language {block.language!r}; known are {', '.join(sorted(CHECKS))}"]
    return check(block)


def _console(block: Block) -> List[str]:
    try:
        commands = commands_of(block.text)
    except ValueError as error:
        return [str(error)]
    problems = [problem for command in commands for problem in _shell_problems(command.text, "-n")]
    return problems + [problem for command in commands for problem in _extra_variable_problems(command.text)]


def _extra_variable_problems(text: str) -> List[str]:
    """Return what is wrong with the variables behind -e of a playbook of the collection."""
    if not re.match(r"ansible-playbook .*\binferops\.sglang\.", text, re.DOTALL):
        return []
    words = shlex.split(text, comments=True)
    variables: Dict[str, object] = {}
    for before, word in zip(words, words[1:]):
        if before in ("-e", "--extra-vars") and not word.startswith("@"):
            variables.update(json.loads(word) if word.startswith("{") else dict(re.findall(r"(\w+)=(\S*)", word)))
    return variable_problems_of(variables)


def _yaml(block: Block) -> List[str]:
    try:
        return variable_problems(block)
    except yaml.YAMLError as error:
        return [f"no YAML that Ansible would read: {error}"]


def _json(block: Block) -> List[str]:
    try:
        json.loads(block.text)
    except ValueError as error:
        return [f"no JSON: {error}"]
    return []


def _ini(block: Block) -> List[str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    parser.optionxform = str
    try:
        parser.read_string(block.text)
    except configparser.Error as error:
        return [f"not the format of an INI file: {error}"]
    if block.file.endswith("ansible.cfg"):
        known = _ansible_settings()
        return [
            f"ansible.cfg knows no {key} in [{section}]"
            for section in parser.sections()
            for key in parser[section]
            if (section, key) not in known
        ]
    return []


def _ansible_settings() -> set:
    """Return all (section, key) of ansible.cfg, those of the connection ssh included."""
    from ansible import constants
    from ansible.plugins.connection import ssh

    found = set()
    options = list(constants.config.get_configuration_definitions().values())
    options += yaml.safe_load(ssh.DOCUMENTATION)["options"].values()
    options += [{"ini": [{"section": "defaults", "key": "callback_result_format"}]}]  # of callbacks
    for option in options:
        found.update((entry["section"], entry["key"]) for entry in option.get("ini") or ())
    return found


def _jinja(block: Block) -> List[str]:
    try:
        Environment().parse(block.text)
    except TemplateSyntaxError as error:
        return [f"no template: {error}"]
    return []


def _shell(block: Block) -> List[str]:
    checked = subprocess.run(
        ["shellcheck", "--shell=bash", "-"], input=block.text, capture_output=True, text=True, check=False
    )
    return [checked.stdout] if checked.returncode else []


def _shell_problems(text: str, option: str) -> List[str]:
    checked = subprocess.run(["bash", option], input=text, capture_output=True, text=True, check=False)
    return [f"bash cannot read {text!r}: {checked.stderr.strip()}"] if checked.returncode else []


def _text(block: Block) -> List[str]:
    commands = [line for line in block.text.split("\n") if _LOOKS_LIKE_COMMAND.match(line)]
    return [f"looks like a command, which a block of the language text never has: {line!r}" for line in commands]


def _only_run(_block: Block) -> List[str]:
    """What a story runs, and nothing else can judge."""
    return []


CHECKS: Dict[str, Callable[[Block], List[str]]] = {
    "console": _console,
    "ini": _ini,
    "jinja": _jinja,
    "json": _json,
    "python": _only_run,
    "sh": _shell,
    "sudoers": _only_run,
    "text": _text,
    "yaml": _yaml,
}
