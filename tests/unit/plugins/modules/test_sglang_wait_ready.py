# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sglang_wait_ready through its real main(), on a small real server started by sglang_process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.modules import sglang_process, sglang_wait_ready
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import PortOwner
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness import wait_task
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import Tls
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.raw_server import RawServer, reply

PROCFS = ProcFs()
KEY = "sk-verysecret-1"

# Answers as its configuration (JSON in argv[1]) says.  Not before `bind` seconds, 503 for `warm` seconds more.
SERVER = r"""
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
import socketserver
C = json.loads(sys.argv[1])
for line in C.get("log", []):
    print(line, flush=True)
time.sleep(C.get("bind", 0))
if "dies" in C:
    sys.exit(C["dies"])

class Server(HTTPServer):
    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = C["host"], C["port"]

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass
    def reply(self, status, body=None):
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def locked(self):
        return C.get("key") and self.headers.get("Authorization") != "Bearer " + C["key"]
    def do_GET(self):
        if self.path == "/health":
            if C.get("dies_warm"):
                os._exit(3)
            return self.reply(503 if time.time() < UP else 200)
        if self.path == "/metrics":
            return self.reply(404 if C.get("metrics") is None else 200, C.get("metrics"))
        if self.locked():
            return self.reply(401, {"error": "Unauthorized"})
        self.reply(200, C["info"])
    def refuse(self):
        self.send_response(400)
        data = C["refuses"].encode()
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.locked():
            return self.reply(401, {"error": "Unauthorized"})
        if "refuses" in C:
            return self.refuse()
        global DONE
        DONE += 1
        if C.get("hangs") or DONE > C.get("hangs_after", DONE):
            time.sleep(60)
        tokens = asked["sampling_params"]["max_new_tokens"]
        meta = {"completion_tokens": tokens}
        accept = C["later_accept"] if "later_accept" in C and DONE > 20 else C.get("accept")
        if accept:
            meta["spec_verify_ct"] = round(tokens / accept)
        self.reply(200, {"text": "x", "meta_info": meta})

DONE = 0
server = Server((C["host"], C["port"]), Handler)
UP = time.time() + C.get("warm", 0)
server.serve_forever()
"""

EAGLE3 = {
    "model_path": "/models/target",
    "tp_size": 1,
    "max_running_requests": 48,
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/models/draft",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
INFO = {
    **EAGLE3,
    "version": "0.5.17",
    "disable_overlap_schedule": False,
    "api_key": KEY,
    "internal_states": [{"effective_max_running_requests_per_dp": 48}],
}
BASELINE = {**EAGLE3, "speculative_algorithm": None}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


class Host:
    def __init__(self, root, run_module):
        self.root = root
        self.port = free_port()
        self.sessions = []
        self.warnings = []
        self._run_module = run_module
        self.folders = {name + "_dir": str(root / name) for name in ("state", "run", "log")}

    def release(self, config, effective=None, **changes):
        """Deploy a server with this configuration; without `effective` it is EAGLE-3, and was asked for more tokens."""
        requested = effective or {**EAGLE3, "speculative_num_draft_tokens": 8}
        effective = effective or EAGLE3
        config = {"host": "127.0.0.1", "port": self.port, "info": INFO, "accept": 2.5, **config}
        folder = self.root / "state" / "main" / "releases" / "r1"
        folder.mkdir(parents=True)
        release = {
            "format": 1,
            "id": "r1",
            "created": "2026-01-02T03:04:05Z",
            "instance": "main",
            "manager": "process",
            "command": [sys.executable, "-c", SERVER, json.dumps(config)],
            "host": config["host"],
            "port": self.port,
            "requested": requested,
            "effective": effective,
            "sglang_version": "0.5.17",
            **changes,
        }
        (folder / "release.json").write_text(json.dumps(release))
        (self.root / "state" / "main" / "current").symlink_to("releases/r1")

    def start(self, config=None, **release):
        self.release(config or {}, **release)
        status, result = self._run_module(sglang_process, {"state": "started", **self.folders})
        assert status == 0, result
        self.sessions.append(result["process"]["pid"])
        return result["process"]["pid"]

    def has_written(self, text):
        """Wait until it is in the server's log, however long a new Python takes on a machine that is busy."""
        log = self.root / "log" / "main.log"
        _until(lambda: text in log.read_text())

    def listens(self):
        """Wait until somebody does, on the server's port."""

        def connects():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return True

        _until(connects)

    def wait(self, check=False, **options):
        args = {
            "manager": "process",
            "timeout": 10,
            "interval": 0.02,
            "request_timeout": 5,
            "prompts": ["one", "two"],
            "soak_requests": 0,
            **self.folders,
            **options,
        }
        status, result = self._run_module(sglang_wait_ready, args, check=check)
        assert KEY not in json.dumps(result)
        assert result.get("changed") in (False, None)
        return status, result


@pytest.fixture
def host(tmp_path, run_module, monkeypatch):
    monkeypatch.setattr(sglang_process, "_WATCHED", 0.0)
    host = Host(tmp_path, run_module)
    # ansible-core keeps the warnings of one run in the process, and so for the next test.
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, text, **_more: host.warnings.append(text))
    yield host
    for session in host.sessions:
        for member in PROCFS.session_members(session):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(session, 0)


