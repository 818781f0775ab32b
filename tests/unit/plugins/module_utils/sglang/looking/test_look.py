# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at the instances of a host, on a host of fakes."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import LABEL, ContainerSettings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import Answer, Refused, TimedOut
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.look import Looker, Wish, instance_names
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import Listener
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeRun, Kernel, process

KEY = "kq-look-3f9a77d1"
RELEASE = "20261130T104500Z-5d41402a"
INFO = {
    "version": "0.5.17",
    "api_key": KEY,
    "model_path": "/models/target",
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "internal_states": [{"avg_spec_accept_length": 2.5}],
}
LOADS = {"loads": [{"num_running_reqs": 4, "num_waiting_reqs": 1}]}
HEALTHY = {"/health": 200, "/server_info": INFO, "/v1/loads": LOADS}


class Host:
    """Folders of instances, their processes, and servers that answer by table."""

    def __init__(self, root):
        self.root = root
        self.kernel = Kernel()
        self.run = FakeRun()
        self.answers = {}
        self.clients = []

    def paths(self, name="main"):
        folders = {option: str(self.root / option) for option in ("state_dir", "run_dir", "log_dir", "unit_dir")}
        return InstancePaths(name, **folders)

    def deploy(self, name="main", pid=100, answers=None, **changes):
        """A release, and a process of it where there is a PID."""
        port = 30000 + len(self.answers)
        values = {"manager": "process", "port": port, "command": ["python", "-m", "sglang.launch_server"]}
        values.update(changes)
        release = Release(RELEASE, "2026-11-30T10:45:00Z", name, **values)
        paths = self.paths(name)
        folder = paths.release_dir(RELEASE)
        folder.mkdir(parents=True)
        (folder / "release.json").write_text(release.to_json())
        paths.current_link.symlink_to(folder)
        paths.last_good_link.symlink_to(folder)
        self.answers[port] = HEALTHY if answers is None else answers
        if pid:
            self.kernel.processes[pid] = process(pid, user="llm", started_at=86400.0)
            self.kernel.sockets.append(Listener("127.0.0.1", port, pid))
            record = {"pid": pid, "start_ticks": 1000, "boot_id": "boot", "release": RELEASE, "command_sha256": "x"}
            paths.pid_file.parent.mkdir(exist_ok=True)
            paths.pid_file.write_text(json.dumps(record))
        return paths

    def look(self, *paths, **wish):
        looker = Looker(Wish(**{"timeout": 5.0, **wish}), self.run, self.kernel, self._client, lambda: 5000.0)
        return looker.look(paths or [self.paths()])

    def _client(self, host, port, api_key, tls=None):
        client = Client(host, port, api_key, tls, self.answers.get(port, {}))
        self.clients.append(client)
        return client


class Client:
    def __init__(self, host, port, api_key, tls, answers):
        self.host, self.port, self.api_key, self.tls, self.answers = host, port, api_key, tls, answers

    def get(self, path, timeout):
        answer = self.answers.get(path, 404)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return Answer(path, answer, b"", 0.1)
        return Answer(path, 200, answer.encode() if isinstance(answer, str) else json.dumps(answer).encode(), 0.1)

    def post(self, path, payload, timeout):
        return self.get(path, timeout)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_server_that_serves(host):
    host.deploy(secret_args={"api-key": KEY}, gpus=["GPU-1"], user="llm")
    (server,) = host.look()
    assert KEY not in json.dumps(server)
    assert [client.api_key for client in host.clients] == [KEY]
    assert server == {
        "instance": "main",
        "state": "serving",
        "reason": "",
        "message": "",
        "pid": 100,
        "started": "1970-01-02T00:00:00Z",
        "uptime": 4990.0,
        "user": "llm",
        "manager": "process",
        "unit": "",
        "container": "",
        "restarts": None,
        "release": RELEASE,
        "stale": False,
        "current": RELEASE,
        "last_good": RELEASE,
        "host": "127.0.0.1",
        "port": 30000,
        "https": False,
        "node_rank": 0,
        "gpus": ["GPU-1"],
        "version": "0.5.17",
        "effective": {
            "model_path": "/models/target",
            "speculative_algorithm": "EAGLE3",
            "speculative_num_steps": 3,
        },
        "accept_length": 2.5,
        "tier": None,
        "load": {"running": 4, "waiting": 1, "source": "/v1/loads"},
        "load_window": None,
        "generation": None,
        "problems": [],
    }


def test_the_load_over_a_while_and_the_active_tier(host):
    info = {**INFO, "speculative_adaptive": True, "enable_metrics": True}
    metrics = "sglang:spec_num_steps 0.0\nsglang:spec_num_draft_tokens 1.0\n"
    host.deploy(answers={**HEALTHY, "/server_info": info, "/metrics": metrics})
    (server,) = host.look(load_window=0.01)
    assert server["tier"] == {"num_steps": 0, "num_draft_tokens": 1}
    window = server["load_window"]
    assert (window["average"], window["peak"], window["complete"]) == (5.0, 5, True)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"meta_info": {"completion_tokens": 16, "spec_verify_ct": 6, "spec_accept_length": 2.5}}, ("serving", "")),
        (500, ("unknown", "generation_failed")),
        (TimedOut("it gave no answer within 5 s"), ("unknown", "generation_timeout")),
    ],
)
def test_one_that_is_healthy_and_does_not_generate_is_unknown_where_that_is_asked_for(host, answer, expected):
    host.deploy(answers={**HEALTHY, "/generate": answer})
    assert host.look()[0]["state"] == "serving"
    (server,) = host.look(generate=True)
    assert (server["state"], server["reason"]) == expected
    assert (server["generation"] is not None) == (expected[0] == "serving")


