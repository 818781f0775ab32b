# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The new Pythons of multiprocessing as forks of this one.

The real server has them spawned, and so has this one as far as others can see: the command line, the descriptors,
the signals and the resource tracker are those of a spawned process. But a new Python would import once more what this
one has imported, and that takes longer than everything else that a start of the stand-in does.
"""

from __future__ import annotations

import gc
import multiprocessing.util
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import Iterable, List, Sequence, Union

from sglang.srt.gpu_memory import fakegpu

AnyPath = Union[str, bytes]


def spawn_by_forks() -> None:
    """Let multiprocessing start its processes so, and import for all of them what the schedulers need."""
    with suppress(ImportError):  # they say so themselves
        import pynvml  # noqa: F401
    gc.freeze()  # no child need copy what nobody changes
    multiprocessing.util.spawnv_passfds = _start


def _start(path: AnyPath, args: Sequence[AnyPath], passfds: Iterable[int]) -> int:
    """Instead of multiprocessing.util.spawnv_passfds, and like it: returns the PID."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        words = [os.fsdecode(word) for word in args]
        fakegpu.set_title("\0".join(words), os.path.basename(os.fsdecode(path)))
        _forget_signal_handlers()
        _close_all_but({0, 1, 2, *passfds})
        _run(words)
        status = 0
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _forget_signal_handlers() -> None:
    """As exec does it: what was ignored still is."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)


def _close_all_but(kept: Iterable[int]) -> None:
    first = 0
    for descriptor in sorted(kept):
        if first < descriptor:
            os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _run(args: List[str]) -> None:
    """Be ``python … -c PROGRAM WORD…``."""
    position = args.index("-c")
    sys.argv = [args[position], *args[position + 2 :]]
    exec(args[position + 1], {"__name__": "__main__"})
