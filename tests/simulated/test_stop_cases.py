# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How servers are stopped, by each manager, and servers taken over that nobody manages."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

from .conftest import simulated_server, unused_port
from .server import behave, succeeded
from .waiting import is_alive, wait_until

MANAGER = pathlib.Path(__file__).with_name("unit_manager.py")
UNIT = "sglang-main.service"
# Answers take so many seconds at this speed; a stop has to wait for them, or not.
SLOW = {"tokens_per_second": 100}
PROCFS = ProcFs()


def up(server, version="0.5.17", **options):
    """Start a server that answers; returns the PID of its main process."""
    behaviour = options.pop("behaviour", {})
    started = server.go(environment=behave(version=version, **behaviour), **options)
    wait_until(lambda: server.request("/health") == 200, 30)
    return started["process"]["pid"]


def stop(server, check=False, **options):
    """A stop with all limits short."""
    return server.host.module(
        "sglang_process",
        check=check,
        **{
            **{name: str(server.folder / name) for name in ("state_dir", "run_dir", "log_dir", "etc_dir")},
            "state": "stopped",
            "grace": 10,
            "kill_timeout": 5,
            "drain_timeout": 0,
            **options,
        },
    )


def warned(result):
    return json.dumps(result.get("warnings", []))


@pytest.fixture
def shared(server, tmp_path):
    """The folders that are the host's /dev/shm and /tmp for the servers and the modules."""
    found = {}
    for variable, name in (("STANDIN_SHM_DIR", "shm"), ("STANDIN_TMP_DIR", "t")):
        found[name] = tmp_path / name
        found[name].mkdir()
        server.host.environment[variable] = server.environment[variable] = str(found[name])
    return found


# ---- draining


@pytest.mark.parametrize(
    ("version", "args", "source"),
    [
        ("0.5.17", [], "/v1/loads"),
        ("0.5.23", [], "/v1/loads"),
        ("0.5.7", [], "/get_load"),
    ],
)
def test_requests_are_drained_to_zero_first(server, version, args, source):
    up(server, version, behaviour=SLOW, extra_args=args)
    with server.requests(80) as statuses:
        result = succeeded(stop(server, drain_timeout=20))
    assert statuses == [200]
    drain = result["drain"]
    assert (drain["asked"], drain["in_flight"], drain["source"], drain["message"]) == (True, 0, source, "")
    assert 0.25 <= drain["seconds"] < 10
    assert [row["action"] for row in result["ended"] if row["role"] == "main"] == ["terminated"]
    assert [step["name"] for step in result["steps"]] == ["find", "drain", "end", "leftovers", "port"]


def test_a_drain_whose_budget_is_over_says_how_many_requests_there_were(server):
    up(server, behaviour=SLOW)
    with server.requests(1000, 1000) as statuses:
        result = succeeded(stop(server, drain_timeout=0.6, grace=0.3))
        assert result["drain"]["in_flight"] == 2 and 0.6 <= result["drain"]["seconds"] < 2
        assert "2 requests were left" in result["drain"]["message"] and "2 requests were left" in warned(result)
    # SGLang would have waited for them on its own, and was not given the time.
    assert statuses == [0, 0]
    assert result["ended"][0]["action"] == "killed" and result["clean_exit"] is False
    assert "was killed" in warned(result)


def test_what_is_drained_by_sglang_itself_needs_no_budget(server):
    up(server, behaviour=SLOW)
    with server.requests(60) as statuses:
        result = succeeded(stop(server))
    assert statuses == [200]
    assert result["drain"]["asked"] is False and result["drain"]["in_flight"] is None
    assert (result["exit_status"], result["clean_exit"]) == (None, None)


def test_a_server_that_still_loads_is_not_waited_for(server):
    server.go(environment=behave(load_seconds=30))
    result = succeeded(stop(server, drain_timeout=20))
    assert result["drain"]["asked"] and result["drain"]["seconds"] < 5
    assert "nothing listens" in result["drain"]["message"] and "Drain" not in warned(result)


