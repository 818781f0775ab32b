# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of the guard on variables of hosts; a real run is in tests/unit/test_playbook_guard.py."""

from __future__ import annotations

import json
import os
from unittest import mock

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.inferops.sglang.plugins.action import sglang_guard
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles_file import as_yaml
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_profile_samples import RESULTS

RULES = [{"from": 0, "profile": "eagle3"}, {"from": 16, "profile": "baseline"}]
EAGLE3 = {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3}
PLAIN = {"speculative_algorithm": None}


def serves(load, effective=EAGLE3, **more):
    """What sglang_info returned of a host."""
    server = {
        "instance": "main",
        "state": "serving",
        "load": {"running": load, "waiting": 0},
        "uptime": 90000.0,
        "node_rank": 0,
        "effective": effective,
        **more,
    }
    return {"changed": False, "servers": [server]}


class HostVars(dict):
    """Variables of hosts, which can be read as they were registered, too."""

    def raw_get(self, host):
        return self[host]


class Guard:
    """The action, with what it shows, the time, and who is at work."""

    def __init__(self, monkeypatch, folder):
        self.hosts = {}
        self.shown = []
        self.path = str(folder / "guard.json")
        self.now = 1_800_000_000.0
        self.pid = 4711
        self.extra = {}
        monkeypatch.setattr(sglang_guard, "Display", lambda: self)
        monkeypatch.setattr(sglang_guard, "load_extra_vars", lambda loader: self.extra)
        monkeypatch.setattr(sglang_guard.time, "time", lambda: self.now)
        monkeypatch.setattr(sglang_guard.os, "getppid", lambda: self.pid)

    def display(self, text, stderr=False):
        self.shown.append(text)

    def host(self, name, result, **variables):
        self.hosts[name] = {"sglang_guard_rules": RULES, "sglang_guard_servers": result, **variables}

    def __call__(self, step="decide", check=False, hosts=None, passes=60.0, **arguments):
        self.now += passes
        names = list(self.hosts) if hosts is None else hosts
        given = {"step": step, "hosts": names, "candidates": list(self.hosts), "state": self.path, **arguments}
        task = mock.Mock(args=given, async_val=0, check_mode=check, diff=False)
        action = sglang_guard.ActionModule(task, mock.Mock(), mock.Mock(), mock.Mock(), None, None)
        result = action.run(task_vars={"hostvars": HostVars(self.hosts)})
        assert result["changed"] is False
        return result

    def until_switch(self, runs=3):
        for _run in range(runs - 1):
            self()
        return self()

    @property
    def state(self):
        with open(self.path, encoding="utf-8") as stream:
            return json.load(stream)


@pytest.fixture
def guard(monkeypatch, tmp_path):
    return Guard(monkeypatch, tmp_path)


def test_one_group_is_switched_and_the_other_is_not(guard):
    guard.host("a", serves(30), sglang_replica_group="chat")
    guard.host("b", serves(50), sglang_replica_group="chat")
    guard.host("c", serves(4), sglang_replica_group="code")
    result = guard.until_switch()
    assert result["switch"] is True
    assert result["profiles"] == {"a": "baseline", "b": "baseline"}
    assert result["pattern"] == "all:!c"
    chat, code = result["groups"]["chat"], result["groups"]["code"]
    assert chat == {
        "load": 40.0,
        "load_complete": True,
        "present": "eagle3",
        "wanted": "baseline",
        "switch": True,
        "reason": "switch",
        "message": "Group chat: load 40.0 requests a server, runs eagle3, wants baseline: switch to baseline.",
        "hosts": ["a", "b"],
    }
    assert (code["reason"], code["switch"]) == ("as_wanted", False)
    assert guard.shown[-3:-1] == [chat["message"], code["message"]]
    assert guard.state["groups"]["chat"]["target"] == "baseline" and guard.state["run"]["pid"] == 4711
    guard("finish")
    assert guard.state["run"] is None


def test_a_pattern_with_commas_and_lists_and_a_limit(guard):
    for name in "abc":
        guard.host(name, serves(40))
    guard.host("d", serves(2), sglang_replica_group="code")
    for _run in range(2):
        guard(hosts=["a", "b", "d"])
    # c is of the group and left out by --limit alone, which goes on holding.
    assert guard(hosts=["a", "b", "d"], pattern="x,y")["pattern"] == "x,y,!d"
    guard.now += 4000
    for _run in range(2):
        guard(hosts=["a", "b", "d"])
    assert guard(hosts=["a", "b", "d"], pattern=["x", "y"])["pattern"] == "x,y,!d"


