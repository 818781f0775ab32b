# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait on the controller: with a module that answers by a script, and in a real play on this host."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.inferops.sglang.plugins.action import sglang_wait_ready
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.plugin_utils import parted_action

DONE = {"changed": False, "sglang": {"pid": 7}, "proof": {}, "invocation": {"module_args": {"resume": {}, "port": 1}}}


def part(phase, number=1, **progress):
    """What the module returns of a part of the wait."""
    return {
        "changed": False,
        "waiting": True,
        "progress": {"phase": phase, "elapsed": 60.0, **progress},
        "resume": {"format": 1, "number": number},
        "sglang": {"pid": 7},
    }


class Wait:
    """A task whose module answers by a script; what it was given and what was shown."""

    def __init__(self, monkeypatch):
        self.script = []
        self.given = []
        self.shown = []
        self.slept = []
        self.removed = []
        self.callback = "default"
        constants = mock.Mock(DEFAULT_FORKS=5)
        monkeypatch.setattr(parted_action.time, "sleep", self.slept.append)
        monkeypatch.setattr(parted_action, "Display", lambda: self)
        monkeypatch.setattr(parted_action, "constants", constants)
        monkeypatch.setattr(sglang_wait_ready, "constants", constants)

    def display(self, line, stderr=False):
        self.shown.append((line, stderr))

    @property
    def lines(self):
        return [line for line, _stderr in self.shown]

    def execute(self, module_name, module_args, task_vars, wrap_async=False):
        assert module_name == "inferops.sglang.sglang_wait_ready"
        self.given.append((dict(module_args), wrap_async))
        module_args["_ansible_version"] = "x"  # as the real one does
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def remove(self, folder):
        self.removed.append(folder)
        self.connection._shell.tmpdir = None  # as the real one does
        if folder.endswith("-2"):
            raise AnsibleConnectionFailure("gone")

    def run(self, args=None, async_val=0, delegate_to=None, hosts=1, forks=5, check=False):
        sglang_wait_ready.constants.DEFAULT_STDOUT_CALLBACK = self.callback
        task = mock.Mock(
            args=dict(args or {}), async_val=async_val, delegate_to=delegate_to, check_mode=check, diff=False
        )
        self.connection = mock.Mock(has_native_async=False)
        action = sglang_wait_ready.ActionModule(task, self.connection, mock.Mock(), None, None, None)
        action._execute_module = self.execute
        action._remove_tmp_path = self.remove
        variables = {
            "inventory_hostname": "gpu-a",
            "ansible_play_batch": ["gpu-%d" % number for number in range(hosts)],
            "ansible_forks": forks,
        }
        result = action.run(task_vars=variables)
        assert self.script == []
        assert task.args == dict(args or {})
        return result


@pytest.fixture
def wait(monkeypatch):
    return Wait(monkeypatch)


def test_part_after_part_until_there_is_a_result(wait):
    wait.script = [
        part("loading_weights", 1, percent=45, left=300.0, last_start=360.0),
        part("capturing_graphs", 2),
        dict(DONE),
    ]
    result = wait.run({"instance": "main", "timeout": 600})
    assert wait.lines == [
        "gpu-a main: loading weights 45 %, 1 min 00 s, about 5 min left (last start 6 min 00 s)",
        "gpu-a main: capturing CUDA graphs, 1 min 00 s",
    ]
    base = {"instance": "main", "timeout": 600, "return_after": 10.0}
    assert [given for given, _async in wait.given] == [
        base,
        {**base, "resume": {"format": 1, "number": 1}},
        {**base, "resume": {"format": 1, "number": 2}},
    ]
    assert result["sglang"] == {"pid": 7} and not {"waiting", "progress", "resume"} & set(result)
    assert result["invocation"] == {"module_args": {"port": 1}}


def test_a_failure_is_a_result(wait):
    wait.script = [part("starting"), {"failed": True, "msg": "It died.", "reason": "out_of_memory"}]
    result = wait.run()
    assert result["failed"] and result["reason"] == "out_of_memory" and len(wait.lines) == 1


