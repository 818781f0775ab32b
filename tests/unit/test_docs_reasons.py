# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/failures.md explains every code that a failure can have, and no other.

The codes are read from the code: wherever one is handed over, what it can be is followed back to the words that
stand in the source, through variables, constants and the parameters of functions.  A place that cannot be followed
fails the test.
"""

from __future__ import annotations

import ast
import collections
import importlib
import pathlib
import re
from dataclasses import dataclass

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_script import SCRIPT_REASONS

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "failures.md"
PACKAGE = "ansible_collections.inferops.sglang."

# What takes a code: by position (None: never) and by keyword.
REASONS = {
    "Blocker": (0, "code"),
    "Failure": (0, "code"),
    "FailureReason": (0, "code"),
    "Judged": (0, "code"),
    "NotReady": (0, "reason"),
    "Progress": (0, "state"),
    "Speculation": (3, "problem"),
    "StartError": (None, "reason"),
    "Verdict": (1, "reason"),
    "WaitResult": (0, "outcome"),
    "_rule": (0, "code"),
    "fail_json": (None, "reason"),
}
# Sentences are collected under a code there.
REASONS_IN = {"plugins/module_utils/gpu/reclaim_report.py": {"setdefault": (0, "key")}}
ROUTERS = {"RouterError": (0, "reason")}
BENCHMARKS = dict.fromkeys(("Refused", "ClientError", "ResultError"), (0, "reason"))
CHECKS = dict.fromkeys(("Check", "ok", "failed", "warning", "skipped"), (0, "name"))

# Attributes and expressions that hand on a code which was made elsewhere.
HANDED_ON = {"code", "name", "outcome", "problem", "reason", "state"}
CHOSEN = {"next(iter(problems))", 'first["reason"]'}
# States of a wait that goes on, or ended well; "died" is replaced by what the log says.
NO_FAILURE = {"", "free", "waiting", "died", "done"}


@dataclass(frozen=True)
class Place:
    """A call, the file that it stands in and the function around it."""

    call: ast.Call
    source: Source
    function: ast.AST | None


class Source:
    """One file of the plugins."""

    def __init__(self, path):
        self.name = path.relative_to(ROOT).as_posix()
        self.module = importlib.import_module(PACKAGE + self.name[: -len(".py")].replace("/", "."))
        self.text = path.read_text(encoding="utf-8")
        self.places = []
        self._collect(ast.parse(self.text), None)

    def _collect(self, node, function):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                self.places.append(Place(child, self, function))
            self._collect(child, child if isinstance(child, ast.FunctionDef) else function)


def sources():
    """The modules and what they are made of."""
    for folder in ("modules", "module_utils"):
        for path in sorted((ROOT / "plugins" / folder).rglob("*.py")):
            if path.name != "__init__.py":
                yield Source(path)


def callee(call):
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


# By the name that is called.
CALLS = collections.defaultdict(list)
for _source in sources():
    for _place in _source.places:
        CALLS[callee(_place.call)].append(_place)


def written(node, place):
    """An expression as it stands in the source; ast.unparse came with Python 3.9."""
    return ast.get_source_segment(place.source.text, node)


def argument(call, position, keyword):
    """The expression that a call gives for a parameter, None where it gives none."""
    for given in call.keywords:
        if given.arg == keyword:
            return given.value
    if position is not None and position < len(call.args):
        return call.args[position]
    return None


def words(node, place):
    """All texts that an expression may be."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.IfExp):
        return words(node.body, place) | words(node.orelse, place)
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant):
        return {node.left.value.replace("%d", "N")}
    try:
        value = eval(compile(ast.Expression(node), place.source.name, "eval"), dict(vars(place.source.module)))
    except (AttributeError, NameError):
        value = None
    if isinstance(value, str):
        return {value}
    if isinstance(node, ast.Name):
        found = assigned(node.id, place)
        return found if found is not None else passed(node.id, place)
    if (isinstance(node, ast.Attribute) and node.attr in HANDED_ON) or written(node, place) in CHOSEN:
        return set()
    raise AssertionError(f"{place.source.name}:{node.lineno}: what can {written(node, place)} be?")


