# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which order the steps of a deployment are taken, and what becomes of it, with steps that answer by a script."""

from __future__ import annotations

import contextlib
import copy

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.deploying import steps
from ansible_collections.inferops.sglang.plugins.module_utils.deploying.deployment import (
    Deployment,
    DeploymentFailed,
    StillWaiting,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.deploying.role_variables import role_yaml

# What each step returns, by the name of its constant.
ANSWERS = {
    "CHECK": {"changed": False, "sglang": {"instance": "main", "running": {"pid": 5}}, "diff": {"after": "check"}},
    "CHECK_KEPT": {"changed": False, "sglang": {"instance": "main", "running": {"pid": 5}}, "diff": {"after": "kept"}},
    "WRITE": {
        "changed": True,
        "files": ["/etc/a"],
        "release": {"id": "r2", "previous_id": "r1", "restart_needed": True},
        "diff": [{"after": "write"}],
    },
    "GO_BACK": {
        "changed": True,
        "files": [],
        "release": {"id": "r1", "previous_id": "r2", "restart_needed": True},
        "diff": [{"after": "back"}],
    },
    "STOP": {"changed": True, "diff": {"after": "stop"}},
    "PLAN_RECLAIM": {"changed": True, "blockers": [], "processes": [], "diff": {"after": "plan"}},
    "RECLAIM": {"changed": False, "processes": []},
    "PROVE_FREE": {"changed": False, "diff": None},
    "START": {"changed": True},
    "WAIT": {"changed": False, "proof": {"ready_after": 5}},
    "REMEMBER": {"changed": True, "diff": [{"after": "proven"}]},
}
REHEARSED = {
    "sglang_deploy_checked": {"sglang": {"instance": "main"}},
    "sglang_deploy_release": {"release": {"id": "r2", "previous_id": "r1"}},
}
SETTINGS = {"force_restart": False, "gpu_free_reclaim": True}


class Host:
    """Steps that answer by a script: what was asked of them, and what they knew."""

    def __init__(self, monkeypatch):
        self.answers = copy.deepcopy(ANSWERS)
        self.taken = []
        self.given = {}
        self.known = {}
        self.locked = []
        self.silent_after = None
        self.names = {id(getattr(steps, name)): name for name in ANSWERS}
        # Two steps of the same module are told apart by what they are, also where all their fields are the same.
        monkeypatch.setattr(steps.Step, "run", lambda step, *given: self.run(step, *given))

    def run(self, step, settings, facts, check_mode, more):
        name = self.names[id(step)]
        self.taken.append(name + "?" if check_mode else name)
        self.known[name] = copy.deepcopy(facts)
        self.given[name] = more
        if self.locked == ["in"]:
            self.taken[-1] += "!"
        answer = self.answers[name]
        return copy.deepcopy(answer.pop(0) if isinstance(answer, list) else answer)

    def listens(self):
        return self.silent_after is None or len(self.taken) < self.silent_after

    @contextlib.contextmanager
    def alone(self):
        self.locked.append("in")
        yield
        self.locked.append("out")

    def deployment(self, check_mode=False, known=None, **settings):
        return Deployment({**SETTINGS, **settings}, known or {}, check_mode, self.listens, self.alone)


@pytest.fixture
def host(monkeypatch):
    return Host(monkeypatch)


# -- rehearsing

REHEARSAL = ["CHECK?", "WRITE?", "WAIT?", "PLAN_RECLAIM?", "PROVE_FREE?", "STOP?"]
GOING_BACK = ["CHECK_KEPT?", "GO_BACK?", "PLAN_RECLAIM?", "PROVE_FREE?", "STOP?"]


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("rollback", "order", "shown"), [(False, REHEARSAL, "check"), (True, GOING_BACK, "kept")], ids=["new", "rollback"]
)
def test_a_rehearsal_takes_each_step_in_check_mode(host, check_mode, rollback, order, shown):
    deployment = host.deployment(check_mode)
    deployment.rehearse(rollback)
    assert host.taken == order and host.locked == []
    assert (deployment.changed, deployment.diff) == (False, [{"after": shown}])
    assert set(deployment.facts) == {
        *("sglang_deploy_rollback", "sglang_deploy_unchanged", "sglang_deploy_touched"),
        *("sglang_deploy_checked", "sglang_deploy_release", "gpu_free_plan", "gpu_free_proof"),
    }
    facts = deployment.facts
    assert facts["sglang_deploy_rollback"] is rollback
    assert facts["sglang_deploy_unchanged"] is facts["sglang_deploy_touched"] is False
    assert facts["sglang_deploy_release"]["release"]["id"] == ("r1" if rollback else "r2")
    assert "diff" not in facts["sglang_deploy_checked"] and "diff" not in facts["gpu_free_plan"]