def test_a_ready_server_shows_nothing(wait):
    wait.script = [dict(DONE)]
    wait.run()
    assert wait.lines == []


def test_check_mode_is_one_part(wait):
    wait.script = [{"changed": False, "skipped_reason": "check mode"}]
    assert wait.run(check=True)["skipped_reason"] == "check mode" and wait.lines == []


@pytest.mark.parametrize(
    ("hosts", "forks", "asked", "interval"),
    [(1, 5, 10, 10.0), (200, 100, 10, 100.0), (200, 5, 10, 10.0), (1, 5, "2", 2.0)],
)
def test_many_hosts_at_a_time_speak_less_often(wait, hosts, forks, asked, interval):
    wait.script = [dict(DONE)]
    wait.run({"progress_interval": asked}, hosts=hosts, forks=forks)
    assert wait.given[0][0]["return_after"] == interval


@pytest.mark.parametrize("args", [{"progress_interval": 0}, {"progress_interval": "x"}, {"progress_interval": -1}])
def test_without_progress_or_with_a_wrong_interval_the_module_decides(wait, args):
    wait.script = [dict(DONE)]
    wait.run(args)
    assert wait.given == [(args, False)]


@pytest.mark.parametrize("args", [{"return_after": 5}, {"return_after": 5, "resume": {"format": 1}}])
def test_parts_by_hand(wait, args):
    wait.script = [part("starting")]
    assert wait.run(args)["resume"] == {"format": 1, "number": 1}
    assert wait.given == [(args, False)] and wait.lines == []


def test_a_task_in_the_background_is_one_part(wait):
    wait.script = [{"started": 1, "ansible_job_id": "j1"}]
    assert wait.run(async_val=600)["ansible_job_id"] == "j1"
    assert wait.given == [({}, True)]


def test_whom_a_delegated_task_is_about(wait):
    wait.script = [part("starting"), dict(DONE)]
    wait.run(delegate_to="gpu-b")
    assert wait.lines[0].startswith("gpu-a -> gpu-b main: ")


@pytest.mark.parametrize("callback", ["json", "ansible.posix.json", "ansible.posix.jsonl"])
def test_output_that_programs_read_is_left_alone(wait, callback):
    wait.callback = callback
    wait.script = [part("starting"), dict(DONE)]
    wait.run()
    assert [stderr for _line, stderr in wait.shown] == [True]


LOST = AnsibleConnectionFailure("Failed to connect to the host via ssh: Connection timed out")


def test_a_lost_connection_is_tried_again_with_what_is_known(wait):
    wait.script = [part("starting"), LOST, {"unreachable": True, "msg": "gone"}, part("ready", 2), LOST, dict(DONE)]
    result = wait.run()
    assert "unreachable" not in result and result["sglang"]
    assert wait.slept == [5.0, 10.0, 5.0]
    assert [given.get("resume", {}).get("number") for given, _async in wait.given] == [None, 1, 1, 1, 2, 2]
    assert "the connection is lost (Failed to connect to the host via ssh: Connection timed out)" in wait.lines[1]
    assert wait.lines[2].endswith("(gone); trying again in 10 s (2 of 3)")
    assert wait.connection.reset.call_count == 3 and wait.connection._shell.tmpdir is None


def test_a_host_that_stays_away_is_unreachable(wait):
    wait.script = [part("starting"), LOST, LOST, LOST, LOST]
    with pytest.raises(AnsibleConnectionFailure):
        wait.run()
    assert wait.slept == [5.0, 10.0, 20.0]


