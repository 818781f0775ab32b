# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each folder of module_utils imports from those before it in the list below, never from those after it."""

from __future__ import annotations

import ast
import pathlib

import pytest

MODULE_UTILS = pathlib.Path(__file__).resolve().parents[2] / "plugins" / "module_utils"
PACKAGE = "ansible_collections.inferops.sglang.plugins.module_utils."

# From the ground up; docs/architecture.md says what each is for.
LAYERS = (
    "system",
    "gpu",
    "sglang",
    "sglang/configuration",
    "sglang/containers",
    "sglang/managers",
    "sglang/patches",
    "sglang/releases",
    "sglang/processes",
    "sglang/routers",
    "sglang/readiness",
    "sglang/looking",
    "sglang/preflight",
    "sglang/benchmark",
    "modules",
    "deploying",
)
SOURCES = sorted(path for path in MODULE_UTILS.rglob("*.py") if path.parent != MODULE_UTILS)


def layer_of(name: str) -> str:
    """The folder that a dotted name below module_utils lies in."""
    folder = name.replace(".", "/")
    while folder not in LAYERS:
        folder, _slash, last = folder.rpartition("/")
        assert last, f"{name} lies in no folder of the list"
    return folder


def imported(source: pathlib.Path) -> list[str]:
    """The names below module_utils that a file imports, also inside its functions."""
    nodes = ast.walk(ast.parse(source.read_text(encoding="utf-8")))
    found = [
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    return [name[len(PACKAGE) :] for name in found if name.startswith(PACKAGE)]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(MODULE_UTILS)))
def test_imports_go_down(source):
    own = LAYERS.index(str(source.parent.relative_to(MODULE_UTILS)))
    above = [name for name in imported(source) if LAYERS.index(layer_of(name)) > own]
    assert not above, f"{source.name} is in {LAYERS[own]} and imports {', '.join(above)}"


def test_the_folders_are_those_of_the_list():
    assert {str(path.parent.relative_to(MODULE_UTILS)) for path in SOURCES} == set(LAYERS)