def test_a_server_that_is_stopped_is_not_asked(host):
    host.deploy(pid=0)
    (server,) = host.look()
    assert (server["state"], server["pid"], server["release"], server["current"]) == ("stopped", None, "", RELEASE)
    assert server["load"] == {"running": None, "waiting": None, "source": ""} and host.clients == []


def test_an_instance_that_is_not_there(host):
    (server,) = host.look(host.paths("other"))
    assert (server["state"], server["reason"], server["port"]) == ("stopped", "not_deployed", None)


def test_one_broken_instance_keeps_nobody_from_being_looked_at(host):
    broken = host.deploy("broken", pid=0)
    (broken.release_dir(RELEASE) / "release.json").write_text("{")
    hung = host.deploy("hung", pid=101, answers=dict.fromkeys(HEALTHY, TimedOut("it gave no answer within 5 s")))
    lost = host.deploy("lost", pid=0, manager="systemd")
    good = host.deploy("good", pid=102)
    found = host.look(broken, hung, lost, good)
    assert [(server["instance"], server["state"], server["reason"]) for server in found] == [
        ("broken", "stopped", ""),
        ("hung", "unknown", "health_timeout"),
        ("lost", "unknown", "unknown_manager_state"),
        ("good", "serving", ""),
    ]
    assert "release.json" in found[0]["problems"][0]
    assert found[1]["version"] == "" and found[1]["effective"] == {} and len(found[1]["problems"]) == 2
    assert "no such program" in found[2]["message"]


def test_a_process_without_a_release_that_can_be_read_is_unknown(host):
    paths = host.deploy()
    (paths.release_dir(RELEASE) / "release.json").write_text("{")
    (server,) = host.look()
    assert (server["state"], server["reason"], server["pid"]) == ("unknown", "unreadable_release", 100)
    assert server["stale"] is None
    paths.current_link.unlink()
    (server,) = host.look()
    assert (server["state"], server["reason"], server["pid"]) == ("unknown", "no_release", 100)


def test_a_process_of_an_earlier_release_says_so(host):
    paths = host.deploy()
    record = json.loads(paths.pid_file.read_text())
    paths.pid_file.write_text(json.dumps({**record, "release": "20261129T000000Z-00000000"}))
    (server,) = host.look()
    assert (server["state"], server["stale"], server["current"]) == ("serving", True, RELEASE)
    assert server["release"] == "20261129T000000Z-00000000"


def test_a_server_that_died_has_the_reason_of_its_log(host):
    paths = host.deploy()
    host.kernel.set()
    paths.log_file.parent.mkdir()
    paths.log_file.write_text("torch.OutOfMemoryError: CUDA out of memory. key=%s \x1b[31m\n" % KEY)
    (server,) = host.look()
    assert (server["state"], server["reason"]) == ("failed", "out_of_memory")
    assert "CUDA out of memory" in server["message"] and "\x1b" not in server["message"]


def test_a_server_that_loads_says_how_far_it_is(host):
    paths = host.deploy(answers=dict.fromkeys(HEALTHY, Refused("nothing listens")))
    paths.log_file.parent.mkdir()
    paths.log_file.write_text("server_args=x\nLoad weight begin.\nLoading shards: 45% Completed | 9/20\n")
    (server,) = host.look()
    assert (server["state"], server["reason"], server["problems"]) == ("starting", "loading_weights", [])
    assert server["message"] == "It loads: loading weights (45 %)."


def test_a_unit(host):
    host.deploy(pid=0, manager="systemd")
    host.run.answers["systemctl show"] = (
        "LoadState=loaded\nActiveState=failed\nSubState=failed\nMainPID=0\nResult=exit-code\nExecMainCode=1\n"
        "ExecMainStatus=1\nNRestarts=2\nInvocationID=abc\nStandardOutput=journal\n"
    )
    host.run.answers["journalctl"] = "ValueError: Unknown speculative algorithm name FOO\n"
    (server,) = host.look()
    assert (server["state"], server["reason"], server["restarts"]) == ("failed", "bad_argument", 2)
    assert server["unit"] == "sglang-main.service"


INACTIVE = (
    "LoadState=loaded\nActiveState=inactive\nSubState=dead\nMainPID=0\nResult=success\nExecMainCode=2\n"
    "ExecMainStatus=9\nNRestarts=0\nInvocationID=abc\nStandardOutput=journal\n"
)
LEFT = "sglang-main.service: Killing process 5 (python) with signal SIGKILL.\nsglang-main.service: Succeeded.\n"


