# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/first-restart.md lists every variable of the inventory that the playbooks and roles read, and no other."""

from __future__ import annotations

import pathlib
import re

from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_inventory import SETTINGS as GUARD
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_inventory import SETTINGS

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read_variables():
    """The short names: what defaults and playbooks fall back to, and what a rollout reads."""
    files = [*ROOT.glob("roles/*/defaults/main.yml"), *ROOT.glob("playbooks/*.yml")]
    found = {*SETTINGS, *GUARD}
    for path in files:
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"\b(sglang_\w+)(?= \| default\(| is defined)", text))
    roles = tuple(path.name + "_" for path in ROOT.glob("roles/*"))
    # These are variables of the role of that name and of the inventory.
    both = ("sglang_stop_timeout", "sglang_sweep_dir", "sglang_sweep_expected_concurrency")
    return {name for name in found if not name.startswith(roles) or name in both}


def listed_variables():
    text = (ROOT / "docs" / "first-restart.md").read_text(encoding="utf-8").partition("## Variables")[2]
    cells = re.findall(r"^\| *(`[^|]*?) *\|", text, re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`(\w+…?)`", cell)}
    return {name for name in names if not name.startswith(("sglang_spec_", "gpu_free_"))}


def test_the_table_is_complete():
    read = {name for name in read_variables() if not name.startswith("sglang_spec_")}
    assert read
    assert listed_variables() == read
