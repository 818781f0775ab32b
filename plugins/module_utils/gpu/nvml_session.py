# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An NVML session that survives a driver that does not answer.

It stays open between readings: without persistence mode the driver needs seconds to open a GPU
anew.  A GPU whose query hangs is left alone for a while, so that it costs the others no time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import nvml_errors, wire
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    Failure,
    GpuError,
    GpuIdentity,
    GpuReading,
    SystemInfo,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_child import Child, ChildDied, ChildHung
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_reader import GpuReader

# Seconds until a GPU that did not answer is asked again: doubled each time it fails again.
_FIRST_PAUSE = 30.0
# Seconds that the end of the last child is waited for.  Its way out through the driver takes longer, and
# nobody has to wait for it: it is killed, holds nothing but its own session, and init reaps it.
_GOODBYE = 0.005


@dataclass(frozen=True)
class _Silence:
    """A GPU that did not answer, and until when it is left alone."""

    failure: Failure
    until: float
    pause: float


class NvmlSession:
    """Reads GPUs by index.  Use it as a context manager; raises GpuError where NVML cannot start.

    timeout is in seconds, for one query of one GPU.
    """

    reader = "nvml"

    def __init__(
        self,
        make_reader: Callable[[], GpuReader],
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_reader = make_reader
        self._timeout = timeout
        self._clock = clock
        self._child: Optional[Child] = None
        self._abandoned: List[Child] = []
        self._pids: FrozenSet[int] = frozenset()
        self._silent: Dict[int, _Silence] = {}
        self._known: Dict[int, GpuIdentity] = {}
        self.system: SystemInfo = self._start()[1]

    def __enter__(self) -> NvmlSession:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def pids(self) -> FrozenSet[int]:
        """Every process this session has started: none of them is a holder to be reported."""
        return self._pids

    def identify(self, indices: Sequence[int]) -> Tuple[GpuReading, ...]:
        """Which GPUs these are: readings without memory and processes."""
        return tuple(self._query(index, values=False) for index in indices)

    def read(self, indices: Sequence[int]) -> Tuple[GpuReading, ...]:
        """The GPUs as they are now, one reading each, in the order asked.  Never raises.

        A GPU that hangs takes `timeout` seconds once, and nothing while it is left alone.
        """
        return tuple(self._query(index, values=True) for index in indices)

    def close(self) -> None:
        """End the child, or abandon it; takes no time to speak of."""
        if self._child is not None:
            self._let_go(_GOODBYE)
        self._abandoned = [child for child in self._abandoned if not child.reap()]

    # -- one query

    def _query(self, index: int, values: bool) -> GpuReading:
        silence = self._silent.get(index)
        if silence is not None and self._clock() < silence.until:
            return self._failed(index, silence.failure)
        try:
            child = self._running_child()
        except GpuError as exc:
            return self._failed(index, exc.failure)
        doing = "reading GPU %d" % index if values else "opening GPU %d" % index
        try:
            answer = child.ask({"index": index, "values": values}, self._timeout)
        except ChildHung:
            return self._silenced(index, nvml_errors.hung(doing, self._timeout))
        except ChildDied:
            return self._silenced(index, nvml_errors.crashed(doing))
        self._silent.pop(index, None)
        return self._same_gpu(wire.reading_from_dict(answer["reading"]))

    def _same_gpu(self, reading: GpuReading) -> GpuReading:
        """Refuse a reading of another GPU than the one this index meant at first."""
        if reading.identity is None:
            return replace(reading, identity=self._known.get(reading.index))
        known = self._known.setdefault(reading.index, reading.identity)
        if known.uuid == reading.identity.uuid:
            return reading
        return self._failed(
            reading.index,
            Failure(
                "identity_changed",
                "GPU %d was %s and is now %s" % (reading.index, known.uuid, reading.identity.uuid),
                "GPUs appeared or disappeared meanwhile: run the task again",
                permanent=True,
            ),
        )

    def _failed(self, index: int, failure: Failure) -> GpuReading:
        return GpuReading(index, identity=self._known.get(index), failure=failure)

    def _silenced(self, index: int, failure: Failure) -> GpuReading:
        self._let_go()
        before = self._silent.get(index)
        pause = before.pause * 2 if before else _FIRST_PAUSE
        self._silent[index] = _Silence(failure, self._clock() + pause, pause)
        return self._failed(index, failure)

    # -- children

    def _running_child(self) -> Child:
        if self._child is not None:
            return self._child
        child, system = self._start()
        if system.count != self.system.count:
            self._let_go()
            raise GpuError(
                Failure(
                    "count_changed",
                    "The driver had %d GPUs and has %d now" % (self.system.count, system.count),
                    "Run the task again when no GPU is being drained, reset or attached",
                    permanent=True,
                )
            )
        return child

    def _start(self) -> Tuple[Child, SystemInfo]:
        """Start a child with an open NVML session, and keep it.  Raises GpuError."""
        doing = "starting NVML"
        try:
            child = self._child = Child(self._make_reader)
        except OSError as exc:  # no process, no memory or no descriptors left
            raise GpuError(
                Failure("no_process", "Cannot start a process for %s: %s" % (doing, exc), "Check the host's limits")
            ) from exc
        self._pids |= {child.pid}
        try:
            answer = child.ask({}, self._timeout)
        except ChildHung:
            failure = nvml_errors.hung(doing, self._timeout)
        except ChildDied:
            failure = nvml_errors.crashed(doing)
        else:
            if "system" in answer:
                return child, wire.system_from_dict(answer["system"])
            failure = wire.failure_from_dict(answer["failure"])
        self._let_go()
        raise GpuError(failure)

    def _let_go(self, patience: float = 0.1) -> None:
        if self._child is not None and not self._child.dismiss(patience):
            self._abandoned.append(self._child)
        self._child = None
