# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every holder is found: whoever the driver lists, and whoever it does not."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from .conftest import unused_port
from .control_groups import join
from .gpu_processes import (
    NEEDS_ROOT,
    PARENT,
    dead_pid,
    end_leader,
    held_by_child,
    holder_in_namespace,
    kill,
    script,
    state,
)
from .results import BUSY, FREE, actions, gpu, holder, process, uuid
from .waiting import is_alive, wait_until

# ---- parents that are gone


@pytest.mark.case(3, 13, 15, 24)
def test_the_child_of_a_killed_parent_is_reclaimed_alone(gpu_host):
    # The parent listens, as an engine's API server does; the port is free as soon as it is killed.
    port = unused_port()
    listens = "import socket; held = socket.create_server(('127.0.0.1', %d))\n" % port
    held = held_by_child(gpu_host, listens + PARENT, 0, 30000, "--title", "VLLM::EngineCore")
    held["parent"].kill()
    assert held["parent"].wait() == -signal.SIGKILL  # what a shell calls 137
    subprocess.run([sys.executable, "-c", "import socket; socket.create_server(('127.0.0.1', %d))" % port], check=True)
    busy = gpu_host.module("gpu_wait_free", gpus=["0"], **BUSY)
    assert busy["failed"] and str(held["pid"]) in busy["msg"]
    assert actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)) == {held["pid"]: "terminated"}
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


@pytest.mark.case(1)
def test_an_orphan_of_init_in_its_own_session_is_found_by_its_gpu(gpu_host):
    held = held_by_child(gpu_host, PARENT.replace("argv[1:]", "argv[1:], start_new_session=True"), 0, 20000)
    held["parent"].kill()
    held["parent"].wait()
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert actions(result) == {held["pid"]: "terminated"}


# ---- names


@pytest.mark.case(4, 9, 14)
@pytest.mark.parametrize("title", ["sglang::scheduler_TP0", "VLLM::EngineCore_DP0", "[kworker/0:1]"])
def test_no_name_hides_a_holder(gpu_host, title):
    held = gpu_host.hold(0, 700, "--title=" + title)
    assert [row["pid"] for row in gpu_host.module("gpu_info", gpus=["0"])["holders"]] == [held["pid"]]
    assert actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)) == {held["pid"]: "terminated"}


# ---- whom the driver does not list


@pytest.mark.case(73)
def test_an_unlisted_process_with_a_descriptor_is_found_and_ended(gpu_host):
    held = gpu_host.hold(0, 9000, "--kind", "H")
    info = gpu_host.module("gpu_info", gpus=["0"])
    row = holder(info, held["pid"])
    assert row["evidence"] == ["fd"] and row["attached"] == [uuid(info, 0)] and row["gpus"] == []
    assert row["memory_mib"] is None
    assert gpu(info, 0)["verdict"] == "busy"
    assert actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)) == {held["pid"]: "terminated"}
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


@pytest.mark.case(73)
def test_a_holder_with_mappings_and_no_descriptor_is_found(gpu_host):
    held = gpu_host.hold(0, 9000, "--kind", "H", "--mmap-only")
    row = holder(gpu_host.module("gpu_info", gpus=["0"]), held["pid"])
    assert row["evidence"] == ["map"]
    assert actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)) == {held["pid"]: "terminated"}


@pytest.mark.case(73)
@pytest.mark.parametrize("kind", ["C", "H"])
def test_a_thread_that_outlives_its_leader_is_a_holder(gpu_host, kind):
    held = gpu_host.hold(0, 9000, "--zombie-leader", "--kind", kind)
    wait_until(lambda: state(held["pid"]) == "Z")
    row = holder(gpu_host.module("gpu_info", gpus=["0"]), held["pid"])
    assert row["state"] == "Z" and "fd" in row["evidence"]
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5, kill_timeout=5)
    assert process(result, held["pid"])["action"] in ("terminated", "killed")
    assert result["changed"] and not result.get("failed")
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


