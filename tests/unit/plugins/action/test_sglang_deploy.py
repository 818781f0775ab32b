# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A deployment on the controller, with a module that answers by a script."""

from __future__ import annotations

import copy
import json
from unittest import mock

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.inferops.sglang.plugins.action import sglang_deploy
from ansible_collections.inferops.sglang.plugins.module_utils.deploying.settings import NAMES
from ansible_collections.inferops.sglang.plugins.plugin_utils import parted_action
from ansible_collections.inferops.sglang.plugins.plugin_utils.deploy_facts import REHEARSED, REPLACED, deploy_facts
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.deploying.role_variables import (
    role_variables,
    template_of,
    trusted,
)

LOST = AnsibleConnectionFailure("Failed to connect to the host via ssh: Connection timed out")
CHECKED = {"sglang": {"instance": "main", "gpus": []}}
RELEASE = {"release": {"id": "r2"}, "files": []}


def answer(facts=None, **more):
    """What the module returns in the end."""
    return {
        "changed": False,
        "further": False,
        "facts": json.dumps(facts or {}),
        "invocation": {"module_args": {"phase": "replace", "return_after": 10.0}},
        **more,
    }


def part(facts=None, number=1, **progress):
    """What it returns of a part of the wait."""
    return answer(
        facts,
        changed=True,
        waiting=True,
        progress={"phase": "loading_weights", "elapsed": 60.0, **progress},
        resume={"wait": {"number": number}, "facts": {}},
    )


def rehearsed(unchanged=False, token="t1", **facts):
    found = {
        "sglang_deploy_checked": CHECKED,
        "sglang_deploy_release": RELEASE,
        "sglang_deploy_rollback": False,
        "sglang_deploy_touched": False,
        "sglang_deploy_unchanged": unchanged,
        "gpu_free_plan": {"blockers": []},
        **facts,
    }
    return {REHEARSED: answer(found, token=token)}


class Deploy:
    """A task whose module answers by a script; what it was given and what was shown."""

    def __init__(self, monkeypatch):
        self.script = []
        self.given = []
        self.lines = []
        self.slept = []
        self.files = {}
        monkeypatch.setattr(parted_action.time, "sleep", self.slept.append)
        monkeypatch.setattr(parted_action, "Display", lambda: self)
        monkeypatch.setattr(parted_action, "constants", mock.Mock(DEFAULT_FORKS=5, DEFAULT_STDOUT_CALLBACK="default"))

    def display(self, line, stderr=False):
        self.lines.append(line)

    def execute(self, module_name, module_args, task_vars, wrap_async=False):
        assert module_name == "inferops.sglang.sglang_deploy" and wrap_async is False
        self.given.append(copy.deepcopy(module_args))
        module_args["_ansible_version"] = "x"  # as the real one does
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step

    def run(self, phase, inventory=None, found=None, check=False, rollback=None, role=True):
        args = {"phase": phase, **({} if rollback is None else {"rollback": rollback})}
        task = mock.Mock(args=args, async_val=0, delegate_to=None, check_mode=check, diff=False)
        variables = {name: trusted(value) for name, value in (inventory or {}).items()}
        variables = role_variables(variables) if role else variables
        variables.update(found or {}, inventory_hostname="gpu-a", ansible_play_batch=["gpu-a"])
        self.connection = mock.Mock(has_native_async=False)
        templar = mock.Mock(template=template_of(variables))
        loader = mock.Mock(get_real_file=lambda path: path)
        action = sglang_deploy.ActionModule(task, self.connection, mock.Mock(), loader, templar, None)
        action._execute_module = self.execute
        action._find_needle = lambda folder, name: self.files[name]
        result = action.run(task_vars=variables)
        assert self.script == []
        return result

    def rehearse(self, inventory=None, **given):
        return self.run("rehearse", inventory, **given)

    def replace(self, inventory=None, found=None, **given):
        return self.run("replace", inventory, rehearsed() if found is None else found, **given)