def test_a_stopped_server_is_left_out_of_the_switch(guard):
    guard.host("a", serves(40))
    guard.host("b", serves(None, state="stopped", message="It was stopped."))
    result = guard.until_switch()
    assert (result["profiles"], result["pattern"]) == ({"a": "baseline"}, "all:!b")


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"unreachable": True, "msg": "no route\x1b[31m"}, "b is unknown (it cannot be reached: no route\\x1b[31m)"),
        ({"failed": True, "msg": "not root"}, "b is unknown (it could not be asked: not root)"),
        (None, "b is unknown (it could not be asked"),
        (serves(None), "load not known"),
        (serves(40, {**EAGLE3, "speculative_algorithm": "NGRAM"}), "none of the profiles of the rules (NGRAM 3/-/-)"),
        (serves(40, uptime=None), "it is not known since when b serves"),
    ],
)
def test_what_is_not_known_of_one_server_keeps_the_group_as_it_is(guard, result, words):
    guard.host("a", serves(40))
    guard.host("b", result)
    decided = guard.until_switch(4)
    assert decided["switch"] is False and decided["pattern"] == "all:!all" and decided["profiles"] == {}
    assert words in decided["groups"]["all"]["message"]
    assert "\x1b" not in "".join(guard.shown)


def test_check_mode_and_no_commit_remember_nothing(guard):
    guard.host("a", serves(40), sglang_guard_samples=1)
    assert guard(check=True)["switch"] and guard(commit=False)["switch"]
    assert not os.path.exists(guard.path)
    assert guard()["switch"]
    guard("finish", check=True)
    assert guard.state["run"]["pid"] == 4711


def test_another_run_that_is_switching_keeps_this_one_from_it(guard, monkeypatch):
    guard.host("a", serves(40), sglang_guard_samples=1, sglang_guard_min_interval=0)
    assert guard()["switch"]
    monkeypatch.setattr(sglang_guard.guard_state, "start_of_process", lambda pid: guard.state["run"]["start"] or "x")
    guard.pid = 4712
    guard.now += 120
    result = guard()
    assert (result["switch"], result["groups"]["all"]["reason"]) == (False, "busy")
    assert "PID 4711" in result["groups"]["all"]["message"] and guard.state["run"]["pid"] == 4711
    # It has ended without a word.
    guard.now += 4000
    monkeypatch.setattr(sglang_guard.guard_state, "start_of_process", lambda pid: "")
    assert guard()["switch"] and guard.state["run"]["pid"] == 4712


def test_the_decision_and_the_profiles_of_a_sweep(guard, tmp_path):
    (tmp_path / "profiles.yml").write_text(as_yaml(RESULTS), encoding="utf-8")
    running = {
        **EAGLE3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "max_running_requests": 64,
    }
    guard.host("a", serves(20, running), sglang_sweep_dir=str(tmp_path))
    del guard.hosts["a"]["sglang_guard_rules"]
    result = guard.until_switch()
    assert result["groups"]["all"]["present"] == "eagle3-steps3" and result["profiles"] == {"a": "baseline"}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"sglang_guard_rules": []}, "sglang_guard_rules: it is not set for the replica group all"),
        ({"sglang_guard_rules": [{"from": 0, "profile": "fast"}]}, "sglang_guard_rules, for a: sglang_spec_profile"),
        ({"sglang_guard_samples": 0}, "sglang_guard_samples: 0 is no whole number"),
        ({"sglang_guard_min_interval": "soon"}, "sglang_guard_min_interval: 'soon'"),
        ({"sglang_guard_margin": 1}, "sglang_guard_margin: 1"),
        ({"sglang_guard_statistic": "median"}, "sglang_guard_statistic: 'median' is neither average nor peak"),
        ({"sglang_guard_rules": [], "sglang_sweep_dir": "/nonexistent/s"}, "sglang_sweep_dir: there is no folder"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_any_host_is_asked(guard, variables, words):
    guard.host("a", None, **variables)
    with pytest.raises(AnsibleActionFail) as error:
        guard("check")
    assert words in str(error.value) and "Nothing was stopped." in str(error.value)


def test_hosts_of_a_group_must_agree(guard):
    guard.host("a", None)
    guard.host("b", None, sglang_guard_samples=5)
    with pytest.raises(AnsibleActionFail, match="sglang_guard_samples must be the same for all hosts of the replica"):
        guard("check")
    guard.hosts["b"]["sglang_replica_group"] = "code"
    assert guard("check")["changed"] is False


@pytest.mark.parametrize("name", ["sglang_hosts", "sglang_spec_profile"])
def test_what_would_win_over_the_decision_is_refused(guard, name):
    guard.host("a", None)
    guard.extra = {name: "x"}
    with pytest.raises(AnsibleActionFail, match=f"{name} is given with -e"):
        guard("check")


def test_a_state_that_cannot_be_is_refused_at_once(guard, tmp_path):
    guard.host("a", None)
    with pytest.raises(AnsibleActionFail, match=r"sglang_guard_state: .* there is no folder"):
        guard("check", state=str(tmp_path / "none" / "state.json"))
    with pytest.raises(AnsibleActionFail, match="not in the inventory"):
        guard("check", hosts=["x"])
