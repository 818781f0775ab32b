# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every playbook leaves behind, however it ends: its exit code, and the report as JSON.

The playbooks are the real ones, on a role that does nothing but what a case wants: a host is refused, fails, gets out
of reach, or holds the run up until it is killed.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))

# A host that is out of reach, without an ssh client and its delays.
DARK = '''
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: dark
short_description: Reaches nobody
description: Reaches nobody.
"""


class Connection(ConnectionBase):
    transport = "dark"

    def _connect(self):
        raise AnsibleConnectionFailure("it is dark")

    exec_command = put_file = fetch_file = close = lambda self, *args, **kwargs: self._connect()
'''

REHEARSE = """
- ansible.builtin.import_tasks: begin.yml
- ansible.builtin.ping:
  when: becomes == 'never reached'
- ansible.builtin.fail:
    msg: the draft is not there
  when: becomes == 'refused'
- ansible.builtin.set_fact:
    sglang_deploy_checked:
      sglang: {instance: main, version: 0.5.17, running: {pid: 5}, requested: {speculative_algorithm: none}}
"""
REPLACE = """
- block:
    - ansible.builtin.set_fact:
        sglang_deploy_touched: true
    - ansible.builtin.ping:
      when: becomes == 'lost'
    - ansible.builtin.fail:
        msg: out of memory
      when: becomes == 'restored'
    - ansible.builtin.pause:
        seconds: 120
      when: becomes == 'held up'
    - ansible.builtin.set_fact:
        sglang_deploy_ready:
          sglang: {effective: {speculative_algorithm: null}, ready_after: 7.5, accept_length: null, version: 0.5.17}
  rescue:
    - ansible.builtin.import_tasks: failed.yml
    - ansible.builtin.set_fact:
        sglang_deploy_restored: {release: {id: 20261130T104500Z-5d41402a}}
"""


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    """This collection, with a role that does what the variable `becomes` says."""
    parent = tmp_path_factory.mktemp("collections")
    collection = parent / "ansible_collections" / "inferops" / "sglang"
    tasks = collection / "roles" / "sglang_deploy" / "tasks"
    tasks.mkdir(parents=True)
    for name in ("galaxy.yml", "meta", "playbooks", "plugins"):
        (collection / name).symlink_to(ROOT / name)
    for name in ("begin.yml", "failed.yml", "verdict.yml"):
        (tasks / name).symlink_to(ROOT / "roles/sglang_deploy/tasks" / name)
    for name, text in (("rehearse", REHEARSE), ("rehearse_rollback", REHEARSE), ("replace", REPLACE)):
        (tasks / f"{name}.yml").write_text(text)
    (parent / "connections").mkdir()
    (parent / "connections" / "dark.py").write_text(DARK)
    return parent


class Run:
    """A run of a playbook on hosts of which each becomes something."""

    def __init__(self, collections, folder):
        self.collections = collections
        self.folder = folder
        self.report_path = folder / "report.json"

    def command(self, playbook, becomes, *options):
        """The command, and the environment that it needs."""
        inventory = self.folder / "hosts.yml"
        hosts = {name: {"becomes": outcome, "ansible_connection": "dark"} for name, outcome in becomes.items()}
        inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        words = [
            *(sys.executable, "-m", "ansible", "playbook", "-i", str(inventory), f"inferops.sglang.{playbook}"),
            *("-e", f"sglang_report_path={self.report_path}", *options),
        ]
        environment = dict(
            os.environ,
            ANSIBLE_COLLECTIONS_PATH=str(self.collections),
            ANSIBLE_CONNECTION_PLUGINS=str(self.collections / "connections"),
            ANSIBLE_NOCOLOR="1",
            COLUMNS="160",
        )
        return words, environment

    def __call__(self, playbook, becomes, *options):
        """Run it to its end: exit code, report and output."""
        words, environment = self.command(playbook, becomes, *options)
        done = subprocess.run(
            words,
            env=environment,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
        )
        return done.returncode, self.report(), done.stdout

    def report(self):
        """What is in the file; None where there is none."""
        return json.loads(self.report_path.read_text()) if self.report_path.exists() else None