@pytest.fixture
def deploy(monkeypatch):
    return Deploy(monkeypatch)


def facts_of(result):
    return json.loads(result["facts"])


# -- whose host it is


BY_TASKS = [{"sglang_node_group": "big"}, {"sglang_gpu_host": "pve"}, {"sglang_container_pull": True}]


@pytest.mark.parametrize("inventory", BY_TASKS)
def test_hosts_that_are_left_to_the_tasks_are_not_asked(deploy, inventory):
    result = deploy.rehearse(inventory)
    assert (result["changed"], result["facts"], result["further"]) == (False, "{}", True)
    assert deploy.given == [] and "settings" not in result
    result = deploy.replace(inventory)
    assert result == {"changed": False, "facts": "{}", "further": True} and deploy.given == []


@pytest.mark.parametrize(
    ("found", "inventory"),
    [
        ({}, {}),
        ({REHEARSED: {}, REPLACED: {}}, {}),
        ({REHEARSED: {"skipped": True}}, {}),
        (rehearsed(unchanged=True), {}),
        ({REHEARSED: answer({})}, {}),
        (rehearsed(), {"sglang_router_url": ["http://r:1"]}),
    ],
    ids=["no rehearsal", "forgotten", "skipped", "unchanged", "nothing found", "routers"],
)
def test_without_a_rehearsal_or_with_more_to_do_the_tasks_replace(deploy, found, inventory):
    result = deploy.replace(inventory, found)
    assert result == {"changed": False, "facts": "{}", "further": True} and deploy.given == []


def test_without_the_role_the_remedy_is_told(deploy):
    for phase in ("rehearse", "replace"):
        with pytest.raises(AnsibleActionFail, match="include the role with tasks_from rehearse and replace"):
            deploy.run(phase, role=False)
    assert deploy.given == []


# -- rehearsing


def test_a_rehearsal_is_one_call_with_all_settings(deploy):
    deploy.script = [answer({"sglang_deploy_unchanged": False, "sglang_deploy_touched": False})]
    result = deploy.rehearse({"sglang_port": "{{ 30000 + 1 }}", "sglang_spec_num_steps": 3})
    (given,) = deploy.given
    assert set(given) == {"phase", "settings"} and given["phase"] == "rehearse"
    assert set(given["settings"]) == set(NAMES)
    assert str(given["settings"]["port"]) == "30001"
    assert {name: str(value) for name, value in given["settings"]["speculative"].items()} == {"num_steps": "3"}
    assert result["further"] is False and facts_of(result)["sglang_deploy_unchanged"] is False
    assert deploy.lines == []


def test_a_rollback_is_asked_for_as_such(deploy):
    deploy.script = [answer()]
    deploy.rehearse(rollback=True)
    assert deploy.given[0]["rollback"] is True


def test_each_rehearsal_has_a_token_of_its_own(deploy):
    tokens = set()
    for inventory in ({}, {}, {"sglang_node_group": "big"}, {"sglang_node_group": "big"}):
        deploy.script = [] if inventory else [answer()]
        tokens.add(deploy.rehearse(inventory)["token"])
    assert len(tokens) == 4 and all(len(token) == 16 for token in tokens)


def test_a_rehearsal_that_fails_has_a_token_too(deploy):
    deploy.script = [answer(failed=True, msg="It broke.", step="Write the release")]
    result = deploy.rehearse()
    assert result["failed"] is True and result["token"] and result["further"] is False


