# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark on the controller, with a module that answers by a script."""

from __future__ import annotations

from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.inferops.sglang.plugins.action import sglang_benchmark
from ansible_collections.inferops.sglang.plugins.plugin_utils import parted_action

DONE = {
    "changed": False,
    "points": [{"concurrency": 1}],
    "invocation": {"module_args": {"resume": {}, "return_after": 9}},
}


def part(number=1, **progress):
    """What the module returns of a part."""
    known = {"concurrency": 8, "points": 1, "repeat": 1, "repeats": 3, "requests": 3, "of": 32, "elapsed": 60.0}
    resume = {"format": 1, "number": number}
    return {"waiting": True, "progress": {**known, **progress}, "resume": resume, "points": []}


class Task:
    """A task whose module answers by a script; what it was given and what was shown."""

    def __init__(self, monkeypatch):
        self.script, self.given, self.lines, self.slept, self.removed = [], [], [], [], []
        monkeypatch.setattr(parted_action.time, "sleep", self.slept.append)
        monkeypatch.setattr(parted_action, "Display", lambda: self)
        constants = mock.Mock(DEFAULT_FORKS=5, DEFAULT_STDOUT_CALLBACK="default")
        monkeypatch.setattr(parted_action, "constants", constants)

    def display(self, line, stderr=False):
        self.lines.append(line)

    def execute(self, module_name, module_args, task_vars, wrap_async=False):
        assert module_name == "inferops.sglang.sglang_benchmark"
        self.given.append((dict(module_args), wrap_async))
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def run(self, args=None, async_val=0, hosts=1):
        task = mock.Mock(args=dict(args or {}), async_val=async_val, delegate_to=None, check_mode=False, diff=False)
        self.connection = mock.Mock(has_native_async=False)
        self.connection._shell.tmpdir = "/root/.ansible/tmp/x"
        action = sglang_benchmark.ActionModule(task, self.connection, mock.Mock(), None, None, None)
        action._execute_module = self.execute
        action._remove_tmp_path = self.removed.append
        hosts = ["gpu-%d" % number for number in range(hosts)]
        variables = {"inventory_hostname": "gpu-a", "ansible_play_batch": hosts, "ansible_forks": 100}
        result = action.run(task_vars=variables)
        assert self.script == []
        return result


@pytest.fixture
def task(monkeypatch):
    return Task(monkeypatch)


def test_part_after_part(task):
    task.script = [part(repeat=0), part(2, output_throughput=773.0, accept_length=2.5), dict(DONE)]
    result = task.run({"instance": "two", "concurrencies": [8]})
    assert task.lines == [
        "gpu-a two: concurrency 8, the client is being started, 1 min 00 s",
        "gpu-a two: concurrency 8, repeat 1 of 3, 3 of 32 requests, 1 min 00 s, last 773.0 tok/s at 2.50 tokens a step",
    ]
    assert [given.get("resume", {}).get("number") for given, _async in task.given] == [None, 1, 2]
    assert all(given["return_after"] == 10.0 for given, _async in task.given)
    assert result["points"] and not {"waiting", "progress", "resume"} & set(result)
    assert result["invocation"] == {"module_args": {}}


@pytest.mark.parametrize("args", [{"progress_interval": 0}, {"progress_interval": "x"}, {"return_after": 5}])
def test_one_part(task, args):
    task.script = [part() if "return_after" in args else dict(DONE)]
    task.run(args)
    assert task.given == [(args, False)] and task.lines == []


def test_in_the_background(task):
    task.script = [{"started": 1}]
    task.run(async_val=600)
    assert task.given == [({}, True)]


def test_many_hosts_speak_less_often(task):
    task.script = [dict(DONE)]
    task.run(hosts=60)
    assert task.given[0][0]["return_after"] == 60.0


def test_a_lost_connection(task):
    lost = AnsibleConnectionFailure("\x1b[2Jgone")
    task.script = [part(), lost, {"unreachable": True, "msg": "gone"}, dict(DONE)]
    assert task.run()["points"]
    assert task.slept == [5.0, 10.0] and task.connection.reset.call_count == 2
    assert task.removed == ["/root/.ansible/tmp/x"]
    assert "the connection is lost" in task.lines[1] and all(line.isprintable() for line in task.lines)


def test_a_host_that_stays_away(task):
    task.script = [AnsibleConnectionFailure("gone")] * 4
    with pytest.raises(AnsibleConnectionFailure):
        task.run()


def test_a_failure_is_a_result(task):
    task.script = [part(), {"failed": True, "msg": "It died.", "reason": "server_died"}]
    assert task.run()["reason"] == "server_died"
