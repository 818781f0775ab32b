# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every playbook leaves behind, however it ends: its exit code, and the report as JSON; in which order it goes.

The playbooks are the real ones, on a role that does nothing but what a case wants: a host is refused, fails, gets out
of reach, or holds the run up until it is killed. Whether a host serves is asked of a stand-in for sglang_info.
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
# Those that replace servers.
PLAYBOOKS = [path for path in sorted((ROOT / "playbooks").glob("*.yml")) if "tasks_from: replace" in path.read_text()]

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

# Serves unless the case says otherwise: `serves` of the host, or `dies_with`, the host with whose restart it ends.
INFO = """
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        hostvars = task_vars["hostvars"]
        peer = hostvars[self._task.delegate_to]
        serves = peer.get("serves", "serving")
        if serves == "out of reach":
            raise AnsibleConnectionFailure("it is dark")
        if "dies_with" in peer and hostvars[peer["dies_with"]].get("sglang_deploy_touched"):
            serves = "failed"
        message = "" if serves == "serving" else "It is %s." % serves
        server = {"instance": self._task.args["instances"][0], "state": serves, "reason": "", "message": message}
        return {"changed": False, "servers": [server]}
"""

REHEARSE = """
- ansible.builtin.import_tasks: begin.yml
- ansible.builtin.ping:
  when: becomes == 'never reached'
- ansible.builtin.fail:
    msg: the draft is not there
  when: becomes == 'refused'
- ansible.builtin.set_fact:
    sglang_deploy_unchanged: "{{ becomes == 'unchanged' }}"
    sglang_deploy_checked:
      sglang:
        instance: main
        version: 0.5.17
        running: "{{ none if becomes == 'started' else {'pid': 5, 'release': '20261129T104500Z-0d41402a'} }}"
        requested: {speculative_algorithm: none}
- ansible.builtin.set_fact:
    sglang_deploy_ready: {sglang: {effective: {speculative_algorithm: null}, accept_length: null, version: 0.5.17}}
  when: sglang_deploy_unchanged
"""
REPLACE = """
- when: not sglang_deploy_unchanged
  block:
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
    for name in ("galaxy.yml", "meta", "playbooks"):
        (collection / name).symlink_to(ROOT / name)
    (collection / "plugins" / "action").mkdir(parents=True)
    for path in [*(ROOT / "plugins").iterdir(), *(ROOT / "plugins/action").glob("*.py")]:
        if path.name != "action":
            (collection / path.relative_to(ROOT)).symlink_to(path)
    (collection / "plugins" / "action" / "sglang_info.py").write_text(INFO)
    for name in ("begin.yml", "know.yml", "failed.yml", "verdict.yml", "others.yml", "ask_others.yml"):
        (tasks / name).symlink_to(ROOT / "roles/sglang_deploy/tasks" / name)
    # The verdict asks about routers.
    (tasks.parent / "vars").mkdir()
    (tasks.parent / "vars" / "main.yml").write_text("__sglang_deploy_has_routers: false")
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
        """The command, and the environment that it needs.  becomes: what a host becomes, or its variables."""
        inventory = self.folder / "hosts.yml"
        hosts = {
            name: {"ansible_connection": "dark", **(what if isinstance(what, dict) else {"becomes": what})}
            for name, what in becomes.items()
        }
        inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        words = [
            *(sys.executable, "-m", "ansible", "playbook", "-i", str(inventory)),
            playbook if "/" in playbook else f"inferops.sglang.{playbook}",
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


ALL_AT_ONCE = ("-e", "sglang_min_serving=0")
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


# On hosts: the scenario rolling.
@pytest.mark.also_on_hosts
@pytest.mark.parametrize("case", CASES)
def test_exit_code_and_report(run, case):
    becomes, (rc, finished, expected) = CASES[case]
    code, report, output = run("restart_eagle3", becomes, *ALL_AT_ONCE)
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


@pytest.mark.also_on_hosts
def test_waves_and_what_runs_where(run):
    """By default half must serve.  What is right already, and where nothing runs, takes nothing down."""
    becomes = {"a": "fine", "b": "unchanged", "c": "fine", "d": "started", "e": "restored", "f": "fine"}
    code, report, output = run("restart_eagle3", becomes)
    assert code == 2, output
    assert [(host["host"], host["wave"], host["outcome"]) for host in report["hosts"]] == [
        ("b", None, "unchanged"),
        ("d", 1, "restarted"),
        ("a", 2, "restarted"),
        ("c", 2, "restarted"),
        ("e", 2, "restored"),
        ("f", 3, "not done"),
    ]
    assert {host["group"] for host in report["hosts"]} == {"all"}
    releases = {host["host"]: host["release"] for host in report["hosts"]}
    assert releases["e"] == "20261130T104500Z-5d41402a" and releases["f"] == "20261129T104500Z-0d41402a"
    assert "Mend what failed and run the same again: 2 hosts are left (e, f)." in output
    assert "Group all, 6 replicas, 1 as wanted already, at least 3 serve all the time" in output


GROUP = {"sglang_replica_group": "chat", "sglang_min_serving": 2, "becomes": "fine"}


@pytest.mark.also_on_hosts
def test_a_floor_that_is_not_kept_stops_the_run_before_the_wave(run):
    """Those that --limit leaves out count while they serve, and are left alone."""
    becomes = {"a": GROUP, "b": GROUP, "c": {**GROUP, "dies_with": "a"}, "d": {**GROUP, "serves": "out of reach"}}
    code, report, output = run("restart_eagle3", becomes, "-e", "sglang_floor_timeout=3", "--limit", "a,b")
    assert (code, report["finished"]) == (2, True), output
    assert outcomes(report) == {"a": "restarted", "b": "refused"}
    (story,) = [host["failure"] for host in report["hosts"] if host["failure"]]
    for words in ("Nothing of wave 2 was touched", "2 of the 4 replicas of the group chat", "Without b only a would"):
        assert words in story
    assert "c does not: It is failed" in story and "d does not: it cannot be reached" in story
    # It asked again after it had waited.
    assert "Wave 2 waits" in output


def test_a_floor_that_can_never_be_kept_is_refused_before_anything_is_touched(run):
    becomes = {"a": {**GROUP, "sglang_min_serving": "100%"}, "b": {"becomes": "fine"}}
    code, report, output = run("restart_eagle3", becomes)
    assert (code, outcomes(report)) == (2, {"a": "refused", "b": "refused"}), output
    assert "Set sglang_min_serving to 0 at most" in report["hosts"][0]["failure"]
    assert "PLAY [Restart]" not in output


@pytest.mark.also_on_hosts
def test_a_failure_that_is_allowed_fails_at_the_end(run):
    becomes = {"a": "restored", "b": "fine", "c": "lost", "d": "fine"}
    code, report, output = run("restart_eagle3", becomes, "-e", "sglang_max_failed=2", *ALL_AT_ONCE)
    # Who is out of reach has the last word on the code.
    assert (code, report["finished"]) == (4, True), output
    assert outcomes(report) == {"a": "restored", "b": "restarted", "c": "lost", "d": "restarted"}
    assert "The run goes on without a: sglang_max_failed=2 allows it." in output
    assert [bool(host["failure"]) for host in report["hosts"]] == [True, False, True, False]
    assert "d                          : ok=" in output and "failed=1" in output.partition("PLAY RECAP")[2]


def test_the_checks_alone(run):
    code, report, output = run("restart_eagle3", {"a": "fine", "b": "fine"}, "--tags", "check")
    # No file, as with --check.
    assert (code, report["hosts"]) == (0, []), output
    assert "Wave 1: a" in output and "Wave 2: b" in output and "2 checked" in output


@pytest.mark.parametrize(
    "options", [("--skip-tags", "check"), ("--start-at-task", "See whom this wave must not leave alone")]
)
def test_nothing_is_touched_without_the_checks(run, options):
    code, report, output = run("restart_eagle3", {"a": "lost", "b": "lost"}, *options)
    assert code == 2 and report == {"format": 1, "finished": True, "hosts": []}, output


def test_two_runs_in_one_process_have_waves_of_their_own(run):
    (run.folder / "both.yml").write_text(
        "- import_playbook: inferops.sglang.restart_eagle3\n"
        "- import_playbook: inferops.sglang.rollback\n"
        "  vars: {sglang_hosts: 'b,c'}\n"
        "- import_playbook: inferops.sglang.rollback\n"
        "  vars: {sglang_hosts: none_of_them}\n"
    )
    code, report, output = run(str(run.folder / "both.yml"), dict.fromkeys("abc", "fine"))
    assert (code, outcomes(report)) == (0, {"b": "restarted", "c": "restarted"}), output
    assert output.count("PLAY [Restart]") == 3 and output.count("PLAY [Go back]") == 3


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_play_writes_down_what_is_true_if_it_is_cut_off(playbook):
    name = "inferops.sglang.sglang_report"
    *plays, final = yaml.safe_load(playbook.read_text())
    for number, play in enumerate(plays):
        first, *others = [task for task in play["tasks"] if name in task]
        assert play["tasks"][0] is first and first["when"].startswith("sglang_report_path is defined")
        assert first[name]["at_work"] == ([] if number == 0 else "{{ ansible_play_batch }}")
        # With --tags check nothing is written, as with --check.
        (last_word,) = [task[name] for task in others if not task.get("check_mode")]
        assert last_word["path"] == "{{ sglang_report_path | default(omit) }}"
    # Nothing is touched any more.
    assert [task[name].get("final", True) for task in final["tasks"] if name in task] == [True]


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_no_task_can_be_left_out_by_a_tag_of_its_own(playbook):
    plays = yaml.safe_load(playbook.read_text())
    assert [play["tags"] for play in plays] == [["check", "always"], ["restart"], ["restart"]]
    for path in [playbook, *ROOT.glob("roles/*/tasks/*.yml")]:
        assert re.findall(r"^ {2,}(?:- )?tags:", path.read_text(), re.MULTILINE) == (
            ["  tags:"] * 3 if path == playbook else []
        )


def test_the_tags_are_those_of_the_plays(run):
    code, _report, output = run("restart_eagle3", {"a": "fine"}, "--list-tasks")
    assert code == 0
    first, *others = output.partition("play #1")[2].split("play #")
    assert first.count("TAGS: [always, check]") == first.count("TAGS: ") - 1 > 3
    for play in others:
        assert play.count("TAGS: [restart]") == play.count("TAGS: ") > 2


def children(pid):
    """The processes that a process has started."""
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_run_that_is_killed_has_said_what_is_unknown(run):
    words, environment = run.command("restart_eagle3", {"a": "fine", "b": "held up", "c": "fine"}, *ALL_AT_ONCE)
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
