# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts a holder again: it is named, it is not fought, and it is stopped where that is asked for."""

from __future__ import annotations

import json
import time

import pytest

from .control_groups import freeze, join, members, thaw
from .gpu_processes import FORKS_AGAIN, PARENT, children, held_by_child, kill, state
from .results import FREE, actions, holder, process
from .waiting import is_alive, wait_until

HOLD = ("--gpu", 0, "--mib", 9000)


def start(services, manager, **options):
    """A service of one of the managers, and the word by which a message must name it."""
    if manager == "systemd":
        return services.systemd("llm.service", *HOLD, **options), "llm.service"
    return getattr(services, manager)("llm", *HOLD, **options), "llm"


MANAGERS = pytest.mark.parametrize("manager", ["systemd", "docker", "supervisord"])


# ---- without stop_services


@pytest.mark.case(31, 32)
@MANAGERS
def test_one_that_a_supervisor_revives_is_ended_once_and_the_supervisor_named(services, manager):
    service, name = start(services, manager, restart=True)
    pid = service.pid
    result = services.host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert result["failed"] and result["changed"] and result["reason"] == "retaken"
    assert process(result, pid)["action"] == "terminated"
    assert name in result["msg"] and "stop" in result["msg"]
    service.wait_running()
    # Ended once: the new one lives, and was not signalled.
    assert service.state["restarts"] == 1 and is_alive(service.pid)
    assert not any(" stop" in call for call in services.calls)


@pytest.mark.case(31, 32)
@pytest.mark.parametrize("manager", ["systemd", "docker"])
def test_a_restart_that_is_still_to_come_is_noticed(services, manager):
    # The GPU is free for a moment; whoever takes that for success finds it taken ten seconds later.
    service, name = start(services, manager, restart=True, restart_delay=20)
    began = time.monotonic()
    result = services.host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert time.monotonic() - began < 10
    assert result["failed"] and result["reason"] == "retaken" and name in result["msg"]
    assert service.state["active"] == "activating"


@pytest.mark.case(31, 32)
def test_a_parent_that_forks_again_is_named(gpu_host):
    held = held_by_child(gpu_host, FORKS_AGAIN, 0, 9000, start_new_session=True)
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert result["failed"] and result["changed"] and result["reason"] == "retaken"
    assert str(held["parent"].pid) in result["msg"]
    assert held["parent"].poll() is None
    for pid in children(held["parent"].pid):
        gpu_host.others.append(pid)
        assert is_alive(pid)


@pytest.mark.case(31)
def test_a_service_that_does_not_come_back_is_no_failure(services):
    service, _name = start(services, "systemd")
    pid = service.pid
    result = services.host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert not result.get("failed") and actions(result) == {pid: "terminated"}


# ---- with stop_services


@pytest.mark.case(31, 32)
@MANAGERS
def test_the_supervisor_is_stopped_first_where_that_is_asked_for(services, manager):
    service, _name = start(services, manager, restart=True)
    pid = service.pid
    planned = services.host.module("gpu_reclaim", check=True, gpus=["0"], stop_services=True)
    assert actions(planned) == {pid: "would_stop_service"} and planned["changed"]
    assert is_alive(pid) and not any(" stop" in call for call in services.calls)
    result = services.host.module("gpu_reclaim", gpus=["0"], stop_services=True, service_timeout=10)
    assert not result.get("failed"), result["msg"]
    assert result["changed"] and actions(result) == {pid: "stopped_service"}
    assert process(result, pid)["signals"] == []
    assert service.state == {"active": "inactive", "sub": "dead", "pid": 0, "restarts": 0}
    assert not services.host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")
    again = services.host.module("gpu_reclaim", gpus=["0"], stop_services=True)
    assert again["changed"] is False and again["processes"] == []


@pytest.mark.case(31)
def test_only_the_services_of_targets_are_stopped(services):
    ended = services.docker("mine", *HOLD, restart=True)
    kept = services.docker("other", "--gpu", 1, "--mib", 9000, restart=True)
    result = services.host.module("gpu_reclaim", gpus=["0"], stop_services=True, service_timeout=10)
    assert not result.get("failed"), result["msg"]
    assert ended.state["active"] == "inactive" and kept.state["restarts"] == 0 and is_alive(kept.pid)


@pytest.mark.case(31)
@pytest.mark.parametrize("manager", ["systemd", "docker"])
def test_a_service_that_also_works_on_other_gpus_is_not_stopped(services, manager):
    service, name = start(services, manager, restart=True)
    beside = services.host.hold(2, 9000)
    join(services.groups.systemd(service.spec["path"]), beside["pid"])
    pid = service.pid
    result = services.host.module("gpu_reclaim", gpus=["0"], stop_services=True)
    assert result["failed"] and result["reason"] == "service" and result["changed"] is False
    assert name in result["msg"] and str(beside["pid"]) in result["msg"]
    assert is_alive(pid) and is_alive(beside["pid"]) and service.pid == pid


@pytest.mark.case(31)
@pytest.mark.parametrize("unit", ["ssh.service", "user@0.service", "session-3.scope"])
def test_a_unit_that_runs_other_people_s_processes_is_not_stopped(services, unit):
    held = services.host.hold(0, 9000)
    bystander = services.systemd(unit, "--gpu", 3, "--mib", 10)
    join(services.groups.systemd(bystander.spec["path"]), held["pid"])
    kill_before = bystander.pid
    result = services.host.module("gpu_reclaim", gpus=["0"], stop_services=True, grace=5)
    # It is a session or job of somebody's: its process is ended as any other, its unit left alone.
    assert actions(result) == {held["pid"]: "terminated"}
    assert is_alive(kill_before) and not any(" stop" in call for call in services.calls)