# -- ready


def test_a_server_that_becomes_ready_and_does_what_was_asked(host, monkeypatch):
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    pid = host.start({"bind": 0.1, "warm": 0.1})
    status, result = host.wait()
    assert status == 0, result
    assert host.warnings == []
    facts = result["sglang"]
    phases = facts.pop("phases")
    assert [phase["name"] for phase in phases] == ["starting", "warming_up", "ready", "generating", "proving"]
    assert 0 < facts.pop("ready_after") < 10
    assert 0.1 < result["waited"] < 10
    assert facts == {
        "instance": "main",
        "release": "r1",
        "pid": pid,
        "version": "0.5.17",
        "requested": {**EAGLE3, "speculative_num_draft_tokens": 8},
        "effective": {**EAGLE3, "disable_overlap_schedule": False},
        "adjusted": {"speculative_num_draft_tokens": {"requested": 8, "effective": 4}},
        "mismatches": [],
        "worker": "v2",
        "expected_worker": "",
        "soak": {"requests": 0, "failed": 0, "seconds": 0.0, "accept_length": None},
        "accept_length": pytest.approx(2.51, abs=0.01),
        "spec_verify_ct": 102,
        "tier": None,
    }


def test_a_baseline(host):
    host.start({"info": {**INFO, "speculative_algorithm": None}, "accept": 0}, effective=BASELINE)
    status, result = host.wait()
    assert status == 0 and result["sglang"]["accept_length"] is None and result["sglang"]["spec_verify_ct"] == 0


def test_a_server_that_listens_everywhere(host):
    host.start({"host": "0.0.0.0"})
    assert host.wait()[0] == 0


@pytest.mark.parametrize(("release", "options"), [({}, {"api_key": KEY}), ({"secret_args": {"api-key": KEY}}, {})])
def test_the_key_is_given_or_known(host, release, options):
    host.start({"key": KEY}, **release)
    assert host.wait(**options)[0] == 0


def test_a_key_that_is_missing(host):
    host.start({"key": KEY})
    status, result = host.wait()
    assert status == 1 and result["reason"] == "unauthorized" and "api_key" in result["msg"]


def test_check_mode_waits_for_nothing(host):
    status, result = host.wait(check=True)
    assert status == 0 and "check mode" in result["skipped_reason"] and "sglang" not in result