@pytest.mark.case(34)
def test_an_unlisted_child_of_a_dead_parent_is_found_by_its_descriptor(gpu_host):
    held = gpu_host.hold(0, 9000, "--kind", "H", "--fork-child")
    end_leader(held)
    row = holder(gpu_host.module("gpu_info", gpus=["0"]), held["child"])
    assert row["evidence"] == ["fd"]
    assert actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)) == {held["child"]: "terminated"}


@pytest.mark.case(35)
@pytest.mark.parametrize("own_session", [True, False])
def test_behind_a_dead_listed_pid_its_living_child_is_ended(gpu_host, own_session):
    held = gpu_host.hold(0, 9000, "--fork-child", start_new_session=own_session)
    end_leader(held)
    info = gpu_host.module("gpu_info", gpus=["0"])
    assert [row["pid"] for row in info["holders"]] == sorted([held["pid"], held["child"]])
    # In the dead one's session it is its heir, and uses the GPU; elsewhere it only has it open.
    assert holder(info, held["child"])["gpus"] == ([uuid(info, 0)] if own_session else [])
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5, kill_timeout=5)
    assert not result.get("failed"), result["msg"]
    assert process(result, held["child"])["action"] == "terminated"
    # The dead number is not signalled; it has left the driver's list by the end.
    assert process(result, held["pid"])["signals"] == []
    assert process(result, held["pid"])["action"] in ("vanished", "unresolved")
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


@pytest.mark.case(35)
def test_an_heir_uses_what_its_dead_parent_used_also_beside_other_gpus(gpu_host):
    held = gpu_host.hold(0, 9000, "--attach", 2, "--fork-child", start_new_session=True)
    end_leader(held)
    # It has GPU 2 open, outside the selection, and uses GPU 0 beyond doubt.
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5, kill_timeout=5)
    assert process(result, held["child"])["action"] == "terminated"


@pytest.mark.case(37)
def test_a_dead_listed_pid_with_nobody_behind_it_is_unattributed(gpu_host):
    pid = dead_pid()
    gpu_host.fakegpu("proc", 0, pid, 10000)
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], **BUSY)
    assert waited["failed"] and waited["samples"] > 2
    assert gpu(waited, 0)["verdict"] == "busy"
    assert "reset" in waited["msg"] and str(pid) in waited["msg"]
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=0.2, kill_timeout=0.5)
    assert result["failed"] and result["reason"] == "unresolved" and result["changed"] is False
    assert actions(result) == {pid: "unresolved"}
    assert process(result, pid)["signals"] == []


@pytest.mark.case(35, 37)
def test_the_importer_of_ipc_memory_is_ended_after_its_exporter(gpu_host):
    exporter = gpu_host.hold(0, 9000)
    importer = gpu_host.hold(None, 0, "--attach", 0, "--share-of", exporter["pid"])
    info = gpu_host.module("gpu_info", gpus=["0"])
    assert holder(info, importer["pid"])["attached"] == [uuid(info, 0)]
    exporter["process"].kill()
    exporter["process"].wait()
    wait_until(lambda: any((gpu_host.folder / "alloc").glob("0.%d.*" % importer["pid"])))
    # Now the memory, and the driver's row, are the importer's.
    assert holder(gpu_host.module("gpu_info", gpus=["0"]), importer["pid"])["memory_mib"] == 9000
    assert actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)) == {importer["pid"]: "terminated"}
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


# ---- whom it would be wrong to take for a holder


@pytest.mark.case(44)
def test_zombies_hold_nothing(gpu_host):
    held = [held_by_child(gpu_host, PARENT, 0, 300) for _number in range(3)]
    for each in held:
        kill(each["pid"])
    assert [state(each["pid"]) for each in held] == ["Z"] * 3
    gpu_host.fakegpu("settle")
    info = gpu_host.module("gpu_info", gpus=["0"])
    assert info["holders"] == [] and gpu(info, 0)["verdict"] == "free"
    result = gpu_host.module("gpu_reclaim", gpus=["0"])
    assert result["processes"] == [] and result["changed"] is False


@pytest.mark.case(44)
def test_a_zombie_that_the_driver_still_lists_is_not_signalled(gpu_host):
    held = held_by_child(gpu_host, PARENT, 0, 5000)
    gpu_host.fakegpu("proc", 0, held["pid"], 5000)
    kill(held["pid"])
    gpu_host.fakegpu("settle")
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=0.2, kill_timeout=0.4)
    row = process(result, held["pid"])
    assert (row["action"], row["state"], row["signals"]) == ("unresolved", "Z", [])
    assert result["failed"] and result["changed"] is False