def test_a_wrong_key_is_said_and_not_waited_for(server):
    key = "kq-3f9a77d1c05e"
    server.go(secret_args={"api-key": key})
    wait_until(lambda: server.request("/health") == 200, 30)
    result = succeeded(stop(server, drain_timeout=20, api_key="another"))
    assert "cannot be counted" in result["drain"]["message"] and "401" in result["drain"]["message"]
    assert result["drain"]["seconds"] < 5 and key not in json.dumps(result)


def test_the_key_of_the_release_is_used(server):
    server.go(secret_args={"api-key": "kq-3f9a77d1c05e"})
    wait_until(lambda: server.request("/health") == 200, 30)
    assert succeeded(stop(server, drain_timeout=20))["drain"]["source"] == "/v1/loads"


# ---- what is left of it


def test_workers_of_a_killed_main_process_are_ended_and_nobody_else(server, host):
    stranger = host.hold(3, 1000, "--title", "sglang::scheduler_TP0")
    up(server, tp_size=2, behaviour={"outlive_parent": True})
    server.kill()
    workers = {pid for title, pid in server.family().items() if "scheduler" in title}
    assert len(workers) == 2
    planned = stop(server, check=True)
    assert {row["pid"] for row in planned["ended"]} >= workers
    assert {row["action"] for row in planned["ended"]} == {"would_kill"} and all(map(is_alive, workers))
    result = succeeded(stop(server))
    assert {row["pid"] for row in result["ended"]} >= workers and server.family() == {}
    assert result["clean_exit"] is None and is_alive(stranger["pid"])
    again = succeeded(stop(server))
    assert (again["changed"], again["ended"]) == (False, [])


def test_orphans_of_the_import_window_are_found_without_session_and_pid_file(server):
    def spawned():
        # Not what keeps track of shared resources, which ends by itself.
        return sorted(pid for title, pid in server.family().items() if "spawn" in title)

    server.go(environment=behave(import_seconds=20), tp_size=2)
    # The second one is begun when the first one has all that it needs to go on; half begun, it ends with its parent.
    wait_until(lambda: len(spawned()) >= 2)
    orphans = spawned()
    server.kill()
    server.pid_file.unlink()
    planned = stop(server, check=True)
    assert {row["role"] for row in planned["ended"]} == {"orphan"}
    result = succeeded(stop(server))
    assert orphans[0] in {row["pid"] for row in result["ended"]} and not any(map(is_alive, orphans))


def test_a_server_whose_pid_file_was_lost_is_told_to_stop_like_any_other(server):
    pid = up(server, behaviour=SLOW)
    server.pid_file.unlink()
    with server.requests(60) as statuses:
        result = succeeded(stop(server))
    assert statuses == [200] and not is_alive(pid)
    assert (result["ended"][0]["pid"], result["ended"][0]["signals"]) == (pid, ["SIGTERM"])


def test_two_instances_of_one_name_and_user_side_by_side_never_touch_each_other(server, host, tmp_path):
    with simulated_server(host, tmp_path / "beside") as beside:
        kept = up(beside, gpus=["1"])
        family = beside.family()
        up(server, gpus=["0"], behaviour={"ignore_term": True})
        result = succeeded(stop(server, grace=0.3))
        assert result["ended"][0]["action"] == "killed" and server.family() == {}
        assert beside.family() == family and is_alive(kept) and beside.generate() == 200


def test_check_mode_touches_nothing(server, shared):
    pid = up(server)
    files = {path: path.read_bytes() for path in shared["shm"].iterdir()}
    result = stop(server, check=True)
    assert result["changed"] and is_alive(pid) and server.pid_file.exists()
    assert [(row["pid"], row["action"]) for row in result["ended"]] == [(pid, "would_terminate")]
    assert {path: path.read_bytes() for path in shared["shm"].iterdir()} == files
    assert result["port"] == {"number": server.port, "free": False, "listener": "this instance"}


