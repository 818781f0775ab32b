# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proves that a GPU computes: a context and a MiB of memory through libcuda, in a child that may be abandoned.

Only the driver's own library is used, so no CUDA toolkit is needed.  Where that library is not installed
there is nothing to prove it with, which is said and is no failure.

Source: cuda.h (the driver API).
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from dataclasses import dataclass
from typing import Callable, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system import disposable

LIBRARY = "libcuda.so.1"

AUTO = "auto"
REQUIRED = "required"
NEVER = "never"

PASSED = "passed"
FAILED = "failed"
ABSENT = "absent"
SKIPPED = "skipped"

_BYTES = 1 << 20
_PATIENCE = 0.2  # seconds that a killed child gets to be gone
# With these CUDA may see no GPU, or another one, whatever is asked for.
_MISLEADING = ("CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY", "NVIDIA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Allocation:
    """What came of the proof of one GPU."""

    uuid: str
    outcome: str
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether it shows that something is wrong."""
        return self.outcome == FAILED


def allocate_on(uuid: str, timeout: float) -> Allocation:
    """Allocate and free memory on one GPU; timeout is in seconds, and holds."""
    return in_child(uuid, timeout, lambda: _allocate(uuid))


def in_child(uuid: str, timeout: float, work: Callable[[], Tuple[str, str]]) -> Allocation:
    """Run the proof in a child: what it returns, or why it returned nothing."""
    readable, writable = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        disposable.run_as_child(parent, lambda: _tell(writable, work), writable)
    os.close(writable)
    try:
        answer = _answer(readable, timeout)
    finally:
        os.close(readable)
        disposable.kill_and_reap(pid, _PATIENCE)
    if answer is None:
        return Allocation(uuid, FAILED, "CUDA did not answer within %g s" % timeout)
    outcome, tab, message = answer.partition("\t")
    if not tab:
        return Allocation(uuid, FAILED, "CUDA crashed")
    return Allocation(uuid, outcome, message)


def _tell(writable: int, work: Callable[[], Tuple[str, str]]) -> None:
    os.write(writable, "\t".join(work()).encode())


def _answer(readable: int, timeout: float) -> Optional[str]:
    """All that the child wrote, "" where it died; None where it did not end in time."""
    deadline = time.monotonic() + timeout
    poller = select.poll()
    poller.register(readable, select.POLLIN)
    received = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        if not poller.poll(max(1, int(left * 1000))):
            continue
        chunk = os.read(readable, 4096)
        if not chunk:
            return received.decode("utf-8", "replace")
        received += chunk


def _allocate(uuid: str) -> Tuple[str, str]:
    for name in _MISLEADING:
        os.environ.pop(name, None)
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return ABSENT, "%s is not installed" % LIBRARY
    count, device = ctypes.c_int(), ctypes.c_int()
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    steps = (
        ("cuInit", (ctypes.c_uint(0),)),
        ("cuDeviceGetCount", (ctypes.byref(count),)),
        ("cuDeviceGet", (ctypes.byref(device), ctypes.c_int(0))),
        ("cuCtxCreate_v2", (ctypes.byref(context), ctypes.c_uint(0), device)),
        ("cuMemAlloc_v2", (ctypes.byref(memory), ctypes.c_size_t(_BYTES))),
        ("cuMemsetD8_v2", (memory, ctypes.c_ubyte(0), ctypes.c_size_t(_BYTES))),
        ("cuCtxSynchronize", ()),
        ("cuMemFree_v2", (memory,)),
        ("cuCtxDestroy_v2", (context,)),
    )
    for name, arguments in steps:
        function = getattr(library, name, None)
        if function is None:
            return FAILED, "%s has no %s" % (LIBRARY, name)
        code = int(function(*arguments))
        if code:
            return FAILED, "%s answers with CUDA error %d" % (name, code)
        if name == "cuDeviceGetCount" and count.value != 1:
            return FAILED, "CUDA sees %d GPUs instead of this one" % count.value
    return PASSED, ""