def test_what_is_worth_keeping_of_a_proof(host):
    host.start({"bind": 0.2})
    facts = host.wait()[1]
    proof = facts["proof"]
    assert sorted(proof) == ["accept_length", "phases", "ready_after", "version"]
    assert proof["ready_after"] == facts["sglang"]["ready_after"] and proof["phases"] == facts["sglang"]["phases"]
    # How long a start took cannot be told of a server that is up already.
    again = host.wait()[1]["proof"]
    assert again["ready_after"] is None and again["phases"] == []
    assert again["accept_length"] == proof["accept_length"] == pytest.approx(2.51, abs=0.01)


def test_many_requests_and_a_second_sample(host):
    host.start()
    status, result = host.wait(soak_requests=30, soak_concurrency=3, soak_tokens=20)
    assert status == 0, result
    soak = result["sglang"]["soak"]
    assert (soak["requests"], soak["failed"], soak["accept_length"]) == (30, 0, 2.5) and soak["seconds"] > 0
    names = [phase["name"] for phase in result["sglang"]["phases"]]
    assert names[-5:] == ["generating", "proving", "soaking", "generating", "proving"]


# -- in parts


def parts_of(host, **options):
    """Wait in parts to the end: the results of all of them."""
    results = [host.wait(return_after=0.15, **options)[1]]
    while results[-1].get("waiting"):
        results.append(host.wait(return_after=0.15, resume=results[-1]["resume"], **options)[1])
        assert len(results) < 60
    return results


def test_a_wait_in_parts_is_one_wait(host):
    host.start({"bind": 0.4, "warm": 0.4, "log": ["[2026-01-02 03:04:05] Load weight begin."]})
    *parts, last = parts_of(host, soak_requests=200, soak_tokens=16)
    assert len(parts) >= 4 and "failed" not in last, last
    assert "resume" not in last and "progress" not in last
    seen = [part["progress"]["phase"] for part in parts]
    assert {"loading_weights", "warming_up", "soaking"} <= set(seen)
    assert all(part["progress"]["last_start"] is None for part in parts)
    (soaking,) = [part["progress"] for part in parts if part["progress"]["phase"] == "soaking"][:1]
    assert 0 < soaking["requests"] < soaking["of"] == 200
    names = [phase["name"] for phase in last["sglang"]["phases"]]
    assert names[0] == "starting" and names[-1] == "proving"
    assert last["sglang"]["soak"]["requests"] == 200
    assert last["waited"] > 0.8 and 0.8 < last["proof"]["ready_after"] < 10
    # The key that the server leaks is in none of them (see Host.wait).


def test_a_death_between_two_parts_is_noticed(host):
    pid = host.start({"bind": 60})
    part = host.wait(return_after=0.1)[1]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    status, result = host.wait(return_after=0.1, resume=part["resume"])
    assert status == 1 and "died" in result["msg"] and result["sglang"]["pid"] == pid


def test_another_process_between_two_parts_is_noticed(host):
    host.start({"bind": 60})
    part = host.wait(return_after=0.1)[1]
    part["resume"]["identity"][1] -= 1
    status, result = host.wait(return_after=0.1, resume=part["resume"])
    assert status == 1 and result["reason"] == "restarted" and "another one" in result["msg"]


@pytest.mark.parametrize(("name", "words"), [("boot", "was booted"), ("release", "another release")])
def test_what_changed_between_two_parts(host, name, words):
    host.start({"bind": 60})
    part = host.wait(return_after=0.1)[1]
    part["resume"][name] = "other"
    status, result = host.wait(return_after=0.1, resume=part["resume"])
    assert status == 1 and result["reason"] == "restarted" and words in result["msg"]


def test_the_timeout_is_that_of_all_parts(host):
    host.start({"bind": 60})
    *parts, last = parts_of(host, timeout=2)
    assert len(parts) >= 2 and last["reason"] == "timeout" and 2 <= last["waited"] < 10


def test_a_resume_that_is_none(host):
    host.release({})
    status, result = host.wait(resume={"format": 1})
    assert status == 1 and result["msg"].startswith("resume: ")