@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize(
    ("released", "running", "force", "unchanged"),
    [
        ({"restart_needed": False, "files": []}, {"pid": 5}, False, True),
        ({"restart_needed": False, "files": []}, {"pid": 5}, True, False),
        ({"restart_needed": False, "files": []}, None, False, False),
        ({"restart_needed": True, "files": []}, {"pid": 5}, False, False),
        ({"restart_needed": False, "files": ["/etc/a"]}, {"pid": 5}, False, False),
    ],
)
def test_what_runs_already_is_all_that_is_found(host, rollback, released, running, force, unchanged):
    for name in ("CHECK", "CHECK_KEPT"):
        host.answers[name]["sglang"]["running"] = running
    for name in ("WRITE", "GO_BACK"):
        host.answers[name]["files"] = released["files"]
        host.answers[name]["release"]["restart_needed"] = released["restart_needed"]
    deployment = host.deployment(force_restart=force)
    deployment.rehearse(rollback)
    assert deployment.facts["sglang_deploy_unchanged"] is unchanged
    order = GOING_BACK if rollback else REHEARSAL
    assert host.taken == (order[: order.index("PLAN_RECLAIM?")] if unchanged else order)
    assert ("gpu_free_plan" in deployment.facts) is not unchanged


def test_who_blocks_the_gpus_is_told_and_nothing_is_stopped(host):
    host.answers["PLAN_RECLAIM"]["blockers"] = ["GPU 0: bob's 7", "GPU 1: bob's 8"]
    with pytest.raises(DeploymentFailed) as failure:
        host.deployment().rehearse(False)
    assert failure.value.step == "Refuse when a process that would not be ended holds a GPU"
    assert "nothing was stopped. GPU 0: bob's 7; GPU 1: bob's 8. End these" in str(failure.value)
    assert failure.value.result["failed"] is True and "STOP?" not in host.taken


def process(action, unit):
    return {"action": action, "unit": unit, "pid": 7}


@pytest.mark.parametrize(
    ("processes", "named"),
    [
        ([process("would_terminate", "sglang-other.service")], "sglang-other.service"),
        (
            [
                process("would_stop_service", "sglang-b.service"),
                process("would_terminate", "sglang-a.service"),
                process("would_terminate", "sglang-a.service"),
            ],
            "sglang-a.service, sglang-b.service",
        ),
        ([process("would_terminate", "sglang-main.service")], ""),
        ([process("would_terminate", None), process("would_terminate", "")], ""),
        ([process("protected", "sglang-other.service"), process("allowed", "sglang-c.service")], ""),
        ([process("would_terminate", "sglang-other.scope"), process("would_terminate", "my-sglang-x.service")], ""),
    ],
)
def test_the_server_of_another_instance_is_not_ended(host, processes, named):
    host.answers["PLAN_RECLAIM"]["processes"] = processes
    deployment = host.deployment()
    if not named:
        deployment.rehearse(False)
        assert host.taken == REHEARSAL
        return
    with pytest.raises(DeploymentFailed) as failure:
        deployment.rehearse(False)
    assert failure.value.step == "Refuse to end the server of another instance"
    assert str(failure.value).startswith(named + " uses GPUs that this instance would use, so nothing was stopped.")
    assert "STOP?" not in host.taken


