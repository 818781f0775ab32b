# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is ended, who is spared, and what a reclaim says of it."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time

import pytest

from .conftest import RUNNER
from .gpu_processes import (
    NEEDS_ROOT,
    NOBODY,
    PARENT,
    UNSHARE,
    as_nobody,
    frozen_holder,
    held_by_child,
    program,
    state,
)
from .results import BUSY, FREE, actions, gpu, holder, process, uuid, warnings
from .users import as_user
from .waiting import is_alive, wait_until

# ---- the unkillable


@pytest.mark.case(21)
def test_what_could_be_ended_is_and_the_rest_is_told(gpu_host, groups):
    stuck, mortal = frozen_holder(gpu_host, groups, 0, 9000), gpu_host.hold(1, 9000)
    began = time.monotonic()
    result = gpu_host.module("gpu_reclaim", gpus=["0", "1"], grace=0.3, kill_timeout=0.5)
    assert time.monotonic() - began < 8
    assert result["failed"] and result["changed"] and result["reason"] == "survivors"
    assert actions(result) == {stuck["pid"]: "survived", mortal["pid"]: "terminated"}
    (survivor,) = result["survivors"]
    assert (survivor["pid"], survivor["state"], survivor["signals"]) == (stuck["pid"], "D", ["SIGTERM", "SIGKILL"])
    assert survivor["memory_mib"] == 9000
    assert [row["pid"] for row in result["remaining"]] == [stuck["pid"]]
    assert str(stuck["pid"]) in result["msg"] and "state D" in result["msg"]


@pytest.mark.case(45)
def test_a_holder_from_before_with_a_kill_pending_is_shown_with_its_state(gpu_host, groups):
    stuck = frozen_holder(gpu_host, groups, 0, 9000)
    os.kill(stuck["pid"], 9)
    began = time.monotonic()
    assert holder(gpu_host.module("gpu_info", gpus=["0"]), stuck["pid"])["state"] == "D"
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=0.2, kill_timeout=0.4)
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], **BUSY)
    assert time.monotonic() - began < 10
    assert result["failed"] and result["changed"] is False
    assert process(result, stuck["pid"])["action"] == "survived"
    assert waited["failed"] and str(stuck["pid"]) in waited["msg"] and "state D" in waited["msg"]


@pytest.mark.case(45)
def test_state_d_alone_does_not_mean_that_nothing_helps(gpu_host):
    held = gpu_host.hold(0, 9000, "--vfork")
    wait_until(lambda: state(held["pid"]) == "D")
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert actions(result) == {held["pid"]: "terminated"} and not result.get("failed")


@pytest.mark.case(45)
def test_a_stopped_holder_is_ended(gpu_host):
    held = gpu_host.hold(0, 9000)
    os.kill(held["pid"], 19)
    wait_until(lambda: state(held["pid"]) == "T")
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=0.3)
    assert actions(result) == {held["pid"]: "killed"}


# ---- the spared


@pytest.mark.case(69, 71)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dcgm-exporter", []),
        ("nvidia-persistenced", ["--kind", "H"]),
        ("nv-hostengine", ["--monitor"]),
    ],
)
def test_the_driver_s_daemons_are_protected(gpu_host, name, options):
    gpus = (None, 0) if "--monitor" in options else (0, 20)
    daemon = gpu_host.hold(*gpus, *options, **program(gpu_host, name))
    result = gpu_host.module("gpu_reclaim", gpus=["0"], attached="any", grace=5)
    assert actions(result) == {daemon["pid"]: "protected"}
    assert name in process(result, daemon["pid"])["protected_by"] and result["changed"] is False
    assert is_alive(daemon["pid"])


