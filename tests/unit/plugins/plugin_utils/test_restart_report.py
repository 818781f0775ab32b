# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a host's registered results to its entry in the report."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.restart_report import (
    as_servers,
    changes,
    columns,
    cut_off,
    dropped_out,
    entry,
    left,
    places,
    speculation,
    summary,
)

EAGLE = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
}
ORPHAN = {"pid": 812, "name": "sglang::scheduler", "user": "root", "memory_mib": 30518, "action": "killed"}
DAEMON = {"pid": 411, "name": "nv-hostengine", "user": "root", "memory_mib": None, "action": "protected"}
JOB = {"pid": 900, "name": "python3", "user": "alice", "memory_mib": 180, "action": "skipped"}


def facts(**more):
    base = {
        "sglang_deploy_checked": {
            "sglang": {
                "instance": "main",
                "requested": EAGLE,
                "running": {"pid": 5, "release": "old-1"},
                "version": "0.5.17",
            }
        },
        "sglang_deploy_release": {"release": {"id": "new-2"}},
        "gpu_free_reclaimed": {"processes": [ORPHAN, DAEMON, JOB], "elapsed": 10.21},
        "gpu_free_proof": {"free_after": 0.31},
        "sglang_deploy_ready": {
            "sglang": {"effective": EAGLE, "ready_after": 6.25, "accept_length": 2.444, "version": "0.5.17"}
        },
    }
    base.update(more)
    return base


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (EAGLE, "EAGLE3 2/1/3"),
        ({"speculative_algorithm": None}, "no speculation"),
        ({"speculative_algorithm": "none"}, "no speculation"),
        ({"speculative_algorithm": "NGRAM"}, "NGRAM"),
        ({"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3}, "EAGLE3 3/?/?"),
        ({}, ""),
        (None, ""),
    ],
)
def test_speculation_in_one_word(config, text):
    assert speculation(config) == text


def test_a_restarted_host():
    assert entry("gpu-a", facts()) == {
        "host": "gpu-a",
        "node_group": "",
        "rank": None,
        "group": "",
        "wave": None,
        "outcome": "restarted",
        "changes": [],
        "stopped": ["main", "sglang::scheduler 812 (root, 30518 MiB): killed"],
        "spared": ["nv-hostengine 411 (root)", "python3 900 (alice, 180 MiB)"],
        "free_after": 10.52,
        "ready_after": 6.25,
        "requested": "EAGLE3 2/1/3",
        "effective": "EAGLE3 2/1/3",
        "accept_length": 2.444,
        "version": "0.5.17",
        "release": "new-2",
        "failure": "",
    }


@pytest.mark.parametrize(
    ("more", "check_mode", "outcome"),
    [
        ({}, False, "unchanged"),
        ({"sglang_deploy_ready": {"skipped": True}}, True, "unchanged"),
        ({"sglang_deploy_ready": {"failed": True}}, False, "not done"),
        ({"sglang_deploy_failure": {"msg": "oom"}, "sglang_deploy_touched": True}, False, "restored"),
        ({"sglang_deploy_failure": {"msg": "busy"}, "sglang_deploy_touched": False}, False, "refused"),
    ],
)
def test_a_host_that_ran_the_wanted_configuration_already(more, check_mode, outcome):
    item = entry("gpu-a", facts(sglang_deploy_unchanged=True, **more), check_mode)
    assert item["outcome"] == outcome
    assert entry("gpu-a", facts(sglang_deploy_unchanged=False))["outcome"] == "restarted"


def test_hosts_with_the_same_changes_are_named_together():
    def host(name, lines):
        checked = {"sglang": {"instance": "main", "requested": EAGLE, "running": None, "changes": lines}}
        return entry(name, facts(sglang_deploy_checked=checked))

    lines = ["--speculative-num-steps: 3 -> 2", "environment NCCL_NVLS_ENABLE: added (1)"]
    items = [host("a", lines), host("b", []), host("c", lines), host("d", lines[:1])]
    assert changes(items) == [
        "a, c:\n  --speculative-num-steps: 3 -> 2\n  environment NCCL_NVLS_ENABLE: added (1)",
        "d:\n  --speculative-num-steps: 3 -> 2",
    ]


def test_a_host_that_went_back_says_so_and_why():
    item = entry("gpu-a", facts(sglang_deploy_failure={"msg": "out of memory"}, sglang_deploy_touched=True))
    assert (item["outcome"], item["failure"]) == ("restored", "out of memory")


