# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.concurrency_checks import (
    check_graphs,
    check_same_limit,
    running_limit,
)

SPEC = {"speculative_algorithm": "EAGLE3"}
BASELINE = {"speculative_algorithm": None}


@pytest.mark.parametrize(
    ("effective", "limit"),
    [
        (SPEC, 48),
        (dict(SPEC, max_running_requests=250), 250),
        (dict(SPEC, max_running_requests=None), 48),
        (BASELINE, None),
        (dict(BASELINE, max_running_requests=64), 64),
    ],
)
def test_the_limit_of_a_configuration(effective, limit):
    assert running_limit(effective) == limit


@pytest.mark.parametrize(
    ("ours", "current", "parts"),
    [
        (SPEC, None, []),
        (SPEC, {}, []),
        (SPEC, SPEC, []),
        (dict(SPEC, max_running_requests=64), dict(BASELINE, max_running_requests=64), []),
        (SPEC, BASELINE, ["at most 48", "GPU memory allows"]),
        (dict(SPEC, max_running_requests=64), SPEC, ["at most 64", "at most 48"]),
    ],
)
def test_unequal_limits_are_reported(ours, current, parts):
    found = check_same_limit(ours, current)
    assert bool(found) == bool(parts)
    assert all(part in found[0].message for part in parts)


@pytest.mark.parametrize(
    ("effective", "extra", "largest"),
    [
        ({"max_running_requests": 64, "cuda_graph_max_bs": 64}, (), None),
        ({"max_running_requests": 65, "cuda_graph_max_bs": 64}, (), 64),
        ({"max_running_requests": 65, "cuda_graph_max_bs_decode": 32, "cuda_graph_max_bs": None}, (), 32),
        ({"max_running_requests": 65, "cuda_graph_bs": [1, 2, 8]}, (), 8),
        ({"max_running_requests": 65, "cuda_graph_bs_decode": [1, 16]}, (), 16),
        ({"max_running_requests": 65}, (), None),
        ({"cuda_graph_max_bs": 1}, (), None),
        ({"max_running_requests": 65, "cuda_graph_max_bs": 64}, ("--disable-cuda-graph",), None),
        # Each rank of attention-DP has an eighth of the requests.
        ({"max_running_requests": 512, "cuda_graph_max_bs": 64}, ("--enable-dp-attention",), None),
        ({"max_running_requests": 520, "cuda_graph_max_bs": 64}, ("--enable-dp-attention",), 64),
    ],
)
def test_batches_beyond_the_largest_graph_are_reported(effective, extra, largest):
    found = check_graphs(Settings("/m", dp_size=8, extra_args=extra), effective)
    assert bool(found) == (largest is not None)
    assert all(f"for {largest}:" in check.message for check in found)