def test_what_lost_connections_left_on_the_host_is_removed(wait):
    """It holds the arguments of the module."""

    def execute(**given):
        shell = wait.connection._shell
        if not isinstance(shell.tmpdir, str):
            count[0] += 1
            shell.tmpdir = "/root/.ansible/tmp/ansible-tmp-%d" % count[0]
        return real(**given)

    count, real = [0], wait.execute
    wait.execute = execute
    wait.script = [part("starting"), LOST, LOST, part("ready"), LOST, dict(DONE)]
    wait.run()
    assert wait.removed == ["/root/.ansible/tmp/ansible-tmp-%d" % number for number in (1, 2, 3)]
    assert wait.connection._shell.tmpdir == "/root/.ansible/tmp/ansible-tmp-4"


def test_a_host_cannot_move_the_terminal(wait):
    wait.script = [AnsibleConnectionFailure("\x1b[2Jgone\x07\x9b1A"), part("\x1b]0;x\x07"), dict(DONE)]
    wait.run()
    assert all(line.isprintable() for line in wait.lines) and "gone" in wait.lines[0]


def test_a_connection_that_cannot_be_reset(wait):
    wait.script = [LOST, dict(DONE)]
    with mock.patch.object(mock.Mock, "reset", side_effect=OSError, create=True):
        assert wait.run()["sglang"]


# -- a real play

SERVER = r"""
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
C = json.loads(sys.argv[1])
print("[2026-01-02 03:04:05] Load weight begin.", flush=True)
print("Loading safetensors checkpoint shards:  45% Completed | 5/11", flush=True)
while not os.path.exists(C["go"]):
    time.sleep(0.05)

class Server(ThreadingHTTPServer):
    def server_bind(self):
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "127.0.0.1", C["port"]

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass
    def reply(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        self.reply({"speculative_algorithm": None, "version": "0.5.17", "api_key": "kq-77d1c05e"})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.reply({"meta_info": {"completion_tokens": asked["sampling_params"]["max_new_tokens"]}})

Server(("127.0.0.1", C["port"]), Handler).serve_forever()
"""

PLAY = """
- hosts: all
  gather_facts: false
  module_defaults:
    group/inferops.sglang.all: {state_dir: "{{ dir }}/state"}
    inferops.sglang.sglang_process: {run_dir: "{{ dir }}/run", log_dir: "{{ dir }}/log"}
    inferops.sglang.sglang_wait_ready: &wait
      run_dir: "{{ dir }}/run"
      log_dir: "{{ dir }}/log"
      manager: process
      interval: 0.1
      request_timeout: 5
  tasks:
    - inferops.sglang.sglang_process: {instance: main, state: started}
      register: started
    - copy: {content: "pid {{ started.process.pid | default(0) }}", dest: "{{ dir }}/pid"}
    - name: Wait
      inferops.sglang.sglang_wait_ready: {progress_interval: 1}
      register: waited
      when: parts | bool
    - name: In the background
      inferops.sglang.sglang_wait_ready: {soak_requests: 0}
      async: 60
      poll: 1
      register: background
    - name: For each
      inferops.sglang.sglang_wait_ready: {instance: "{{ item }}", soak_requests: 4}
      loop: [main]
      delegate_to: localhost
      register: each
      when: parts | bool
    - copy: {content: "{{ [waited, background, each] | to_json }}", dest: "{{ dir }}/results.json"}
"""


@pytest.fixture
def play(tmp_path, collections):
    """Run the play on one host, which is this one; returns (exit status, output)."""
    (tmp_path / "play.yml").write_text(PLAY)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path / "state" / "main" / "releases" / "r1"
    folder.mkdir(parents=True)
    (folder.parent.parent / "current").symlink_to("releases/r1")
    release = {
        "format": 1,
        "id": "r1",
        "created": "2026-01-02T03:04:05Z",
        "instance": "main",
        "manager": "process",
        "command": [sys.executable, "-c", SERVER, json.dumps({"port": port, "go": str(tmp_path / "go")})],
        "port": port,
        "effective": {"speculative_algorithm": None},
    }
    (folder / "release.json").write_text(json.dumps(release))
    (folder / "proof.json").write_text(
        json.dumps({"format": 1, "proven_at": "2026-01-02T03:04:05Z", "ready_after": 300.0})
    )

    def run(*options, parts="true"):
        """The server goes on with its start when a line has said that it loads."""
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "ansible", "playbook", "-i", "gpu-a,", "-c", "local", "play.yml"),
                *("-e", "dir=%s" % tmp_path, "-e", "ansible_python_interpreter=%s" % sys.executable),
                *("-e", "parts=%s" % parts, *options),
            ],
            cwd=tmp_path,
            env=dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(collections), ANSIBLE_NOCOLOR="1", COLUMNS="140"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as ansible:
            timer = threading.Timer(180, ansible.kill)
            timer.start()
            output = ""
            for line in ansible.stdout:
                output += line
                if "loading weights" in line:
                    (tmp_path / "go").touch()
            timer.cancel()
        return ansible.returncode, output

    yield run
    with contextlib.suppress(FileNotFoundError):
        for member in ProcFs().session_members(int((tmp_path / "pid").read_text().split()[1])):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)