def test_a_host_that_is_down_tells_both_stories_and_claims_nothing():
    item = entry("a", facts(sglang_deploy_failure={"msg": "oom"}, sglang_deploy_not_restored={"msg": "busy"}))
    assert (item["outcome"], item["failure"]) == ("down", "oom | busy")
    assert (item["effective"], item["accept_length"], item["ready_after"]) == ("", None, None)


def test_a_host_whose_router_does_not_have_it_serves_all_the_same():
    item = entry("a", facts(sglang_deploy_not_routed="router: no answer", sglang_deploy_touched=True))
    assert (item["outcome"], item["failure"]) == ("restarted", "router: no answer")
    both = entry("a", facts(sglang_deploy_failure={"msg": "oom"}, sglang_deploy_not_routed="gone"))
    assert both["failure"] == "oom | gone"


def test_a_host_that_was_refused_lost_nothing():
    item = entry("gpu-a", {"sglang_deploy_checked": {"failed": True}, "sglang_deploy_failure": {"msg": "no draft"}})
    assert (item["outcome"], item["failure"], item["stopped"]) == ("refused", "no draft", [])


def test_a_host_that_went_out_of_reach_after_its_server_was_stopped():
    item = entry("gpu-a", facts(sglang_deploy_ready={"skipped": True}, sglang_deploy_touched=True))
    assert (item["outcome"], item["ready_after"]) == ("lost", None)


def test_a_host_that_was_never_reached():
    assert entry("gpu-b", {})["outcome"] == "not done"


def test_a_stopped_server_is_not_shown_where_none_ran():
    checked = {"sglang": {"instance": "main", "requested": EAGLE, "running": None}}
    assert entry("a", facts(sglang_deploy_checked=checked))["stopped"] == [
        "sglang::scheduler 812 (root, 30518 MiB): killed"
    ]


def test_check_mode_shows_the_plan():
    item = entry(
        "a",
        facts(
            gpu_free_reclaimed={"skipped": True},
            gpu_free_plan={
                "processes": [
                    dict(ORPHAN, action="would_terminate"),
                    dict(ORPHAN, action="would_terminate", pid=9, unit="sglang-main.service"),
                ]
            },
            sglang_deploy_ready={"skipped": True},
        ),
        check_mode=True,
    )
    assert item["outcome"] == "checked"
    assert item["stopped"] == ["main", "sglang::scheduler 812 (root, 30518 MiB): would_terminate"]


def test_a_host_that_was_only_checked_when_the_run_stopped_shows_nothing_as_stopped():
    plan = {"processes": [dict(ORPHAN, action="would_terminate"), JOB]}
    only_checked = {"sglang_deploy_checked": facts()["sglang_deploy_checked"], "gpu_free_plan": plan}
    item = entry("a", only_checked)
    assert (item["outcome"], item["stopped"], item["spared"]) == ("not done", [], [])


def test_cells_are_text():
    header, (row, _none) = columns([entry("gpu-a", facts()), entry("b", {})])
    cells = dict(zip(header, row))
    assert "group" not in header and "wave" not in header
    assert list(cells.values())[4:] == ["10.5 s", "6.2 s", "EAGLE3 2/1/3", "EAGLE3 2/1/3", "2.44"]
    assert all(isinstance(cell, str) for cell in columns([entry("b", {})])[1][0])


def test_groups_and_waves_show_where_they_say_something():
    plan = {
        "groups": {
            "chat": {"units": [{"hosts": ["a0", "a1"], "wave": 2}, {"hosts": ["k"], "wave": 0}]},
            "code": {"units": [{"hosts": ["b"], "wave": 1}]},
        }
    }
    place = places(plan)
    assert place == {"a0": ("chat", 2), "a1": ("chat", 2), "k": ("chat", None), "b": ("code", 1)}
    items = [entry(host, facts(), place=place[host]) for host in place]
    header, rows = columns(items)
    assert header[:4] == ["host", "group", "wave", "outcome"]
    assert [row[:3] for row in rows] == [
        ["a0", "chat", "2"],
        ["a1", "chat", "2"],
        ["k", "chat", "-"],
        ["b", "code", "1"],
    ]
    assert columns(items[:3])[0][:3] == ["host", "wave", "outcome"]
    assert places({}) == {}


