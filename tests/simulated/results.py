# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading the results of the GPU modules."""

from __future__ import annotations

import json

# A wait that is over as soon as the GPUs are free.
FREE = {"timeout": 10, "stable_for": 0.2, "interval": 0.02}
# A wait whose answer is no.
BUSY = {"timeout": 0.4, "stable_for": 0.1, "interval": 0.02}


def actions(result):
    """What became of each process, by PID."""
    return {row["pid"]: row["action"] for row in result["processes"]}


def process(result, pid):
    """One row of `processes`."""
    return next(row for row in result["processes"] if row["pid"] == pid)


def holder(result, pid):
    """One row of `holders`."""
    assert "holders" in result, result
    return next(row for row in result["holders"] if row["pid"] == pid)


def gpu(result, index):
    """One row of `gpus`."""
    return next(row for row in result["gpus"] if row["index"] == index)


def warnings(result):
    """Its warnings as one text, whichever form this ansible-core gives them."""
    return json.dumps(result.get("warnings", []))


def uuid(result, index):
    """The UUID of a GPU."""
    return gpu(result, index)["uuid"]
