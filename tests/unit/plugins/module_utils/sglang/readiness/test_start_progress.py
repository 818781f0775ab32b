# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress from logs: lines as several releases of SGLang write them."""

from __future__ import annotations

import time

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.start_progress import (
    LogWatch,
    Seen,
    StartProgress,
    progress_of,
)

T = "[2026-01-02 03:04:05] "
WEIGHTS = T + "Load weight begin. avail mem=139.13 GB"
WEIGHTS_END = T + "Load weight end. elapsed=0.15 s, type=LlamaForCausalLM, avail mem=139.05 GB, mem usage=0.07 GB."
KV = T + "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 131072, K size: 0.50 GB, V size: 0.50 GB"
GRAPHS = T + "Capture cuda graph begin. This can take up to several minutes. avail mem=6.10 GB"


@pytest.mark.parametrize(
    ("lines", "phase", "percent"),
    [
        ([], "starting", None),
        (["something that nobody knows"], "starting", None),
        ([T + "server_args=ServerArgs(model_path='/m', served='Load weight begin')"], "starting", None),
        ([T + "Init torch distributed begin."], "connecting", None),
        ([T + "Init torch distributed begin.", WEIGHTS], "loading_weights", None),
        (
            [WEIGHTS, "Loading safetensors checkpoint shards:  45% Completed | 5/11 [00:09<00:11,  1.85s/it]"],
            "loading_weights",
            45,
        ),
        (
            [WEIGHTS, "Multi-thread loading shards:  75% Completed | 3/4 [00:01<00:00,  1.17it/s]"],
            "loading_weights",
            75,
        ),
        ([WEIGHTS, "Loading pt checkpoint shards: 100% Completed | 2/2 [00:02<00:00]"], "loading_weights", 100),
        # Bars that were drawn over each other, on one line of the journal.
        (
            [
                WEIGHTS,
                "Multi-thread loading shards:   0% Completed | 0/2 [00:00<?, ?it/s]"
                "Multi-thread loading shards:  50% Completed | 1/2 [00:01<00:01,  1.17s/it]",
            ],
            "loading_weights",
            50,
        ),
        ([WEIGHTS, WEIGHTS_END], "allocating_cache", None),
        ([WEIGHTS, WEIGHTS_END, T + "Init torch distributed begin.", WEIGHTS], "loading_draft", None),
        ([WEIGHTS, WEIGHTS_END, WEIGHTS, WEIGHTS_END, KV], "allocating_cache", None),
        ([WEIGHTS, KV, GRAPHS], "capturing_graphs", None),
        (
            [GRAPHS, "Capturing batches (bs=8 avail_mem=5.97 GB):  33%|███▎      | 1/3 [00:03<00:07]"],
            "capturing_graphs",
            33,
        ),
        ([T + "Capture draft cuda graph begin. This can take up to several minutes."], "capturing_graphs", None),
        ([T + "Capture target verify CUDA graph begin. backend=full, bs=[1, 2]"], "capturing_graphs", None),
        (
            [T + "Capture target prefill CUDA graph begin.", "Capturing num tokens (num_tokens=4):  50%|"],
            "capturing_graphs",
            50,
        ),
        ([GRAPHS, T + "Try DeepGEMM JIT Compiling for <GEMM> N=7168"], "compiling_kernels", None),
        (["DeepGEMM warmup:  12%|█         | 123/1024 [00:12<01:30]"], "compiling_kernels", 12),
        ([GRAPHS, "[aiter] waiting for baton release at /root/.aiter/build/lock_x"], "compiling_kernels", None),
        ([GRAPHS, T + "INFO:     Uvicorn running on http://127.0.0.1:30000"], "warming_up", None),
        # An earlier start in the same file.
        ([WEIGHTS, GRAPHS, T + "The server is fired up and ready to roll!"], "starting", None),
        ([WEIGHTS, WEIGHTS_END, T + "SIGTERM received. signum=15.", WEIGHTS], "loading_weights", None),
    ],
)
def test_the_phase_that_a_log_shows(lines, phase, percent):
    found = progress_of(lines)
    assert (found.phase, found.percent) == (phase, percent)


def test_one_rank_of_several_tells_the_story():
    def ranked(rank, text):
        return "[2026-01-02 03:04:05 %s] %s" % (rank, text)

    begun = [ranked(rank, "Load weight begin. avail mem=1 GB") for rank in ("TP1", "TP10", "TP0", "TP2")]
    assert progress_of(begun).phase == "loading_weights"
    ended = [ranked("TP1", "Load weight end. elapsed=1 s"), ranked("TP10", "Capture cuda graph begin.")]
    assert progress_of(begun + ended).phase == "loading_weights"
    assert progress_of([*begun, ranked("TP0", "Load weight end. elapsed=1 s")]).phase == "allocating_cache"
    data_parallel = [ranked("DP%d TP0" % dp, "Load weight begin.") for dp in (1, 0)]
    assert progress_of(data_parallel).phase == "loading_weights"


def test_the_last_line_is_none_about_requests_for_health():
    probe = T + 'INFO:     127.0.0.1:33672 - "GET /health HTTP/1.1" 503 Service Unavailable'
    assert progress_of([GRAPHS, "x" * 500, probe, probe]).line.startswith("x" * 200 + " ... (300 more")
    assert progress_of([probe]).line == ""
    other = T + 'INFO:     127.0.0.1:33688 - "GET /model_info HTTP/1.1" 200 OK'
    assert log_tail.without_probes([probe, other, "/health is fine"]) == [other, "/health is fine"]


def test_where():
    assert StartProgress("loading_weights", 45).where == "loading_weights (45 %)"
    assert StartProgress("connecting").where == "connecting"


class Log:
    def __init__(self):
        self.now, self.reads, self.lines = 100.0, 0, [WEIGHTS]

    def read(self):
        self.reads += 1
        return self.lines

    def clock(self):
        return self.now


def test_a_log_is_not_read_more_often_than_it_must():
    log = Log()
    watch = LogWatch(log.read, log.clock, interval=5.0)
    assert watch.look().phase == "starting" and log.reads == 0
    log.now += 5
    assert watch.look().phase == "loading_weights" and log.reads == 1
    log.now += 4.9
    watch.look()
    assert log.reads == 1
    watch.look(now=True)
    assert log.reads == 2


def test_how_long_a_log_has_not_moved():
    log = Log()
    watch = LogWatch(log.read, log.clock)
    watch.look(now=True)
    log.now += 40
    watch.look()
    assert watch.silent == 40.0
    # The next part of the wait goes on counting, although it reads the same for the first time.
    later = LogWatch(log.read, log.clock, seen=Seen(watch.seen.end, watch.seen.at))
    log.now += 10
    later.look(now=True)
    assert later.silent == 50.0
    log.lines = [WEIGHTS, KV]
    later.look(now=True)
    assert later.silent == 0.0


@pytest.mark.parametrize("text", ["Loading ", "Capturing ", "DeepGEMM warmup "])
def test_a_long_line_takes_no_time(text):
    began = time.monotonic()
    progress_of(["[2026-01-02 03:04:05] Load weight begin.", text * 50000])
    assert time.monotonic() - began < 2


def test_the_last_of_many_bars_on_one_line_counts():
    bars = "".join("Loading safetensors checkpoint shards: %3d%% Completed | x" % done for done in range(100))
    assert progress_of(["[2026-01-02 03:04:05] Load weight begin.", bars]).percent == 99
