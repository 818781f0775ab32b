# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each line of the threat model names the tests that show it, and they are there."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
MODEL = PAGE.partition("## Threat model")[2]
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", MODEL)))
ROWS = [line for line in MODEL.splitlines() if line.startswith("| ") and not line.startswith(("| It ", "|---"))]


@pytest.mark.parametrize(("path", "test"), NAMED, ids="::".join)
def test_a_test_that_is_named_is_there(path, test):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert any(name.startswith("test_") for name in tests)
    assert not test or test in tests


def test_each_row_names_one():
    assert len(ROWS) > 20 and len(NAMED) > 20
    assert [row for row in ROWS if "`tests/" not in row] == []