def test_the_last_proven_start_is_the_estimate(host):
    host.start({"bind": 60})
    proof = host.root / "state" / "main" / "releases" / "r1" / "proof.json"
    proof.write_text(json.dumps({"format": 1, "proven_at": "2026-01-02T03:04:05Z", "ready_after": 460.0}))
    progress = host.wait(return_after=0.1)[1]["progress"]
    assert progress["last_start"] == 460.0 and 440 < progress["left"] < 460
    proof.write_text("broken")
    assert host.wait(return_after=0.1)[1]["progress"]["left"] is None


def test_the_last_good_release_is_the_estimate_for_a_new_one(host):
    host.start({"bind": 60})
    folder = host.root / "state" / "main" / "releases" / "r0"
    folder.mkdir()
    content = json.loads((folder.parent / "r1" / "release.json").read_text())
    (folder / "release.json").write_text(json.dumps({**content, "id": "r0"}))
    (folder / "proof.json").write_text(
        json.dumps({"format": 1, "proven_at": "2026-01-02T03:04:05Z", "ready_after": 99.0})
    )
    (host.root / "state" / "main" / "last_good").symlink_to("releases/r0")
    assert host.wait(return_after=0.1)[1]["progress"]["last_start"] == 99.0


def test_a_short_key_is_waited_with_in_one_part(host):
    """Ansible would blank it out in the middle of what the parts hand on."""
    host.start({"bind": 0.5, "key": "sglang"})
    status, result = host.wait(return_after=0.1, api_key="sglang")
    assert status == 0 and "waiting" not in result, result


# -- a node of a server on several hosts


def node(host, **config):
    """Deploy the node of rank 1, whose /health answers 200 at once."""
    config = {"host": "127.0.0.1", "port": host.port, "info": {}, **config}
    command = [sys.executable, "-c", SERVER, json.dumps(config), "--node-rank", "1"]
    return host.start(command=command)


def test_a_node_of_a_higher_rank_is_not_believed(host):
    node(host)
    status, result = host.wait()
    assert status == 1 and result["reason"] == "rank_unprovable" and "rank_zero" in result["msg"]


def test_a_node_of_a_higher_rank_is_proven_by_rank_zero(host):
    port = free_port()
    config = {"host": "127.0.0.1", "port": port, "info": INFO, "accept": 2.5, "bind": 0.3}
    first = subprocess.Popen([sys.executable, "-c", SERVER, json.dumps(config)], start_new_session=True)
    try:
        pid = node(host)
        status, result = host.wait(rank_zero="127.0.0.1:%d" % port)
        assert status == 0 and result["sglang"]["pid"] == pid and result["sglang"]["accept_length"] > 2, result
        # Its own process counts all the same.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert "died" in host.wait(rank_zero="127.0.0.1:%d" % port)[1]["msg"]
    finally:
        first.kill()
        first.wait()


# -- not ready


def test_a_server_that_dies_while_it_loads(host):
    log = [
        "api_key='%s'" % KEY,
        "\x1b[31mtorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\x1b[0m",
        *["line %d" % number for number in range(70)],
    ]
    host.start({"bind": 0.3, "dies": 1, "log": log}, secret_args={"api-key": KEY})
    status, result = host.wait()
    assert status == 1 and result["reason"] == "out_of_memory" and result["phase"] == "starting"
    assert "ran out of memory" in result["msg"] and "Tried to allocate 2.00 GiB" in result["msg"]
    assert len(result["log_tail"]) == 60 and result["log_tail"][-1] == "line 69"
    assert result["exit_status"] is None and result["waited"] < 5
    assert result["last_answers"] == ["starting: nothing listens on 127.0.0.1:%d" % host.port]
    assert result["sglang"]["version"] == "" and result["sglang"]["ready_after"] is None


