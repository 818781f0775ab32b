# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the simulated host's GPUs through one reader, as the modules do: what it is told and answers is JSON."""

from __future__ import annotations

import dataclasses
import json
import time

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.open import open_session
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs


def main(wanted):
    """Print what one session says: {"reader", "indices", "timeout", "times"}."""
    print(json.dumps(session_of(wanted)))


def session_of(wanted):
    try:
        session = open_session(wanted["timeout"], ProcFs(), wanted["reader"])
    except GpuError as exc:
        return {"failure": dataclasses.asdict(exc.failure)}
    seconds = []
    with session:
        for _time in range(wanted["times"]):
            began = time.monotonic()
            readings = session.read(wanted["indices"])
            seconds.append(time.monotonic() - began)
        return {
            "system": dataclasses.asdict(session.system),
            "readings": [dataclasses.asdict(reading) for reading in readings],
            "identified": [dataclasses.asdict(reading) for reading in session.identify(wanted["indices"])],
            "seconds": seconds,
        }
