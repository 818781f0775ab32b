# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The detokenizer: a process beside the schedulers, with nothing to do here."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

from sglang.srt.behaviour import Behaviour
from sglang.srt.processes import become


def run_detokenizer(behaviour: Behaviour, channel: Any) -> None:
    time.sleep(behaviour.import_seconds)
    become("sglang::detokenizer", dies_with_parent=not behaviour.outlive_parent)
    with suppress(EOFError, OSError):
        channel.recv()
    os._exit(0)