# ---- leftovers


def leave(folder, name, age=3600.0):
    """A file that somebody left so many seconds ago."""
    path = folder / name
    path.write_bytes(bytes(4096))
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return path


@contextlib.contextmanager
def user_of(path):
    """Another process that has a file mapped, and closed."""
    code = (
        "import mmap, os, sys, time; fd = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(fd, 4096); os.close(fd);"
        "print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def found(result, path):
    """What became of a file: action and reason, None where it is not spoken of."""
    rows = [row for row in result["leftovers"] if row["path"] == str(path)]
    return (rows[0]["action"], rows[0]["reason"]) if rows else None


def test_what_the_server_used_goes_with_it(server, shared):
    up(server, tp_size=2)
    made = [path for folder in shared.values() for path in folder.iterdir()]
    assert {path.name.partition("_")[0].partition("-")[0] for path in made} >= {"sglang", "sgl", "psm", "nccl"}
    result = succeeded(stop(server, grace=0))
    assert not any(path.exists() for path in made)
    assert {found(result, path)[0] for path in made if found(result, path)} == {"removed"}
    again = succeeded(stop(server))
    assert (again["changed"], again["leftovers"]) == (False, [])


def test_what_somebody_else_still_maps_stays(server, shared):
    up(server, tp_size=2)
    (segment,) = shared["shm"].glob("sglang_loads_*.shm")
    with user_of(segment) as pid:
        result = succeeded(stop(server, grace=0))
        action, reason = found(result, segment)
        assert action == "kept" and "PID %d" % pid in reason and segment.exists()
    # Now only its name tells, so it must be older than any other server of this user.
    os.utime(segment, (segment.stat().st_mtime - 3600,) * 2)
    assert found(succeeded(stop(server)), segment)[0] == "removed"


def test_leftovers_of_a_crash_are_told_apart_by_evidence(server, shared):
    """The server died before anybody could see what it had open."""
    up(server)
    dead = server.kill()
    for pid in server.family().values():
        with contextlib.suppress(ProcessLookupError):  # it may have followed the main process by itself
            os.kill(pid, signal.SIGKILL)
    for path in [path for folder in shared.values() for path in folder.iterdir()]:
        path.unlink()
    files = {
        name: leave(shared["shm"], name)
        for name in (
            "multi_tokenizer_args_%d" % dead,
            "multi_tokenizer_args_%d" % os.getpid(),
            "sgl_shm_mm_%d_abc" % dead,
            "sgl_shm_mm_1_abc",
            "sglang_loads_x_1.shm",
            "sglang_host_pool_7",
            "nccl-aB3dE9",
            "psm_1a2b3c4d",
            "sem.loky-1-x",
            "sglang_mapped.shm",
            "own-work.shm",
        )
    }
    newer = leave(shared["shm"], "sgl_shm_newer", age=-3600.0)
    mapped = leave(shared["shm"], "sgl_shm_mapped")
    linked = shared["shm"] / "sgl_shm_link"
    linked.symlink_to(files["own-work.shm"])
    double = leave(shared["shm"], "sgl_shm_double")
    os.link(double, shared["shm"] / "elsewhere")
    sock = shared["t"] / "tmpabcd1234"
    sock.write_bytes(b"")
    with user_of(mapped) as pid:
        planned = stop(server, check=True)
        assert all(path.exists() for path in files.values())
        result = succeeded(stop(server))
    for name in (
        "multi_tokenizer_args_%d" % dead,
        "sgl_shm_mm_%d_abc" % dead,
        "sglang_loads_x_1.shm",
        "sglang_host_pool_7",
    ):
        assert found(planned, files[name])[0] == "would_remove", name
        assert found(result, files[name])[0] == "removed" and not files[name].exists(), name
    kept = {
        files["multi_tokenizer_args_%d" % os.getpid()]: "PID %d of a live process" % os.getpid(),
        files["sgl_shm_mm_1_abc"]: "PID 1 of a live process",
        files["nccl-aB3dE9"]: "nothing shows whose it was",
        newer: "newer than this stop",
        mapped: "PID %d" % pid,
        double: "another name",
    }
    for path, words in kept.items():
        action, reason = found(result, path)
        assert action == "kept" and words in reason and path.exists(), path
    for path in (files["psm_1a2b3c4d"], files["sem.loky-1-x"], files["sglang_mapped.shm"], files["own-work.shm"]):
        assert found(result, path) is None and path.exists()
    assert found(result, linked) is None and linked.is_symlink() and sock.exists()


def test_what_a_neighbour_of_the_same_user_may_be_about_to_use_stays(server, host, shared, tmp_path):
    with simulated_server(host, tmp_path / "beside") as beside:
        beside.environment.update(server.environment)
        up(beside, gpus=["1"])
        theirs = set(shared["shm"].iterdir())
        fresh = leave(shared["shm"], "sglang_loads_fresh.shm", age=0.0)
        up(server, gpus=["0"])
        result = succeeded(stop(server, grace=0))
        action, reason = found(result, fresh)
        assert action == "kept" and "another server of this user" in reason
        assert all(path.exists() for path in theirs) and beside.generate() == 200


@pytest.mark.sglang_case(3)
def test_a_crash_loop_beside_a_neighbour_of_the_same_user_ends(server, host, shared, tmp_path):
    """What a killed server left is newer than the neighbour, and nobody uses it."""
    with simulated_server(host, tmp_path / "beside") as beside:
        beside.environment.update(server.environment)
        up(beside, gpus=["1"])
        theirs = set(shared["shm"].iterdir())
        pid = up(server, gpus=["0"], behaviour={"refuse_stale_segments": True})
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), 10)
        left = [path for path in set(shared["shm"].iterdir()) - theirs if path.name.startswith("sglang_loads_")]
        assert left
        for path in left:
            # Two minutes later; the neighbour was started before.
            os.utime(path, (time.time() - 120, time.time() - 120))
        result = succeeded(stop(server))
        assert [found(result, path)[0] for path in left] == ["removed"] * len(left)
        assert all(path.exists() for path in theirs) and beside.generate() == 200
        up(server, gpus=["0"], behaviour={"refuse_stale_segments": True})