def assigned(name, place):
    """What a variable of the function may be, None where it is none."""
    found = None
    for node in ast.walk(place.function):
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id == name:
            found = (found or set()) | words(node.value, place)
        elif isinstance(target, ast.Tuple):
            names = [getattr(item, "id", "") for item in target.elts]
            if name in names:
                found = (found or set()) | unpacked(node.value, names.index(name), place)
    return found


def unpacked(value, number, place):
    """The part of that number of a tuple, or of each row of a table."""
    if isinstance(value, ast.Tuple):
        return words(value.elts[number], place)
    table = getattr(place.source.module, value.value.id)
    return {row[number] for row in table.values()}


def passed(name, place):
    """What the callers of the function give for one of its parameters."""
    function = place.function
    parameters = [parameter.arg for parameter in function.args.args]
    assert name in parameters, f"{place.source.name}:{function.lineno}: what can {name} be?"
    method = parameters[0] == "self"
    position = parameters.index(name) - method
    private = method or function.name.startswith("_")
    found = set()
    for caller in CALLS[function.name]:
        if isinstance(caller.call.func, ast.Attribute) == method and (caller.source is place.source or not private):
            given = argument(caller.call, position, name)
            found |= words(given, caller) if given is not None else set()
    return found


def codes(takers, *folders):
    """The codes that are made in files whose path begins so."""
    everywhere = [(name, where, "") for name, where in takers.items()]
    in_one = [(name, where, file) for file, more in REASONS_IN.items() for name, where in more.items()]
    found = set()
    for name, where, file in everywhere + (in_one if takers is REASONS else []):
        for place in CALLS[name]:
            if place.source.name.startswith(folders) and file in ("", place.source.name):
                given = argument(place.call, *where)
                found |= words(given, place) if given is not None else set()
    return found - NO_FAILURE


def outcomes():
    """What the report of a playbook may say of a host."""
    text = (ROOT / "plugins" / "plugin_utils" / "restart_report.py").read_text(encoding="utf-8")
    functions = [node for node in ast.walk(ast.parse(text)) if getattr(node, "name", "") == "_outcome"]
    returned = [node.value for node in ast.walk(functions[0]) if isinstance(node, ast.Return)]
    ends = [end for value in returned for end in ([value.body, value.orelse] if hasattr(value, "orelse") else [value])]
    return {end.value for end in ends}


def of_the_guard():
    """What the guard may say of a group: constants of its decision."""
    text = (ROOT / "plugins" / "plugin_utils" / "guard_decision.py").read_text(encoding="utf-8")
    assigned = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    return {node.value.value for node in assigned if isinstance(getattr(node.value, "value", None), str)}


FOUND = {
    "What the table says": outcomes,
    "GPUs": lambda: codes(
        REASONS, "plugins/modules/gpu_", "plugins/module_utils/modules/gpu_", "plugins/module_utils/gpu/"
    ),
    # One is made on the controller, by the action plugin of the wait.
    "Servers": lambda: (
        codes(
            REASONS, "plugins/modules/sglang_", "plugins/module_utils/modules/sglang_", "plugins/module_utils/sglang/"
        )
        | {"peer_failed"}
    ),
    "Routers": lambda: codes(
        ROUTERS, "plugins/modules/sglang_", "plugins/module_utils/modules/sglang_", "plugins/module_utils/sglang/"
    ),
    # Some are made in the program that runs in SGLang's interpreter.
    "Benchmarks": lambda: codes(BENCHMARKS, "plugins/module_utils/sglang/benchmark/") | set(SCRIPT_REASONS),
    "The guard": of_the_guard,
    "Checks": lambda: codes(
        CHECKS, "plugins/modules/sglang_", "plugins/module_utils/modules/sglang_", "plugins/module_utils/sglang/"
    ),
}


def explained(section):
    """The codes in the first column of the tables of a section of the guide."""
    text = GUIDE.read_text(encoding="utf-8")
    body = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert body, f"docs/failures.md has no section {section}"
    cells = re.findall(r"^\| *(`[^|]*?) *\|", body.group(1), re.MULTILINE)
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("section", FOUND)
def test_every_code_is_explained_once(section):
    listed = explained(section)
    assert sorted(listed) == sorted(FOUND[section]())