# -- replacing

REPLACEMENT = ["STOP!", "RECLAIM!", "PROVE_FREE!", "WRITE!", "START!", "WAIT", "REMEMBER"]


@pytest.mark.parametrize("rollback", [False, True])
def test_a_replacement_is_alone_until_the_server_is_started(host, rollback):
    deployment = host.deployment(known=REHEARSED)
    deployment.replace(rollback)
    order = ["GO_BACK!" if name == "WRITE!" and rollback else name for name in REPLACEMENT]
    assert host.taken == order and host.locked == ["in", "out"]
    assert deployment.changed is True
    shown = ["stop", "back" if rollback else "write", "proven"]
    assert [diff["after"] for diff in deployment.diff] == shown
    assert deployment.facts["sglang_deploy_touched"] is True
    assert set(deployment.facts) == {
        *("sglang_deploy_touched", "sglang_stop_result", "gpu_free_reclaimed", "gpu_free_proof"),
        *("sglang_deploy_release", "sglang_deploy_started", "sglang_deploy_ready", "sglang_deploy_proven"),
    }
    assert host.given["WAIT"] == {"return_after": 0} and host.given["STOP"] == {}


def test_each_step_knows_the_rehearsal_and_what_came_before(host):
    host.deployment(known=REHEARSED).replace(False)
    assert host.known["STOP"]["sglang_deploy_checked"] == REHEARSED["sglang_deploy_checked"]
    assert host.known["WRITE"]["gpu_free_proof"] == {"changed": False}
    # What is written now counts, and not what would have been.
    assert "restart_needed" not in host.known["WRITE"]["sglang_deploy_release"]["release"]
    assert host.known["START"]["sglang_deploy_release"]["release"]["restart_needed"] is True
    assert host.known["REMEMBER"]["sglang_deploy_ready"]["proof"] == {"ready_after": 5}


def test_without_a_reclaim_nothing_is_ended(host):
    host.deployment(known=REHEARSED, gpu_free_reclaim=False).replace(False)
    assert host.taken == [name for name in REPLACEMENT if name != "RECLAIM!"]


def test_nothing_is_changed_where_no_step_has_changed_anything(host):
    for answer in host.answers.values():
        answer["changed"] = False
    deployment = host.deployment(known=REHEARSED)
    deployment.replace(False)
    assert deployment.changed is False


def test_what_a_later_step_does_not_change_stays_changed(host):
    host.answers["REMEMBER"]["changed"] = False
    deployment = host.deployment(known=REHEARSED)
    deployment.replace(False)
    assert deployment.changed is True


@pytest.mark.parametrize(
    ("previous", "rest"),
    [("r1", ["START?!", "WAIT?", "REMEMBER?"]), (None, []), ("", [])],
    ids=["again", "first", "no"],
)
def test_check_mode_ends_with_the_release_of_a_first_deployment(host, previous, rest):
    host.answers["WRITE"]["release"]["previous_id"] = previous
    deployment = host.deployment(check_mode=True, known=REHEARSED)
    deployment.replace(False)
    assert host.taken == ["STOP?!", "RECLAIM?!", "PROVE_FREE?!", "WRITE?!", *rest]
    assert deployment.facts["sglang_deploy_touched"] is False and deployment.changed is True


def test_a_first_deployment_is_started_outside_of_check_mode(host):
    host.answers["WRITE"]["release"]["previous_id"] = None
    host.deployment(known=REHEARSED).replace(False)
    assert host.taken == REPLACEMENT


def test_who_does_not_get_the_host_alone_touches_nothing(host):
    @contextlib.contextmanager
    def taken():
        raise RuntimeError("taken")
        yield

    deployment = Deployment(SETTINGS, REHEARSED, False, alone=taken)
    with pytest.raises(RuntimeError):
        deployment.replace(False)
    assert deployment.facts == {"sglang_deploy_touched": False} and host.taken == []


