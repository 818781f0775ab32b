# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a session remembers between readings: which GPU an index means, and what does not answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Dict, Hashable, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure, GpuIdentity, GpuReading

# Seconds until what did not answer is asked again: doubled each time it fails again.
_FIRST_PAUSE = 30.0


class KnownGpus:
    """The GPUs that the indices meant when they were read first."""

    def __init__(self) -> None:
        self._known: Dict[int, GpuIdentity] = {}

    def get(self, index: int) -> Optional[GpuIdentity]:
        """The GPU that an index means, or None where it has not been read yet."""
        return self._known.get(index)

    def failed(self, index: int, failure: Failure) -> GpuReading:
        """A reading that says no more than why there is none."""
        return GpuReading(index, identity=self._known.get(index), failure=failure)

    def same(self, reading: GpuReading) -> GpuReading:
        """The reading, refused where it is of another GPU than the one this index meant at first."""
        if reading.identity is None:
            return replace(reading, identity=self._known.get(reading.index))
        known = self._known.setdefault(reading.index, reading.identity)
        if known.uuid == reading.identity.uuid:
            return reading
        return self.failed(
            reading.index,
            Failure(
                "identity_changed",
                "GPU %d was %s and is now %s" % (reading.index, known.uuid, reading.identity.uuid),
                "GPUs appeared or disappeared meanwhile: run the task again",
                permanent=True,
            ),
        )


@dataclass(frozen=True)
class _Silence:
    """What did not answer, and until when it is left alone."""

    failure: Failure
    until: float
    pause: float


class Silences:
    """What did not answer is left alone for a while, so that it costs the rest no time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._silent: Dict[Hashable, _Silence] = {}

    def about(self, key: Hashable) -> Optional[Failure]:
        """Why it is not to be asked now, or None where it is."""
        silence = self._silent.get(key)
        return silence.failure if silence is not None and self._clock() < silence.until else None

    def begin(self, key: Hashable, failure: Failure) -> None:
        """Leave it alone, for longer each time."""
        before = self._silent.get(key)
        pause = before.pause * 2 if before else _FIRST_PAUSE
        self._silent[key] = _Silence(failure, self._clock() + pause, pause)

    def end(self, key: Hashable) -> None:
        """It has answered."""
        self._silent.pop(key, None)


def count_changed(before: int, now: int) -> Failure:
    """The driver has another number of GPUs than when the session began."""
    return Failure(
        "count_changed",
        "The driver had %d GPUs and has %d now" % (before, now),
        "Run the task again when no GPU is being drained, reset or attached",
        permanent=True,
    )
