# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stops from bug reports that leave something behind, or cut something off."""

from __future__ import annotations

import os
import socket
import time

import pytest

from .conftest import simulated_server
from .server import EAGLE3, behave, succeeded
from .waiting import is_alive, wait_until

# Answers take so many seconds at this speed; a stop has to wait for them, or not.
SLOW = {"tokens_per_second": 100}


def serve(server, behaviour=None, **options):
    """Start a server and see that it generates; SGLang's own parser has no part in this."""
    server.go(environment=behave(**(behaviour or {})), parser="skip", **options)
    succeeded(server.wait(prompts=["x"], max_new_tokens=16))


def spawned(server):
    """PIDs of the processes that a server has started and that have no names yet."""
    return [pid for title, pid in server.family().items() if "spawn_main" in title]


# ---- orphans


@pytest.mark.sglang_case(2)
@pytest.mark.parametrize("options", [{"dp_size": 2}, {"tp_size": 2}, {}], ids=["dp", "tp", "single"])
def test_workers_that_outlive_their_server_are_named_and_then_ended(host, server, options):
    serve(server, {"outlive_parent": True}, **options)
    server.kill()
    orphans = [title for title in server.family() if "scheduler" in title]
    gate = host.module("gpu_wait_free", timeout=0.4, stable_for=0.1, interval=0.05)
    assert gate["failed"]
    for title in orphans:
        assert title in gate["msg"] or title in str(gate["gpus"]) + str(gate["holders"])
    stopped = server.stop()
    assert server.family() == {}
    assert {row["name"] for row in stopped["ended"]} >= set(orphans)


@pytest.mark.sglang_case(2, "orphans from the import window")
@pytest.mark.parametrize("options", [{"dp_size": 2}, {"tp_size": 2}, {}], ids=["dp", "tp", "single"])
def test_orphans_from_the_import_window_are_ended(host, server, options):
    server.go(environment=behave(import_seconds=5), parser="skip", **options)
    wait_until(lambda: spawned(server))
    server.kill()
    orphans = spawned(server)
    assert orphans and not [title for title in server.family() if title.startswith("sglang::")]
    server.stop()
    assert server.family() == {} and not any(map(is_alive, orphans))


@pytest.mark.sglang_case("orphans from the import window")
@pytest.mark.parametrize("options", [{"dp_size": 2}, {"tp_size": 2}], ids=["dp", "tp"])
def test_orphans_that_have_got_what_they_came_for_are_ended(host, server, options):
    server.go(environment=behave(import_seconds=4), parser="skip", **options)
    # All of them, or the one that is there would wait for the others: two schedulers or their controller, and the
    # detokenizer.
    wait_until(lambda: len(spawned(server)) == (3 if "tp_size" in options else 2))
    server.kill()
    wait_until(lambda: any("scheduler" in title for title in server.family()), 30)
    wait_until(lambda: host.module("gpu_info")["holders"], 30)
    server.stop()
    assert server.family() == {}


@pytest.mark.sglang_case(2)
def test_another_instances_processes_of_the_same_names_are_left_alone(host, server, tmp_path):
    stranger = host.hold(3, 1000, "--title", "sglang::scheduler_DP0_TP0")
    serve(server, {"outlive_parent": True}, dp_size=2)
    server.kill()
    succeeded(server.module("sglang_process", state="stopped", grace=10))
    assert server.family() == {} and is_alive(stranger["pid"])


# ---- leaving in good order


@pytest.mark.sglang_case(28, 29)
@pytest.mark.parametrize("version", ["0.5.7", "0.5.17", "0.5.18", "0.5.19", "0.5.23"])
def test_a_unit_tells_the_main_process_alone_and_knows_how_its_version_ends(server, version):
    checked = succeeded(server.preflight(behave(version=version)))
    succeeded(server.present(checked, manager="systemd"))
    lines = (server.folder / "unit_dir" / "sglang-main.service").read_text().splitlines()
    early = int(version.rpartition(".")[2]) <= 18
    accepted = [line for line in lines if line.startswith("SuccessExitStatus=")]
    assert accepted == (["SuccessExitStatus=137 SIGKILL"] if early else [])
    assert [line for line in lines if line.startswith("KillMode=")] == ["KillMode=mixed"]
    assert {"KillSignal=SIGTERM", "SendSIGKILL=yes", "Restart=no"} <= set(lines)


@pytest.mark.sglang_case(28)
@pytest.mark.parametrize("version", ["0.5.12", "0.5.17", "0.5.23"])
def test_a_server_that_kills_itself_has_stopped_well(server, version):
    serve(server, {"version": version}, tp_size=2)
    main = server.stop()["ended"][0]
    assert (main["role"], main["action"], main["signals"]) == ("main", "terminated", ["SIGTERM"])
    assert server.family() == {}


@pytest.mark.sglang_case(29)
@pytest.mark.parametrize("version", ["0.5.7", "0.5.17", "0.5.23"])
def test_requests_under_way_are_finished_because_their_workers_are_not_told(server, version):
    serve(server, dict(SLOW, version=version), tp_size=2)
    with server.requests(250, 230) as statuses:
        stopped = server.stop(drain_timeout=0)
    assert statuses == [200, 200]
    assert [(row["role"], row["signals"]) for row in stopped["ended"]][:1] == [("main", ["SIGTERM"])]


