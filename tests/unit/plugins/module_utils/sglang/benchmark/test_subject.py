# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark import subject as subject_module
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.subject import Refused, Subject
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, TimedOut
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.load import Load
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import PortOwner
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.process_status import ProcessStatus
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeClock, FakeRun

KEY = "kq-2f5d81aa"
ME = ProcessIdentity(71, 100)
INFO = {
    "version": "0.5.17",
    "model_path": "/m",
    "api_key": KEY,
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "max_running_requests": 48,
    "internal_states": [{"effective_max_running_requests_per_dp": 24, "api_key": KEY}],
    "dp_size": 2,
}


class Process:
    """A main process whose states are a script, the last one for all further looks."""

    def __init__(self, *states):
        self.states = list(states)
        self.identity = ME
        self.why = ""

    def look(self):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def stale(self, release, since):
        return self.why

    def owns(self, process):
        return True


class Client:
    """Answers by path."""

    def __init__(self, **answers):
        self.answers = answers

    def get(self, path, timeout):
        found = self.answers.get(path[1:].replace("/", "_"), (404, {}))
        if isinstance(found, Exception):
            raise found
        return Answer(path, found[0], json.dumps(found[1]).encode(), 0.1)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A subject on a release of these fields; its process and its client are the above."""
    owner = {"is": PortOwner(True)}
    monkeypatch.setattr(subject_module, "port_owner", lambda *args: owner["is"])

    def run(good="r1", require=True, clock=None, port=None, **fields):
        folder = tmp_path / "main" / "releases" / "r1"
        folder.mkdir(parents=True, exist_ok=True)
        release = {
            "format": 1,
            "id": "r1",
            "created": "2026-01-02T03:04:05Z",
            "instance": "main",
            "manager": "process",
            "command": ["python3"],
            "secret_args": {"api-key": KEY},
            **fields,
        }
        (folder / "release.json").write_text(json.dumps(release))
        for link in ("current", "last_good")[: 2 if good else 1]:
            target = tmp_path / "main" / link
            if not target.is_symlink():
                target.symlink_to("releases/r1")
        params = {
            **{name: str(tmp_path) for name in ("state_dir", "run_dir", "log_dir")},
            "instance": "main",
            "manager": "process",
            "api_key": None,
            "require_proven": require,
            "request_timeout": 5.0,
        }
        clock = clock or FakeClock()
        made = Subject(params, FakeRun(), clock=clock, sleep=clock.sleep)
        made.process, made.client = Process(ProcessStatus(71)), Client(server_info=(200, INFO))
        owner["is"] = port or PortOwner(True)
        return made

    return run


def refused(reason, what, *args):
    with pytest.raises(Refused) as error:
        what(*args)
    assert error.value.reason == reason
    return str(error.value)


def test_what_it_is(make):
    subject = make()
    subject.check()
    assert subject.speculates and not subject.adaptive and subject.max_running_requests == 48
    assert (subject.model_path, subject.tokenizer_path) == ("/m", "/m")
    facts = subject.facts()
    assert (facts["pid"], facts["version"], facts["effective"]["speculative_num_steps"]) == (71, "0.5.17", 3)
    assert KEY not in json.dumps(facts) and subject.shown("the key %s" % KEY) == "the key ********"


@pytest.mark.parametrize(
    ("info", "most"),
    [
        ({"internal_states": [], "dp_size": 2}, 48),
        ({"internal_states": None, "max_running_requests": None}, None),
        ({"internal_states": [{"effective_max_running_requests_per_dp": True}]}, 48),
        ({"internal_states": ["x"], "max_running_requests": "48"}, None),
        ({"dp_size": None}, 24),
    ],
)
def test_how_many_it_runs_at_a_time(make, info, most):
    subject = make()
    subject.info = {**INFO, **info}
    assert subject.max_running_requests == most


def test_no_release(tmp_path):
    params = {name: str(tmp_path) for name in ("state_dir", "run_dir", "log_dir")}
    message = refused("no_release", Subject, {**params, "instance": "main", "manager": "process"}, FakeRun())
    assert "deploy a release" in message


def test_a_release_that_is_not_proven(make):
    assert "require_proven" in refused("not_proven", make(good="").check)
    make(good="", require=False).check()


def test_a_process_that_is_not_there_or_another(make):
    subject = make()
    subject.process = Process(ProcessStatus(None, dead=True, detail="its main process 71 has ended"))
    assert "71 has ended" in refused("server_died", subject.check)
    subject = make()
    subject.process.why = "it was started from another command"
    assert "another command" in refused("stale_process", subject.check)
    subject = make(port=PortOwner(True, "PID 9 (nginx of www) listens on port 30000"))
    assert "nginx" in refused("foreign_listener", subject.check)
    refused("unknown_listener", make(port=PortOwner(False)).check)


def test_the_key_goes_to_nobody_else(make):
    """Before it is known who listens, nothing is asked with it."""
    subject = make(port=PortOwner(True, "PID 9 listens"))
    subject.client = Client(server_info=AssertionError("was asked"))
    refused("foreign_listener", subject.check)


@pytest.mark.parametrize("name", ["SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_METHOD"])
def test_acceptance_that_is_made_up(make, name, monkeypatch):
    assert name in refused("simulated_acceptance", make(environment={name: "3"}).check)
    make(environment={name: ""}).check()
    subject = make(environment={})
    monkeypatch.setattr(subject.procfs, "environ", lambda pid: {name: "3"})  # by a drop-in of the unit
    refused("simulated_acceptance", subject.check)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"server_info": (401, {})}, "unauthorized"),
        ({"server_info": (500, {})}, "unexpected_answer"),
        ({"server_info": (200, [])}, "no_answer"),
        ({"server_info": TimedOut("late")}, "no_answer"),
        ({}, "unexpected_answer"),
    ],
)
def test_answers(make, answers, reason):
    subject = make()
    subject.client = Client(**answers)
    refused(reason, subject.check)


def test_early_releases_have_another_path(make):
    subject = make()
    subject.client = Client(get_server_info=(200, INFO))
    subject.check()
    assert subject.info["version"] == "0.5.17" and KEY not in json.dumps(subject.info)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ProcessStatus(None, dead=True, detail="it has ended"), "server_died"),
        (ProcessStatus(72, replaced=True, detail="another start"), "server_restarted"),
    ],
)
def test_it_stays_the_same(make, state, reason):
    subject = make()
    subject.check_same(ME)
    refused("server_restarted", subject.check_same, ProcessIdentity(71, 99))
    subject.process = Process(state)
    assert state.detail in refused(reason, subject.check_same, ME)


@pytest.mark.parametrize(
    ("loads", "running", "slept"),
    [
        ([Load(0, 0)], 0, 0.0),
        ([Load(2, 1), Load(0, 1), Load(0, 0)], 0, 0.4),
        ([Load(2, 0)], 2, 1.0),
        ([Load(problem="nobody tells")], None, 0.0),
    ],
)
def test_waiting_until_it_has_no_requests(make, monkeypatch, loads, running, slept):
    clock = FakeClock()
    subject = make(clock=clock)
    monkeypatch.setattr(
        subject_module, "read_load", lambda client, timeout: loads.pop(0) if len(loads) > 1 else loads[0]
    )
    assert subject.wait_until_idle(1.0).running == running
    assert clock.now == pytest.approx(slept, abs=0.21)
