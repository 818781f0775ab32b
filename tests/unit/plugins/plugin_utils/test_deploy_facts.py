# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a deployment, whichever way its host was deployed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils.deploy_facts import (
    REHEARSED,
    REPLACED,
    deploy_facts,
    known_facts,
    read_facts,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.deploying.role_variables import (
    ansible_of,
    role_variables,
    role_yaml,
    unsafe,
)


def rehearsed(token="t1", **facts):
    return {"token": token, "further": False, "facts": json.dumps(facts)}


def replaced(of="t1", **facts):
    return {"of": of, "further": False, "facts": json.dumps(facts)}


BY_TASKS = {"sglang_deploy_touched": True, "sglang_deploy_unchanged": False}


CASES = [
    ({}, None),
    (BY_TASKS, None),
    # As begin.yml and know.yml leave them.
    ({REHEARSED: {}, REPLACED: {}, **BY_TASKS}, None),
    ({REHEARSED: None}, None),
    ({REHEARSED: "x"}, None),
    ({REHEARSED: {"skipped": True, "changed": False}}, None),
    ({REHEARSED: rehearsed(a=1)}, {"a": 1}),
    ({REHEARSED: rehearsed(a=1), REPLACED: {}}, {"a": 1}),
    ({REHEARSED: rehearsed(a=1, b=1), REPLACED: replaced(b=2, c=3)}, {"a": 1, "b": 2, "c": 3}),
    ({REHEARSED: rehearsed("t2", a=1), REPLACED: replaced("t1", a=2)}, {"a": 1}),
    ({REHEARSED: rehearsed(a=1), REPLACED: {"skipped": True}}, {"a": 1}),
    ({REHEARSED: rehearsed(a=1), REPLACED: {"unreachable": True, "msg": "gone"}}, {"a": 1}),
    ({REHEARSED: rehearsed(a=1), REPLACED: {"of": "t1", "unreachable": True, "facts": '{"a": 2}'}}, {"a": 2}),
    ({REPLACED: replaced(a=2)}, None),
    # The call has failed before the host could say anything.
    ({REHEARSED: {"failed": True, "msg": "no"}}, {}),
    ({REHEARSED: {"failed": True, "msg": "no"}, REPLACED: replaced("t0", a=2)}, {}),
]


@pytest.mark.parametrize(("variables", "expected"), CASES)
def test_what_is_newest_counts(variables, expected):
    assert deploy_facts(variables) == expected


@pytest.mark.parametrize("variables", [variables for variables, _expected in CASES])
def test_the_tasks_of_the_role_know_the_same(variables):
    theirs = ansible_of({**role_variables({}), **unsafe(variables)})("{{ __sglang_deploy_found }}")
    assert theirs == (deploy_facts(variables) or {})


def test_a_result_without_token_is_nobodys():
    """A rehearsal that brought no answer has none, and neither has a replacement that was skipped."""
    variables = {REHEARSED: {"unreachable": True, "msg": "gone"}, REPLACED: {"facts": '{"a": 1}', "further": True}}
    assert deploy_facts(variables) == {}


def test_a_host_that_is_deployed_by_tasks_says_nothing_in_its_call():
    """Where the tasks have not run yet, there is nothing either."""
    assert deploy_facts({REHEARSED: {"token": "t1", "further": True, "facts": "{}"}}) == {}


def test_facts_are_those_of_the_calls_or_variables():
    names = ("sglang_deploy_touched", "sglang_deploy_unchanged", "sglang_deploy_ready")
    assert known_facts(BY_TASKS, names) == BY_TASKS
    assert known_facts(BY_TASKS, names[:1]) == {"sglang_deploy_touched": True}
    calls = {REHEARSED: rehearsed(sglang_deploy_touched=False), REPLACED: replaced(sglang_deploy_ready={}, more=1)}
    # A variable of a run before does not count.
    assert known_facts({**BY_TASKS, **calls}, names) == {"sglang_deploy_touched": False, "sglang_deploy_ready": {}}


def test_variables_are_not_changed():
    variables = {REHEARSED: rehearsed(a={"b": 1}), REPLACED: replaced(a=2)}
    before = json.dumps(variables)
    deploy_facts(variables)["a"] = 3
    assert json.dumps(variables) == before


# -- what a host may say


@pytest.mark.parametrize("text", ["[]", "[1]", "null", "1", '"a"', "true"])
def test_facts_that_are_no_mapping_are_none(text):
    assert read_facts({"facts": text}) == {}
    assert deploy_facts({REHEARSED: {"token": "t1", "facts": text}}) == {}


@pytest.mark.parametrize("facts", [None, 1, [], {"a": 1}, True])
def test_facts_that_are_no_text_are_none(facts):
    assert read_facts({"facts": facts}) == {} and read_facts({}) == {}


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "\0", "[" * 100000, '{"a": ' * 100000])
def test_facts_that_are_no_json_are_none(text):
    """Whatever a host answers, a report on the others must come to its end."""
    assert read_facts({"facts": text}) == {}


@given(st.text(max_size=20) | st.sampled_from(['{"a": NaN}', '{"a": 1, "a": 2}', '{"\\ud800": 1}']))
def test_any_text_is_read_or_none(text):
    assert isinstance(read_facts({"facts": text}), dict)


# -- the same in the role


def test_the_tasks_of_the_role_know_the_same_results():
    registered = {
        task["register"]
        for path in ("rehearse", "rehearse_rollback", "replace")
        for entry in role_yaml("sglang_deploy/tasks/" + path)
        for task in [entry, *entry.get("block", [])]
        if "inferops.sglang.sglang_deploy" in task
    }
    assert registered == {REHEARSED, REPLACED}
    (begin,) = role_yaml("sglang_deploy/tasks/begin")
    forgotten = begin["ansible.builtin.set_fact"]
    assert forgotten[REHEARSED] == forgotten[REPLACED] == {}