# -- failures


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("failing", [name.strip("!") for name in REPLACEMENT])
def test_where_a_step_fails_no_further_one_begins(host, failing, check_mode):
    host.answers[failing] = {"failed": True, "msg": "It broke.", "reason": "x", "diff": {"after": "so far"}}
    deployment = host.deployment(check_mode, known=REHEARSED)
    with pytest.raises(DeploymentFailed) as failure:
        deployment.replace(False)
    assert (failure.value.step, str(failure.value)) == (getattr(steps, failing).name, "It broke.")
    taken = [name.strip("?!") for name in host.taken]
    assert taken == [name.strip("!") for name in REPLACEMENT][: len(taken)] and taken[-1] == failing
    # What the step has found, and what came before, is told.
    registers = {getattr(steps, name).register for name in taken}
    assert set(deployment.facts) == {"sglang_deploy_touched", *registers}
    assert deployment.facts[getattr(steps, failing).register]["reason"] == "x"
    assert failure.value.result["reason"] == "x"
    assert deployment.facts["sglang_deploy_touched"] is not check_mode


@pytest.mark.parametrize(("rollback", "order"), [(False, REHEARSAL), (True, GOING_BACK)])
def test_where_a_step_of_a_rehearsal_fails_nothing_is_touched(host, rollback, order):
    for count, failing in enumerate(order, start=1):
        name = failing.strip("?")
        host.answers = copy.deepcopy(ANSWERS)
        host.answers[name] = {"failed": True, "msg": "It broke."}
        host.taken.clear()
        deployment = host.deployment()
        with pytest.raises(DeploymentFailed) as failure:
            deployment.rehearse(rollback)
        assert failure.value.step == getattr(steps, name).name and host.taken == order[:count]
        assert deployment.facts["sglang_deploy_touched"] is False


def test_a_failure_without_a_reason(host):
    host.answers["CHECK"] = {"failed": True}
    with pytest.raises(DeploymentFailed, match=r"^it gave no reason$"):
        host.deployment().rehearse(False)


def test_what_a_step_that_failed_had_changed_counts(host):
    """One that wrote half of it, and says so."""
    host.answers["STOP"] = {"changed": True, "failed": True, "msg": "It broke.", "diff": {"after": "half"}}
    deployment = host.deployment(known=REHEARSED)
    with pytest.raises(DeploymentFailed):
        deployment.replace(False)
    assert deployment.changed is True and deployment.diff == [{"after": "half"}]


# -- nobody listens


@pytest.mark.parametrize("after", range(len(REPLACEMENT)))
def test_where_nobody_listens_any_more_the_next_step_is_not_begun(host, after):
    host.silent_after = after
    deployment = host.deployment(known=REHEARSED)
    with pytest.raises(DeploymentFailed) as failure:
        deployment.replace(False)
    assert failure.value.step == getattr(steps, REPLACEMENT[after].strip("!")).name
    assert "Nobody waits for this run any more" in str(failure.value)
    assert host.taken == REPLACEMENT[:after]


def test_a_rehearsal_ends_too_where_nobody_listens(host):
    host.silent_after = 2
    with pytest.raises(DeploymentFailed):
        host.deployment().rehearse(False)
    assert host.taken == REHEARSAL[:2]


# -- in parts

PART = {"changed": False, "waiting": True, "progress": {"phase": "loading_weights"}, "resume": {"format": 1}}