@pytest.mark.case(33)
def test_a_stop_that_leaves_processes_behind_is_not_taken_for_one(services):
    service = services.systemd("llm.service", *HOLD, stop_timeout=0.2)
    pid = service.pid
    frozen = services.groups.freezer()
    join(frozen, pid)
    freeze(frozen)
    began = time.monotonic()
    result = services.host.module(
        "gpu_reclaim", gpus=["0"], stop_services=True, service_timeout=5, grace=0.2, kill_timeout=0.3
    )
    assert time.monotonic() - began < 12
    # systemd says that the unit is inactive, and its control group is not empty.
    assert service.state["active"] == "inactive" and members(services.groups.mine[0]) == [pid]
    assert result["failed"] and result["reason"] == "survivors"
    row = process(result, pid)
    assert (row["action"], row["state"]) == ("survived", "D")
    assert str(pid) in result["msg"]


@pytest.mark.case(42, 75)
@pytest.mark.parametrize(("manager", "command"), [("docker", "docker"), ("systemd", "systemctl")])
def test_a_manager_that_hangs_is_given_up_in_time(services, manager, command):
    service, name = start(services, manager, restart=True)
    pid = service.pid
    frozen = services.groups.freezer()
    join(frozen, pid)
    freeze(frozen)
    services.hang(command + " stop")
    began = time.monotonic()
    result = services.host.module(
        "gpu_reclaim", gpus=["0"], stop_services=True, service_timeout=1, grace=0.2, kill_timeout=0.3
    )
    assert time.monotonic() - began < 12
    assert result["failed"] and result["reason"] in ("service", "survivors")
    assert any(call.startswith(command + " stop") for call in services.calls)
    assert name in result["msg"] and str(pid) in result["msg"]
    assert holder(result, pid)["state"] == "D"


@pytest.mark.case(42, 75)
def test_a_manager_that_answers_nothing_keeps_nobody_from_being_ended_without_it(services):
    services.hang("docker")
    service, _name = start(services, "docker")
    pid = service.pid
    began = time.monotonic()
    result = services.host.module("gpu_reclaim", gpus=["0"], grace=5, service_timeout=1)
    assert time.monotonic() - began < 30
    assert process(result, pid)["action"] == "terminated" and result["changed"]


@pytest.mark.case(43)
def test_a_zombie_in_a_container_that_cannot_be_stopped_is_in_the_report(services):
    container = services.docker("llm", "--gpu", 0, "--mib", 10, "--kind", "H")
    held = held_by_child(services.host, PARENT, 0, 5000, "--fork-child")
    for pid in (held["parent"].pid, held["pid"], held["child"]):
        join(services.groups.systemd(container.spec["path"]), pid)
    kill(held["pid"])
    frozen = services.groups.freezer()
    join(frozen, held["child"])
    freeze(frozen)
    assert state(held["pid"]) == "Z"
    services.hang("docker stop")
    began = time.monotonic()
    result = services.host.module(
        "gpu_reclaim", gpus=["0"], stop_services=True, grace=0.2, kill_timeout=0.4, service_timeout=1
    )
    assert time.monotonic() - began < 12
    assert result["failed"] and result["changed"] is False
    zombie = process(result, held["pid"])
    assert (zombie["state"], zombie["signals"]) == ("Z", [])
    assert process(result, held["child"])["action"] == "survived"
    thaw(frozen)


# ---- containers


@pytest.mark.case(20)
def test_a_worker_whose_container_is_gone_is_reclaimed_as_an_orphan(services):
    container = services.docker("llm", *HOLD)
    pid, identifier = container.pid, container.spec["id"]
    services.remove(container)
    row = holder(services.host.module("gpu_info", gpus=["0"]), pid)
    assert row["container"]["runtime"] == "docker" and row["container"]["id"] == identifier
    result = services.host.module("gpu_reclaim", gpus=["0"], grace=5, stop_services=True)
    assert actions(result) == {pid: "terminated"} and not result.get("failed"), result.get("msg")
    assert "orphan" in json.dumps(result) and identifier[:12] in json.dumps(result)


@pytest.mark.case(8)
@pytest.mark.parametrize("by", ["llm-0", "DOCKER", "short"])
def test_of_two_containers_only_the_named_one_s_process_ends(services, by):
    ended = services.docker("llm-0", *HOLD, "--title", "sglang::scheduler_TP0")
    kept = services.docker("llm-1", *HOLD, "--title", "sglang::scheduler_TP0")
    names = {"DOCKER": "docker:llm-0", "short": ended.spec["id"][:12]}
    pid = ended.pid
    result = services.host.module("gpu_reclaim", gpus=["0"], containers=[names.get(by, by)], grace=5)
    assert actions(result) == {pid: "terminated", kept.pid: "skipped"}
    row = process(result, pid)
    assert row["container"] == {"runtime": "docker", "id": ended.spec["id"], "name": "llm-0"}
    assert is_alive(kept.pid)


@pytest.mark.case(12)
@pytest.mark.parametrize("option", [{"protect_units": ["cache*.service"]}, {"allow_units": ["cache-0.service"]}])
def test_a_unit_that_may_stay_stays(services, option):
    cache = services.systemd("cache-0.service", *HOLD, restart=True)
    result = services.host.module("gpu_reclaim", gpus=["0"], stop_services=True, **option)
    assert actions(result) == {cache.pid: "protected"}
    assert "cache" in process(result, cache.pid)["protected_by"]
    assert is_alive(cache.pid) and result["changed"] is False
    wait_until(lambda: cache.state["restarts"] == 0)
