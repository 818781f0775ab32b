# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.benchmark_progress_lines import progress_line

BEGUN = {
    "concurrency": 8,
    "point": 2,
    "points": 3,
    "repeat": 1,
    "repeats": 3,
    "requests": 12,
    "of": 32,
    "output_throughput": None,
    "accept_length": None,
    "elapsed": 21.4,
}


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "gpu-a main: concurrency 8 (2 of 3), repeat 1 of 3, 12 of 32 requests, 21 s"),
        ({"points": 1}, "gpu-a main: concurrency 8, repeat 1 of 3, 12 of 32 requests, 21 s"),
        ({"repeat": 0}, "gpu-a main: concurrency 8 (2 of 3), the client is being started, 21 s"),
        (
            {"repeat": 2, "output_throughput": 512.34, "accept_length": 2.711},
            "gpu-a main: concurrency 8 (2 of 3), repeat 2 of 3, 12 of 32 requests, 21 s, "
            "last 512.3 tok/s at 2.71 tokens a step",
        ),
        (
            {"repeat": 3, "output_throughput": 773, "elapsed": 130},
            "gpu-a main: concurrency 8 (2 of 3), repeat 3 of 3, 12 of 32 requests, 2 min 10 s, last 773.0 tok/s",
        ),
    ],
)
def test_lines(changed, line):
    assert progress_line("gpu-a main", {**BEGUN, **changed}) == line


def test_nothing_is_known():
    assert "the client is being started" in progress_line("gpu-a main", {})