def test_leftovers_may_be_left(server, shared):
    old = leave(shared["shm"], "sgl_shm_old")
    result = succeeded(stop(server, manager="process", remove_leftovers=False))
    action, reason = found(result, old)
    assert action == "kept" and "remove_leftovers" in reason and old.exists() and not result["changed"]


# ---- the port


def test_a_foreign_listener_is_named_with_who_it_is(server):
    up(server)
    succeeded(stop(server))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", server.port))
        listener.listen()
        for check in (False, True):
            result = stop(server, check=check)
            assert result["failed"] and not result["changed"] and result["port"]["free"] is False
            for word in ("PID %d" % os.getpid(), "port %d" % server.port, "of root" if os.geteuid() == 0 else "of "):
                assert word in result["msg"]
    assert succeeded(stop(server))["port"] == {"number": server.port, "free": True, "listener": ""}


# ---- a server that somebody started by hand


def answers(server, key=None):
    wait_until(lambda: server.request("/health", key=key) == 200, 30)


def test_a_server_started_by_hand_is_refused(server, by_hand):
    _shell, pid = by_hand()
    answers(server)
    for check in (True, False):
        result = stop(server, check=check, manager="process", port=server.port)
        assert result["failed"] and not result["changed"] and is_alive(pid)
        assert "PID %d" % pid in result["msg"] and "take_over" in result["msg"]
        assert result["unmanaged"]["pid"] == pid and result["unmanaged"]["listening"] is True
    assert "failed" not in stop(server, manager="process", port=1 + server.port % 60000)