@pytest.mark.case(23, 74)
@pytest.mark.parametrize("pattern", [None, "gpu_reclaim", "python"])
def test_this_task_and_its_parents_are_spared_also_where_a_pattern_fits_them(gpu_host, pattern):
    # An operator's session that holds the GPU itself, with a module below it whose arguments contain the pattern.
    code = (
        "import json, subprocess, sys, fakegpu\n"
        "held, nodes = fakegpu.allocate(0, 3000), fakegpu.open_nodes([0])\n"
        "arguments = {'grace': 0.3, 'kill_timeout': 1, '_ansible_remote_tmp': '/tmp', 'command_pattern': sys.argv[2]}\n"
        "if not sys.argv[2]: del arguments['command_pattern']\n"
        "subprocess.run([sys.executable, sys.argv[1], 'gpu_reclaim'], input=json.dumps(arguments).encode())\n"
    )
    other = gpu_host.hold(0, 500)
    gpu_host.environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    shell = subprocess.Popen(
        [sys.executable, "-c", code, RUNNER, pattern or "", "gpu_reclaim"],
        env={
            **gpu_host.environment,
            "PYTHONPATH": os.pathsep.join([str(gpu_host.simulator.parent), gpu_host.environment["PYTHONPATH"]]),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    gpu_host.processes.append(shell)
    result = json.loads(shell.communicate(timeout=60)[0].splitlines()[-1])
    assert shell.returncode == 0  # it lived
    assert process(result, shell.pid)["action"] == "protected"
    # The pattern narrows: it makes nobody a target who is none.
    assert process(result, other["pid"])["action"] == ("skipped" if pattern == "gpu_reclaim" else "terminated")


@pytest.mark.case(74)
def test_a_command_pattern_narrows_and_finds_nobody_by_itself(gpu_host):
    wanted = gpu_host.hold(0, 900, "--title", "train.py --run 7")
    other = gpu_host.hold(0, 900, "--title", "serve.py")
    elsewhere = gpu_host.hold(1, 900, "--title", "train.py --run 7")
    result = gpu_host.module("gpu_reclaim", gpus=["0"], command_pattern=r"train\.py .*7$", grace=5)
    assert actions(result) == {wanted["pid"]: "terminated", other["pid"]: "skipped"}
    assert is_alive(elsewhere["pid"])


@pytest.mark.case(74)
def test_a_pattern_that_is_none_is_refused_before_anything_happens(gpu_host):
    held = gpu_host.hold(0, 900)
    result = gpu_host.module("gpu_reclaim", gpus=["0"], command_pattern="(")
    assert result["failed"] and "command_pattern" in result["msg"]
    assert is_alive(held["pid"])


@NEEDS_ROOT
@pytest.mark.case(56)
def test_neither_user_nor_session_makes_a_process_a_target(gpu_host):
    # The operator's ssh session, of the same user: one beside the job, one that started it.
    job = held_by_child(gpu_host, PARENT, 0, 800, start_new_session=True)
    nobody = pwd.getpwnam("nobody").pw_uid
    held = gpu_host.hold(0, 9000, user=nobody)
    ssh = subprocess.Popen(["sleep", "600"], preexec_fn=as_user(nobody), stdout=subprocess.PIPE)
    gpu_host.processes.append(ssh)
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert actions(result) == {held["pid"]: "terminated", job["pid"]: "terminated"}
    assert ssh.poll() is None and job["parent"].poll() is None


@NEEDS_ROOT
@pytest.mark.case(60)
def test_a_foreign_user_s_process_is_reported_and_stays_unless_he_is_named(gpu_host):
    foreign, own = gpu_host.hold(0, 642, user=pwd.getpwnam("nobody").pw_uid), gpu_host.hold(0, 9000)
    result = gpu_host.module("gpu_reclaim", gpus=["0"], users=["root"], grace=5)
    assert actions(result) == {foreign["pid"]: "skipped", own["pid"]: "terminated"}
    assert any("nobody" in blocker for blocker in result["blockers"])
    assert is_alive(foreign["pid"])


@pytest.mark.case(12)
def test_a_weight_cache_stays_and_an_allowance_makes_its_gpu_free(gpu_host):
    cache = gpu_host.hold(0, 30000, **program(gpu_host, "weight-cache"))
    result = gpu_host.module("gpu_reclaim", gpus=["0"], protect_executables=["weight-cache"])
    assert actions(result) == {cache["pid"]: "protected"} and is_alive(cache["pid"])
    allowed = {"allow_executables": ["weight-cache"], "allow_mib": 31000}
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **allowed, **FREE).get("failed")
    assert gpu_host.module("gpu_wait_free", gpus=["0"], allow_executables=["weight-cache"], **BUSY)["failed"]
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], **BUSY)
    assert waited["failed"] and str(cache["pid"]) in waited["msg"]