def test_a_server_that_dies_in_its_warm_up(host):
    host.start({"dies_warm": True})
    status, result = host.wait()
    assert status == 1 and result["reason"] == "unknown"
    assert "died" in result["msg"] and "Read the end of the log" in result["msg"]


def test_a_server_that_never_gets_ready(host):
    host.start({"warm": 60})
    host.listens()
    status, result = host.wait(timeout=0.5)
    assert status == 1 and result["reason"] == "timeout" and result["phase"] == "warming_up"
    assert "answered 503" in result["msg"]


def test_what_somebody_else_says_is_shown_clean(host):
    """A page of another program may echo the request, and hold what moves a terminal."""
    host.start(
        {"refuses": "\x1b]0;owned\x07 You sent Bearer %s\r\nand \x1b[2J more" % KEY}, secret_args={"api-key": KEY}
    )
    status, result = host.wait()
    assert status == 1 and result["reason"] == "unexpected_answer"
    assert "You sent Bearer ********" in result["msg"] and "\x1b" not in json.dumps([result, host.warnings])
    assert "\\u001b" not in json.dumps(result)


def test_a_server_that_was_not_started(host):
    host.release({})
    status, result = host.wait()
    assert status == 1 and "there is no PID file" in result["msg"] and result["waited"] < 1


def test_a_generation_that_hangs(host):
    host.start({"hangs": True})
    host.listens()
    status, result = host.wait(timeout=0.6, request_timeout=0.2)
    assert status == 1 and result["phase"] == "generating" and result["reason"] in ("timeout", "generation_timeout")


def test_somebody_else_answers(host):
    host.start({"bind": 60})
    config = {"host": "127.0.0.1", "port": host.port, "info": INFO, "accept": 2.5}
    other = subprocess.Popen([sys.executable, "-c", SERVER, json.dumps(config)], start_new_session=True)
    try:
        status, result = host.wait()
        assert status == 1 and result["reason"] == "foreign_listener" and "PID %d" % other.pid in result["msg"]
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("health", [200, 503])
def test_somebody_who_waits_on_the_port_for_keys_gets_none(host, health):
    host.start({"bind": 60}, api_key=KEY)
    with RawServer(reply(health, b""), port=host.port) as squatter:
        status, result = host.wait(api_key=KEY)
    assert status == 1 and result["reason"] == "foreign_listener"
    assert squatter.request.startswith(b"GET /health ") and KEY.encode() not in squatter.request


def test_whose_the_port_is_that_cannot_be_seen_is_not_told_the_key(host, monkeypatch):
    host.start()
    monkeypatch.setattr(wait_task, "port_owner", lambda *_words: PortOwner(False))
    monkeypatch.setattr(wait_task.Waiter, "generate", lambda *_words: pytest.fail("the key was told"))
    status, result = host.wait(api_key=KEY)
    assert status == 1 and result["reason"] == "unknown_listener"


def test_a_server_of_another_release(host):
    host.start()
    release = host.root / "state" / "main" / "current" / "release.json"
    content = json.loads(release.read_text())
    release.write_text(json.dumps({**content, "environment": {"NEW": "1"}}))
    status, result = host.wait()
    assert status == 1 and result["reason"] == "stale_process" and "from the release r1" in result["msg"]


@pytest.mark.parametrize("after", [10, 128])
def test_a_server_that_hangs_after_some_requests(host, after):
    host.start({"hangs_after": after})
    # A fault of the very last ones may be tolerated under load; the second sample finds it.
    status, result = host.wait(timeout=90, request_timeout=0.2, soak_requests=128, soak_tokens=16)
    assert status == 1 and result["reason"] == "hangs_under_load", result
    assert "answered" in result["msg"] and result["sglang"]["soak"]["requests"] > 5
    assert result["waited"] < 45


