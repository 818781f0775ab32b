# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of a server over some seconds: one look is a coin's throw where requests come and go."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.load import Client, Load, read_load

# Seconds from one sample to the next.
PAUSE = 1.0


@dataclass(frozen=True)
class Window:
    """What was seen, in requests that run or wait.

    seconds: how long it took; samples: those that were answered; unanswered: those that were not.  average and peak are
    None where none was.  complete: nothing is missing in them; else the true ones may be larger.
    """

    seconds: float
    samples: int
    unanswered: int
    average: Optional[float]
    peak: Optional[int]
    complete: bool

    def to_dict(self) -> Dict[str, Any]:
        """As it is returned by the module."""
        return {
            "seconds": round(self.seconds, 1),
            "samples": self.samples,
            "unanswered": self.unanswered,
            "average": None if self.average is None else round(self.average, 2),
            "peak": self.peak,
            "complete": self.complete,
        }


def watch_load(
    client: Client,
    timeout: float,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Tuple[Load, Window]:
    """Look for some seconds, each time with a limit of `timeout` seconds: the last load that was told, and all of them.

    A server that tells nothing the first two times is given up.
    """
    started = clock()
    loads: List[Load] = []
    while True:
        loads.append(read_load(client, timeout, clock))
        told = [load for load in loads if load.running is not None]
        left = seconds - (clock() - started)
        if left <= 0 or (not told and len(loads) > 1):
            break
        sleep(min(PAUSE, left))
    numbers = [(load.running or 0) + (load.waiting or 0) for load in told]
    unanswered = len(loads) - len(told)
    window = Window(
        clock() - started,
        len(told),
        unanswered,
        sum(numbers) / len(numbers) if numbers else None,
        max(numbers) if numbers else None,
        bool(told) and not unanswered and all(load.waiting is not None for load in told),
    )
    return (told or loads)[-1], window
