# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a rollout on variables of hosts; real plays are in tests/unit/test_playbook_reports.py."""

from __future__ import annotations

from unittest import mock

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.inferops.sglang.plugins.action import sglang_rollout

RUNS = {"sglang_deploy_checked": {"sglang": {"running": {"pid": 5}}}}


class HostVars(dict):
    """Variables of hosts, of which some cannot be read."""

    def __init__(self, hosts):
        super().__init__({name: Variables(variables) for name, variables in hosts.items()})


class Variables(dict):
    def __getitem__(self, name):
        value = super().__getitem__(name)
        if isinstance(value, Exception):
            raise value
        return value


class Rollout:
    """The action, with what it shows and how long it sleeps."""

    def __init__(self, monkeypatch):
        self.hosts = {}
        self.gone = set()
        self.shown = []
        self.now = 1000.0
        monkeypatch.setattr(sglang_rollout, "Display", lambda: self)
        monkeypatch.setattr(sglang_rollout.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(sglang_rollout.time, "sleep", self.sleep)

    def display(self, line, stderr=False):
        self.shown.append(line)

    def sleep(self, seconds):
        self.now += seconds

    def __call__(self, step, hosts, check=False, **arguments):
        task = mock.Mock(args={"step": step, "hosts": hosts, **arguments}, async_val=0, check_mode=check, diff=False)
        action = sglang_rollout.ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)
        variables = {
            "hostvars": HostVars(self.hosts),
            "groups": {"all": list(self.hosts)},
            "ansible_play_hosts_all": list(self.hosts),
            "ansible_play_hosts": [host for host in self.hosts if host not in self.gone],
        }
        result = action.run(task_vars=variables)
        assert result["changed"] is False
        return result

    def plan(self, hosts, **arguments):
        return self("plan", hosts, candidates=list(self.hosts), **arguments)

    def answer(self, gate, **states):
        """Let the hosts that are to ask have asked."""
        for asker, questions in gate["questions"].items():
            self.hosts[asker]["sglang_deploy_answers"] = {
                "results": [
                    {"question": question, "servers": [{"instance": "main", "state": states[question["host"]]}]}
                    for question in questions
                    if question["host"] in states
                ]
            }


@pytest.fixture
def rollout(monkeypatch):
    rollout = Rollout(monkeypatch)
    rollout.hosts = {name: dict(RUNS) for name in "abc"}
    return rollout