def test_a_lock_that_nobody_will_remove(host):
    line = "[2026-01-02 03:04:05] [aiter] waiting for baton release at /root/.aiter/build/lock_module_x"
    host.start({"bind": 60, "log": ["[2026-01-02 03:04:05] Capture cuda graph begin.", line]})
    host.has_written(line)
    status, result = host.wait(timeout=0.4)
    assert status == 1 and (result["reason"], result["phase"]) == ("timeout", "compiling_kernels")
    assert "/root/.aiter/build/lock_module_x" in result["msg"] and "remove the lock" in result["msg"]


def test_a_start_that_is_stuck_names_how_far_it_got(host):
    log = ["[2026-01-02 03:04:05] Load weight begin.", "Loading safetensors checkpoint shards:  45% Completed | 5/11"]
    host.start({"bind": 60, "log": log})
    host.has_written(log[-1])
    status, result = host.wait(timeout=0.4)
    assert status == 1 and (result["reason"], result["phase"], result["percent"]) == ("timeout", "loading_weights", 45)
    assert "loading_weights (45 %)" in result["msg"]


# -- not proven


def test_speculation_that_ceases_under_load(host):
    host.start({"later_accept": 1.0})
    status, result = host.wait(soak_requests=40, soak_tokens=16)
    assert status == 1 and result["reason"] == "low_acceptance" and "after 40 requests" in result["msg"]


@pytest.mark.parametrize("others", [40, 0, None])
def test_adaptive_speculation_on_a_busy_server(host, others):
    """Under the load of others it drafts nothing, which must not end in a restart of a server that is all right."""
    effective = {**EAGLE3, "speculative_adaptive": True}
    loads = {} if others is None else {"loads": [{"num_running_reqs": others, "num_waiting_reqs": 0}]}
    host.start({"info": {**INFO, **effective, **loads}, "accept": 1.0}, effective=effective)
    status, result = host.wait()
    assert (status == 0) == bool(others) and result.get("reason") == (None if others else "low_acceptance")
    assert ("It has 40 other requests" in "".join(host.warnings)) == bool(others)


@pytest.mark.parametrize(
    ("metrics", "tier"),
    [("sglang:spec_num_steps 0.0\n", {"num_steps": 0, "num_draft_tokens": None}), ("", None), (None, None)],
)
def test_a_server_that_adapts_says_with_how_many_steps(host, metrics, tier):
    effective = {**EAGLE3, "speculative_adaptive": True}
    host.start({"info": {**INFO, **effective, "enable_metrics": True}, "metrics": metrics}, effective=effective)
    status, result = host.wait()
    assert status == 0 and result["sglang"]["tier"] == tier


def test_adaptive_speculation_that_only_the_log_says_is_off(host):
    effective = {**EAGLE3, "speculative_adaptive": True}
    log = ["[2026-01-02 03:04:05] speculative_adaptive disabled: attention-DP"]
    host.start({"info": {**INFO, "speculative_adaptive": True}, "log": log}, effective=effective)
    status, result = host.wait()
    assert status == 1 and result["reason"] == "config_mismatch" and "attention-DP" in result["msg"]
    assert [row["field"] for row in result["sglang"]["mismatches"]] == ["speculative_adaptive"]


def test_the_older_worker_although_the_newer_one_was_asked_for(host):
    info = {**INFO, "version": "0.5.12", "disable_overlap_schedule": True}
    host.start({"info": info}, environment={"SGLANG_ENABLE_SPEC_V2": "true"})
    status, result = host.wait()
    assert status == 1 and result["reason"] == "config_mismatch" and "worker is v1 instead of v2" in result["msg"]
    assert (result["sglang"]["worker"], result["sglang"]["expected_worker"]) == ("v1", "v2")


def test_a_requested_field_that_is_not_among_the_usual_ones(host):
    effective = {**EAGLE3, "kv_cache_dtype": "fp8_e5m2", "mem_fraction_static": 0.9}
    info = {**INFO, "kv_cache_dtype": "auto", "mem_fraction_static": 0.81}
    host.start({"info": info}, effective=effective)
    result = host.wait()[1]
    assert result["reason"] == "config_mismatch"
    assert [row["field"] for row in result["sglang"]["mismatches"]] == ["kv_cache_dtype"]
    assert "mem_fraction_static is 0.81" in "".join(host.warnings)


