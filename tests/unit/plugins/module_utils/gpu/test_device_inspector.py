# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_inspector import DeviceInspector, OpenDevices
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_nodes import CONTROL, UVM, DeviceNodes
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

STAT = "42 (python3) %s 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0 0"
LIBC = "7f00-7f01 r-xp 0 00:00 0 /usr/lib/libc.so\n"


@pytest.fixture
def proc(tmp_path):
    """Make /proc/42: descriptors and maps of the first thread, and descriptors of another one."""

    def make(leader=("/dev/null",), thread=None, maps=LIBC, thread_maps=LIBC, same=None):
        base = tmp_path / "42"
        folders = {base / "fd": leader, base / "task" / "42" / "fd": leader}
        if thread is not None:
            folders[base / "task" / "43" / "fd"] = thread
        for folder, targets in folders.items():
            folder.mkdir(parents=True)
            for number, target in enumerate(targets):
                (folder / str(number)).symlink_to(target)
        (base / "maps").write_text(maps)
        (base / "stat").write_text(STAT % "S")
        if thread is not None:
            (base / "task" / "43" / "maps").write_text(thread_maps)
        nodes = DeviceNodes("/dev", real=True)
        return DeviceInspector(ProcFs(str(tmp_path)), nodes, same_files=same or (lambda _a, _b: None))

    return make


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({}, set()),
        ({"leader": ["/dev/null", "/dev/nvidia3"]}, {(3, "fd")}),
        ({"leader": ["/dev/nvidiactl", "/dev/nvidia-uvm"]}, {(CONTROL, "fd"), (UVM, "fd")}),
        ({"leader": ["/home/x/dev/nvidia0", "socket:[1]"]}, set()),
        ({"leader": ["/dev/nvidia0 (deleted)"]}, {(0, "fd")}),
        ({"leader": [], "thread": ["/dev/nvidia0"]}, {(0, "fd")}),  # the first thread has ended
        ({"leader": [], "thread": ["/dev/null"]}, set()),
        ({"maps": LIBC + "7f-80 rw-s 0 00:05 99 /dev/nvidia0\n"}, {(0, "map")}),  # closed after mmap()
        ({"maps": LIBC + "7f-80 rw-s 0 00:05 99 /dev/nvidia0 (deleted)\n" + LIBC}, {(0, "map")}),
        ({"maps": "7f-80 rw-s 0 00:05 99 /tmp/nvidia0\n"}, set()),
        ({"leader": [], "thread": [], "maps": "", "thread_maps": "7f-80 - 0 00:05 9 /dev/nvidia1\n"}, {(1, "map")}),
        ({"leader": ["/dev/nvidia0"], "maps": "7f-80 rw-s 0 0:5 9 /dev/nvidia0\n"}, {(0, "fd"), (0, "map")}),
    ],
)
def test_what_is_found(proc, state, found):
    assert proc(**state).nodes_of(42) == found


def test_a_thread_that_shares_its_descriptors_is_not_looked_at(proc):
    inspector = proc(thread=["/dev/nvidia0"], same=lambda _a, _b: True)
    assert inspector.nodes_of(42) == set()


def test_identity_and_devices_belong_together(proc):
    identity, devices = proc(leader=["/dev/nvidia1", "/dev/nvidiactl"]).look(42)
    assert (identity.pid, identity.start_time) == (42, 777)
    assert devices == OpenDevices(frozenset([1]), frozenset(), True, ("fd",), nvml=False)


def test_a_process_that_was_replaced_while_it_was_looked_at_is_nobody(proc, tmp_path):
    inspector = proc(leader=["/dev/nvidia1"])
    real = inspector.nodes_of

    def replaced(pid):
        found = real(pid)
        (tmp_path / "42" / "stat").write_text((STAT % "S").replace(" 777 ", " 999 "))
        return found

    inspector.nodes_of = replaced
    assert inspector.look(42) is None


def test_a_process_without_devices_or_without_itself_is_nothing(proc):
    inspector = proc()
    assert inspector.look(42) is None
    assert inspector.holds_any(42) is False
    assert inspector.nodes_of(4242) == set()


ML = LIBC + "7f-80 r-xp 0 00:05 9 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04\n"
CUDA = ML + "7f-80 r-xp 0 00:05 9 /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04\n"
GPU = "7f-80 rw-s 0 00:05 9 /dev/nvidia0\n"
CTL = "7f-80 rw-s 0 00:05 9 /dev/nvidiactl\n"


@pytest.mark.parametrize(
    ("leader", "maps", "monitor"),
    [
        (["nvidiactl", "nvidia0", "nvidia-uvm"], ML, True),
        (["nvidiactl", "nvidia0", "nvidia-uvm"], ML + CTL, True),  # as nvidia-smi dmon
        (["nvidiactl", "nvidia0", "nvidia-uvm"], ML + GPU, False),
        (["nvidiactl", "nvidia0", "nvidia-uvm"], CUDA, True),  # NVML loads libcuda itself
        (["nvidiactl", "nvidia0", "nvidia-uvm"], CUDA + GPU, False),
        (["nvidiactl", "nvidia0", "nvidia-uvm"], LIBC, False),  # inherited over exec
        (["nvidia0"], ML, False),
    ],
)
def test_a_monitor_has_nvml_loaded_and_no_gpu_mapped(proc, leader, maps, monitor):
    _identity, devices = proc(leader=["/dev/" + name for name in leader], maps=maps).look(42)
    assert devices.monitor is monitor


def test_what_is_mapped_is_what_is_touched(proc):
    _identity, devices = proc(leader=["/dev/nvidia0", "/dev/nvidia1"], maps=CUDA + GPU).look(42)
    assert (devices.gpus, devices.mapped, devices.touched) == ({0, 1}, {0}, {0})


@pytest.mark.parametrize("thorough", [True, False])
def test_this_very_process(tmp_path, thorough):
    for name in ("nvidia5", "nvidiactl"):
        (tmp_path / name).touch()
    inspector = DeviceInspector(ProcFs(), DeviceNodes(str(tmp_path)), thorough)
    assert inspector.nodes_of(os.getpid()) == set()
    with open(tmp_path / "nvidia5", encoding="ascii"):
        assert inspector.nodes_of(os.getpid()) == {(5, "fd")}
    assert inspector.holds_any(os.getpid()) is False


def test_a_stand_in_of_another_host_is_not_ours(tmp_path):
    # In another mount namespace the same path is another host's simulated GPU.
    for place in ("ours", "theirs"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "nvidia0").touch()
        (tmp_path / place / "nvidiactl").touch()
    nodes = DeviceNodes(str(tmp_path / "ours"))
    assert not nodes.real
    ours = os.stat(tmp_path / "ours" / "nvidia0").st_ino
    theirs = os.stat(tmp_path / "theirs" / "nvidia0").st_ino
    assert nodes.is_ours(str(tmp_path / "ours" / "nvidia0"), ours)
    assert not nodes.is_ours(str(tmp_path / "ours" / "nvidia0"), theirs)
    assert not nodes.is_ours(str(tmp_path / "ours" / "nvidia7"), ours)


@given(st.binary(max_size=300))
def test_no_maps_file_can_break_it(tmp_path_factory, text):
    base = tmp_path_factory.mktemp("proc") / "42"
    (base / "fd").mkdir(parents=True)
    (base / "maps").write_bytes(text)
    inspector = DeviceInspector(ProcFs(str(base.parent)), DeviceNodes("/dev"), same_files=lambda _a, _b: None)
    found = inspector.nodes_of(42)
    assert all(evidence == "map" for _node, evidence in found)
    if b"/dev/nvidia" not in text:
        assert found == set()
