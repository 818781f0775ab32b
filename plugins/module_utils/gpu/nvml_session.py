# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An NVML session that survives a driver that does not answer.

It stays open between readings: without persistence mode the driver needs seconds to open a GPU
anew.  A GPU whose query hangs is left alone for a while, so that it costs the others no time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, FrozenSet, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import nvml_errors, wire
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import (
    Failure,
    GpuError,
    GpuReading,
    SystemInfo,
)
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_child import Child, ChildDied, ChildHung
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.nvml_reader import GpuReader
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.session_memory import (
    KnownGpus,
    Silences,
    count_changed,
)

if TYPE_CHECKING:
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_traits import GpuTraits

# Seconds that the end of the last child is waited for.  Its way out through the driver takes longer, and
# nobody has to wait for it: it is killed, holds nothing but its own session, and init reaps it.
_GOODBYE = 0.005


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
        self._child: Optional[Child] = None
        self._abandoned: List[Child] = []
        self._pids: FrozenSet[int] = frozenset()
        self._silences = Silences(clock)
        self._known = KnownGpus()
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

    def traits(self, indices: Sequence[int]) -> Tuple[GpuTraits, ...]:
        """What decides how these GPUs may be reset.  Never raises: what cannot be learnt stays unknown."""
        from ansible_collections.inferops.sglang.plugins.module_utils.gpu import reset_traits

        found = []
        for index in indices:
            traits = reset_traits.GpuTraits(index)
            if self._silences.about(index) is None:
                try:
                    answer = self._running_child().ask({"index": index, "values": False, "traits": True}, self._timeout)
                    traits = reset_traits.traits_from_dict(answer["traits"])
                except (ChildHung, ChildDied):
                    self._silenced(index, nvml_errors.hung("asking for the links of GPU %d" % index, self._timeout))
                except GpuError:
                    pass
            found.append(traits)
        return tuple(found)

    def close(self) -> None:
        """End the child, or abandon it; takes no time to speak of."""
        if self._child is not None:
            self._let_go(_GOODBYE)
        self._abandoned = [child for child in self._abandoned if not child.reap()]

    # -- one query

    def _query(self, index: int, values: bool) -> GpuReading:
        silent = self._silences.about(index)
        if silent is not None:
            return self._known.failed(index, silent)
        try:
            child = self._running_child()
        except GpuError as exc:
            return self._known.failed(index, exc.failure)
        doing = "reading GPU %d" % index if values else "opening GPU %d" % index
        try:
            answer = child.ask({"index": index, "values": values}, self._timeout)
        except ChildHung:
            return self._silenced(index, nvml_errors.hung(doing, self._timeout))
        except ChildDied:
            return self._silenced(index, nvml_errors.crashed(doing))
        self._silences.end(index)
        return self._known.same(wire.reading_from_dict(answer["reading"]))

    def _silenced(self, index: int, failure: Failure) -> GpuReading:
        self._let_go()
        self._silences.begin(index, failure)
        return self._known.failed(index, failure)

    # -- children

    def _running_child(self) -> Child:
        if self._child is not None:
            return self._child
        child, system = self._start()
        if system.count != self.system.count:
            self._let_go()
            raise GpuError(count_changed(self.system.count, system.count))
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