@pytest.mark.parametrize(
    ("facts", "inventory", "more", "further"),
    [
        ({"sglang_deploy_unchanged": False}, {}, {}, False),
        ({"sglang_deploy_unchanged": True}, {}, {}, True),
        ({"sglang_deploy_unchanged": False}, {"sglang_router_url": ["http://r:1"]}, {}, True),
        ({"sglang_deploy_unchanged": False}, {"sglang_router_url": ["http://r"], "sglang_rank_zero": "a:1"}, {}, False),
        ({}, {"sglang_router_url": ["http://r:1"]}, {"failed": True, "msg": "no"}, False),
        ({"sglang_deploy_unchanged": True}, {}, {"failed": True, "msg": "no"}, False),
    ],
)
def test_what_is_left_to_the_tasks(deploy, facts, inventory, more, further):
    deploy.script = [answer(facts, **more)]
    assert deploy.rehearse(inventory)["further"] is further


def test_a_rehearsal_whose_connection_is_lost_is_not_tried_again(deploy):
    deploy.script = [LOST]
    with pytest.raises(AnsibleConnectionFailure):
        deploy.rehearse()
    assert len(deploy.given) == 1 and deploy.slept == []


def test_a_rehearsal_waits_for_nothing(deploy):
    deploy.script = [answer()]
    deploy.rehearse({"sglang_progress_interval": 2})
    assert "return_after" not in deploy.given[0]


# -- replacing


def test_a_replacement_gets_what_the_rehearsal_has_found(deploy):
    deploy.script = [answer({"sglang_deploy_touched": True}, changed=True)]
    result = deploy.replace()
    (given,) = deploy.given
    assert given["known"] == {
        "sglang_deploy_checked": CHECKED,
        "sglang_deploy_release": RELEASE,
        "sglang_deploy_rollback": False,
    }
    assert given["phase"] == "replace" and given["return_after"] == 10.0 and set(given["settings"]) == set(NAMES)
    assert (result["changed"], result["further"], result["of"]) == (True, False, "t1")
    assert facts_of(result) == {"sglang_deploy_touched": True}


def test_part_after_part_and_all_facts_together(deploy):
    deploy.script = [
        part({"sglang_deploy_touched": True, "sglang_deploy_started": {"a": 1}}, 1, percent=45),
        part({}, 2),
        answer({"sglang_deploy_ready": {"proof": {}}, "sglang_deploy_proven": {}}, changed=True),
    ]
    result = deploy.replace()
    assert deploy.lines == ["gpu-a main: loading weights 45 %, 1 min 00 s", "gpu-a main: loading weights, 1 min 00 s"]
    assert [given.get("resume", {}).get("wait") for given in deploy.given] == [None, {"number": 1}, {"number": 2}]
    assert facts_of(result) == {
        "sglang_deploy_touched": True,
        "sglang_deploy_started": {"a": 1},
        "sglang_deploy_ready": {"proof": {}},
        "sglang_deploy_proven": {},
    }
    assert not {"waiting", "progress", "resume"} & set(result) and result["changed"] is True


def test_who_was_changed_in_an_earlier_part_is_changed(deploy):
    deploy.script = [part({}), answer({}, changed=False)]
    assert deploy.replace()["changed"] is True


def test_differences_of_an_earlier_part_are_shown(deploy):
    deploy.script = [dict(part({}), diff=[{"after": "1"}]), answer({}, changed=True, diff=[{"after": "2"}])]
    assert deploy.replace()["diff"] == [{"after": "1"}, {"after": "2"}]


def test_instances_are_told_apart(deploy):
    deploy.script = [part(), answer()]
    deploy.replace({"sglang_instance": "second"})
    assert deploy.lines[0].startswith("gpu-a second: ")


def test_without_progress_it_is_one_call(deploy):
    deploy.script = [answer()]
    deploy.replace({"sglang_progress_interval": 0})
    assert "return_after" not in deploy.given[0]


def test_a_failure_keeps_the_facts_of_all_parts(deploy):
    deploy.script = [
        part({"sglang_deploy_touched": True, "sglang_stop_result": {}}),
        answer({"sglang_deploy_ready": {"failed": True}}, failed=True, msg="It died.", step="Wait", reason="died"),
    ]
    result = deploy.replace()
    assert (result["failed"], result["step"], result["of"]) == (True, "Wait", "t1")
    assert set(facts_of(result)) == {"sglang_deploy_touched", "sglang_stop_result", "sglang_deploy_ready"}


