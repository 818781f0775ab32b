# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who differs from the rest of its group: by majority, with ties said, and unknown never the same."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.status_differences import (
    conditions,
    differences,
    differing_columns,
    serves,
    summary,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_host import host_entry
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.status_samples import (
    EAGLE3,
    UNREACHABLE,
    gpu,
    gpus,
    server,
    servers,
)


def fleet(*results, groups=None):
    """Entries of hosts a, b, c, ...: pairs of results."""
    names = "abcdefghij"
    return [
        host_entry(names[place], (groups or {}).get(names[place], "all"), *pair) for place, pair in enumerate(results)
    ]


SAME = (gpus(2), servers())


def drivers(*versions):
    return [(gpus(2, driver=version), servers()) for version in versions]


def compared(hosts):
    return {
        item["column"]: [(value["value"], value["hosts"]) for value in item["values"]] for item in differences(hosts)
    }


def test_hosts_that_are_the_same_have_no_difference():
    assert differences(fleet(SAME, SAME, SAME)) == []
    assert differences(fleet(SAME)) == [] and differences([]) == []


def test_the_usual_value_is_that_of_most_hosts():
    hosts = fleet(*drivers("1", "2", "1", "1", "3"))
    (found,) = differences(hosts)
    assert found == {
        "group": "all",
        "column": "driver",
        "kind": "different",
        "usual": "1",
        "values": [
            {"value": "1", "hosts": ["a", "c", "d"]},
            {"value": "2", "hosts": ["b"]},
            {"value": "3", "hosts": ["e"]},
        ],
        "not_known": [],
    }
    assert differing_columns([found]) == {"b": ["driver"], "e": ["driver"]}
    assert conditions(hosts, [found])["different"] == ["b", "e"]


@pytest.mark.parametrize("versions", [("1", "2"), ("1", "1", "2", "2"), ("1", "1", "2", "2", "3")])
def test_a_tie_is_said_as_such(versions):
    hosts = fleet(*drivers(*versions))
    (found,) = differences(hosts)
    assert (found["kind"], found["usual"]) == ("tie", None)
    # Nobody is the odd one out, and the group differs all the same.
    assert differing_columns([found]) == {}
    assert conditions(hosts, [found])["different"] == [host["host"] for host in hosts]


def test_what_is_not_known_is_neither_the_same_nor_different():
    hosts = fleet(*drivers("1", "1", "2"), (UNREACHABLE, None))
    (found,) = differences(hosts)
    assert found["not_known"] == ["d"] and len(found["values"]) == 2
    assert differences(fleet(SAME, SAME, (UNREACHABLE, None))) == []
    hung = (gpus(2), servers(server(state="unknown", version="", effective={}, release="", pid=None, stale=None)))
    assert differences(fleet(SAME, SAME, hung)) == []


def test_a_gpu_that_does_not_tell_its_model_is_not_known_and_no_other_model():
    hung = (gpus(2, gpus=[gpu(0), gpu(1, "unknown", name="")]), servers())
    assert fleet(hung)[0]["gpu_model"] is None
    assert differences(fleet(SAME, SAME, hung)) == []


def test_groups_are_compared_by_themselves():
    hosts = fleet(*drivers("1", "1", "2", "2"), groups={"c": "h100", "d": "h100"})
    assert differences(hosts) == []
    (found,) = differences(fleet(*drivers("1", "1", "2", "2", "3"), groups={"c": "x", "d": "x", "e": "x"}))
    assert (found["group"], found["usual"]) == ("x", "2")


def test_every_column():
    other = server(
        state="starting",
        version="0.5.12",
        last_good="older",
        effective={**EAGLE3, "speculative_num_steps": 2, "model_path": "/other"},
    )
    hosts = fleet(SAME, SAME, (gpus(1), servers(other)))
    assert compared(hosts) == {
        "GPUs": [("2 x NVIDIA H200", ["a", "b"]), ("1 x NVIDIA H200", ["c"])],
        "main: state": [("serving", ["a", "b"]), ("starting", ["c"])],
        "main: SGLang": [("0.5.17", ["a", "b"]), ("0.5.12", ["c"])],
        "main: release": [("proven", ["a", "b"]), ("not proven", ["c"])],
        "main: model_path": [("/models/target", ["a", "b"]), ("/other", ["c"])],
        "main: speculative_num_steps": [("3", ["a", "b"]), ("2", ["c"])],
    }


def test_releases_of_different_hosts_have_other_ids_and_are_no_difference():
    other = "20261130T104501Z-11111111"
    assert differences(fleet(SAME, (gpus(2), servers(server(release=other, current=other, last_good=other))))) == []


def test_a_field_that_a_version_does_not_know_is_off_in_it():
    older = {name: value for name, value in EAGLE3.items() if name != "speculative_adaptive"}
    assert differences(fleet(SAME, (gpus(2), servers(server(effective=older))))) == []
    adaptive = server(effective={**EAGLE3, "speculative_adaptive": True})
    assert list(compared(fleet(SAME, SAME, (gpus(2), servers(adaptive))))) == ["main: speculative_adaptive"]


def test_an_instance_that_only_some_hosts_have():
    hosts = fleet(SAME, SAME, (gpus(2), servers(server(), server("second"))))
    assert compared(hosts) == {"second: state": [("not deployed", ["a", "b"]), ("serving", ["c"])]}
    none = (gpus(2), {"servers": []})
    assert compared(fleet(SAME, SAME, none)) == {"main: state": [("serving", ["a", "b"]), ("not deployed", ["c"])]}


def test_conditions():
    hosts = fleet(
        SAME,
        (UNREACHABLE, None),
        ({"msg": "no driver"}, servers()),
        (gpus(2, gpus=[gpu(0), gpu(1, "unknown")]), servers()),
        (gpus(2), servers(server(state="unknown"))),
        (gpus(2), servers(server(), server("second", state="stopped"))),
        (gpus(2), {"servers": []}),
    )
    held = conditions(hosts, [])
    assert held == {
        "unknown": ["b", "c", "d", "e"],
        "unreachable": ["b"],
        "different": [],
        "not_serving": ["b", "e", "f", "g"],
    }
    assert serves(hosts[0]) and not serves(hosts[6])
    assert summary(hosts, []) == {
        "hosts": 7,
        "hosts_by_condition": {"unknown": 4, "unreachable": 1, "different": 0, "not_serving": 4},
        "gpus": 10,
        "gpus_by_verdict": {"busy": 9, "unknown": 1},
        "servers": 6,
        "servers_by_state": {"serving": 4, "stopped": 1, "unknown": 1},
    }
