# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.gpus import (
    container_visible_devices,
    gpu_words,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerSettings


def settings(engine, access):
    return ContainerSettings(engine, "/usr/bin/" + engine, "i", gpu_access=access)


@pytest.mark.parametrize(
    ("engine", "access", "gpus", "words"),
    [
        ("docker", "auto", ["GPU-a", "GPU-b"], ["--gpus", '"device=GPU-a,GPU-b"']),
        ("docker", "auto", [], ["--gpus", "all"]),
        ("docker", "all", ["GPU-a"], ["--gpus", "all"]),
        ("docker", "cdi", ["GPU-a"], ["--device", "nvidia.com/gpu=GPU-a"]),
        (
            "podman",
            "auto",
            ["GPU-a", "GPU-b"],
            ["--device", "nvidia.com/gpu=GPU-a", "--device", "nvidia.com/gpu=GPU-b"],
        ),
        ("podman", "auto", [], ["--device", "nvidia.com/gpu=all"]),
        ("podman", "all", ["GPU-a"], ["--device", "nvidia.com/gpu=all"]),
        ("podman", "none", ["GPU-a"], []),
        ("docker", "none", ["GPU-a"], []),
    ],
)
def test_words(engine, access, gpus, words):
    assert gpu_words(settings(engine, access), gpus) == words


BUS = {"GPU-a": "00000000:8A:00.0", "GPU-b": "00000000:1b:00.0", "GPU-c": "00000000:9A:00.0"}


@pytest.mark.parametrize(
    ("ranks", "visible"),
    [
        (["GPU-b", "GPU-a", "GPU-c"], "0,1,2"),
        (["GPU-a", "GPU-b"], "1,0"),  # rank 0 stays on its GPU
        (["GPU-c"], "0"),
        (["GPU-c", "GPU-b"], "1,0"),
    ],
)
def test_numbers_inside_count_the_given_gpus_in_the_order_of_the_bus(ranks, visible):
    expected = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": visible}
    assert container_visible_devices(settings("docker", "auto"), ranks, BUS) == expected


@pytest.mark.parametrize(("access", "ranks"), [("all", ["GPU-a"]), ("none", ["GPU-a"]), ("cdi", [])])
def test_numbers_stay_where_the_container_sees_what_the_host_sees(access, ranks):
    assert container_visible_devices(settings("docker", access), ranks, BUS) == {}
