# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ContainerError,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.state import (
    ContainerState,
    container_state,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

SETTINGS = ContainerSettings("docker", "/usr/bin/docker", "i")
LABELS = {"inferops.sglang.instance": "main"}


def document(*labels, **state):
    """What the engine says of a container; with labels of its own only where they are given."""
    (labels,) = labels or (LABELS,)
    return json.dumps(
        [{"Id": "f" * 64, "State": {"Running": True, "Pid": 77, "ExitCode": 0, **state}, "Config": {"Labels": labels}}]
    )


def look(tmp_path, completed):
    calls = []

    def run(argv, timeout, input="", env=None):
        calls.append(list(argv))
        return completed

    (tmp_path / "77").mkdir(exist_ok=True)
    (tmp_path / "77" / "cgroup").write_text("0::/system.slice/docker-ff.scope\n")
    state = container_state(SETTINGS, InstancePaths("main"), run, ProcFs(str(tmp_path)))
    assert calls == [["/usr/bin/docker", "inspect", "--type", "container", "sglang-main"]]
    return state


def test_it_runs(tmp_path):
    state = look(tmp_path, Completed(0, document()))
    assert state == ContainerState("f" * 64, True, 77, None, "/system.slice/docker-ff.scope", True)


def test_it_has_ended(tmp_path):
    state = look(tmp_path, Completed(0, document(Running=False, ExitCode=137)))
    assert state == ContainerState("f" * 64, False, 0, 137, "", True)


@pytest.mark.parametrize("labels", [None, {}, {"inferops.sglang.instance": "second"}])
def test_one_of_the_same_name_is_not_ours(tmp_path, labels):
    assert look(tmp_path, Completed(0, document(labels))).ours is False


@pytest.mark.parametrize(
    "words",
    [
        "Error: No such container: sglang-main",
        'Error: inspecting object: no such container "sglang-main"',
        "Error: No such object: sglang-main",
    ],
)
def test_there_is_none(tmp_path, words):
    assert look(tmp_path, Completed(1, err=words)) is None


@pytest.mark.parametrize(
    ("completed", "words"),
    [
        (Completed(1, err="Cannot connect to the Docker daemon"), "Cannot connect"),
        (Completed(None, timed_out=True), "did not answer in time"),
        # Words that would mean "none", from a program that is not there.
        (Completed(127, err="no such container program", missing=True), "docker does not say"),
        (Completed(0, "{}"), "makes no sense"),
        (Completed(0, "[]"), "makes no sense"),
        (Completed(0, "no JSON"), "makes no sense"),
        (Completed(0, '[{"Id": "x", "State": null}]'), "makes no sense"),
    ],
)
def test_no_answer_is_not_the_same_as_none(tmp_path, completed, words):
    with pytest.raises(ContainerError, match=words):
        look(tmp_path, completed)
