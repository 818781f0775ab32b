# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that are divided: MIG instances, and MPS servers with their clients."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from .conftest import SIMULATOR
from .gpu_processes import program
from .results import BUSY, FREE, actions, gpu, holder, process, uuid
from .waiting import is_alive

sys.path.insert(0, str(SIMULATOR))

import fakegpu


@pytest.fixture
def mig(gpu_host):
    """GPU 0 in two MIG instances; their UUIDs."""
    return [fakegpu.add_instance(0, 70000, number, state=gpu_host.folder) for number in (1, 2)]


def hold(host, instance, mib=9000, *options):
    return host.hold(0, mib, "--gi", instance, "--ci", 0, *options)


# ---- MIG


@pytest.mark.case(54)
def test_a_holder_of_one_mig_instance_is_ended_and_that_of_another_is_not(gpu_host, mig):
    ended, kept = hold(gpu_host, 1), hold(gpu_host, 2)
    info = gpu_host.module("gpu_info", gpus=["0"])
    assert holder(info, ended["pid"])["mig"] == [{"uuid": uuid(info, 0), "gpu_instance": 1, "compute_instance": 0}]
    result = gpu_host.module("gpu_reclaim", gpus=[mig[0]], grace=5)
    assert process(result, ended["pid"])["action"] == "terminated" and not result.get("failed"), result.get("msg")
    assert not is_alive(ended["pid"]) and is_alive(kept["pid"])
    assert not gpu_host.module("gpu_wait_free", gpus=[mig[0]], **FREE).get("failed")
    assert gpu_host.module("gpu_wait_free", gpus=[mig[1]], **BUSY)["failed"]
    assert gpu_host.module("gpu_wait_free", gpus=["0"], **BUSY)["failed"]


@pytest.mark.case(54)
def test_a_whole_gpu_means_all_its_instances(gpu_host, mig):
    both = [hold(gpu_host, 1), hold(gpu_host, 2)]
    result = gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)
    assert actions(result) == {each["pid"]: "terminated" for each in both}
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


@pytest.mark.case(54)
def test_an_unlisted_holder_on_a_gpu_in_mig_mode_is_not_ended_for_one_instance(gpu_host, mig):
    # Whose instance it is cannot be told from /dev/nvidia0, which all have open.
    held = hold(gpu_host, 2, 9000, "--kind", "H")
    result = gpu_host.module("gpu_reclaim", gpus=[mig[0]], grace=5)
    assert is_alive(held["pid"]) and result["changed"] is False


@pytest.mark.case(53)
def test_a_gpu_whose_instances_answer_although_it_is_denied_itself_is_read_by_instance(gpu_host, mig):
    held = hold(gpu_host, 1)
    for function in ("nvmlDeviceGetMemoryInfo*", "nvmlDeviceGet*RunningProcesses*"):
        gpu_host.fakegpu("fail", function, "0/whole", 4)
    info = gpu_host.module("gpu_info")
    assert gpu(info, 0)["verdict"] == "busy" and gpu(info, 0)["memory_used_mib"] == 9000
    assert holder(info, held["pid"])["memory_mib"] == 9000
    assert actions(gpu_host.module("gpu_reclaim", gpus=["0"], grace=5)) == {held["pid"]: "terminated"}
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


@pytest.mark.case(53)
def test_a_gpu_in_mig_mode_that_is_denied_altogether_is_unknown(gpu_host, mig):
    held = hold(gpu_host, 1)
    for function in ("nvmlDeviceGetMemoryInfo*", "nvmlDeviceGet*RunningProcesses*"):
        gpu_host.fakegpu("fail", function, 0, 4)
    row = gpu(gpu_host.module("gpu_info"), 0)
    assert (row["verdict"], row["reason"]) == ("unknown", "no_permission") and "root" in row["message"]
    result = gpu_host.module("gpu_reclaim", gpus=["0"])
    assert result["failed"] and is_alive(held["pid"])


@pytest.mark.case(54)
def test_an_instance_that_is_none_is_refused_with_a_list(gpu_host, mig):
    held = hold(gpu_host, 1)
    result = gpu_host.module("gpu_reclaim", gpus=["MIG-00000000-0000-0000-0000-000000000000"])
    assert result["failed"] and result["reason"] == "selection" and mig[0] in result["msg"]
    assert is_alive(held["pid"])


# ---- MPS


@pytest.fixture(scope="session")
def control(tmp_path_factory):
    """The simulated nvidia-cuda-mps-control."""
    file = tmp_path_factory.mktemp("mps") / "nvidia-cuda-mps-control"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", str(file), str(SIMULATOR / "mps_control.c")], check=True)
    return file


