# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the GPUs, put together so that eight workers of one server are one entry."""

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.plugin_utils.status_holders import (
    group_holders,
    holder_label,
    labels,
    read_holders,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.status_samples import holder


def test_holders_are_put_together_by_user_unit_and_container():
    docker = {"runtime": "docker", "id": "4f2a" * 16, "name": "llm"}
    held = [
        holder(600, 0),
        holder(601, 1),
        holder(700, 0, memory=10, user="alice", unit=None, name="python3"),
        holder(701, 0, memory=20, user="alice", unit=None, name="train.py"),
        holder(702, 0, memory=None, user="bob", unit="docker.service", container=docker, state="D"),
        holder(703, 1, memory=5, user="bob", unit=None, container={"runtime": "docker", "id": "4f2a" * 16, "name": ""}),
        {**holder(704), "attached": ["GPU-0"]},
    ]
    read = read_holders(held)
    found = group_holders(read)
    assert [holder_label(one) for one in found] == [
        "llm/sglang-main.service x2",
        "alice/train.py",
        "alice/python3",
        "bob/docker 4f2a4f2a4f2a",
        "bob/docker llm (D)",
    ]
    assert [one["memory_mib"] for one in found] == [262144, 20, 10, 5, None]
    assert labels(found, 2) == "llm/sglang-main.service x2, alice/train.py and 3 more"
    assert [one["pids"] for one in group_holders(read, "GPU-1")] == [[601], [703]]
    assert labels([], 2) == ""


def test_a_pid_that_is_no_process_is_a_holder_too():
    (one,) = group_holders(read_holders([holder(4711, 0, user=None, unit=None, name="", state="")]))
    assert holder_label(one) == "unknown user/unknown process"


def test_what_is_no_holder():
    assert read_holders(None) == [] and read_holders([7, {}, {"gpus": "GPU-0"}]) == []
