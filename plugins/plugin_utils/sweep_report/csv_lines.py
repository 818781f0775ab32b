# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of a sweep as CSV, one line for each repeat of each point: pure."""

from __future__ import annotations

import csv
import io
from typing import Any, Dict, Iterator, Mapping

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import NUMBERS

_SETTINGS = ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens")
_OF_THE_ROW = ("name", "key", "baseline", "adaptive")
# What a point was asked for; what was reached is the client's own figure of that name.
_ASKED, _REACHED = "concurrency", "concurrency_reached"
COLUMNS = (
    "configuration",
    *_OF_THE_ROW[1:],
    *_SETTINGS,
    "host",
    "version",
    "state",
    "reason",
    _ASKED,
    "num_prompts",
    "repeat",
    *(_REACHED if name == "concurrency" else name for name in NUMBERS),
    "accept_length_source",
)
# A cell that begins so is a formula to a spreadsheet, whoever wrote it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_of(document: Mapping[str, Any]) -> str:
    """The lines with their header.

    A point that failed, and a configuration without any point, has a line without figures: its state and reason.
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in document["configurations"]:
        for line in _lines(row):
            writer.writerow({name: _cell(value) for name, value in line.items()})
    return stream.getvalue()


def _lines(row: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    own = {
        "configuration": row["name"],
        **{name: row[name] for name in _OF_THE_ROW[1:]},
        **{name: row["settings"].get(name) for name in _SETTINGS},
        "host": row["host"],
        "version": row["version"],
        "state": row["state"],
        "reason": row["reason"],
    }
    if not row["points"]:
        yield own
    for point in row["points"]:
        asked = {_ASKED: point["concurrency"], "num_prompts": point["num_prompts"]}
        here = {**own, **asked, "state": point["state"], "reason": point["reason"]}
        if not point["repeats"]:
            yield here
        for position, repeat in enumerate(point["repeats"]):
            figures = {_REACHED if name == "concurrency" else name: repeat[name] for name in NUMBERS}
            yield {**here, "repeat": position + 1, **figures, "accept_length_source": repeat["accept_length_source"]}


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value
