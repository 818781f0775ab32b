# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps on variables of hosts; what they decide by is in plugin_utils."""

from __future__ import annotations

from unittest import mock

import pytest
from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.inferops.sglang.plugins.action import sglang_nodes

BIG = {"sglang_node_group": "big", "sglang_host": "0.0.0.0"}


class Unreadable(dict):
    def __getitem__(self, name):
        raise KeyError("no such variable")


@pytest.fixture
def nodes():
    def run(step, host="a", **arguments):
        task = mock.Mock(args={"step": step, **arguments}, async_val=0, check_mode=False, diff=False)
        action = sglang_nodes.ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)
        variables = {"hostvars": run.hosts, "groups": {"all": list(run.hosts)}, "inventory_hostname": host}
        result = action.run(task_vars=variables)
        assert result.pop("changed") is False
        return result

    run.hosts = {"a": dict(BIG, ansible_host="10.0.0.1"), "x": {}, "b": dict(BIG)}
    return run


def test_the_ranks_of_a_server(nodes):
    groups = nodes("groups", hosts=["x", "b", "a"])["groups"]
    token = groups["big"].pop("token")
    assert token.startswith("big-") and token != nodes("groups", hosts=["a", "b"])["groups"]["big"]["token"]
    assert groups == {
        "big": {
            "hosts": ["a", "b"],
            "refused": "",
            "dist_init_addr": "10.0.0.1:20000",
            "rank_zero": "10.0.0.1:30000",
        }
    }
    groups["big"]["token"] = token
    rank = nodes("rank", "b", group="big", groups=groups, extra_args=["--nnodes", "2"])
    assert rank == {
        "group": "big",
        "hosts": ["a", "b"],
        "rank": 1,
        "dist_init_addr": "10.0.0.1:20000",
        "rank_zero": "10.0.0.1:30000",
        "words": ["--node-rank", "1", "--dist-init-addr", "10.0.0.1:20000"],
        "token": token,
    }
    assert nodes("rank", "a", group="big", groups=groups)["rank_zero"] == ""


def test_groups_of_hosts_that_take_no_part_are_none(nodes):
    assert nodes("groups", hosts=["x"]) == {"groups": {}}


def test_what_is_wrong_with_a_group_is_told_to_its_hosts_alone(nodes):
    groups = nodes("groups", hosts=["x", "b"])["groups"]
    with pytest.raises(AnsibleActionFail, match=r"a is not in this run.*--limit a,b"):
        nodes("rank", "b", group="big", groups=groups)
    with pytest.raises(AnsibleActionFail, match="x is none of the hosts that name the node group 'big'"):
        nodes("rank", "x", group="big", groups=groups)
    with pytest.raises(AnsibleActionFail, match="b is none of the hosts that name the node group 'other'"):
        nodes("rank", "b", group="other", groups=groups)


def test_what_a_rank_goes_back_to(nodes):
    asked = {"nnodes": 2, "dist_init_addr": "10.0.0.9:20000", "host": "0.0.0.0", "port": 31000}
    for host, identity in (("a", "a1"), ("b", "b1")):
        entry = {"id": identity, "proven": True, "proven_at": "2026", "ranks": ["a1", "b1"], "requested": asked}
        links = {"id": identity, "last_good_id": identity}
        nodes.hosts[host]["sglang_deploy_kept"] = {"releases": [entry], "release": links}
    found = nodes("back", "b", hosts=["a", "b"])
    # It listened on another port then.
    assert found == {
        "hosts": ["a", "b"],
        "rank": 1,
        "release": "b1",
        "releases": ["a1", "b1"],
        "alone": False,
        "rank_zero": "10.0.0.9:31000",
    }
    assert nodes("back", "a", hosts=["a", "b"], wanted="b1")["release"] == "a1"
    with pytest.raises(AnsibleActionFail, match="no 'previous' together"):
        nodes("back", "a", hosts=["a", "b"], wanted="previous")
    with pytest.raises(AnsibleActionFail, match="x is not among them"):
        nodes("back", "x", hosts=["a", "b"])
    asked["dist_init_addr"] = None
    with pytest.raises(AnsibleActionFail, match="a1 of rank 0 has no --dist-init-addr"):
        nodes("back", "b", hosts=["a", "b"])


def test_a_rank_that_did_not_list_its_releases(nodes):
    with pytest.raises(AnsibleActionFail, match="not known which releases a keeps"):
        nodes("back", "b", hosts=["a", "b"])


def test_hosts_and_variables_that_cannot_be_read_are_named(nodes):
    with pytest.raises(AnsibleActionFail, match="'y' is not in the inventory"):
        nodes("groups", hosts=["y"])
    nodes.hosts["x"] = Unreadable(sglang_node_group="?")
    with pytest.raises(AnsibleActionFail, match="sglang_node_group of the host x cannot be read"):
        nodes("groups", hosts=["a"])


@pytest.mark.parametrize(("step", "option"), [("groups", "hosts"), ("rank", "group"), ("back", "hosts")])
def test_each_step_says_what_it_needs(nodes, step, option):
    with pytest.raises(AnsibleError, match="step is %s but all of the following are missing: %s" % (step, option)):
        nodes(step)