@pytest.mark.also_on_hosts
def test_a_real_play(play, tmp_path):
    rc, output = play("-v")
    assert rc == 0, output
    lines = [line for line in output.splitlines() if line.startswith("gpu-a main: ")]
    assert any(line.startswith("gpu-a main: loading weights 45 %, ") for line in lines), output
    assert "about 5 min left (last start 5 min 00 s)" in lines[0]
    assert "\r" not in output
    waited, background, each = json.loads((tmp_path / "results.json").read_text())
    for result in (waited, background, each["results"][0]):
        assert result["sglang"]["version"] == "0.5.17" and not {"waiting", "progress", "resume"} & set(result)
    assert waited["sglang"]["soak"]["requests"] == 128 and waited["sglang"]["phases"][1]["name"] == "loading_weights"
    assert waited["proof"]["ready_after"] > 0
    assert each["results"][0]["sglang"]["soak"]["requests"] == 4
    assert "kq-77d1c05e" not in output


@pytest.mark.also_on_hosts
def test_check_mode_in_a_real_play(play):
    rc, output = play("--check", parts="false")
    assert rc == 0, output


def peers_of(wait, tmp_path):
    sglang_wait_ready.constants.DEFAULT_LOCAL_TMP = str(tmp_path)
    return {"instance": "main", "peers": "big-1 new"}


def test_who_waits_with_others_gives_up_when_one_of_them_has_failed(wait, tmp_path):
    arguments = peers_of(wait, tmp_path)
    sglang_wait_ready.Peers(str(tmp_path), "big-1 new").fail("gpu-b main", "It died.")
    wait.script = [part("connecting")]
    result = wait.run(arguments)
    assert (result["failed"], result["reason"]) == (True, "peer_failed")
    assert result["msg"].endswith("another node of its server has failed. gpu-b main: It died.")
    assert wait.lines == [] and not {"waiting", "progress", "resume"} & set(result)
    # One that is done is done.
    wait.script = [dict(DONE)]
    assert "failed" not in wait.run(arguments)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([{"failed": True, "msg": "It died."}], "It died."),
        ([AnsibleConnectionFailure("no route")] * 4, "it cannot be reached: no route"),
    ],
)
def test_who_fails_tells_the_others(wait, tmp_path, steps, why):
    arguments = peers_of(wait, tmp_path)
    wait.script = steps
    with contextlib.suppress(AnsibleConnectionFailure):
        wait.run(arguments)
    others = sglang_wait_ready.Peers(str(tmp_path), "big-1 new")
    assert others.failed("gpu-b main") == "gpu-a main: " + why
    # It does not stop because of itself.
    wait.script = [part("starting"), dict(DONE)]
    assert "failed" not in wait.run(arguments)


def test_who_shows_nothing_looks_after_the_others_all_the_same(wait, tmp_path):
    wait.script = [part("starting"), dict(DONE)]
    wait.run({**peers_of(wait, tmp_path), "progress_interval": 0})
    assert wait.lines == [] and [given["return_after"] for given, _async in wait.given] == [10.0, 10.0]