@pytest.mark.case(12)
def test_waiting_for_a_protected_holder_ends_early(gpu_host):
    daemon = gpu_host.hold(0, 30000, **program(gpu_host, "nv-hostengine"))
    began = time.monotonic()
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], timeout=60, stable_for=0.3, interval=0.02)
    assert time.monotonic() - began < 8
    assert waited["failed"] and waited["reason"] == "pointless"
    assert str(daemon["pid"]) in waited["msg"] and "allow_" in waited["msg"]


# ---- from inside a container


@NEEDS_ROOT
@pytest.mark.case(39)
@pytest.mark.parametrize("number", [2, 3])
def test_a_pid_of_the_host_is_not_signalled_from_inside_a_namespace(gpu_host, number):
    # An old driver lists host PIDs inside a container: they are nobody there, or somebody else (2 a process beside
    # the module, 3 the module itself).
    held = gpu_host.hold(0, 9000)
    gpu_host.fakegpu("proc", 0, held["pid"], 9000)
    gpu_host.fakegpu("proc", 0, number, 500)
    launcher = [*UNSHARE, "sh", "-c", 'sleep 60 & "$@"; code=$?; kill $!; exit $code', "sh"]
    result = gpu_host.module("gpu_reclaim", gpus=["0"], launcher=launcher, grace=0.2, kill_timeout=0.4)
    assert result["failed"] and result["changed"] is False
    assert all(row["signals"] == [] for row in result["processes"])
    assert process(result, held["pid"])["action"] == "unresolved"
    assert "host" in result["msg"]
    assert is_alive(held["pid"])


@NEEDS_ROOT
@pytest.mark.case(40)
def test_memory_without_processes_in_a_namespace_is_not_free_and_the_namespace_is_named(gpu_host):
    gpu_host.hold(0, 70000)
    gpu_host.fakegpu("set", "drop_foreign")
    waited = gpu_host.module("gpu_wait_free", gpus=["0"], launcher=UNSHARE, **BUSY)
    assert waited["failed"] and waited["holders"] == []
    assert gpu(waited, 0)["reason"] == "unattributed" and "namespace" in waited["msg"]
    # From the host it is seen and ended.
    assert list(actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)).values()) == ["terminated"]


# ---- Ansible


def mixed(host):
    """Several kinds of holders on a host."""
    return [
        host.hold(0, 9000),
        host.hold(1, 500, "--kind", "H"),
        host.hold(2, 700, "--attach", 0),
        host.hold(None, 0, "--monitor"),
        host.hold(0, 20, **program(host, "dcgm-exporter")),
        host.hold(3, 300, "--ignore-term"),
        host.hold(1, 300, "--kind", "G"),
    ]


ENDED = {"would_terminate": ("terminated", "killed")}


@pytest.mark.case(8, 58)
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"gpus": ["1", "3"], "attached": "any"},
        {"gpus": ["0", "2"], "attached": "never"},
        {"protect_executables": [os.path.realpath(sys.executable)]},
    ],
    ids=str,
)
def test_the_plan_of_check_mode_is_what_happens(gpu_host, arguments):
    everybody = mixed(gpu_host)
    planned = gpu_host.module("gpu_reclaim", check=True, grace=0.5, **arguments)
    assert all(is_alive(each["pid"]) for each in everybody)
    done = gpu_host.module("gpu_reclaim", grace=0.5, **arguments)
    assert not done.get("failed"), done["msg"]
    before, after = actions(planned), actions(done)
    assert sorted(before) == sorted(after) and list(before) == sorted(before) and list(after) == sorted(after)
    for pid, action in before.items():
        assert after[pid] in ENDED.get(action, (action,)), (pid, action, after[pid])
        assert is_alive(pid) is (action != "would_terminate")
    assert planned["changed"] is done["changed"]
    assert planned["diff"] == done["diff"]
    assert [row["pid"] for row in planned["remaining"]] == [row["pid"] for row in done["remaining"]]


@pytest.mark.case(48)
def test_all_lists_are_sorted(gpu_host):
    mixed(gpu_host)
    result = gpu_host.module("gpu_info", gpus=["3", "1", "0"])
    assert [row["index"] for row in result["gpus"]] == [0, 1, 3]
    assert [row["pid"] for row in result["holders"]] == sorted(row["pid"] for row in result["holders"])
    for row in result["holders"]:
        assert row["gpus"] == sorted(row["gpus"]) and row["evidence"] == sorted(row["evidence"])
        # Those that were not selected come last, by the names of their nodes.
        assert row["attached"] == sorted(row["attached"], key=lambda name: (name.startswith("/"), name))
    assert result["holders"] == gpu_host.module("gpu_info", gpus=["3", "1", "0"])["holders"]