@pytest.mark.parametrize(
    ("info", "accept", "reason", "words"),
    [
        ({"speculative_num_steps": 5}, 2.5, "config_mismatch", "speculative_num_steps is 5 instead of 3"),
        ({"speculative_algorithm": None}, 0, "config_mismatch", "serves without speculation"),
        ({}, 0, "no_speculation", "did not verify a single draft token"),
        ({}, 1.0, "low_acceptance", "1.00 tokens per verification"),
    ],
)
def test_a_server_that_does_something_else(host, info, accept, reason, words):
    host.start({"info": {**INFO, **info}, "accept": accept, "log": ["Spec v1 is used for eagle because of x"]})
    status, result = host.wait()
    assert status == 1 and result["reason"] == reason and words in result["msg"]
    assert bool(result["sglang"]["mismatches"]) == (reason == "config_mismatch")
    assert result["phase"] == "proving" and result["sglang"]["version"] == "0.5.17"
    assert "Spec v1 is used" in "".join(host.warnings)


def test_a_baseline_that_speculates(host):
    host.start({"info": {**INFO, "speculative_algorithm": None}, "accept": 2.5}, effective=BASELINE)
    _status, result = host.wait()
    assert result["reason"] == "unexpected_speculation", result


def test_what_cannot_be_compared_is_told(host):
    info = {**INFO, "version": "0.5.23", "max_running_requests": 250}
    host.start({"info": info}, requested={}, effective=EAGLE3)
    status, result = host.wait(compare=["speculative_num_steps", "dtype"])
    assert status == 0 and result["sglang"]["effective"] == {"speculative_num_steps": 3}
    warnings = "\n".join(host.warnings)
    assert "dtype was not compared" in warnings and "checked with 0.5.17" in warnings and "at most 48" in warnings