@pytest.mark.sglang_case("drains longer than it may")
@pytest.mark.parametrize("version", ["0.5.12", "0.5.23"])
def test_a_drain_without_an_end_is_ended_after_the_grace(host, server, version):
    serve(server, {"version": version, "hang_after_requests": 1}, tp_size=2)
    with server.requests(16) as statuses:
        stopped = server.stop(grace=0.6, drain_timeout=0.4)
    assert statuses == [0]
    main = stopped["ended"][0]
    assert (main["action"], main["signals"]) == ("killed", ["SIGTERM", "SIGKILL"])
    assert server.family() == {} and host.module("gpu_info")["holders"] == []


@pytest.mark.sglang_case("drains longer than it may")
@pytest.mark.parametrize("version", ["0.5.7", "0.5.12", "0.5.23"])
def test_requests_are_waited_for_before_the_server_is_told(server, version):
    serve(server, dict(SLOW, version=version), extra_args=["--enable-metrics"])
    with server.requests(250) as statuses:
        stopped = server.stop(drain_timeout=5)
    assert statuses == [200]
    assert stopped["drain"]["asked"] and stopped["drain"]["in_flight"] == 0


# ---- memory


@pytest.mark.sglang_case(36)
def test_memory_that_comes_back_late_is_waited_for_and_nobody_is_killed_twice(host, server):
    delay = 1.5
    serve(server, tp_size=2)
    host.fakegpu("set", "release_delay", delay)
    began = time.monotonic()
    first = succeeded(server.module("sglang_process", state="stopped", grace=10))
    succeeded(host.module("gpu_wait_free", timeout=20, stable_for=0.1, interval=0.05))
    assert time.monotonic() - began >= delay
    assert len({row["pid"] for row in first["ended"]}) == len(first["ended"])
    again = succeeded(server.module("sglang_process", state="stopped", grace=10))
    assert (again["changed"], again["ended"]) == (False, [])


@pytest.mark.sglang_case(36)
@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
def test_a_server_that_takes_long_to_unpin_its_memory_is_not_killed(server, version):
    serve(server, {"version": version, "unpin_seconds": 1.0}, tp_size=2)
    stopped = server.stop()
    assert stopped["ended"][0]["action"] == "terminated" and stopped["ended"][0]["seconds"] >= 1.0


@pytest.mark.sglang_case("memory that never comes back")
def test_memory_that_never_comes_back_fails_and_kills_nobody(host, server):
    serve(server)
    succeeded(server.module("sglang_process", state="stopped", grace=10))
    host.fakegpu("set", "gpu", 0, "base=40000")
    result = host.module("gpu_wait_free", timeout=0.5, stable_for=0.1, interval=0.05)
    assert result["failed"] and "GPU 0" in result["msg"]


# ---- what is left


@pytest.fixture
def shared(server, tmp_path):
    """The folders that are the host's /dev/shm and /tmp for the server and the modules."""
    folders = {"STANDIN_SHM_DIR": tmp_path / "shm", "STANDIN_TMP_DIR": tmp_path / "t"}
    for name, folder in folders.items():
        folder.mkdir()
        server.host.environment[name] = server.environment[name] = str(folder)
    return folders


def names(shared):
    return sorted(path.name for folder in shared.values() for path in folder.iterdir())


@pytest.mark.sglang_case(3)
@pytest.mark.parametrize(
    ("version", "how"),
    [("0.5.17", "killed"), ("0.5.23", "grace"), ("0.5.7", "orderly"), ("0.5.17", "orderly"), ("0.5.23", "orderly")],
)
def test_a_stop_leaves_none_of_the_servers_files_and_all_of_others(server, shared, version, how):
    others = ["psm_1a2b3c4d", "nccl-Zz12aB", "another-programs.shm", "multi_tokenizer_args_%d" % os.getpid()]
    for name in others:
        (shared["STANDIN_SHM_DIR"] / name).write_bytes(bytes(16))
    (shared["STANDIN_TMP_DIR"] / "tmpabcd1234").write_bytes(bytes(16))
    serve(server, {"version": version, "ignore_term": how == "grace"}, tp_size=2, **EAGLE3)
    assert len(names(shared)) > len(others) + 5
    succeeded(server.module("sglang_process", state="stopped", grace={"killed": 0, "grace": 0.5, "orderly": 10}[how]))
    assert names(shared) == sorted([*others, "tmpabcd1234"])


@pytest.mark.sglang_case(3)
def test_what_another_server_has_mapped_stays(host, server, shared, tmp_path):
    with simulated_server(host, tmp_path / "beside") as beside:
        beside.environment.update({name: str(folder) for name, folder in shared.items()})
        serve(beside, gpus=["1"])
        kept = names(shared)
        serve(server, gpus=["0"])
        succeeded(server.module("sglang_process", state="stopped", grace=0))
        assert set(kept) <= set(names(shared))
        assert beside.generate() == 200


# ---- the port


@pytest.mark.sglang_case(26)
@pytest.mark.parametrize("closing", [True, False], ids=["closing", "taken"])
def test_the_port_is_free_after_the_stop_or_its_holder_is_named(server, closing):
    serve(server)
    succeeded(server.module("sglang_process", state="stopped", grace=10))
    if closing:
        # The requests of the proof have left connections in TIME_WAIT, and those keep nobody from it.
        succeeded(server.module("sglang_process", state="stopped", port=server.port))
        succeeded(server.start())
        return
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", server.port))
        listener.listen()
        result = server.module("sglang_process", state="stopped", port=server.port)
        assert result["failed"] and "PID %d" % os.getpid() in result["msg"] and str(server.port) in result["msg"]
        refused = server.module("sglang_process", state="started")
        assert refused["failed"] and str(server.port) in refused["msg"]
