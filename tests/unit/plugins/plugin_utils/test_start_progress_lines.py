# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that are shown while a server is waited for."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness import phases
from ansible_collections.inferops.sglang.plugins.plugin_utils import start_progress_lines
from ansible_collections.inferops.sglang.plugins.plugin_utils.start_progress_lines import (
    duration,
    interval_for,
    label,
    lost_line,
    progress_line,
    rough,
)


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (
            {"phase": "loading_weights", "percent": 45, "elapsed": 130.2, "left": 329.8, "last_start": 460.0},
            "gpu-a main: loading weights 45 %, 2 min 10 s, about 5 min left (last start 7 min 40 s)",
        ),
        ({"phase": "starting", "percent": None, "elapsed": 7}, "gpu-a main: starting, 7 s"),
        (
            {"phase": "capturing_graphs", "elapsed": 500, "left": 0.0, "last_start": 460.0},
            "gpu-a main: capturing CUDA graphs, 8 min 20 s, longer than the last start (7 min 40 s)",
        ),
        (
            {"phase": "soaking", "elapsed": 470, "requests": 40, "of": 128, "left": None, "last_start": None},
            "gpu-a main: serving under load, 40 of 128 requests, 7 min 50 s",
        ),
        (
            {"phase": "connecting", "elapsed": 300, "silent": 240.0},
            "gpu-a main: connecting its ranks, 5 min 00 s, its log has not moved for 4 min 00 s",
        ),
        ({"phase": "loading_draft", "elapsed": 60, "silent": 3.0}, "gpu-a main: loading the draft model, 1 min 00 s"),
        ({"phase": "something_new", "elapsed": 60}, "gpu-a main: something_new, 1 min 00 s"),
        ({}, "gpu-a main: waiting, 0 s"),
    ],
)
def test_a_line(progress, line):
    assert progress_line("gpu-a main", progress) == line


def test_every_phase_has_words():
    assert sorted(start_progress_lines._WORDS) == sorted(phases.ALL)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_a_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "10 s"), (44, "40 s"), (89, "90 s"), (100, "2 min"), (3500, "58 min"), (4000, "1 h 07 min")],
)
def test_a_rough_time(seconds, text):
    assert rough(seconds) == text


@pytest.mark.parametrize(("asked", "hosts", "interval"), [(10, 1, 10), (10, 10, 10), (10, 100, 100), (0.5, 1, 1)])
def test_many_hosts_speak_less_often(asked, hosts, interval):
    assert interval_for(asked, hosts) == interval


def test_whom_it_is_about():
    assert label("gpu-a", "main", None) == "gpu-a main"
    assert label("localhost", "main", "gpu-a") == "localhost -> gpu-a main"
    assert label("gpu-a", "main", "gpu-a") == "gpu-a main"


def test_a_lost_connection_is_one_line():
    line = lost_line("gpu-a main", "Failed to connect\r\nto the host via ssh: %s" % ("x" * 500), 1, 3, 5.0)
    assert "\n" not in line and "\r" not in line and len(line) < 300
    assert line.startswith("gpu-a main: the connection is lost (Failed to connect to the host")
    assert line.endswith("trying again in 5 s (1 of 3)")
