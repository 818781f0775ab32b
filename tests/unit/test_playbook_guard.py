# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook spec_guard from end to end: what it decides goes through restart_eagle3, and only that.

The playbooks are the real ones, on a role that writes down what it is to deploy, and a stand-in for sglang_info.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Answers what the variable `answers` of the host says, and its load only where a window was asked for.
INFO = """
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        host = self._task.delegate_to or task_vars["inventory_hostname"]
        answers = task_vars["hostvars"][host]["answers"]
        if answers == "dark":
            raise AnsibleConnectionFailure("it is dark")
        window = {"average": answers, "peak": answers, "samples": 3, "unanswered": 0, "complete": True}
        server = {
            "instance": self._task.args["instances"][0],
            "state": "serving",
            "reason": "",
            "message": "",
            "uptime": 90000.0,
            "node_rank": 0,
            "effective": {"speculative_algorithm": "EAGLE3"},
            "load_window": window if float(self._task.args.get("load_window", 0)) > 0 else None,
        }
        return {"changed": False, "servers": [server]}
"""
REHEARSE = """
- ansible.builtin.import_tasks: begin.yml
- ansible.builtin.set_fact:
    sglang_deploy_checked:
      sglang:
        instance: main
        running: {pid: 5, release: 20261129T104500Z-0d41402a}
        requested: {speculative_algorithm: null}
"""
REPLACE = """
- ansible.builtin.lineinfile:
    path: "{{ deployed }}"
    line: "{{ inventory_hostname }} {{ sglang_spec_profile }}"
    create: true
    mode: "0600"
  delegate_to: localhost
- ansible.builtin.set_fact:
    sglang_deploy_touched: true
    sglang_deploy_ready:
      sglang: {effective: {speculative_algorithm: null}, ready_after: 7.5, accept_length: null, version: 0.5.17}
"""


@pytest.fixture
def run(tmp_path):
    """Run the playbook on hosts with these answers and further words: exit code, what was deployed, state, output."""
    collection = tmp_path / "ansible_collections" / "inferops" / "sglang"
    tasks = collection / "roles" / "sglang_deploy" / "tasks"
    tasks.mkdir(parents=True)
    for name in ("galaxy.yml", "meta", "playbooks"):
        (collection / name).symlink_to(ROOT / name)
    (collection / "plugins" / "action").mkdir(parents=True)
    for path in [*(ROOT / "plugins").iterdir(), *(ROOT / "plugins/action").glob("*.py")]:
        if path.name != "action":
            (collection / path.relative_to(ROOT)).symlink_to(path)
    (collection / "plugins" / "action" / "sglang_info.py").write_text(INFO)
    for name in ("begin.yml", "know.yml", "failed.yml", "verdict.yml", "others.yml", "ask_others.yml"):
        (tasks / name).symlink_to(ROOT / "roles/sglang_deploy/tasks" / name)
    (tasks.parent / "vars").mkdir()
    (tasks.parent / "vars" / "main.yml").write_text("__sglang_deploy_has_routers: false")
    (tasks / "rehearse.yml").write_text(REHEARSE)
    (tasks / "replace.yml").write_text(REPLACE)
    deployed, state = tmp_path / "deployed", tmp_path / "state.json"

    def run(hosts, *options):
        inventory = {
            "all": {
                # The controller knows nothing of what is set for the hosts.
                "children": {"servers": {"hosts": hosts, "vars": {"sglang_guard_state": str(state)}}},
                "vars": {
                    "ansible_connection": "local",
                    "ansible_python_interpreter": sys.executable,
                    "deployed": str(deployed),
                    "sglang_guard_samples": 1,
                    "sglang_guard_rules": [{"from": 0, "profile": "eagle3"}, {"from": 16, "profile": "baseline"}],
                },
            }
        }
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.yml")]
            + ["inferops.sglang.spec_guard", *options],
            env=dict(
                os.environ,
                XDG_STATE_HOME=str(tmp_path / "elsewhere"),
                ANSIBLE_COLLECTIONS_PATH=str(tmp_path),
                ANSIBLE_NOCOLOR="1",
                COLUMNS="160",
            ),
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
        )
        lines = deployed.read_text().splitlines() if deployed.exists() else []
        remembered = json.loads(state.read_text()) if state.exists() else None
        return done.returncode, lines, remembered, done.stdout

    return run


def of(group, answers, **variables):
    return {"sglang_replica_group": group, "answers": answers, **variables}


def test_the_group_whose_load_asks_for_it_is_switched_wave_by_wave_and_no_other(run, tmp_path):
    hosts = {
        "a": of("chat", 40.0),
        "b": of("chat", 30.0),
        "c": of("chat", 50.0),
        "d": of("code", 3.0),
        "e": of("dark", "dark"),
        "f": of("dark", 90.0),
    }
    code, deployed, state, output = run(hosts)
    assert code == 0, output
    assert deployed == ["a baseline", "b baseline", "c baseline"], output
    assert "Group chat: load 40.0 requests a server, runs eagle3, wants baseline: switch to baseline." in output
    assert "Group code: load 3.0 requests a server, runs eagle3, wants eagle3: nothing to do." in output
    assert "Group dark: load not known: no switch: e is unknown (it cannot be reached" in output
    assert "Group chat, 3 replicas, at least 2 serve all the time" in output
    assert state["groups"]["chat"]["target"] == "baseline" and state["run"] is None
    assert not (tmp_path / "elsewhere").exists()


def test_without_a_switch_it_looks_and_ends(run):
    code, deployed, state, output = run({"a": of("chat", 3.0), "b": of("chat", 5.0)})
    assert (code, deployed) == (0, []), output
    assert state["groups"]["chat"]["target"] == ""
    assert "Check the host" not in output


def test_tags_check_decides_and_rehearses_and_changes_nothing(run):
    code, deployed, state, output = run({"a": of("chat", 40.0)}, "--tags", "check")
    assert (code, deployed, state) == (0, [], None), output
    assert "wants baseline: switch to baseline." in output and "Wave 1: a" in output
