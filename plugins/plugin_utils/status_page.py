# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a fleet as one self-contained HTML page: pure but for reading its template."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.plugin_utils import status_text
from ansible_collections.inferops.sglang.plugins.plugin_utils.html_page import render
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_differences import differing_columns
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_holders import labels

_TEMPLATE = "gpu_status.html.j2"
_HOLDERS = 4


def page(
    hosts: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    written: str,
) -> str:
    """The page.  What hosts returned is data for the template and never part of it."""
    odd = differing_columns(found)
    return render(
        _TEMPLATE,
        written=written,
        summary=status_text.summary_line(summary),
        groups=len({entry["group"] for entry in hosts}),
        differences=[{**item, "told": status_text.difference_line(item)} for item in found],
        problems=status_text.problem_lines(hosts),
        hosts=[_host(entry, odd.get(entry["host"], [])) for entry in hosts],
    )


def _host(entry: Mapping[str, Any], differs: List[str]) -> Dict[str, Any]:
    return {
        "host": entry["host"],
        "group": entry["group"],
        "driver": entry["driver"],
        "differs": differs,
        "gpu_counts": status_text.gpu_counts(entry),
        "memory": status_text.memory_of(entry),
        "users": status_text.holders_of(entry, _HOLDERS),
        "gpus": None if entry["gpus"] is None else [_gpu(gpu) for gpu in entry["gpus"]],
        "servers": None if entry["servers"] is None else [_server(server) for server in entry["servers"]],
    }


def _gpu(gpu: Mapping[str, Any]) -> Dict[str, Any]:
    return {**gpu, "memory": status_text.gpu_memory(gpu), "users": labels(gpu["holders"], _HOLDERS)}


def _server(server: Mapping[str, Any]) -> Dict[str, Any]:
    return {**server, "accept": status_text.acceptance(server), "shown_load": status_text.load(server)}