def test_one_that_still_loads_is_refused_as_well(server, by_hand):
    _shell, pid = by_hand(STANDIN_LOAD_SECONDS="30")
    result = stop(server, manager="process", port=server.port)
    assert result["failed"] and "PID %d" % pid in result["msg"] and "about to listen" in result["msg"]
    # It cannot be taken over before it works.
    result = stop(server, manager="process", port=server.port, unmanaged="take_over")
    assert result["failed"] and "does not generate" in result["msg"] and is_alive(pid)
    assert not server.instance_dir.exists()


def test_one_is_taken_over_ended_and_brought_back(server, by_hand, shared):
    key = "kq-3f9a77d1c05e"
    shell, pid = by_hand("--tp", "2", "--api-key", key)
    answers(server)
    shown = server.host.module("gpu_info")["holders"]
    planned = stop(server, check=True, manager="process", port=server.port, unmanaged="take_over")
    assert planned["adopted"] and [row["pid"] for row in planned["ended"]] == [pid]
    assert not server.instance_dir.exists() and is_alive(pid)
    result = succeeded(stop(server, manager="process", port=server.port, unmanaged="take_over", drain_timeout=10))
    assert result["changed"] and result["adopted"] and result["drain"]["in_flight"] == 0
    assert (result["ended"][0]["pid"], result["ended"][0]["action"]) == (pid, "terminated")
    assert not is_alive(pid) and not any(is_alive(row["pid"]) for row in shown)
    assert shell.poll() is None, "the operator's shell was ended"
    assert list(shared["shm"].iterdir()) == [] and key not in json.dumps([planned, result])

    release = json.loads((server.instance_dir / "last_good" / "release.json").read_text())
    assert (server.instance_dir / "current").resolve() == (server.instance_dir / "last_good").resolve()
    assert (release["id"], release["origin"], release["manager"]) == (result["adopted"], "adopted", "process")
    assert release["secret_args"] == {"api-key": key} and key not in json.dumps(release["command"])
    assert release["command"][0] == sys.executable and release["command"][-2] == "--config"
    assert release["environment"]["NCCL_DEBUG"] == "WARN" and "SSH_TTY" not in release["environment"]
    assert (release["port"], release["working_directory"]) == (server.port, str(server.folder / "work"))
    assert release["effective"]["tp_size"] == 2 and release["sglang_version"] == "0.5.17"

    succeeded(server.module("sglang_release", state="restored"))
    succeeded(server.start())
    wait_until(lambda: server.request("/health") == 200, 30)
    assert [server.request("/v1/models", key=given) for given in (None, key)] == [401, 200]
    succeeded(stop(server))


def test_one_that_ignores_sigterm_is_ended_with_what_is_below_it(server, by_hand, host):
    shell, pid = by_hand("--tp", "2", STANDIN_IGNORE_TERM="true", STANDIN_OUTLIVE_PARENT="true")
    answers(server)
    workers = [row["pid"] for row in host.module("gpu_info")["holders"]]
    result = succeeded(stop(server, manager="process", port=server.port, unmanaged="take_over", grace=0.3))
    assert result["ended"][0]["action"] == "killed" and not any(map(is_alive, [pid, *workers]))
    assert shell.poll() is None


def test_none_is_taken_over_beside_a_server_of_the_instance(server, by_hand, host):
    pid = up(server, gpus=["1"])
    port, server.port = server.port, unused_port()
    _shell, theirs = by_hand()
    answers(server)
    result = stop(server, port=server.port, unmanaged="take_over")
    assert result["failed"] and not result["changed"] and result["adopted"] == ""
    assert "PID %d" % pid in result["msg"] and "kill %d" % theirs in result["msg"]
    assert is_alive(pid) and is_alive(theirs)
    server.port = port


