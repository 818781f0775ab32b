# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in nvidia-smi: it agrees with the simulated NVML, and misbehaves on request."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any, Callable, List
from xml.etree import ElementTree

import fake_nvidia_smi
import fakegpu
import pytest
from harness import Host

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def smi(host: Host, tmp_path: Path) -> Run:
    """Run the stand-in on the simulated host."""
    executable = fake_nvidia_smi.install(tmp_path)

    def run(*arguments: str, timeout: float = 10.0) -> Any:
        return subprocess.run(
            [str(executable), *arguments],
            env=host.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


def gpus(answer: Any) -> List[ElementTree.Element]:
    return ElementTree.fromstring(answer.stdout).findall("gpu")


def test_an_idle_host(host: Host, smi: Run) -> None:
    first, second = gpus(smi("-q", "-x"))
    assert (first.get("id"), second.get("id")) == (fakegpu.gpu_bus(0), fakegpu.gpu_bus(1))
    assert first.findtext("uuid") == fakegpu.gpu_uuid(0)
    memory = {child.tag: child.text for child in first.find("fb_memory_usage")}
    assert memory == {"total": "143771 MiB", "reserved": "615 MiB", "used": "0 MiB", "free": "143156 MiB"}
    assert list(first.find("processes")) == []
    assert first.find("mig_devices").text.strip() == "None"


def test_a_process_has_its_memory_and_all_its_kinds(host: Host, smi: Run) -> None:
    (pid,) = host.hold("--gpu", 1, "--mib", 700)
    fakegpu.add_process(1, pid, 700, "G", state=host.state)
    first, second = gpus(smi("-q", "-x"))
    (row,) = second.find("processes")
    assert [row.findtext(tag) for tag in ("pid", "type", "used_memory")] == [str(pid), "C+G", "700 MiB"]
    assert list(first.find("processes")) == []


def test_a_selection_by_index_uuid_or_bus(host: Host, smi: Run) -> None:
    for name in ("1", fakegpu.gpu_uuid(1), fakegpu.gpu_bus(1), "9,1"):
        (gpu,) = gpus(smi("-q", "-x", "-i", name))
        assert gpu.findtext("minor_number") == "1"
    answer = smi("-q", "-x", "-i", "1")
    assert ElementTree.fromstring(answer.stdout).findtext("attached_gpus") == "2"
    nobody = smi("-q", "-x", "-i", "9")
    assert (nobody.returncode, nobody.stdout.strip()) == (6, "No devices were found")


def test_mig_instances_and_their_uuids(host: Host, smi: Run) -> None:
    fakegpu.set_gpu(0, state=host.state, mig=1)
    with fakegpu.edit(host.state) as lines:
        lines.append("mig 0 2 MIG-11111111-2222 16384 100 7 0")
    gpu, _other = gpus(smi("-q", "-x"))
    (part,) = gpu.find("mig_devices")
    assert [part.findtext(t) for t in ("index", "gpu_instance_id", "compute_instance_id")] == ["2", "7", "0"]
    assert part.findtext("fb_memory_usage/used") == "100 MiB"
    listed = smi("-L").stdout.splitlines()
    assert fakegpu.gpu_uuid(0) in listed[0]
    assert "Device  2: (UUID: MIG-11111111-2222)" in listed[1]


def test_versions(host: Host, smi: Run) -> None:
    assert "NVML version        : 580.159\n" in smi("--version").stdout


def test_a_lost_gpu_is_left_out_of_the_answer_for_all_and_named_alone(host: Host, smi: Run) -> None:
    fakegpu.fail("nvmlDeviceGetHandleBy*", 1, 15, state=host.state)
    answer = smi("-q", "-x")
    assert len(gpus(answer)) == 1
    assert "GPU1" in answer.stderr
    assert ElementTree.fromstring(answer.stdout).findtext("attached_gpus") == "2"
    alone = smi("-q", "-x", "-i", "1")
    assert alone.returncode == 15
    assert "<" not in alone.stdout


def test_a_driver_that_is_not_there(host: Host, smi: Run) -> None:
    fakegpu.set_value("init", 9, state=host.state)
    assert smi("-q", "-x").returncode == 9
    fakegpu.set_value("init", 18, state=host.state)
    answer = smi("-L")
    assert answer.returncode == 18
    assert "version mismatch" in answer.stdout


def test_a_gpu_on_which_it_hangs(host: Host, smi: Run) -> None:
    fake_nvidia_smi.misbehave("hang", 1, "forever", state=host.state)
    assert len(gpus(smi("-q", "-x", "-i", "0"))) == 1
    with pytest.raises(subprocess.TimeoutExpired):
        smi("-q", "-x", "-i", "1", timeout=1.0)
    fake_nvidia_smi.behave(state=host.state)
    assert len(gpus(smi("-q", "-x"))) == 2


def test_a_slow_one_answers_in_the_end(host: Host, smi: Run) -> None:
    fake_nvidia_smi.misbehave("hang", "*", 0.5, state=host.state)
    began = time.monotonic()
    assert len(gpus(smi("-q", "-x"))) == 2
    assert time.monotonic() - began > 0.5


def test_words_of_our_own(host: Host, smi: Run) -> None:
    for rule in (("exit", 1, 255, "Unknown Error"), ("omit", 1), ("set", "*", "fb_memory_usage/used", "N/A")):
        fake_nvidia_smi.behave(state=host.state)
        fake_nvidia_smi.misbehave(*rule, state=host.state)
        answer = smi("-q", "-x")
        if rule[0] == "exit":
            assert (answer.returncode, answer.stdout.strip()) == (255, "Unknown Error")
        elif rule[0] == "omit":
            assert len(gpus(answer)) == 1
        else:
            assert [gpu.findtext("fb_memory_usage/used") for gpu in gpus(answer)] == ["N/A", "N/A"]
    fake_nvidia_smi.behave(state=host.state)
    fake_nvidia_smi.misbehave("drop", 0, "fb_memory_usage/reserved", state=host.state)
    fake_nvidia_smi.misbehave("cut", "*", 300, state=host.state)
    fake_nvidia_smi.misbehave("say", "*", "WARNING: x", state=host.state)
    cut = smi("-q", "-x").stdout
    assert cut.startswith("WARNING: x\n<?xml") and len(cut) < 320
    # The simulated library itself is not disturbed by these lines.
    assert host.nvml("result = n.nvmlDeviceGetMemoryInfo(h[0]).used >> 20") == 615


# ---- resets


def reset_host(host: Host) -> None:
    """Let nothing hold the GPUs."""
    for index in range(2):
        fakegpu.set_gpu(index, state=host.state, persistence=0)


def calls(host: Host) -> List[str]:
    return (Path(host.state) / "smi_calls").read_text().splitlines()


def test_a_reset_cures_what_it_can(host: Host, smi: Run) -> None:
    reset_host(host)
    fakegpu.set_gpu(1, state=host.state, recovery=1, base=700)
    fakegpu.fail("nvmlDeviceGetMemoryInfo*", 1, 16, state=host.state)
    answer = smi("--gpu-reset", "-i", fakegpu.gpu_uuid(1))
    assert (answer.returncode, answer.stdout.splitlines()[0]) == (
        0,
        "GPU {} was successfully reset.".format(fakegpu.gpu_bus(1)),
    )
    _first, second = gpus(smi("-q", "-x"))
    assert second.findtext("gpu_recovery_action") == "None" and second.findtext("fb_memory_usage/used") == "0 MiB"
    assert calls(host) == ["--gpu-reset -i " + fakegpu.gpu_uuid(1)]


def test_a_gpu_in_use_is_not_reset(host: Host, smi: Run) -> None:
    reset_host(host)
    host.hold("--gpu", 0, "--mib", 700)
    answer = smi("-r", "-i", fakegpu.gpu_uuid(0) + "," + fakegpu.gpu_uuid(1))
    assert answer.returncode == 255
    assert "GPU {}: In use by another client".format(fakegpu.gpu_bus(0)) in answer.stdout
    assert "GPU {} was successfully reset".format(fakegpu.gpu_bus(1)) in answer.stdout


def test_persistence_mode_holds_a_gpu(host: Host, smi: Run) -> None:
    uuid = fakegpu.gpu_uuid(0)
    assert smi("-r", "-i", uuid).returncode == 255
    assert smi("-pm", "0", "-i", uuid).returncode == 0
    assert smi("-r", "bus", "-i", uuid).returncode == 0
    fake_nvidia_smi.misbehave("pm", 0, "fail", state=host.state)
    assert smi("-pm", "1", "-i", uuid).returncode == 255


def test_peers_have_to_be_named(host: Host, smi: Run) -> None:
    reset_host(host)
    for index, other in ((0, 1), (1, 0)):
        fakegpu.set_gpu(index, state=host.state, capability=70, links=fakegpu.gpu_bus(other))
    answer = smi("--gpu-reset", "-i", fakegpu.gpu_uuid(0))
    assert answer.returncode == 255 and fakegpu.gpu_bus(1) in answer.stdout and "NVLink" in answer.stdout
    assert smi("--gpu-reset").returncode == 0
    for index in range(2):
        fakegpu.set_gpu(index, state=host.state, capability=80, links="switch")
    assert smi("--gpu-reset", "-i", fakegpu.gpu_uuid(0)).returncode == 255
    fake_nvidia_smi.misbehave("fabricmanager", "*", state=host.state)
    assert smi("--gpu-reset", "-i", fakegpu.gpu_uuid(0)).returncode == 0


def test_outcomes_on_request(host: Host, smi: Run) -> None:
    reset_host(host)
    uuid = fakegpu.gpu_uuid(0)
    fake_nvidia_smi.misbehave("reset", 0, 1, "fail", "Out of luck", state=host.state)
    first, second = smi("-r", "-i", uuid), smi("-r", "-i", uuid)
    assert (first.returncode, second.returncode) == (255, 0) and "Out of luck" in first.stdout
    fake_nvidia_smi.behave(state=host.state)
    fake_nvidia_smi.misbehave("reset", 0, "raise", 2, state=host.state)
    assert smi("-r", "-i", uuid).returncode == 0
    assert gpus(smi("-q", "-x"))[0].findtext("gpu_recovery_action") == "Reboot"
    fake_nvidia_smi.behave(state=host.state)
    fakegpu.set_gpu(0, state=host.state, virtualization=1)
    answer = smi("-r", "-i", uuid)
    assert answer.returncode == 3 and "Not Supported" in answer.stdout
