# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/automation.md: its report is one that a playbook could write, and its jq examples find in it what they say."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.restart_report import entry

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "automation.md").read_text(encoding="utf-8")
SAMPLE = json.loads(re.search(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL).group(1))
# The script further down is no filter by itself.
COMMANDS = re.findall(r"^jq .* report\.json$", PAGE, re.MULTILINE)
# What each filter prints for the page's own sample, and how it ends.
FILTERS = {
    "--exit-status": (1, "false"),
    'select(.failure != "")': (0, "gpu-b: restored: The server died in the phase loading_weights: out of memory."),
    'select(.outcome == "down"': (0, ""),
    "group_by": (0, "1 restarted\n1 restored"),
    "@csv": (0, '"gpu-a","EAGLE3 2/1/3",2.44,212.4\n"gpu-b","EAGLE3 3/1/4",2.71,198.0'),
}


def test_the_sample_is_a_report():
    assert list(SAMPLE) == ["format", "finished", "written", "hosts"]
    for host in SAMPLE["hosts"]:
        assert list(host) == list(entry("gpu-a", {}))


def test_every_outcome_is_one_that_is_documented():
    # Those of exit code 2 and those of the filters.
    for outcome in ("refused", "restored", "down", "lost", "not done", "restarted", "unchanged"):
        assert outcome in PAGE


@pytest.mark.skipif(shutil.which("jq") is None, reason="this machine has no jq")
@pytest.mark.parametrize("words", FILTERS)
def test_jq(tmp_path, words):
    (command,) = [line for line in COMMANDS if words in line]
    (tmp_path / "report.json").write_text(json.dumps(SAMPLE))
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, check=False, stdout=subprocess.PIPE, text=True, timeout=30
    )
    code, output = FILTERS[words]
    # Versions of jq differ in the last zero of a number.
    assert (done.returncode, done.stdout.strip().replace("198.0", "198")) == (code, output.replace("198.0", "198"))


def test_every_filter_is_tried():
    assert len(COMMANDS) == len(FILTERS)