@pytest.mark.case(58)
def test_a_gpu_that_is_merely_open_does_not_make_a_process_its_user(gpu_host):
    held = gpu_host.hold(0, 9000, "--attach", 1)
    info = gpu_host.module("gpu_info")
    row = holder(info, held["pid"])
    assert row["gpus"] == [uuid(info, 0)] and row["attached"] == [uuid(info, 1)]
    assert gpu(info, 1)["verdict"] == "free"
    result = gpu_host.module("gpu_reclaim", gpus=["1"])
    assert actions(result) == {held["pid"]: "skipped"} and result["changed"] is False
    assert is_alive(held["pid"]) and not result.get("failed")
    assert not gpu_host.module("gpu_wait_free", gpus=["1"], **FREE).get("failed")
    # With the GPU that it uses, it is a target.
    assert actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)) == {held["pid"]: "terminated"}


@pytest.mark.case(58, 73)
def test_a_monitor_is_no_holder_unless_all_that_have_a_gpu_open_shall_end(gpu_host):
    monitor = gpu_host.hold(None, 0, "--monitor", "--title", "nvtop")
    held = gpu_host.hold(0, 9000)
    info = gpu_host.module("gpu_info")
    assert holder(info, monitor["pid"])["attached"] == sorted(row["uuid"] for row in info["gpus"])
    assert gpu(info, 1)["verdict"] == "free"
    result = gpu_host.module("gpu_reclaim", grace=5)
    assert actions(result) == {monitor["pid"]: "skipped", held["pid"]: "terminated"}
    assert not gpu_host.module("gpu_wait_free", **FREE).get("failed")
    everybody = gpu_host.module("gpu_reclaim", attached="any", grace=5)
    assert actions(everybody) == {monitor["pid"]: "terminated"}


@pytest.mark.case(58, 73)
@pytest.mark.parametrize(
    ("attached", "action"), [("exclusive", "terminated"), ("any", "terminated"), ("never", "skipped")]
)
def test_the_user_says_what_a_descriptor_alone_means(gpu_host, attached, action):
    held = gpu_host.hold(None, 0, "--attach", 1)
    result = gpu_host.module("gpu_reclaim", gpus=["1"], attached=attached, grace=5)
    assert actions(result) == {held["pid"]: action}


@pytest.mark.case(58)
@pytest.mark.parametrize(("attached", "action"), [("exclusive", "skipped"), ("any", "terminated")])
def test_one_that_has_other_gpus_open_ends_only_where_any_is_asked_for(gpu_host, attached, action):
    held = gpu_host.hold(None, 0, "--attach", 1, "--attach", 2)
    result = gpu_host.module("gpu_reclaim", gpus=["1"], attached=attached, grace=5)
    assert actions(result) == {held["pid"]: action}


@pytest.mark.case(44, 48)
def test_a_pid_that_the_kernel_has_given_to_somebody_else_is_not_signalled(gpu_host):
    # The driver lists a number that now is the number of a process which has no GPU open at all.
    innocent = script(gpu_host, "import time; print('ready', flush=True); time.sleep(600)")
    assert innocent.stdout.readline()
    gpu_host.fakegpu("proc", 0, innocent.pid, 5000)
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=0.2, kill_timeout=0.4)
    assert actions(result) == {innocent.pid: "unresolved"} and result["failed"]
    assert is_alive(innocent.pid)


@pytest.mark.case(48)
def test_processes_that_end_while_they_are_read_do_no_harm(gpu_host):
    churn = (
        "import os, time, fakegpu\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 30\n"
        "while time.monotonic() < end:\n"
        "    if os.fork() == 0:\n"
        "        fakegpu.allocate(0, 400); nodes = fakegpu.open_nodes([0]); os._exit(0)\n"
        "    os.wait()\n"
    )
    busy = [script(gpu_host, churn) for _number in range(2)]
    for each in busy:
        assert each.stdout.readline()
    for _look in range(2):
        info = gpu_host.module("gpu_info")
        assert not info.get("failed"), info["msg"]
        assert gpu(info, 1)["verdict"] == "free"
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], timeout=0.6, stable_for=0.5, interval=0.01)
    assert waited["failed"] and waited.get("samples", 0) > 5, waited["msg"]


