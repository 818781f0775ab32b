# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stops in a start, where a server can be made to die or to hang."""

from __future__ import annotations

import re
import time

from sglang.srt.behaviour import Behaviour

# In their order. The last two are the main process's, the others the schedulers'.
PHASES = ("import", "torch", "weights", "kv_cache", "graphs", "draft_graphs", "bind", "warm_up")


def reach(behaviour: Behaviour, phase: str) -> None:
    """Say that a phase begins. :raises Exception: the one of ``crash_message``, where this server is to die here."""
    if behaviour.crash_at == phase:
        raise exception_of(behaviour.crash_message)
    while behaviour.hang_at == phase:
        time.sleep(60)


def exception_of(text: str) -> Exception:
    """``NameOfTheError: message`` as an exception, which a traceback shows just so."""
    name, colon, message = text.partition(": ")
    if not colon or not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        return RuntimeError(text)
    module, _dot, short = name.rpartition(".")
    return type(short, (Exception,), {"__module__": module or "builtins"})(message)