SECRET = "hf_not-for-anybody"


@pytest.mark.case(20)
@pytest.mark.parametrize("mode", ["ended", "stuck"])
def test_secrets_of_a_holder_are_in_no_output(services, mode):
    host = services.host
    command = ["--title", "serve --api-key %s" % SECRET]
    if mode == "stuck":
        frozen_holder(host, services.groups, 0, 9000, *command, env={"API_KEY": SECRET})
    else:
        host.hold(0, 9000, *command, env={"API_KEY": SECRET})
    services.docker("llm", "--gpu", 0, "--mib", 900, *command, environment={"API_KEY": SECRET})
    outputs = [
        host.module("gpu_info"),
        host.module("gpu_wait_free", **BUSY),
        host.module("gpu_reclaim", check=True, command_pattern="api-key"),
        host.module("gpu_reclaim", command_pattern="api-key", grace=0.3, kill_timeout=0.3),
    ]
    for result in outputs:
        text = json.dumps(result)
        assert SECRET not in text and "not-for-anybody" not in text
        assert "serve" in text
    assert outputs[3]["changed"]


# ---- without root


@NEEDS_ROOT
@pytest.mark.case(39, 60)
def test_without_root_nothing_is_guessed(gpu_host):
    nobody = as_nobody(gpu_host)
    held = gpu_host.hold(0, 9000)
    info = gpu_host.module("gpu_info", **nobody)
    assert holder(info, held["pid"])["user"] == "root" and gpu(info, 0)["verdict"] == "busy"
    # It could not look at the descriptors of anybody else, and says so.
    assert info["uninspected"] > 0
    assert "become" in warnings(info) or "root" in warnings(info)
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=0.2, kill_timeout=0.3, **nobody)
    assert result["failed"] and result["changed"] is False and "become" in result["msg"]
    assert is_alive(held["pid"])


@NEEDS_ROOT
@pytest.mark.case(60)
def test_without_root_one_s_own_processes_are_ended(gpu_host):
    nobody = as_nobody(gpu_host)
    own = gpu_host.hold(0, 9000, user=NOBODY, group=NOBODY)
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5, **nobody)
    assert actions(result) == {own["pid"]: "terminated"} and not result.get("failed")
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE, **nobody).get("failed")


@NEEDS_ROOT
def test_as_root_everybody_was_looked_at(gpu_host):
    assert gpu_host.module("gpu_info")["uninspected"] == 0


# ---- selection


@pytest.mark.case(18)
def test_every_spelling_selects_the_physical_gpu_whatever_cuda_shows(gpu_host):
    held = gpu_host.hold(2, 9000)
    gpu_host.fakegpu("set", "gpu", 2, "minor=5")
    info = gpu_host.module("gpu_info", variables={"CUDA_VISIBLE_DEVICES": "3"})
    row = gpu(info, 2)
    assert row["minor"] == 5
    for selector in ("2", row["uuid"], row["uuid"][:12], row["pci_bus_id"], row["pci_bus_id"].lower()[4:]):
        chosen = gpu_host.module("gpu_info", gpus=[selector], variables={"CUDA_VISIBLE_DEVICES": "3"})
        assert chosen["selected"] == [uuid(info, 2)] and [h["pid"] for h in chosen["holders"]] == [held["pid"]]


@pytest.mark.case(18)
def test_device_nodes_are_matched_by_minor_and_not_by_index(gpu_host):
    for index, minor in enumerate((1, 0, 3, 2)):
        gpu_host.fakegpu("set", "gpu", index, "minor=%d" % minor)
    held = gpu_host.hold(0, 9000, "--kind", "H")  # has /dev/nvidia1 open
    info = gpu_host.module("gpu_info")
    assert holder(info, held["pid"])["attached"] == [uuid(info, 0)]
    assert gpu_host.module("gpu_reclaim", gpus=["1"])["processes"] == []
    assert actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)) == {held["pid"]: "terminated"}