# ---- namespaces


@NEEDS_ROOT
@pytest.mark.case(39)
def test_a_holder_in_a_pid_namespace_is_ended_from_the_host(gpu_host):
    held = holder_in_namespace(gpu_host, 0, 9000)
    row = holder(gpu_host.module("gpu_info", gpus=["0"]), held["pid"])
    assert row["namespace_pid"] == held["inside"] == 1
    # The first process of a namespace is deaf to SIGTERM from outside.
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=0.2)
    assert actions(result) == {held["pid"]: "killed"}
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


@pytest.mark.case(2)
def test_a_scheduler_outside_its_services_control_group_is_found_and_said_to_be_outside(services):
    server = services.systemd("llm.service", "--gpu", 0, "--mib", 9000)
    outside = services.host.hold(1, 9000, "--title", "sglang::scheduler_TP1")
    job = "/%s/uid_0/job_7" % services.groups.slice
    join(services.groups.systemd(job), outside["pid"])
    info = services.host.module("gpu_info")
    main = server.pid
    assert holder(info, main)["unit"] == "llm.service"
    row = holder(info, outside["pid"])
    assert row["unit"] is None and row["cgroup"] == job
    # A filter by unit leaves it out, and says why it stays.
    narrow = services.host.module("gpu_reclaim", units=["llm.*"], grace=5)
    assert actions(narrow) == {main: "terminated", outside["pid"]: "skipped"}
    assert "unit" in process(narrow, outside["pid"])["why"]
    assert actions(services.host.module("gpu_reclaim", grace=5)) == {outside["pid"]: "terminated"}


# ---- a child that has a GPU of its own

FORK_WITH_ITS_OWN = (
    "import os, fakegpu, time\n"
    "held = fakegpu.allocate(0, 6000); nodes = fakegpu.open_nodes([0, 1])\n"
    "child = os.fork()\n"
    "if child == 0:\n"
    "    own = fakegpu.allocate(1, 4000)\n"
    "    print('child', os.getpid(), flush=True)\n"
    "    time.sleep(60)\n"
    "time.sleep(60)\n"
)


@pytest.mark.case(35, 58)
@pytest.mark.parametrize("parent_lives", [True, False])
def test_a_child_that_uses_a_gpu_outside_the_selection_is_no_heir(gpu_host, parent_lives):
    # Forked from a process on GPU 0, it computes on GPU 1 and has inherited GPU 0.
    parent = script(gpu_host, FORK_WITH_ITS_OWN, start_new_session=True)
    child = int(parent.stdout.readline().split()[1])
    gpu_host.others.append(child)
    if not parent_lives:
        parent.kill()
        parent.wait()
    planned = gpu_host.module("gpu_reclaim", check=True, gpus=["0"])
    assert process(planned, child)["action"] == "skipped" and "GPU 1" in process(planned, child)["why"]
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=1, kill_timeout=1)
    assert process(result, child)["action"] == "skipped" and is_alive(child)
    # It keeps the memory of GPU 0 all the same, so the task fails and names it.
    assert result["failed"] and result["reason"] == "unresolved" and str(child) in result["msg"]
    both = gpu_host.module("gpu_reclaim", gpus=["0", "1"], grace=5)
    assert not both.get("failed") and not is_alive(child)


@pytest.mark.case(34, 35)
def test_a_child_with_other_gpus_open_goes_with_its_parent_as_planned(gpu_host):
    held = gpu_host.hold(0, 9000, "--fork-child", "--attach", 1, start_new_session=True)
    planned = gpu_host.module("gpu_reclaim", check=True, gpus=["0"])
    assert actions(planned) == {held["pid"]: "would_terminate", held["child"]: "would_terminate"}
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert set(actions(result).values()) == {"terminated"} and sorted(actions(result)) == sorted(actions(planned))
    assert not result.get("failed")