def test_a_wait_that_takes_long_goes_on_where_it_was(host):
    host.answers["WAIT"] = [PART, {**PART, "resume": {"format": 1, "n": 2}}, ANSWERS["WAIT"]]
    first = host.deployment(known=REHEARSED)
    with pytest.raises(StillWaiting) as part:
        first.replace(False, return_after=10)
    assert part.value.progress == {"phase": "loading_weights"}
    assert host.given["WAIT"] == {"return_after": 10} and first.changed is True
    assert "sglang_deploy_ready" not in first.facts
    resume = part.value.resume
    assert resume["wait"] == {"format": 1}
    assert resume["facts"]["sglang_deploy_release"]["release"]["id"] == "r2"
    assert resume["facts"]["sglang_deploy_touched"] is True

    host.taken.clear()
    host.locked.clear()
    second = host.deployment(known=REHEARSED)
    with pytest.raises(StillWaiting) as part:
        second.replace(False, 10, resume)
    assert host.taken == ["WAIT"] and host.locked == []
    assert host.given["WAIT"] == {"return_after": 10, "resume": {"format": 1}}
    assert part.value.resume == {"wait": {"format": 1, "n": 2}, "facts": resume["facts"]}
    # It says nothing of what only the part before knows.
    assert second.facts == {}

    host.taken.clear()
    last = host.deployment(known=REHEARSED)
    last.replace(False, 10, part.value.resume)
    assert host.taken == ["WAIT", "REMEMBER"]
    assert host.known["REMEMBER"]["sglang_deploy_release"]["release"]["restart_needed"] is True
    assert set(last.facts) == {"sglang_deploy_ready", "sglang_deploy_proven"}


def test_a_later_part_that_fails_is_a_failure(host):
    host.answers["WAIT"] = {"failed": True, "msg": "It died.", "reason": "died"}
    deployment = host.deployment(known=REHEARSED)
    with pytest.raises(DeploymentFailed) as failure:
        deployment.replace(False, 10, {"wait": {}, "facts": {"sglang_deploy_release": {}}})
    assert failure.value.step == steps.WAIT.name and host.taken == ["WAIT"]


# -- the steps themselves


def test_the_names_and_registers_of_steps_are_those_of_the_role(host):
    """The role and its report look for them."""
    files = {
        "WRITE": "sglang_deploy/tasks/release",
        "GO_BACK": "sglang_deploy/tasks/go_back_release",
        "CHECK": "sglang_deploy/tasks/preflight",
        "CHECK_KEPT": "sglang_deploy/tasks/rehearse_rollback_by_tasks",
        "START": "sglang_deploy/tasks/start",
        "WAIT": "sglang_deploy/tasks/wait",
        "REMEMBER": "sglang_deploy/tasks/proven",
        "STOP": "sglang_stop/tasks/main",
        "PLAN_RECLAIM": "gpu_free/tasks/plan",
        "RECLAIM": "gpu_free/tasks/main",
        "PROVE_FREE": "gpu_free/tasks/wait",
    }
    assert set(files) == set(ANSWERS)
    for name, path in files.items():
        step = getattr(steps, name)
        (task,) = [task for task in role_yaml(path) if "inferops.sglang." + step.module in task]
        assert task["name"] == step.name
        # What is proven is asked for by nobody.
        assert task.get("register", "sglang_deploy_proven") == step.register


def test_the_names_of_refusals_are_those_of_the_role():
    names = [
        task["name"]
        for path in ("gpu_free/tasks/plan", "sglang_deploy/tasks/rehearse_stop")
        for task in role_yaml(path)
    ]
    assert "Refuse when a process that would not be ended holds a GPU" in names
    assert "Refuse to end the server of another instance" in names


def test_a_step_gives_its_module_its_arguments_and_more(monkeypatch):
    called = []
    monkeypatch.setattr(steps, "run_module", lambda *given: called.append(given) or {"changed": False})
    step = steps.Step("A", "a", "sglang_release", lambda: "main", lambda settings, facts: {"x": settings, "y": facts})
    assert step.run({"s": 1}, {"f": 2}, True, {"y": 3}) == {"changed": False}
    assert called == [("sglang_release", "main", {"x": {"s": 1}, "y": 3}, True)]


@pytest.mark.parametrize("name", ANSWERS)
def test_each_step_has_the_main_of_its_module(name):
    step = getattr(steps, name)
    assert step.load().__module__.rpartition(".")[2] == step.module
