# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a fleet as a task of a real play, and the playbook on hosts that cannot be seen."""

from __future__ import annotations

import json
import os
import pathlib
import stat
import subprocess
import sys

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.modules import gpu_status
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils import status_samples as samples

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - set_fact:
        gpu_status_gpus: "{{ found.gpus }}"
        gpu_status_servers: "{{ found.servers }}"
      vars:
        found: "{{ (lookup('file', 'results.json') | from_json)[inventory_hostname] }}"
    - inferops.sglang.gpu_status:
        hosts: "{{ ansible_play_hosts_all }}"
        detail: gpus
        json: "{{ playbook_dir }}/status.json"
        html: "{{ playbook_dir }}/status.html"
        fail_on: [different, unreachable]
      register: shown
      run_once: true
      ignore_errors: true
    # Registered and shown by a template once more: what a host said is text in all of that.
    - copy:
        content: "{{ shown | to_json }}"
        dest: "{{ playbook_dir }}/again.json"
        mode: "600"
      run_once: true
    - inferops.sglang.gpu_status:
        hosts: []
        html: "{{ playbook_dir }}/missing/status.html"
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
REPOSITORY = pathlib.Path(__file__).resolve().parents[4]
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
        raise AnsibleConnectionFailure("it is dark {{ 1 + 1 }}")

    exec_command = put_file = fetch_file = close = lambda self, *args, **kwargs: self._connect()
'''


@pytest.fixture
def play(tmp_path, collections):
    """Run Ansible in the test's folder: (exit status, output)."""
    (tmp_path / "connections").mkdir()
    (tmp_path / "connections" / "dark.py").write_text(DARK)

    def run(playbook, hosts, *options, stdout_callback="default"):
        shared = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        inventory = {"all": {"hosts": hosts, "vars": shared}}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.yml", playbook, *options],
            cwd=tmp_path,
            check=False,
            env=dict(
                os.environ,
                ANSIBLE_COLLECTIONS_PATH=str(collections),
                ANSIBLE_CONNECTION_PLUGINS=str(tmp_path / "connections"),
                ANSIBLE_CALLBACK_PLUGINS=str(tmp_path / "callback_plugins"),
                ANSIBLE_STDOUT_CALLBACK=stdout_callback,
                ANSIBLE_NOCOLOR="1",
                COLUMNS="160",
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if stdout_callback == "default" else None,
            text=True,
            timeout=90,
        )
        return done.returncode, done.stdout

    return run


def test_results_of_hosts_become_a_table_files_and_an_exit_status(play, tmp_path):
    hostile = samples.server(message=samples.HOSTILE, version=samples.HOSTILE, state="failed")
    results = {
        "gpu-a": {"gpus": samples.gpus(2), "servers": samples.servers()},
        "gpu-b": {"gpus": samples.gpus(2, driver="570.1"), "servers": samples.servers(hostile)},
        "gpu-c": {"gpus": samples.gpus(2), "servers": samples.servers()},
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "status.html").write_text("the one before")
    (tmp_path / "status.html").chmod(0o644)

    rc, output = play("play.yml", {name: {"sglang_replica_group": "{{ 'group-' ~ 1 }}"} for name in results})

    # The last task refuses a file in a folder that is not there, and names the option.
    assert rc == 2 and "html: " in output and "there is no folder " in output and "missing" in output
    (line,) = [line for line in output.splitlines() if line.startswith("gpu-a │ 2 busy")]
    assert "main: serving" in line and "EAGLE3 3/1/4" in line and "12 + 3" in line
    assert output.count("NVIDIA H200 │") == 6
    assert "driver: 580.159.04 on 2 hosts; 570.1 on gpu-b" in output
    assert "The fleet is not as fail_on asks for. different: gpu-b" in output
    assert "\x1b" not in output and "\u202e" not in output

    report = json.loads((tmp_path / "status.json").read_text())
    assert [(host["host"], host["group"]) for host in report["hosts"]] == [(name, "group-1") for name in results]
    said = report["hosts"][1]["servers"][0]["message"]
    assert "{{ lookup('pipe', 'id') }}" in said and said.isprintable()
    page = (tmp_path / "status.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "&lt;script&gt;" in page and "<script" not in page
    # A file that was there keeps its mode, a new one is its owner's.
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("status.html", "status.json")]
    assert modes == [0o644, 0o600]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".gpu_status")] == []

    again = json.loads((tmp_path / "again.json").read_text())
    assert again["changed"] is False and again["failed"] is True
    assert again["hosts"][1]["servers"][0]["message"] == said
    documented = yaml.safe_load(gpu_status.RETURN)
    for key in ("hosts", "differences"):
        assert sorted(again[key][0]) == sorted(documented[key]["contains"])
    for key in ("gpus", "holders", "servers"):
        assert sorted(again["hosts"][0][key][0]) == sorted(documented["hosts"]["contains"][key]["contains"])
    assert sorted(again["summary"]) == sorted(documented["summary"]["contains"])


def test_the_playbook_shows_hosts_that_cannot_be_seen_and_leaves_a_document_alone(play, tmp_path):
    (tmp_path / "callback_plugins").mkdir()
    (tmp_path / "callback_plugins" / "json.py").write_text(DOCUMENT)
    hosts = {"dark": {"ansible_connection": "dark"}, "odd": {"ansible_python_interpreter": "/nowhere/python"}}
    rc, output = play(
        "inferops.sglang.gpu_status",
        hosts,
        *("--check", "-e", f"gpu_status_json={tmp_path}/status.json"),
        stdout_callback="json",
    )
    assert rc == 0 and json.loads(output) == {"plays": 1}
    report = json.loads((tmp_path / "status.json").read_text())
    dark, odd = report["hosts"]
    assert dark["unreachable"] and "it is dark {{ 1 + 1 }}" in dark["problems"][0]
    assert not odd["unreachable"] and len(odd["problems"]) == 2 and "/nowhere/python" in odd["problems"][1]
    assert report["summary"]["hosts_by_condition"] == {"unknown": 2, "unreachable": 1, "different": 0, "not_serving": 2}


def test_the_playbook_hands_on_every_option():
    (play,) = yaml.safe_load((REPOSITORY / "playbooks" / "gpu_status.yml").read_text())
    names = set(yaml.safe_load(gpu_status.DOCUMENTATION)["options"])
    tasks = [task["inferops.sglang.gpu_status"] for task in play["tasks"] if "inferops.sglang.gpu_status" in task]
    assert [set(task) for task in tasks] == [names, names]
    check, show = ({name: value for name, value in task.items() if name != "hosts"} for task in tasks)
    assert check == show and all("gpu_status_%s | default(" % name in value for name, value in show.items())
