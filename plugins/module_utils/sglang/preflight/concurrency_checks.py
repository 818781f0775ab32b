# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many requests run at a time: where that changes by itself, measurements compare unlike things."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.gpu_assignment import attention_dp
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculation import (
    DEFAULT_MAX_RUNNING_REQUESTS,
)

_NAME = "concurrency"
_LIMIT = "max_running_requests"
# The newer name first: the older one is kept as an alias of the option.
_GRAPH_LIMITS = ("cuda_graph_max_bs_decode", "cuda_graph_max_bs")
_GRAPH_SIZES = ("cuda_graph_bs_decode", "cuda_graph_bs")
_NO_GRAPHS = ("--disable-cuda-graph", "--disable-decode-cuda-graph")


def running_limit(effective: Mapping[str, Any]) -> Optional[int]:
    """The largest number of requests at a time, None where SGLang derives it from the GPU memory."""
    value = effective.get(_LIMIT)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return DEFAULT_MAX_RUNNING_REQUESTS if effective.get("speculative_algorithm") else None


def check_same_limit(effective: Mapping[str, Any], current: Optional[Mapping[str, Any]]) -> List[Check]:
    """Compare with the effective configuration of the current release, None where there is none."""
    if current is None or not (_LIMIT in current or "speculative_algorithm" in current):
        return []
    ours, before = running_limit(effective), running_limit(current)
    if ours == before:
        return []
    return [
        warning(
            _NAME,
            f"At a time would run {_words(ours)}, and with the current release it is {_words(before)}: a comparison of "
            "the two says nothing about speculation. Set max_running_requests to the same number in both.",
        )
    ]


def _words(limit: Optional[int]) -> str:
    return "as many requests as the GPU memory allows" if limit is None else f"at most {limit} requests"


def check_graphs(settings: Settings, effective: Mapping[str, Any]) -> List[Check]:
    """Batches that are larger than the largest CUDA graph run without one, and much slower."""
    limit, graphs = running_limit(effective), _largest_graph(effective)
    if limit is None or graphs is None or any(settings.extra_value(name) is not None for name in _NO_GRAPHS):
        return []
    if attention_dp(settings):
        limit //= max(settings.dp_size, 1)  # each rank has its share
    if limit <= graphs:
        return []
    return [
        warning(
            _NAME,
            f"Up to {limit} requests run at a time and the largest CUDA graph is for {graphs}: larger batches run "
            "without a graph, and slowly. Raise --cuda-graph-max-bs, or lower max_running_requests.",
        )
    ]


def _largest_graph(effective: Mapping[str, Any]) -> Optional[int]:
    for name in _GRAPH_LIMITS:
        value = effective.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    for name in _GRAPH_SIZES:
        sizes = effective.get(name)
        if isinstance(sizes, list) and sizes and all(isinstance(size, int) for size in sizes):
            return max(int(size) for size in sizes)
    return None
