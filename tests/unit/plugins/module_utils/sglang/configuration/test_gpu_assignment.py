# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuIdentity, GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED, OK, WARNING
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.gpu_assignment import (
    assign,
    cuda_ordinals,
)


def gpus(count, names=("H200",), lost=()):
    def one(index):
        if index in lost:
            return GpuReading(index, failure=Failure("lost", "It is lost", "Reset it"))
        identity = GpuIdentity(
            index, f"GPU-{index}{index}{index}{index}-x", f"0000:0{index}:00.0", index, names[index % len(names)]
        )
        return GpuReading(index, identity)

    return tuple(one(index) for index in range(count))


def settings(*extra, **sizes):
    return Settings("/m", extra_args=extra, **sizes)


def failure(assignment):
    return [check.message for check in assignment.checks if check.status == FAILED]


@pytest.mark.parametrize(
    ("wanted", "ordinals"),
    [
        (settings(), [0]),
        (settings(tp_size=4), [0, 1, 2, 3]),
        (settings(tp_size=2, pp_size=2), [0, 1, 2, 3]),
        (settings(tp_size=2, dp_size=2), [0, 1, 2, 3]),
        (settings("--enable-dp-attention", tp_size=4, dp_size=4), [0, 1, 2, 3]),
        (settings("--attn-dp-size", "2", tp_size=4, dp_size=2), [0, 1, 2, 3]),
        (settings("--attention-dp-size", "2", tp_size=4, dp_size=2), [0, 1, 2, 3]),
        (settings("--attn-dp-size", "1", tp_size=2, dp_size=2), [0, 1, 2, 3]),
        (settings("--base-gpu-id", "4", tp_size=2), [4, 5]),
        (settings("--base-gpu-id=1", "--gpu-id-step", "2", tp_size=3), [1, 3, 5]),
        (settings("--gpu-id-step", "2", tp_size=2, dp_size=2), [0, 2, 4, 6]),
        (settings("--nnodes", "2", tp_size=8), [0, 1, 2, 3]),
        (settings("--nnodes", "2", tp_size=4, pp_size=2), [0, 1, 2, 3]),
    ],
)
def test_counts_as_sglang_does(wanted, ordinals):
    assert cuda_ordinals(wanted) == ordinals


@pytest.mark.parametrize(
    "extra",
    [("--base-gpu-id", "-1"), ("--gpu-id-step", "0"), ("--base-gpu-id", "x"), ("--nnodes", "3"), ("--base-gpu-id",)],
)
def test_refuses_numbers_that_cannot_be(extra):
    assert failure(assign(settings(*extra, tp_size=2), (), {}, gpus(8)))


def test_takes_the_first_gpus_unless_told_otherwise():
    assignment = assign(settings(tp_size=2), (), {}, gpus(8))
    assert assignment.uuids == ["GPU-0000-x", "GPU-1111-x"]
    assert assignment.environment == {}
    assert [check.status for check in assignment.checks] == [OK]


def test_a_selection_reaches_the_server_as_numbers_in_pci_order():
    assignment = assign(settings(tp_size=2), ("GPU-3333-x", "1"), {}, gpus(4))
    assert assignment.uuids == ["GPU-1111-x", "GPU-3333-x"]
    assert assignment.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,3"}


def test_the_variable_in_the_environment_counts_and_keeps_its_order():
    assignment = assign(settings("--base-gpu-id", "1"), (), {"CUDA_VISIBLE_DEVICES": "3, GPU-2222-x"}, gpus(4))
    assert assignment.uuids == ["GPU-2222-x"]


@pytest.mark.parametrize(
    ("wanted", "selectors", "environment", "parts"),
    [
        (settings(tp_size=8), (), {}, ["need 8 GPUs", "the host has 4"]),
        (settings(tp_size=2), ("0",), {}, ["need 2 GPUs", "gpus selects 1"]),
        (settings("--base-gpu-id", "3", tp_size=2), (), {}, ["need 2 GPUs, up to number 4", "--base-gpu-id"]),
        (settings(), (), {"CUDA_VISIBLE_DEVICES": ""}, ["leaves 0"]),
        (settings(), ("0",), {"CUDA_VISIBLE_DEVICES": "0"}, ["gpus and CUDA_VISIBLE_DEVICES"]),
        (settings(), ("9",), {}, ["'9' in gpus is no GPU"]),
        (settings(), (), {"CUDA_VISIBLE_DEVICES": "0,9"}, ["CUDA_VISIBLE_DEVICES=0,9"]),
        (settings(), (), {"CUDA_VISIBLE_DEVICES": "0,0"}, ["twice"]),
        (settings(), (), {"CUDA_VISIBLE_DEVICES": "-1"}, ["CUDA_VISIBLE_DEVICES=-1"]),
    ],
)
def test_refuses_what_cannot_be_had(wanted, selectors, environment, parts):
    assignment = assign(wanted, selectors, environment, gpus(4))
    (message,) = failure(assignment)
    assert all(part in message for part in parts), message
    assert assignment.uuids == []


def test_a_gpu_that_cannot_be_identified_is_refused_only_where_it_is_needed():
    assert any("It is lost" in message for message in failure(assign(settings(tp_size=2), (), {}, gpus(4, lost=[1]))))
    assert not failure(assign(settings(tp_size=2), (), {}, gpus(4, lost=[3])))


def test_warns_where_cuda_may_number_differently():
    mixed = gpus(2, names=("H200", "A2"))
    assert [check.status for check in assign(settings(), (), {}, mixed).checks] == [WARNING]
    assert [check.status for check in assign(settings(), ("0",), {}, mixed).checks] == [OK]
    assert [check.status for check in assign(settings(), (), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, mixed).checks] == [OK]