@pytest.fixture
def mps(gpu_host, tmp_path, control):
    """A control daemon and a server of MPS with one client on GPU 0."""
    return Mps(gpu_host, tmp_path / "pipes", control)


class Mps:
    """What `nvidia-cuda-mps-control -d` starts."""

    def __init__(self, host, pipes, control):
        self.pipes = pipes
        self.pipes.mkdir()
        variables = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "PATH": "%s:/usr/bin:/bin" % control.parent}
        self.daemon = subprocess.Popen(
            [str(control), "-d"], env={**host.environment, **variables}, stdout=subprocess.PIPE
        )
        host.processes.append(self.daemon)
        self.server = host.hold(0, 30, **program(host, "nvidia-cuda-mps-server"))
        self.client = host.hold(0, 9000, "--kind", "M")
        for name, pid in (("daemon", self.daemon.pid), ("server", self.server["pid"]), ("clients", self.client["pid"])):
            (pipes / name).write_text("%d\n" % pid)
        # The administrator's session knows the program, and not which folder the daemon was given.
        self.path = {"PATH": variables["PATH"]}

    def told(self):
        """What the daemon was told to do, in order (questions left out)."""
        said = (self.pipes / "said").read_text().splitlines() if (self.pipes / "said").exists() else []
        return [line for line in said if not line.startswith("get_")]


@pytest.mark.case(70)
@pytest.mark.parametrize("stop_mps", [False, True])
def test_the_control_daemon_is_told_before_a_client_gets_a_signal(gpu_host, mps, stop_mps):
    result = gpu_host.module("gpu_reclaim", gpus=["0"], stop_mps=stop_mps, service_timeout=3, variables=mps.path)
    row = process(result, mps.client["pid"])
    assert result["changed"] and row["evidence"] == ["fd", "nvml_mps"] and not is_alive(mps.client["pid"])
    assert mps.told() and mps.told()[0].endswith("client lives")
    # A signal for the server would take the work of its other clients.
    assert process(result, mps.server["pid"])["signals"] == []


@pytest.mark.case(70)
def test_mps_is_shut_down_through_its_daemon_where_that_is_asked_for(gpu_host, mps):
    result = gpu_host.module("gpu_reclaim", gpus=["0"], stop_mps=True, service_timeout=3, variables=mps.path)
    assert not result.get("failed"), result["msg"]
    assert any(line.startswith("quit") for line in mps.told())
    assert not is_alive(mps.server["pid"]) and not is_alive(mps.daemon.pid)
    assert not gpu_host.module("gpu_wait_free", gpus=["0"], **FREE).get("failed")


@pytest.mark.case(70)
def test_without_being_asked_the_server_and_the_daemon_of_mps_stay(gpu_host, mps):
    result = gpu_host.module("gpu_reclaim", gpus=["0"], variables=mps.path)
    assert process(result, mps.server["pid"])["action"] == "protected"
    assert is_alive(mps.server["pid"]) and is_alive(mps.daemon.pid)
    assert not any(line.startswith("quit") for line in mps.told())
    assert any("MPS" in blocker for blocker in result["blockers"])


@pytest.mark.case(70)
def test_check_mode_tells_mps_nothing(gpu_host, mps):
    result = gpu_host.module("gpu_reclaim", check=True, gpus=["0"], stop_mps=True, variables=mps.path)
    assert result["changed"] and mps.told() == []
    assert is_alive(mps.client["pid"]) and is_alive(mps.server["pid"]) and is_alive(mps.daemon.pid)


@pytest.mark.case(70)
def test_mps_that_also_serves_other_gpus_is_not_shut_down(gpu_host, mps):
    other = gpu_host.hold(1, 9000, "--kind", "M")
    with open(mps.pipes / "clients", "a", encoding="ascii") as clients:
        clients.write("%d\n" % other["pid"])
    result = gpu_host.module("gpu_reclaim", gpus=["0"], stop_mps=True, service_timeout=3, variables=mps.path)
    assert is_alive(other["pid"]) and is_alive(mps.daemon.pid)
    assert result["failed"] or process(result, mps.client["pid"])["action"] in ("terminated", "killed")


@pytest.mark.case(70, 75)
def test_a_control_daemon_that_hangs_is_given_up_in_time(gpu_host, mps):
    (mps.pipes / "hangs").touch()
    began = time.monotonic()
    result = gpu_host.module(
        "gpu_reclaim", gpus=["0"], stop_mps=True, grace=0.3, kill_timeout=1, service_timeout=1, variables=mps.path
    )
    assert time.monotonic() - began < 30
    assert result["failed"] and "MPS" in result["msg"]
    assert is_alive(mps.server["pid"])
