# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof by allocation, in a child that may be given up."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_allocation
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_allocation import allocate_on, in_child


def test_what_the_child_says(childless):
    assert in_child("GPU-a", 5.0, lambda: ("passed", "")) == reset_allocation.Allocation("GPU-a", "passed", "")
    childless()


def test_a_child_that_hangs_or_dies_is_a_failure_in_time(childless):
    began = time.monotonic()
    hung = in_child("GPU-a", 0.2, lambda: time.sleep(60) or ("passed", ""))
    assert hung.failed and "0.2 s" in hung.message and time.monotonic() - began < 3
    died = in_child("GPU-a", 5.0, lambda: os.kill(os.getpid(), signal.SIGKILL) or ("passed", ""))
    assert died.failed and "crashed" in died.message
    childless()


class Library:
    """A libcuda by table."""

    def __init__(self, count=1, without=(), **codes):
        self.count = count
        self.codes = codes
        self.calls = []
        self.without = without

    def __getattr__(self, name):
        if not name.startswith("cu") or name in self.without:
            raise AttributeError(name)

        def function(*arguments):
            self.calls.append(name)
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = self.count
            return self.codes.get(name, 0)

        return function


@pytest.mark.parametrize(
    ("library", "outcome", "words"),
    [
        (Library(), "passed", ""),
        (Library(cuMemAlloc_v2=2), "failed", "cuMemAlloc_v2 answers with CUDA error 2"),
        (Library(count=0), "failed", "sees 0 GPUs"),
        (Library(without=("cuCtxCreate_v2",)), "failed", "no cuCtxCreate_v2"),
        (None, "absent", "libcuda.so.1 is not installed"),
    ],
)
def test_steps(monkeypatch, library, outcome, words):
    def load(name):
        assert name == "libcuda.so.1"
        if library is None:
            raise OSError
        return library

    monkeypatch.setattr(reset_allocation.ctypes, "CDLL", load)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps")
    found, message = reset_allocation._allocate("GPU-a")
    assert found == outcome and words in message
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a" and "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    if outcome == "passed":
        assert library.calls[-2:] == ["cuMemFree_v2", "cuCtxDestroy_v2"]


def test_a_machine_without_the_library_or_that_gpu(childless):
    # Here there is no such GPU; what there is of CUDA must say so, or be absent.
    assert allocate_on("GPU-00000000-0000-0000-0000-000000000000", 20.0).outcome in ("absent", "failed")
    childless()
