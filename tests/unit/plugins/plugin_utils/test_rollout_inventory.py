# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replica groups, made of variables of hosts."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_inventory import (
    in_groups,
    refuse_old_names,
    run_settings,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError, Share

RUNS = {"sglang_deploy_checked": {"sglang": {"running": {"pid": 5}}}}


def host(name=None, **more):
    variables = {**RUNS, **more}
    return variables if name is None else {**variables, "sglang_replica_group": name}


def fates(groups):
    return {group.name: {unit.name: unit.fate for unit in group.units} for group in groups}


def test_hosts_that_name_no_group_are_replicas_of_each_other():
    groups, _asked = in_groups(["a", "b"], ["a", "b", "c"], {"a": host(), "b": host(), "c": {}, "database": {}})
    assert fates(groups) == {"all": {"a": "replace", "b": "replace", "c": "outside"}}
    assert groups[0].min_serving is None


def test_a_group_has_the_hosts_that_name_it_wherever_they_are():
    known = {"a": host("chat"), "b": host("code"), "c": {"sglang_replica_group": "chat"}, "d": host("other"), "e": {}}
    groups, _asked = in_groups(["a", "b"], ["a", "b"], known)
    assert fates(groups) == {"chat": {"a": "replace", "c": "outside"}, "code": {"b": "replace"}}


@pytest.mark.parametrize(
    ("found", "fate"),
    [
        ({"sglang_deploy_unchanged": True}, "keep"),
        ({"sglang_deploy_checked": {"sglang": {"running": None, "unmanaged": None}}}, "vacant"),
        ({"sglang_deploy_checked": {"sglang": {"running": None, "unmanaged": {"pid": 7}}}}, "replace"),
        (RUNS, "replace"),
    ],
)
def test_what_becomes_of_a_host(found, fate):
    groups, _asked = in_groups(["a"], ["a"], {"a": found})
    assert fates(groups) == {"all": {"a": fate}}


@pytest.mark.parametrize("checked", [None, {}, {"failed": True}, {"sglang": "text"}])
def test_a_host_that_was_not_checked_is_in_no_plan(checked):
    with pytest.raises(RolloutError, match="a was not checked in this run"):
        in_groups(["a"], ["a"], {"a": {"sglang_deploy_checked": checked}})


def test_what_each_is_asked_about():
    known = {"a": host(), "b": host(sglang_instance="chat", sglang_state_dir="/s", sglang_deploy_state_dir="/d")}
    _groups, asked = in_groups(["a"], ["a", "b"], known)
    assert asked == {
        "a": {"instance": "main", "state_dir": "/var/lib/sglang"},
        "b": {"instance": "chat", "state_dir": "/d"},
    }


def node(group="big", **more):
    return host(sglang_node_group=group, **more)


def test_hosts_of_a_node_group_are_one_unit_in_the_order_of_the_inventory():
    known = {
        "b": node(),
        "a": node(),
        "c": host(),
        "e": {"sglang_node_group": "far"},
        "d": {"sglang_node_group": "far"},
    }
    groups, _asked = in_groups(["b", "c", "a"], ["b", "c", "a", "d", "e"], known, ["a", "b", "c", "d", "e"])
    assert [unit.hosts for unit in groups[0].units] == [("a", "b"), ("c",), ("d", "e")]
    assert fates(groups) == {"all": {"a": "replace", "c": "replace", "d": "outside"}}
    # Without the inventory's order, that of what is known.
    assert in_groups(["a", "b"], [], {"b": node(), "a": node()})[0][0].units[0].hosts == ("b", "a")


IDLE = {"sglang_deploy_checked": {"sglang": {"running": None, "unmanaged": None}}}


@pytest.mark.parametrize(
    ("first", "second", "fate"),
    [
        ({}, {}, "replace"),
        (IDLE, IDLE, "vacant"),
        # Whoever runs may serve somebody by itself.
        (IDLE, {}, "replace"),
        ({}, IDLE, "replace"),
        ({"sglang_deploy_unchanged": True}, {"sglang_deploy_unchanged": True}, "keep"),
        ({"sglang_deploy_unchanged": True}, {}, "replace"),
    ],
)
def test_what_becomes_of_a_node_group(first, second, fate):
    groups, _asked = in_groups(["a", "b"], ["a", "b"], {"a": node(**first), "b": node(**second)})
    assert fates(groups) == {"all": {"a": fate}}


@pytest.mark.parametrize(
    ("hosts", "known", "words"),
    [
        (["a"], {"a": node(), "b": node()}, r"has hosts in the replica group all \(a\) and outside of it \(b\)"),
        (
            ["a"],
            {"a": node(sglang_replica_group="chat"), "b": node(sglang_replica_group="chat")},
            "sglang_node_group big: only a of its hosts is in this run.*--limit a,b",
        ),
        (
            ["a", "b"],
            {"a": node(sglang_replica_group="chat"), "b": node(sglang_replica_group="code")},
            r"in the replica group chat \(a\) and outside of it \(b\).*set sglang_replica_group for all",
        ),
    ],
)
def test_a_part_of_a_node_group_is_refused(hosts, known, words):
    with pytest.raises(RolloutError, match=words):
        in_groups(hosts, hosts, known)


def test_settings_of_a_group():
    known = {name: host("chat", sglang_min_serving="1", sglang_ramp=[1, "50%"]) for name in "ab"}
    (group,), _asked = in_groups(["a"], ["a"], known)
    assert (group.min_serving, group.ramp) == (Share(1, False), (Share(1, False), Share(50, True)))


@pytest.mark.parametrize("name", ["sglang_min_serving", "sglang_ramp"])
def test_a_group_whose_hosts_do_not_agree_is_refused(name):
    known = {"a": host("chat", **{name: 1}), "b": {"sglang_replica_group": "chat"}}
    with pytest.raises(RolloutError, match="%s must be the same.*group chat: a has 1; b does not set it" % name):
        in_groups(["a"], ["a"], known)


def test_settings_of_the_run():
    assert run_settings({"a": {}}) == {"max_failed": 0, "groups_at_a_time": 1, "floor_timeout": 60.0}
    given = {"sglang_max_failed": "2", "sglang_groups_at_a_time": 3, "sglang_floor_timeout": 0}
    assert run_settings({"a": given, "b": given}) == {"max_failed": 2, "groups_at_a_time": 3, "floor_timeout": 0.0}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"sglang_max_failed": -1}, "sglang_max_failed: -1 is no whole number from 0 on"),
        ({"sglang_groups_at_a_time": 0}, "sglang_groups_at_a_time: 0 is no whole number from 1 on"),
        ({"sglang_floor_timeout": "soon"}, "sglang_floor_timeout: 'soon' is no number of seconds"),
    ],
)
def test_settings_that_cannot_be_are_refused(variables, words):
    with pytest.raises(RolloutError) as caught:
        run_settings({"a": variables})
    assert words in str(caught.value) and "set for a" in str(caught.value)


def test_the_old_name_is_refused_with_the_new_one():
    refuse_old_names({"a": {"sglang_ramp": 1}})
    with pytest.raises(RolloutError, match=r"sglang_serial \(set for b\).*sglang_ramp"):
        refuse_old_names({"a": {}, "b": {"sglang_serial": 1}})
