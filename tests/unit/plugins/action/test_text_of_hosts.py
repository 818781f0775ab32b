# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host answers is data on the controller: no part of it is a template, however often the roles pass it on.

The roles and plugins are the real ones, run by ansible-playbook; the module that answers is not: it stands for a host
that somebody has taken over. Every way is tried on which a text of a host gets into a message, a fact, an argument of
a later module or the report.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[4]

MODULE = """
# WANT_JSON: Ansible then hands it its arguments in a file, and adds nothing to what it prints.
import json
import sys

with open(sys.argv[1]) as arguments, open(json.load(arguments)["answer"]) as answer:
    print(answer.read())
"""

PLAY = """
- name: A host that answers what it likes
  hosts: all
  gather_facts: false
  tasks:
    - name: Begin anew
      ansible.builtin.include_role:
        name: inferops.sglang.sglang_deploy
        tasks_from: begin

    - name: Fail in a rehearsal
      block:
        - name: Ask the host
          hostile:
            answer: "{{ folder }}/{{ inventory_hostname }}.answer"
      rescue:
        - name: Remember it
          ansible.builtin.include_role:
            name: inferops.sglang.sglang_deploy
            tasks_from: failed

    - name: Ask the host
      hostile:
        answer: "{{ folder }}/{{ inventory_hostname }}.answer"
      register: sglang_deploy_checked
      failed_when: false

    - name: Pass it on as arguments of gpu_reclaim
      block:
        - name: Plan
          ansible.builtin.include_role:
            name: inferops.sglang.sglang_deploy
            tasks_from: free
          vars:
            sglang_deploy_free_from: plan
      rescue:
        - name: Remember it, as after a failed start
          ansible.builtin.set_fact:
            sglang_deploy_not_freed: "{{ sglang_deploy_checked.msg | default('it gave no reason') }}"

    - name: Pass it on as arguments of sglang_release
      block:
        - name: Write the release
          ansible.builtin.include_role:
            name: inferops.sglang.sglang_deploy
            tasks_from: release
            apply:
              check_mode: true
          vars:
            sglang_deploy_state_dir: "{{ folder }}/state"
      rescue:
        - name: Remember it
          ansible.builtin.set_fact:
            sglang_deploy_restart_reason: "{{ sglang_deploy_checked.msg }}"

    - name: Remember the rest
      ansible.builtin.set_fact:
        sglang_deploy_touched: true
        sglang_deploy_restart_reason: "{{ sglang_deploy_checked.msg }}"
        sglang_deploy_not_restored: {task: x, msg: "{{ sglang_deploy_checked.msg }}"}
        gpu_free_reclaimed: "{{ sglang_deploy_checked }}"
        sglang_deploy_ready: "{{ sglang_deploy_checked }}"

    - name: Report
      inferops.sglang.sglang_report:
        hosts: "{{ ansible_play_hosts_all }}"
        path: "{{ folder }}/report.json"
      run_once: true
      register: report

    - name: Judge
      block:
        - name: Say it
          ansible.builtin.include_role:
            name: inferops.sglang.sglang_deploy
            tasks_from: verdict
      rescue:
        - name: Say it again, as the roles do where a restart would not help
          ansible.builtin.set_fact:
            told: "{{ ansible_failed_result.msg }}"

    - name: Write down what was said
      ansible.builtin.copy:
        content: "{{ {'told': told, 'failure': sglang_deploy_failure, 'not_freed': sglang_deploy_not_freed,
                      'report': report.report} | to_json }}"
        dest: "{{ folder }}/{{ inventory_hostname }}.json"
        mode: "0600"
      no_log: true
"""


def hostile(folder: pathlib.Path) -> str:
    """A text that leaves a file where it is a template, and 111111111 where it is one without a lookup."""
    touch = "touch %s/pwned" % folder
    return "".join(
        [
            "{{ lookup('ansible.builtin.pipe', '%s') }}" % touch,
            "{%% set x = lookup('pipe', '%s') %%}" % touch,
            "{{ query('pipe', '%s') }}{{ cycler.__init__.__globals__.os.system('%s') }}" % (touch, touch),
            "{{ 12345679 * 9 }}{# gone #}{% raw %}{{ hostvars }}{% endraw %}",
            "#jinja2: variable_start_string:'[['\n[[ 12345679 * 9 ]]",
            "\x1b[2J\x1b]0;owned\x07\u202e",
        ]
    )