# -- systemd


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """A systemctl that prints what the test puts into a file."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("systemctl", "journalctl"):
        program = folder / name
        program.write_text("#!/bin/sh\ncat %s\n" % (tmp_path / (name + ".out")))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (folder, os.environ["PATH"]))

    def show(pid, **changes):
        values = {
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "MainPID": pid,
            "Result": "success",
            "ExecMainCode": 0,
            "ExecMainStatus": 0,
            "NRestarts": 0,
            "InvocationID": "x",
            "ControlGroup": "/system.slice/sglang-main.service",
            "StandardOutput": "journal",
            **changes,
        }
        (tmp_path / "systemctl.out").write_text("".join("%s=%s\n" % item for item in values.items()))

    (tmp_path / "journalctl.out").write_text("ImportError: no such thing\n")
    return show


def test_a_unit_that_is_ready(host, systemctl):
    pid = host.start()
    link = host.root / "state" / "main" / "current"
    os.utime(link, (time.time() - 60, time.time() - 60), follow_symlinks=False)
    systemctl(pid)
    status, result = host.wait(manager="systemd")
    assert status == 0, result
    assert result["sglang"]["pid"] == pid
    os.utime(link, (time.time() + 60, time.time() + 60), follow_symlinks=False)
    assert host.wait(manager="systemd")[1]["reason"] == "stale_process"


def test_a_unit_that_failed(host, systemctl):
    host.release({})
    systemctl(0, ActiveState="failed", SubState="failed", Result="exit-code", ExecMainCode=1, ExecMainStatus=1)
    status, result = host.wait(manager="systemd")
    assert status == 1 and result["reason"] == "missing_dependency" and result["exit_status"] == 1
    assert result["log_tail"] == ["ImportError: no such thing"]
    assert "the unit sglang-main.service is failed" in result["msg"]


def test_a_unit_in_a_crash_loop(host, systemctl):
    pid = host.start({"bind": 60})
    systemctl(pid, NRestarts=3)
    status, result = host.wait(manager="systemd")
    assert status == 1 and result["reason"] == "restarted" and "3 times" in result["msg"]
    assert "missing" in result["msg"]


def test_a_unit_whose_state_cannot_be_read(host, systemctl):
    host.release({})
    systemctl("?")
    status, result = host.wait(manager="systemd")
    assert status == 1 and result["reason"] == "unknown_state" and "MainPID" in result["msg"]


# -- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 0}, "timeout: 0.0"),
        ({"timeout": -5}, "timeout: -5.0"),
        ({"timeout": "inf"}, "timeout: inf"),
        ({"interval": 0}, "interval: 0.0"),
        ({"request_timeout": "nan"}, "request_timeout: nan"),
        ({"min_accept_length": -1}, "min_accept_length: -1.0"),
        ({"max_new_tokens": 1}, "max_new_tokens: 1"),
        ({"port": 0}, "port: 0"),
        ({"return_after": -1}, "return_after: -1.0"),
        ({"progress_interval": "nan"}, "progress_interval: nan"),
        ({"soak_requests": -1}, "soak_requests: -1"),
        ({"soak_concurrency": 0}, "soak_concurrency: 0"),
        ({"soak_concurrency": 1000}, "soak_concurrency: 1000"),
        ({"soak_tokens": 0}, "soak_tokens: 0"),
        ({"rank_zero": "gpu-a"}, "rank_zero: 'gpu-a'"),
        ({"port": 70000}, "port: 70000"),
        ({"prompts": []}, "prompts"),
        ({"prompts": [" "]}, "prompts"),
        ({"api_key": "two\nlines"}, "api_key"),
        ({"instance": "A/B"}, "instance: 'A/B'"),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_bad_options(host, options, words, check):
    status, result = host.wait(check=check, **options)
    assert status == 1 and words in result["msg"] and "\n" not in result["msg"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "host: it is not given"),
        ({"host": "127.0.0.1", "port": 1}, "deploy a release, or give expected"),
    ],
)
def test_without_a_release(host, options, words):
    status, result = host.wait(**options)
    assert status == 1 and words in result["msg"]
    assert host.wait(check=True, **options)[0] == 0  # it may still be written by the run that is checked


def test_a_broken_pid_file(host):
    host.release({})
    (host.root / "run").mkdir()
    (host.root / "run" / "main.json").write_text("{")
    status, result = host.wait()
    assert status == 1 and "main.json is broken" in result["msg"]


def test_a_broken_release(host):
    host.release({})
    (host.root / "state" / "main" / "current" / "release.json").write_text("{")
    status, result = host.wait()
    assert status == 1 and "release.json cannot be used" in result["msg"]


@pytest.mark.parametrize(
    ("effective", "options", "tls"),
    [
        ({"ssl_certfile": "/etc/a.crt"}, {}, Tls()),
        ({"ssl_certfile": None}, {}, None),
        ({"ssl_certfile": "/etc/a.crt"}, {"rank_zero": "gpu-a:30000"}, Tls()),
        ({"ssl_certfile": "/etc/a.crt", "ssl_ca_certs": __file__}, {"rank_zero": "gpu-a:30000"}, Tls(__file__)),
        ({"ssl_certfile": "/etc/a.crt", "ssl_ca_certs": __file__}, {}, Tls()),
    ],
)
def test_whether_the_server_is_asked_by_https(host, monkeypatch, effective, options, tls):
    asked = []

    def client(*_address, **more):
        asked.append(more["tls"])
        raise wait_task.UsageError("that is enough")

    monkeypatch.setattr(wait_task, "HttpClient", client)
    host.release({}, effective={**EAGLE3, **effective})
    assert host.wait(**options)[0] == 1 and asked == [tls]
