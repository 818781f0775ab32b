# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as a task of a real play, on hosts that are never connected to."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - set_fact:
        sglang_deploy_checked:
          sglang: {instance: main, version: 0.5.17, running: {pid: 5}, requested: {speculative_algorithm: none}}
        sglang_deploy_ready:
          sglang: {effective: {speculative_algorithm: null}, ready_after: 7.5, accept_length: null, version: 0.5.17}
      when: inventory_hostname != 'gpu-c'
    - inferops.sglang.sglang_report:
        hosts: "{{ report_hosts | default(ansible_play_hosts_all) }}"
        path: "{{ path }}"
      run_once: true
"""

# A callback that writes one document, as ansible.posix.json does.
DOCUMENT = '''
import json
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: json
type: stdout
short_description: Writes one document
description: Writes one document.
"""


class CallbackModule(CallbackBase):
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "json"

    def v2_playbook_on_stats(self, stats):
        self._display.display(json.dumps({"plays": 1}))
'''


@pytest.fixture
def play(tmp_path, collections):
    """Run the play; returns (exit status, output)."""
    (tmp_path / "play.yml").write_text(PLAY)

    def run(path, *options, stdout_callback="default"):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ansible", "playbook", "-i", "gpu-a,gpu-b,gpu-c,", "play.yml"),
                *("-e", "path=%s" % path, *options),
            ],
            cwd=tmp_path,
            check=False,
            env=dict(
                os.environ,
                ANSIBLE_COLLECTIONS_PATH=str(collections),
                ANSIBLE_STDOUT_CALLBACK=stdout_callback,
                ANSIBLE_CALLBACK_PLUGINS=str(tmp_path / "callback_plugins"),
                ANSIBLE_NOCOLOR="1",
                COLUMNS="140",
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if stdout_callback == "default" else None,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout

    return run


def test_a_table_and_a_file(play, tmp_path):
    rc, output = play(tmp_path / "report.json")
    assert rc == 0, output
    (line,) = [line for line in output.splitlines() if line.startswith("gpu-a")][:1]
    assert "restarted" in line and "7.5 s" in line and "no speculation" in line
    assert "2 restarted, 1 not done" in output
    assert "1 host is left (gpu-c)" in output
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(host["host"], host["outcome"]) for host in report["hosts"]] == [
        ("gpu-a", "restarted"),
        ("gpu-b", "restarted"),
        ("gpu-c", "not done"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".sglang_report")) == []


def test_check_mode_writes_no_file(play, tmp_path):
    rc, output = play(tmp_path / "report.json", "--check")
    assert rc == 0 and "2 checked, 1 not done" in output
    assert not (tmp_path / "report.json").exists()


def test_a_folder_that_is_not_there_is_named(play, tmp_path):
    rc, output = play(tmp_path / "missing" / "report.json")
    assert rc != 0 and "path:" in output and str(tmp_path / "missing") in output


def test_an_unknown_host_is_named(play, tmp_path):
    rc, output = play(tmp_path / "report.json", "-e", '{"report_hosts": ["gpu-x"]}')
    assert rc != 0 and "gpu-x" in output


def test_an_interim_report_shows_nothing_and_says_who_would_be_lost(play, tmp_path):
    (tmp_path / "play.yml").write_text(PLAY.replace("path: ", "at_work: [gpu-b]\n        path: "))
    rc, output = play(tmp_path / "report.json")
    assert rc == 0 and "outcome" not in output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["finished"] is False
    assert [host["outcome"] for host in report["hosts"]] == ["restarted", "lost", "not done"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", report["written"])


def test_a_host_that_needs_no_wave_is_not_lost(play, tmp_path):
    plan = {"groups": {"g": {"units": [{"hosts": ["gpu-a"], "wave": 0}, {"hosts": ["gpu-b"], "wave": 1}]}}}
    text = PLAY.replace("path: ", "at_work: [gpu-a, gpu-b]\n        plan: %s\n        path: " % json.dumps(plan))
    (tmp_path / "play.yml").write_text(text)
    rc, output = play(tmp_path / "report.json")
    assert rc == 0, output
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(host["wave"], host["outcome"]) for host in report["hosts"]] == [
        (None, "restarted"),
        (1, "lost"),
        (None, "not done"),
    ]


def test_an_interim_report_needs_a_file(play, tmp_path):
    (tmp_path / "play.yml").write_text(PLAY.replace("path: ", "at_work: [gpu-b]  # "))
    rc, output = play(tmp_path / "report.json")
    assert rc != 0 and "at_work" in output and "path" in output


def test_the_table_leaves_a_document_alone(play, tmp_path):
    (tmp_path / "callback_plugins").mkdir()
    (tmp_path / "callback_plugins" / "json.py").write_text(DOCUMENT)
    rc, output = play(tmp_path / "report.json", stdout_callback="json")
    assert rc == 0 and json.loads(output) == {"plays": 1}


def test_a_report_in_between_shows_some_hosts_and_is_not_the_last_word(play, tmp_path):
    (tmp_path / "play.yml").write_text(PLAY.replace("path: ", "final: false\n        shown: [gpu-b]\n        path: "))
    rc, output = play(tmp_path / "report.json")
    assert rc == 0 and "1 restarted" in output and "gpu-a │" not in output and "are left" not in output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["finished"] is False
    assert [host["outcome"] for host in report["hosts"]] == ["restarted", "restarted", "not done"]