@pytest.mark.parametrize(
    ("more", "outcome", "release"),
    [
        ({}, "restarted", "new-2"),
        ({"sglang_deploy_unchanged": True}, "unchanged", "old-1"),
        ({"sglang_deploy_ready": {}}, "not done", "old-1"),
        ({"sglang_deploy_ready": {"failed": True, "sglang": {"ready_after": 1}}}, "not done", "old-1"),
        ({"sglang_deploy_failure": {"msg": "busy"}}, "refused", "old-1"),
        (
            {
                "sglang_deploy_failure": {"msg": "oom"},
                "sglang_deploy_touched": True,
                "sglang_deploy_restored": {"release": {"id": "good-0"}},
            },
            "restored",
            "good-0",
        ),
        ({"sglang_deploy_ready": {}, "sglang_deploy_touched": True}, "lost", ""),
        ({"sglang_deploy_not_restored": {"msg": "oom"}}, "down", ""),
    ],
)
def test_what_runs_where(more, outcome, release):
    item = entry("gpu-a", facts(**more))
    assert (item["outcome"], item["release"]) == (outcome, release)
    assert (columns([item])[1][0][-2] == "as before (%s)" % release) == (outcome in ("not done", "refused"))


def test_a_host_that_the_rollout_did_not_come_to_tells_why():
    item = entry("gpu-a", facts(sglang_deploy_ready={}), refused="nobody else serves")
    assert (item["outcome"], item["failure"], item["stopped"]) == ("refused", "nobody else serves", [])
    # What is right already needs no turn.
    assert entry("gpu-a", facts(sglang_deploy_unchanged=True), refused="x")["outcome"] == "unchanged"


def test_what_is_left_to_do():
    items = [
        {"host": outcome, "outcome": outcome} for outcome in ("restarted", "unchanged", "not done", "lost", "refused")
    ]
    assert left(items) == ["not done", "lost", "refused"]


def test_summary_counts_outcomes():
    items = [entry("a", facts()), entry("b", facts()), entry("c", {})]
    assert summary(items) == "2 restarted, 1 not done"


@pytest.mark.parametrize(
    ("touched", "outcome", "words"), [(True, "lost", "run the same again"), (False, "not done", "Nothing was stopped")]
)
def test_what_must_be_believed_of_a_host_if_the_run_ends_now(touched, outcome, words):
    # The results may be those of an earlier restart in the same run of Ansible.
    item = cut_off(entry("gpu-a", facts()), touched)
    assert (item["host"], item["outcome"], item["requested"]) == ("gpu-a", outcome, "EAGLE3 2/1/3")
    assert words in item["failure"]
    assert (item["stopped"], item["spared"], item["effective"]) == ([], [], "")
    assert (item["free_after"], item["ready_after"], item["accept_length"]) == (None, None, None)
    assert set(item) == set(entry("gpu-a", facts()))


def test_a_host_that_left_the_play_is_not_silent():
    lost = entry("gpu-a", facts(sglang_deploy_touched=True, sglang_deploy_ready={"unreachable": True}))
    assert (lost["outcome"], lost["failure"]) == ("lost", "")
    assert "out of reach" in dropped_out(lost)["failure"]
    told = dict(lost, failure="the draft is not there")
    assert dropped_out(told) == told


def rank(number, **more):
    return entry("gpu-%d" % number, facts(sglang_deploy_node={"group": "big", "rank": number}, **more))


def test_the_ranks_of_a_server_are_one_row():
    free = {"gpu_free_proof": {"free_after": 3.0}, "sglang_deploy_ready": {"sglang": {"effective": EAGLE}}}
    items = [rank(1, **free), entry("gpu-7", facts()), rank(0)]
    assert [(item["node_group"], item["rank"]) for item in items] == [("big", 1), ("", None), ("big", 0)]
    big, other = as_servers(items)
    assert big["host"] == "gpu-0 (rank 0)\ngpu-1 (rank 1)" and other == items[1]
    # What rank 0 answers counts, and the GPUs of all ranks.
    assert (big["outcome"], big["ready_after"], big["accept_length"], big["free_after"]) == (
        "restarted",
        6.25,
        2.444,
        13.21,
    )
    assert big["stopped"][0] == "gpu-0: main" and big["stopped"][2] == "gpu-1: main"
    assert summary(as_servers(items)) == "2 restarted"
    assert left(items) == []


@pytest.mark.parametrize(
    ("second", "outcome", "free"),
    [
        ({"sglang_deploy_failure": {"msg": "oom"}, "sglang_deploy_touched": True}, "restored", 10.52),
        ({"sglang_deploy_ready": {}, "sglang_deploy_touched": True, "gpu_free_proof": {}}, "lost", None),
        ({"sglang_deploy_not_restored": {"msg": "gone"}}, "down", 10.52),
    ],
)
def test_of_a_server_the_worst_of_its_ranks_counts(second, outcome, free):
    (item,) = as_servers([rank(0), rank(1, **second)])
    assert (item["outcome"], item["free_after"]) == (outcome, free)
    header, rows = columns([item])
    assert rows[0][header.index("host")].splitlines() == ["gpu-0 (rank 0)", "gpu-1 (rank 1)"]