def test_the_server_of_another_instance_is_no_server_started_by_hand(server, host, tmp_path):
    with simulated_server(host, tmp_path / "beside") as beside:
        kept = up(beside)
        result = stop(server, manager="process", port=beside.port, unmanaged="take_over")
        assert result["failed"] and "PID %d" % kept in result["msg"] and result["adopted"] == ""
        assert result["unmanaged"] is None and is_alive(kept) and beside.generate() == 200


# ---- a unit


class UnitHost:
    """The instance `main` of a host, run by a unit."""

    def __init__(self, server, groups):
        self.server = server
        self.root = server.folder / "systemd"
        self.root.mkdir()
        path = "/%s/%s" % (groups.slice, UNIT)
        config = {
            "unit_dir": str(server.folder / "unit_dir"),
            "groups": {UNIT: str(groups.systemd(path))},
            "paths": {UNIT: path},
        }
        (self.root / "config.json").write_text(json.dumps(config))
        binaries = self.root / "bin"
        binaries.mkdir()
        for name in ("systemctl", "journalctl"):
            words = [sys.executable, "-S", "-E", str(MANAGER), str(self.root), name]
            (binaries / name).write_text('#!/bin/sh\nexec %s "$@"\n' % " ".join(words))
            (binaries / name).chmod(0o755)
        server.host.environment["PATH"] = "%s:%s" % (binaries, os.environ["PATH"])

    def deploy(self, version="0.5.17", behaviour=None, **options):
        """Write the release and its unit."""
        server = self.server
        checked = succeeded(server.preflight(behave(version=version, **(behaviour or {})), **options))
        folders = {name: str(server.folder / name) for name in ("state_dir", "etc_dir", "unit_dir")}
        stored = ("command", "requested", "effective", "adjusted", "gpus")
        return succeeded(
            server.host.module(
                "sglang_release",
                state="present",
                manager="systemd",
                port=server.port,
                sglang_version=checked["sglang"]["version"],
                environment={
                    **checked["sglang"]["environment"],
                    **behave(version=version, **(behaviour or {})),
                    "LD_LIBRARY_PATH": str(server.host.library),
                },
                stop_timeout=20,
                **folders,
                **{name: checked["sglang"][name] for name in stored},
            )
        )

    def start(self, check=False, **options):
        folders = {name: str(self.server.folder / name) for name in ("state_dir", "run_dir", "log_dir")}
        return self.server.host.module("sglang_process", check=check, state="started", **folders, **options)

    @property
    def calls(self):
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture
def unit(server, groups):
    """The instance main of the host, run by a unit."""
    return UnitHost(server, groups)


@pytest.mark.parametrize(("version", "status"), [("0.5.17", 137), ("0.5.18", 137), ("0.5.23", 0)])
def test_a_unit_is_started_and_stopped_with_the_exit_status_of_its_version(unit, server, version, status):
    unit.deploy(version, tp_size=2)
    started = succeeded(unit.start())
    process = started["process"]
    assert started["changed"] and (process["manager"], process["unit"]) == ("systemd", UNIT)
    assert "systemctl --no-ask-password daemon-reload" in unit.calls
    assert "systemctl --no-ask-password enable %s" % UNIT in unit.calls
    again = succeeded(unit.start())
    assert again["changed"] is False and again["process"]["pid"] == process["pid"]
    wait_until(lambda: server.request("/health") == 200, 30)
    planned = stop(server, check=True)
    assert [(row["pid"], row["action"]) for row in planned["ended"]] == [(process["pid"], "would_terminate")]
    result = succeeded(stop(server, drain_timeout=10))
    assert result["drain"]["in_flight"] == 0
    assert (result["exit_status"], result["clean_exit"]) == (status, True)
    assert (result["ended"][0]["pid"], result["ended"][0]["signals"]) == (process["pid"], ["SIGTERM"])
    assert result["process"]["running"] is False and result["port"]["free"]
    again = succeeded(stop(server))
    assert (again["changed"], again["ended"]) == (False, [])


