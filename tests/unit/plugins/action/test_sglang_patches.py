# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patches in a real play: their sources are found on the controller and brought into an installation."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.installation import (
    ORIGINALS,
    WORKER,
    Installation,
    digest,
)

PLAY = """
- hosts: localhost
  gather_facts: false
  connection: local
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - inferops.sglang.sglang_release:
        manager: process
        state_dir: "{{ folder }}/state"
        etc_dir: "{{ folder }}/etc"
        unit_dir: "{{ folder }}/units"
        command: [/usr/bin/python3, x]
        patches:
          - src: "{{ src }}"
            target: sglang/srt/speculative/eagle_worker_v2.py
            path: "{{ folder }}/sp/sglang/srt/speculative/eagle_worker_v2.py"
            sha256_before: "{{ before }}"
      register: done
    - copy:
        content: "{{ done | to_json }}"
        dest: "{{ folder }}/result.json"
      check_mode: false
"""


@pytest.fixture
def play(tmp_path, collections):
    """Run the play; returns (exit status, output)."""
    (tmp_path / "play.yml").write_text(PLAY)

    def run(src, *options):
        variables = {"src": src, "folder": str(tmp_path), "before": digest(ORIGINALS[WORKER])}
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "play.yml"),
                *("-e", json.dumps(variables), *options),
            ],
            cwd=tmp_path,
            check=False,
            env=dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(collections), ANSIBLE_NOCOLOR="1"),
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.long
def test_a_source_beside_the_playbook_reaches_the_installation(play, tmp_path):
    sglang = Installation(tmp_path / "sp")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "patched.py").write_text("worker = 'patched ä'\n")
    code, output = play("patched.py", "--check", "--diff")
    assert code == 0, output
    assert "+worker = 'patched ä'" in output and f"-{ORIGINALS[WORKER].strip()}" in output
    assert sglang.read() == ORIGINALS
    code, output = play("patched.py")
    assert code == 0 and "changed=2" in output, output
    assert sglang.path(WORKER).read_text() == "worker = 'patched ä'\n"
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["patched"] and "worker =" not in json.dumps(result)
    code, output = play("patched.py")
    assert code == 0 and "changed=1" in output, output  # only the result that the play writes


def test_a_source_that_is_not_there_or_no_text_is_named(play, tmp_path):
    code, output = play("missing.py")
    assert code != 0 and "missing.py" in output and "Could not find" in output
    (tmp_path / "binary.so").write_bytes(b"\x7fELF\0\0")
    code, output = play("binary.so")
    assert code != 0 and "src binary.so is no text in UTF-8" in output