def answer_of(text: str, **more) -> dict:
    """An answer with this text wherever an answer has a text, keys too."""
    process = {"name": text, "pid": text, "user": text, "memory_mib": 5, "action": "killed", "unit": text, text: text}
    return {
        "changed": False,
        "msg": text,
        "reason": text,
        "log_tail": [text],
        text: {text: text},
        "processes": [process],
        "blockers": [text],
        "sglang": {
            "instance": text,
            "gpus": [text],
            "neighbours": [{"unit": text, "container": text, "session": text}],
            "command": ["/usr/bin/python3", text],
            "environment": {"X": text},
            "container": {},
            "files": {"adaptive.json": text},
            "patches": [],
            "requested": {"speculative_algorithm": text, text: text},
            "effective": {"speculative_algorithm": text},
            "adjusted": {text: text},
            "version": text,
            "changes": [text],
            "running": {"user": text, "release": text},
            "unmanaged": {"user": text},
            "accept_length": 2.5,
        },
        **more,
    }


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The play, run once: gpu-a answers with templates."""
    folder = tmp_path_factory.mktemp("play")
    collections = folder / "collections" / "ansible_collections" / "inferops"
    collections.mkdir(parents=True)
    (collections / "sglang").symlink_to(ROOT)
    (folder / "library").mkdir()
    (folder / "library" / "hostile.py").write_text("#!/usr/bin/python\n" + MODULE)
    (folder / "play.yml").write_text(PLAY)
    text = hostile(folder)
    (folder / "gpu-a.answer").write_text(json.dumps(answer_of(text, failed=True)))
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "folder": str(folder)}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"gpu-a": host}}}))
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "true",
        "COLUMNS": "160",
    }
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.yml", "play.yml"]
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder, text, done


def test_no_text_of_a_host_is_a_template(played):
    folder, text, done = played
    assert not (folder / "pwned").exists()
    assert "111111111" not in done.stdout + done.stderr
    told = json.loads((folder / "gpu-a.json").read_text())
    assert told["failure"]["msg"] == told["failure"]["reason"] == text and told["failure"]["log_tail"] == [text]
    # The reason for the restart, what failed, what did not come back, and what was not freed before that.
    assert told["told"].count("{{ 12345679 * 9 }}") == 4 and told["not_freed"] == text
    (entry,) = json.loads((folder / "report.json").read_text())["hosts"]
    assert entry == told["report"][0]
    assert entry["outcome"] == "down" and "{{ 12345679 * 9 }}" in entry["failure"]
    assert "{{ 12345679 * 9 }}" in entry["requested"] and "{{ 12345679 * 9 }}" in entry["stopped"][0]


def test_the_report_shows_what_a_host_wrote_and_does_nothing_of_it(played):
    folder, _text, done = played
    report = (folder / "report.json").read_text()
    assert (folder / "report.json").stat().st_mode & 0o777 == 0o600
    assert "\\u001b" not in report and "\\\\x1b[2J" in report and "\u202e" not in report
    # The table and the sentences below it; what Ansible itself prints of a failed task is its own.
    shown = done.stdout.partition("TASK [Report]")[2].partition("ok: [")[0]
    assert "\\x1b[2J" in shown and "\\u202e" in shown
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown) is None


TEMPLATING = re.compile(r"\b(?:do_template|trust_as_template|Templar|is_template|evaluate_conditional)\b|\.template\(")
PLUGINS = [path for folder in ("action", "plugin_utils", "filter") for path in (ROOT / "plugins" / folder).glob("*.py")]
TASKS = [path for folder in ("roles", "playbooks") for path in (ROOT / folder).rglob("*.yml")]
CONDITIONS = {"when", "that", "until", "failed_when", "changed_when"}


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.name)
def test_no_plugin_templates_by_itself(path):
    assert TEMPLATING.search(path.read_text(encoding="utf-8")) is None


def conditions(value):
    """All conditions in a file of tasks."""
    if isinstance(value, dict):
        for key, item in value.items():
            if "." in key:  # a module, whose options may be called alike
                item = {"that": item["that"]} if key.endswith(".assert") else {}
            elif key in CONDITIONS:
                yield from item if isinstance(item, list) else [item]
            yield from conditions(item)
    elif isinstance(value, list):
        for item in value:
            yield from conditions(item)


@pytest.mark.parametrize("path", TASKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_condition_is_made_of_a_text_and_no_text_is_looked_up(path):
    text = path.read_text(encoding="utf-8")
    # A condition that has a template in it would be templated twice.
    assert not [found for found in conditions(yaml.safe_load(text)) if "{{" in str(found) or "{%" in str(found)]
    # Of lookups, those that read variables and the inventory alone.
    looked_up = re.findall(r"\b(?:lookup|query|q)\('([\w.]+)'", text)
    assert set(looked_up) <= {
        "ansible.builtin.inventory_hostnames",
        "ansible.builtin.vars",
        "ansible.builtin.varnames",
    }


@pytest.mark.parametrize(
    "answer",
    [
        {"sglang": 5, "processes": 7},
        {"sglang": {"changes": 5, "running": []}, "processes": [5]},
        {"sglang": [], "processes": {"a": 1}, "elapsed": "x"},
        {"sglang": {"requested": "x", "effective": ["x"]}, "processes": [{"memory_mib": "x", "action": "killed"}]},
        {"sglang": {"effective": {"speculative_algorithm": {"a": []}}}, "processes": [{"pid": None, "action": []}]},
    ],
    ids=str,
)
def test_a_host_that_answers_nonsense_does_not_keep_the_others_out_of_the_report(answer, monkeypatch):
    from ansible_collections.inferops.sglang.plugins.action import sglang_report

    answer = {"free_after": "x", **answer}
    facts = dict.fromkeys(sglang_report._FACTS, answer)
    shown: list[str] = []
    monkeypatch.setattr(sglang_report.Display, "display", lambda self, text, **_options: shown.append(text))
    entry = sglang_report._entry("gpu-a", facts, False, ("", None), "")
    sglang_report._show([sglang_report.visible_value(entry)], True)
    assert entry["host"] == "gpu-a" and shown
