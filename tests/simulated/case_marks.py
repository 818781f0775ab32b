# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rows of a table of cases the tests of this folder name in their marks."""

from __future__ import annotations

import ast
import pathlib

HERE = pathlib.Path(__file__).resolve().parent


def marked(name):
    """The tests by the arguments of their marks `pytest.mark.NAME(argument, ...)`."""
    found = {}
    for file in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            for mark in getattr(node, "decorator_list", []):
                if isinstance(mark, ast.Call) and _dotted(mark.func) == "pytest.mark." + name:
                    for argument in mark.args:
                        found.setdefault(ast.literal_eval(argument), []).append("%s::%s" % (file.name, node.name))
    return found


def _dotted(node):
    """A name with its attributes, as it is written; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return "%s.%s" % (_dotted(node.value), node.attr)
    return node.id if isinstance(node, ast.Name) else ""