# -- lost connections


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("lost", [LOST, {"unreachable": True, "msg": "gone"}], ids=["raised", "returned"])
def test_the_first_call_is_not_tried_again(deploy, lost, check):
    """What stops and starts may still run."""
    deploy.script = [lost]
    result = deploy.replace(check=check)
    assert result["unreachable"] is True and len(deploy.given) == 1 and deploy.slept == []
    # Nobody knows how far it came.
    assert facts_of(result) == {"sglang_deploy_touched": not check}
    assert result["of"] == "t1"
    known = deploy_facts({**rehearsed(), REPLACED: result})
    assert known["sglang_deploy_touched"] is not check and known["sglang_deploy_checked"] == CHECKED


def test_a_wait_is_tried_again(deploy):
    deploy.script = [part({"sglang_deploy_touched": True}), LOST, {"unreachable": True, "msg": "gone"}, answer()]
    result = deploy.replace()
    assert "unreachable" not in result and deploy.slept == [5.0, 10.0]
    assert [given.get("resume", {}).get("wait") for given in deploy.given] == [None, *[{"number": 1}] * 3]
    assert "the connection is lost" in deploy.lines[1]


def test_a_host_that_stays_away_while_it_is_waited_for(deploy):
    deploy.script = [part({"sglang_deploy_touched": True, "sglang_deploy_started": {}}), LOST, LOST, LOST, LOST]
    result = deploy.replace()
    assert result["unreachable"] is True and "timed out" in result["msg"]
    assert facts_of(result) == {"sglang_deploy_touched": True, "sglang_deploy_started": {}}
    assert deploy.slept == [5.0, 10.0, 20.0]


def test_a_host_that_says_that_nothing_was_touched_is_believed(deploy):
    deploy.script = [answer({"sglang_deploy_touched": False}, failed=True, msg="Another run is ...")]
    assert facts_of(deploy.replace()) == {"sglang_deploy_touched": False}


def test_an_answer_without_facts_leaves_it_open(deploy):
    """As of a module that could not be started, or was killed."""
    deploy.script = [{"failed": True, "msg": "MODULE FAILURE"}]
    assert facts_of(deploy.replace()) == {"sglang_deploy_touched": True}


# -- what is wrong on the controller


def test_a_profile_that_does_not_fit_is_refused_before_any_call(deploy):
    for run in (deploy.rehearse, deploy.replace):
        with pytest.raises(AnsibleActionFail, match="there is no profile 'eagle4'"):
            run({"sglang_spec_profile": "eagle4"})
    assert deploy.given == []


PATCH = {"src": "a.py", "target": "sglang/a.py", "sha256_before": "0" * 64}


def test_patches_are_read_on_the_controller(deploy, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    deploy.files = {"a.py": str(tmp_path / "a.py")}
    deploy.script = [answer()]
    deploy.rehearse({"sglang_patches": [PATCH]})
    deploy.script = [answer()]
    deploy.replace({"sglang_patches": [PATCH]})
    for given in deploy.given:
        assert given["settings"]["patches"] == [dict(PATCH, content="x = 1\n")]


def test_a_source_that_is_missing_is_named(deploy, tmp_path):
    deploy.files = {"a.py": str(tmp_path / "gone.py")}
    with pytest.raises(AnsibleActionFail, match=r"src a\.py cannot be read"):
        deploy.rehearse({"sglang_patches": [PATCH]})
    assert deploy.given == []


def test_a_result_does_not_show_the_settings(deploy):
    key = "k-1234567"
    for run in (deploy.rehearse, deploy.replace):
        deploy.script = [answer()]
        assert key not in json.dumps(run({"sglang_api_key": key}))
