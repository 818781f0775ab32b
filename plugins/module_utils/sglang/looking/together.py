# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does several things that wait for somebody else at the same time, and gives up those that take too long."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Sequence, TypeVar

Result = TypeVar("Result")

# How many are under way at a time: a folder with a thousand instances must not start thousands of threads.
_MOST_AT_A_TIME = 48


def together(
    jobs: Sequence[Callable[[], Result]], patience: float, late: Result, at_a_time: int = _MOST_AT_A_TIME
) -> List[Result]:
    """The results of all jobs, in their order; `late` for one that took more than `patience` seconds.

    A job that is given up goes on in a thread that does not keep the program from ending.  Raises what a job raised.
    """
    results: List[Result] = []
    for first in range(0, len(jobs), at_a_time):
        results += _batch(jobs[first : first + at_a_time], patience, late)
    return results


def _batch(jobs: Sequence[Callable[[], Result]], patience: float, late: Result) -> List[Result]:
    done: Dict[int, Any] = {}
    failed: Dict[int, BaseException] = {}

    def work(place: int, job: Callable[[], Result]) -> None:
        try:
            done[place] = job()
        except BaseException as error:
            failed[place] = error

    threads = [threading.Thread(target=work, args=(place, job), daemon=True) for place, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for error in list(failed.values()):  # one that was given up may still fail
        raise error
    return [done.get(place, late) for place in range(len(jobs))]
