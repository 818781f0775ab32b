# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import device_nodes
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_nodes import CONTROL, OTHER, UVM, DeviceNodes

DEVICES = """Character devices:
  1 mem
195 nvidia
195 nvidiactl
234 nvidia-caps
507 nvidia-uvm
508 nvidia-nvswitch

Block devices:
  8 sd
"""


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("/dev/nvidia0", 0),
        ("/dev/nvidia12", 12),
        ("/dev/nvidiactl", CONTROL),
        ("/dev/nvidia-uvm", UVM),
        ("/dev/nvidia-uvm-tools", OTHER),
        ("/dev/nvidia-modeset", OTHER),
        ("/dev/nvidia-caps/nvidia-cap1", OTHER),
        ("/dev/nvidia0x", OTHER),
        ("/dev/dri/card1", 3),
        ("/dev/dri/card0", None),
        ("/dev/null", None),
        ("/home/x/dev/nvidia0", None),
        ("/dev/nvme0", None),
    ],
)
def test_paths(path, node):
    assert DeviceNodes("/dev", drm={"/dev/dri/card1": 3}).of_path(path) == node


@pytest.mark.parametrize(
    ("major", "minor", "node"),
    [
        (195, 0, 0),
        (195, 7, 7),
        (195, 254, OTHER),
        (195, 255, CONTROL),
        (507, 0, UVM),
        (507, 1, OTHER),
        (234, 1, OTHER),
        (226, 1, 3),
        (226, 0, None),
        (1, 3, None),
    ],
)
def test_numbers(major, minor, node):
    nodes = DeviceNodes("/dev", device_nodes.dynamic_majors(DEVICES), {(226, 1): 3})
    assert nodes.of_number(os.makedev(major, minor)) == node


@pytest.fixture
def host(tmp_path):
    """A /proc and a /sys with one NVIDIA GPU and one of somebody else."""
    gpu = tmp_path / "proc" / "driver" / "nvidia" / "gpus" / "0000:00:06.0"
    gpu.mkdir(parents=True)
    (tmp_path / "proc" / "devices").write_text(DEVICES)
    (gpu / "information").write_text(
        "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-00000000-1111-2222-3333-444444444444\nDevice Minor: \t 2\n"
    )
    for name, address, vendor, number in [
        ("card0", "0000:00:01.0", "0x8086", "226:0"),
        ("card1", "0000:00:06.0", "0x10de", "226:1"),
        ("renderD128", "0000:00:06.0", "0x10de", "226:128"),
        ("card1-DP-1", "0000:00:06.0", "0x10de", ""),
    ]:
        device = tmp_path / "devices" / address
        device.mkdir(parents=True, exist_ok=True)
        (device / "vendor").write_text(vendor + "\n")
        folder = tmp_path / "sys" / "class" / "drm" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(device)
        (folder / "dev").write_text(number + "\n")
    return str(tmp_path / "proc"), str(tmp_path / "sys")


def test_display_nodes_of_nvidia_gpus_lead_to_the_gpu(host):
    nodes = device_nodes.read_nodes(*host)
    assert nodes.of_path("/dev/dri/card1") == 2
    assert nodes.of_path("/dev/dri/renderD128") == 2
    assert nodes.of_path("/dev/dri/card0") is None
    assert nodes.of_number(os.makedev(226, 128)) == 2
    assert nodes.of_number(os.makedev(507, 0)) == UVM


def test_the_driver_tells_uuids_without_opening_a_gpu(host):
    assert device_nodes.uuids_by_minor(host[0]) == {2: "GPU-00000000-1111-2222-3333-444444444444"}


def test_a_host_without_the_driver_has_nothing(tmp_path):
    nodes = device_nodes.read_nodes(str(tmp_path), str(tmp_path))
    assert nodes.of_number(os.makedev(507, 0)) is None
    assert device_nodes.uuids_by_minor(str(tmp_path)) == {}
    assert DeviceNodes(str(tmp_path)).present is False
    (tmp_path / "nvidiactl").touch()
    assert DeviceNodes(str(tmp_path)).present is True