def test_a_plan(rollout):
    result = rollout.plan(["a", "b", "c"], pattern="gpu_hosts")
    assert result["refused"] == {}
    plan = result["plan"]
    assert (plan["hosts"], plan["sizes"], plan["pattern"], plan["max_failed"]) == (
        ["a", "b", "c"],
        [1, 1, 1],
        "gpu_hosts",
        0,
    )
    assert rollout.shown[1:-1] == [
        "Group all, 3 replicas, at least 2 serve all the time",
        "Wave 1: a",
        "Wave 2: b",
        "Wave 3: c",
    ]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"sglang_serial": 1}, "sglang_ramp"),
        ({"sglang_min_serving": "most"}, "sglang_min_serving"),
        ({"sglang_ramp": 2}, "must be the same for all hosts of the replica group all: a, b does not set it; c has 2."),
        ({"sglang_deploy_checked": {}}, "c was not checked"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_for_all(rollout, variables, words):
    rollout.hosts["c"] = {**RUNS, **variables}
    result = rollout.plan(["a", "b", "c"])
    assert result["plan"] == {} and list(result["refused"]) == ["a", "b", "c"]
    assert words in result["refused"]["a"]
    assert rollout.shown == []


def test_a_variable_that_cannot_be_read_is_named(rollout):
    rollout.hosts["c"]["sglang_ramp"] = KeyError("no such variable")
    with pytest.raises(AnsibleActionFail, match=r"sglang_ramp of the host c cannot be read: .*no such variable"):
        rollout.plan(["a", "b"])


def test_an_unknown_host_is_named(rollout):
    with pytest.raises(AnsibleActionFail, match="'x' is not in the inventory"):
        rollout.plan(["x"])


def test_a_gate_that_opens(rollout):
    plan = rollout.plan(["a", "b", "c"])["plan"]
    gate = rollout("gate", ["b"], plan=plan)
    assert (gate["open"], gate["wave"]) == (False, 2)
    assert [question["host"] for question in gate["questions"]["b"]] == ["a", "c"]
    rollout.answer(gate, a="serving", c="serving")
    gate = rollout("gate", ["b"], plan=plan, gate=gate)
    assert (gate["open"], gate["questions"], gate["refused"]) == (True, {}, {})


def test_a_gate_that_stays_shut_until_the_time_is_over(rollout):
    plan = rollout.plan(["a", "b", "c"])["plan"]
    gate = rollout("gate", ["a"], plan=plan)
    rounds = 0
    while gate["questions"]:
        # c answers nothing at all.
        rollout.answer(gate, a="serving", b="serving")
        gate = rollout("gate", ["a"], plan=plan, gate=gate)
        rounds += 1
    assert rounds > 10 and rollout.now == 1060.0
    assert not gate["open"] and list(gate["refused"]) == ["a"]
    assert (
        "after 60 s of waiting" in gate["refused"]["a"] and "c does not: a, which was to ask it" in gate["refused"]["a"]
    )
    assert any(line.startswith("Wave 1 waits, 60 s at most: 1 of 2 serve") for line in rollout.shown)


def test_what_was_true_before_a_pause_counts_no_more(rollout):
    plan = rollout.plan(["a", "b", "c"])["plan"]
    gate = rollout("gate", ["a"], plan=plan)
    rollout.answer(gate, b="serving", c="stopped")
    gate = rollout("gate", ["a"], plan=plan, gate=gate)
    rollout.answer(gate, a="serving")
    gate = rollout("gate", ["a"], plan=plan, gate=gate)
    assert {question["host"] for question in gate["questions"]["a"]} == {"b", "c"} and gate["answers"] == {}
    # Answers of an earlier round are not those of this one.
    gate = rollout("gate", ["a"], plan=plan, gate=gate)
    assert {name: answer["state"] for name, answer in gate["answers"].items()} == {"b": "unknown", "c": "unknown"}


def test_check_mode_does_not_wait(rollout):
    plan = rollout.plan(["a", "b", "c"])["plan"]
    gate = rollout("gate", ["a"], check=True, plan=plan)
    for _round in range(2):
        rollout.answer(gate, a="serving", b="stopped", c="stopped")
        gate = rollout("gate", ["a"], check=True, plan=plan, gate=gate)
    assert list(gate["refused"]) == ["a"] and rollout.now == 1000.0


def test_check_mode_counts_what_would_have_been_started(rollout):
    rollout.hosts["c"] = {"sglang_deploy_checked": {"sglang": {"running": None}}}
    plan = rollout.plan(["a", "b", "c"])["plan"]
    assert plan["hosts"] == ["c", "a", "b"]
    gate = rollout("gate", ["a"], check=True, plan=plan)
    assert [question["host"] for question in gate["questions"]["a"]] == ["b"]
    rollout.answer(gate, b="serving")
    assert rollout("gate", ["a"], check=True, plan=plan, gate=gate)["open"]
    # Without check mode it is asked.
    gate = rollout("gate", ["a"], plan=plan)
    assert [question["host"] for question in gate["questions"]["a"]] == ["b", "c"]


@pytest.mark.parametrize("plan", [{}, {"hosts": ["b"], "sizes": [1], "groups": {}}])
def test_nothing_begins_without_a_plan(rollout, plan):
    for step in ("gate", "settle"):
        with pytest.raises(AnsibleActionFail, match="nothing was checked and planned for a in this run"):
            rollout(step, ["a"], plan=plan)


@pytest.mark.parametrize(
    ("allowed", "failures", "gone", "stop"),
    [
        (0, {}, "", False),
        (0, {"sglang_deploy_failure": {"msg": "oom"}}, "", True),
        (0, {"sglang_deploy_not_routed": "no router"}, "", True),
        (0, {}, "a", True),
        (1, {"sglang_deploy_failure": {"msg": "oom"}}, "", False),
        (1, {}, "a", False),
    ],
)
def test_whether_the_run_goes_on(rollout, allowed, failures, gone, stop):
    for variables in rollout.hosts.values():
        variables["sglang_max_failed"] = allowed
    plan = rollout.plan(["a", "b", "c"])["plan"]
    rollout.hosts["a"].update(failures)
    # It is not the turn of this one yet.
    rollout.hosts["c"]["sglang_deploy_failure"] = {"msg": "of another time"}
    rollout.gone = set(gone)
    result = rollout("settle", ["b"], plan=plan)
    assert (result["stop"], result["last"], result["wave"]) == (stop, False, 2)
    assert result["not_proven"] == (["a"] if failures else []) and result["lost"] == list(gone)
    assert result["speakers"] == (["b"] if gone else ["a"])
    told = " ".join(rollout.shown[6:])
    assert ("no further wave begins" in told) == stop and ("goes on without a" in told) == bool(allowed)


def test_a_shut_gate_stops_the_run(rollout):
    plan = rollout.plan(["a", "b", "c"])["plan"]
    assert rollout("settle", ["c"], plan=plan, gate={"refused": {"c": "x"}})["stop"] is True
    assert rollout("settle", ["c"], plan=plan, gate={"refused": {}})["last"] is True


def test_the_hosts_of_one_server_are_replaced_together_and_fail_once(rollout):
    for name in "ba":
        rollout.hosts[name].update(sglang_node_group="big", sglang_max_failed=1)
    rollout.hosts["c"]["sglang_max_failed"] = 1
    # The order of the ranks is that of the inventory, whatever the pattern has.
    plan = rollout.plan(["b", "a", "c"])["plan"]
    assert (plan["hosts"], plan["sizes"]) == (["a", "b", "c"], [2, 1])
    for name in "ab":
        rollout.hosts[name]["sglang_deploy_failure"] = {"msg": "oom"}
    result = rollout("settle", ["a", "b"], plan=plan)
    assert (result["stop"], result["not_proven"]) == (False, ["a", "b"])


def test_a_part_of_a_server_is_in_no_plan(rollout):
    for name in "ab":
        rollout.hosts[name]["sglang_node_group"] = "big"
    result = rollout.plan(["a", "c"])
    assert result["plan"] == {} and "only a of its hosts is in this run" in result["refused"]["c"]