def test_a_unit_that_ends_with_another_status_is_warned_about(unit, server):
    unit.deploy("0.5.23")
    pid = succeeded(unit.start())["process"]["pid"]
    wait_until(lambda: server.request("/health") == 200, 30)
    # The release says 0.5.23, which ends with 0; the process that runs ends itself by SIGKILL.
    release = server.instance_dir / "current" / "release.json"
    release.write_text(release.read_text().replace('"sglang_version": "0.5.23"', '"sglang_version": "0.5.12"'))
    result = succeeded(stop(server))
    assert (result["exit_status"], result["clean_exit"]) == (0, False) and not is_alive(pid)
    assert "ends with 137" in warned(result)


def test_a_unit_that_does_not_end_is_killed_after_the_grace(unit, server, host):
    unit.deploy(behaviour={"ignore_term": True}, tp_size=2)
    pid = succeeded(unit.start())["process"]["pid"]
    wait_until(lambda: server.request("/health") == 200, 30)
    result = succeeded(stop(server, grace=0.5))
    assert (result["ended"][0]["pid"], result["ended"][0]["action"]) == (pid, "killed")
    assert result["clean_exit"] is False and host.module("gpu_info")["holders"] == []
    assert "systemctl --no-ask-password kill --signal=SIGKILL %s" % UNIT in unit.calls


def test_a_unit_that_dies_at_once_is_told_with_its_log(unit, server):
    unit.deploy()
    unit_file = server.folder / "unit_dir" / UNIT
    dies = "ExecStart=/bin/sh -c \"echo 'ModuleNotFoundError: No module named no_such_module'; exit 1\""
    lines = [dies if line.startswith("ExecStart=") else line for line in unit_file.read_text().splitlines()]
    unit_file.write_text("\n".join(lines) + "\n")
    result = unit.start()
    assert result["failed"] and result["changed"]
    assert result["reason"] == "missing_dependency" and "no_such_module" in json.dumps(result["log_tail"])
    assert result["exit_status"] == 1 and UNIT in result["msg"]


def test_a_unit_that_is_not_deployed(unit, server):
    result = unit.start(manager="systemd")
    assert result["failed"] and "no unit %s" % UNIT in result["msg"]
    assert succeeded(stop(server, manager="systemd"))["changed"] is False
    assert succeeded(unit.start(check=True, manager="systemd"))["changed"]


def test_an_instance_that_another_manager_runs_is_stopped_by_that_one(unit, server):
    unit.deploy(behaviour=SLOW)
    pid = succeeded(unit.start(enabled=False))["process"]["pid"]
    assert not [call for call in unit.calls if " enable " in call]
    wait_until(lambda: server.request("/health") == 200, 30)
    with server.requests(60) as statuses:
        result = succeeded(stop(server, manager="process"))
    assert statuses == [200] and not is_alive(pid)
    assert "systemctl --no-ask-password stop --no-block %s" % UNIT in unit.calls
    assert [(row["pid"], row["role"]) for row in result["ended"]][:1] == [(pid, "main")]


def test_a_unit_older_than_its_release_is_no_start_of_that_release(unit, server):
    unit.deploy()
    pid = succeeded(unit.start())["process"]["pid"]
    since = server.instance_dir / "current_since.json"
    noted = json.loads(since.read_text())
    noted["ticks"] += 60 * os.sysconf("SC_CLK_TCK")
    since.write_text(json.dumps(noted))
    result = unit.start()
    assert result["failed"] and "PID %d" % pid in result["msg"] and "Stop it first" in result["msg"]
    succeeded(stop(server))


def test_a_server_is_not_started_a_second_time_by_another_manager(unit, server):
    unit.deploy()
    pid = succeeded(unit.start())["process"]["pid"]
    result = unit.start(manager="process")
    assert result["failed"] and "by the manager systemd (PID %d): stop it first" % pid in result["msg"]
    succeeded(stop(server))
    assert not is_alive(pid)