@pytest.mark.parametrize(
    ("journal", "expected"),
    [
        ("Stopping SGLang server main...\n" + LEFT, ("stopped", "")),
        (LEFT, ("failed", "killed")),
        ("torch.OutOfMemoryError: CUDA out of memory\n" + LEFT, ("failed", "out_of_memory")),
        # Where the journal tells nothing, nothing is known against it.
        ("", ("stopped", "")),
        ("a line of the server's own\n", ("stopped", "")),
    ],
)
def test_a_unit_that_ended_without_being_stopped_has_died_though_systemd_calls_it_a_success(host, journal, expected):
    host.deploy(pid=0, manager="systemd")
    host.run.answers.update({"systemctl show": INACTIVE, "journalctl": journal})
    (server,) = host.look()
    assert (server["state"], server["reason"]) == expected


def test_a_unit_that_did_not_run_since_the_boot_is_stopped(host):
    host.deploy(pid=0, manager="systemd")
    host.run.answers["systemctl show"] = INACTIVE.replace("ExecMainCode=2", "ExecMainCode=0")
    host.run.answers["journalctl"] = LEFT
    assert host.look()[0]["state"] == "stopped"


ACTIVE = (
    "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=50\nResult=success\nExecMainCode=0\n"
    "ExecMainStatus=0\nNRestarts=1\nInvocationID=abc\nControlGroup=/system.slice/sglang-main.service\n"
)
UP = {"Id": "4f2a" * 16, "State": {"Running": True, "Pid": 100}, "Config": {"Labels": {LABEL: "main"}}}


@pytest.mark.parametrize(
    ("inspected", "expected"),
    [
        (json.dumps([UP]), ("serving", "", 100)),
        (Completed(1, err="Error: No such container: sglang-main"), ("starting", "", None)),
        # Somebody else's of the same name is none of ours.
        (json.dumps([{**UP, "Config": {"Labels": {}}}]), ("starting", "", None)),
        (Completed(1, err="Cannot connect to the Docker daemon"), ("unknown", "unknown_manager_state", None)),
    ],
)
def test_a_server_in_a_container(host, inspected, expected):
    settings = ContainerSettings("docker", "/usr/bin/docker", "lmsysorg/sglang:v0.5.17")
    host.deploy(pid=0, manager="systemd", container=settings.to_dict())
    host.kernel.root = str(host.root)
    host.kernel.set(process(50, comm="docker"), process(100, user="llm"))
    host.kernel.sockets = [Listener("127.0.0.1", 30000, 100)]
    host.run.answers.update({"systemctl show": ACTIVE, "/usr/bin/docker inspect": inspected})
    (server,) = host.look()
    assert (server["state"], server["reason"], server["pid"]) == expected
    assert server["container"] == ("" if server["state"] == "unknown" else "sglang-main")


def test_what_a_hostile_server_says_is_bounded_and_clean(host):
    hostile = {
        "version": "\x1b]0;owned\x07" + "9" * 10**5,
        "model_path": "{{ lookup('pipe', 'id') }}\x1b[2J\n" + KEY,
        "speculative_algorithm": {"deep": {"deeper": 1}},
        "speculative_num_steps": 10**30,
        "internal_states": "x",
    }
    host.deploy(secret_args={"api-key": KEY}, answers={**HEALTHY, "/server_info": hostile, "/v1/loads": {"loads": {}}})
    (server,) = host.look()
    text = json.dumps(server)
    assert "\\u001b" not in text and KEY not in text and len(text) < 3000
    assert server["effective"]["model_path"] == "{{ lookup('pipe', 'id') }} ********"
    assert server["effective"]["speculative_algorithm"] == "(an object)"
    assert server["state"] == "serving" and server["accept_length"] is None


def test_a_node_of_a_higher_rank_is_asked_through_rank_zero(host):
    host.deploy(effective={"node_rank": 1}, answers={"/health": 200})
    (server,) = host.look()
    assert (server["state"], server["reason"], server["node_rank"]) == ("unknown", "rank_unprovable", 1)
    host.answers[31000] = HEALTHY
    (server,) = host.look(rank_zero=("gpu-a", 31000))
    assert [(client.host, client.port) for client in host.clients] == [("gpu-a", 31000)]
    # Requests are those of rank 0, and counted there.
    assert (server["state"], server["load"]["running"]) == ("serving", None)


def test_https_is_spoken_where_the_release_says_so(host):
    host.deploy(effective={"ssl_certfile": "/etc/tls/cert.pem"})
    (server,) = host.look()
    assert server["https"] is True and host.clients[0].tls is not None


def test_instances_are_found_by_their_current_release(host):
    host.deploy("b", pid=0)
    host.deploy("a", pid=0)
    (host.root / "state_dir" / ".patches").mkdir()
    (host.root / "state_dir" / "half").mkdir()
    odd = host.root / "state_dir" / "Not A Name"
    odd.mkdir()
    (odd / "current").symlink_to("/nowhere")
    assert instance_names(str(host.root / "state_dir")) == ["a", "b"]
    assert instance_names(str(host.root / "missing")) == []