@pytest.fixture
def run(collections, tmp_path):
    """A run in a folder of its own, in which an older report lies."""
    run = Run(collections, tmp_path)
    run.report_path.write_text('{"format": 1, "finished": true, "hosts": []}')
    return run


def outcomes(report):
    """The outcome of each host."""
    return {host["host"]: host["outcome"] for host in report["hosts"]}


CASES = {
    "everything is live": (
        {"a": "fine", "b": "fine"},
        (0, True, {"a": "restarted", "b": "restarted"}),
    ),
    "one is refused": (
        {"a": "fine", "b": "refused"},
        (2, True, {"a": "not done", "b": "refused"}),
    ),
    "one is never reached": (
        {"a": "fine", "b": "never reached"},
        (2, True, {"a": "not done", "b": "not done"}),
    ),
    "nobody is reached": (
        {"a": "never reached", "b": "never reached"},
        (4, False, {"a": "not done", "b": "not done"}),
    ),
    "the canary goes back": (
        {"a": "restored", "b": "fine"},
        (2, True, {"a": "restored", "b": "not done"}),
    ),
    "all after the canary are lost": (
        {"a": "fine", "b": "lost", "c": "lost"},
        (4, False, {"a": "restarted", "b": "lost", "c": "lost"}),
    ),
    "one after the canary is lost": (
        {"a": "fine", "b": "lost", "c": "fine"},
        (2, True, {"a": "restarted", "b": "lost", "c": "restarted"}),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_exit_code_and_report(run, case):
    becomes, (rc, finished, expected) = CASES[case]
    code, report, output = run("restart_eagle3", becomes)
    assert (code, report["finished"], outcomes(report)) == (rc, finished, expected), output
    for host in report["hosts"]:
        assert (host["failure"] != "") == (becomes[host["host"]] != "fine"), host
        cut_off = not finished and becomes[host["host"]] in ("lost", "never reached")
        assert host["failure"].startswith("The run ended early") == cut_off
    # A run that comes to its end shows the same as a table.
    rows = [re.search(rf"^{host} .*{outcome}", output, re.MULTILINE) for host, outcome in expected.items()]
    assert all(rows) == finished


def test_rollback_does_the_same(run):
    code, report, output = run("rollback", {"a": "lost", "b": "fine"})
    assert (code, report["finished"], outcomes(report)) == (4, False, {"a": "lost", "b": "not done"}), output


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_play_writes_down_what_is_true_if_it_is_cut_off(playbook):
    name = "inferops.sglang.sglang_report"
    for number, play in enumerate(yaml.safe_load(playbook.read_text())):
        first, *others = [task for task in play["tasks"] if name in task]
        assert play["tasks"][0] is first and first["when"] == "sglang_report_path is defined"
        assert first[name]["at_work"] == ([] if number == 0 else "{{ ansible_play_batch }}")
        assert [task[name]["path"] for task in others] == ["{{ sglang_report_path | default(omit) }}"]


def children(pid):
    """The processes that a process has started."""
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_run_that_is_killed_has_said_what_is_unknown(run):
    words, environment = run.command("restart_eagle3", {"a": "fine", "b": "held up", "c": "fine"})
    with open(run.folder / "output", "wb") as output:
        process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            deadline = time.monotonic() + 60
            while "Pausing" not in (run.folder / "output").read_text():
                assert time.monotonic() < deadline and process.poll() is None, (run.folder / "output").read_text()
                time.sleep(0.05)
        finally:
            # Ansible's workers have sessions of their own, and would wait for an answer for ever.
            for pid in (process.pid, *children(process.pid)):
                os.kill(pid, signal.SIGKILL)
            process.wait()
    assert run.report()["finished"] is False
    assert outcomes(run.report()) == {"a": "restarted", "b": "lost", "c": "lost"}


def test_a_report_that_cannot_be_written_stops_the_run_before_anything_is_touched(run):
    run.report_path = run.folder / "missing" / "report.json"
    code, report, output = run("restart_eagle3", {"a": "lost"})
    assert code == 2 and report is None
    assert "path:" in output and str(run.report_path) in output
    assert "PLAY [Restart]" not in output
