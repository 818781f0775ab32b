# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scheduler: one process per GPU, which holds the model's memory and otherwise sleeps."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sglang.srt.behaviour import Behaviour
from sglang.srt.faults import reach
from sglang.srt.gpu_memory import Device
from sglang.srt.jit_cache import build_kernels
from sglang.srt.model_config import ModelConfig
from sglang.srt.processes import become, linger
from sglang.srt.progress import capture_batches, load_shards
from sglang.srt.segments import Segments
from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)

TOKENS_PER_MIB = 16
UNKNOWN = -1
# How often a scheduler looks whether the others are as far (seconds).
_POLL = 0.005


@dataclass
class Rank:
    """Which of the schedulers this is."""

    number: int
    gpu_id: int
    label: str  # as "DP0 PP1 TP3"; empty when there is only one
    replica: int = 0
    place: int = 0  # within the replica

    @property
    def title(self) -> str:
        return "sglang::scheduler" + "".join("_" + part for part in self.label.split())


def run_scheduler(server_args: ServerArgs, behaviour: Behaviour, rank: Rank, free_mib: Any, channel: Any) -> None:
    """The process's whole life. ``free_mib`` are the shared figures of a replica's ranks, ``UNKNOWN`` at first."""
    parent = multiprocessing.parent_process().pid
    time.sleep(behaviour.import_seconds)
    become(rank.title, dies_with_parent=not behaviour.outlive_parent)
    logging.basicConfig(
        level=server_args.log_level.upper(),
        format="[%(asctime)s{}] %(message)s".format(" " + rank.label if rank.label else ""),
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    segments = Segments()
    try:
        reach(behaviour, "import")
        segments.of_scheduler()
        tokens = _load(server_args, behaviour, rank, free_mib, channel)
        _report(channel, {"status": "ready", "max_total_num_tokens": tokens})
    except Exception:
        logger.error("Scheduler hit an exception: %s", traceback.format_exc())
        if os.getppid() == parent:
            os.kill(parent, signal.SIGQUIT)
        sys.exit(1)
    if os.getppid() != parent:
        # An orphan from the import window: it came up after its parent was killed.
        linger(behaviour.orphan_seconds)
    _serve(behaviour, channel, segments)


def _load(server_args: ServerArgs, behaviour: Behaviour, rank: Rank, free_mib: Any, channel: Any) -> int:
    """Take the memory as the real one does, in the same order. Returns the room for tokens."""
    reach(behaviour, "torch")
    logger.info("Init torch distributed begin.")
    if server_args.nnodes > 1:
        channel.recv()  # when the other nodes are there
    device = Device(rank.gpu_id)
    free, total = device.memory()
    free_mib[rank.place] = free
    while UNKNOWN in free_mib:  # nobody takes memory before all have looked
        time.sleep(_POLL)
    least = min(free_mib)
    logger.info("Init torch distributed ends. elapsed=0.02 s, mem usage=0.09 GB")
    if len(free_mib) > 1:
        _check_balance(least / 1024, free / 1024)
    if rank.number == 0:
        build_kernels(behaviour.compile_seconds)
    reach(behaviour, "weights")
    goal = int(server_args.mem_fraction_static * total)
    weights = _load_weights(server_args, behaviour, device, rank)
    cache = goal - weights
    if cache <= 0 or goal > free:
        raise RuntimeError(
            "Not enough memory. Please try to increase --mem-fraction-static. Current value: "
            "mem_fraction_static={}".format(server_args.mem_fraction_static)
        )
    reach(behaviour, "kv_cache")
    device.allocate(cache, "kv-cache")
    tokens = min(cache * TOKENS_PER_MIB, server_args.max_total_tokens or sys.maxsize)
    half = cache / 2 / 1024
    logger.info(
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: %d, K size: %.2f GB, V size: %.2f GB",
        tokens,
        half,
        half,
    )
    logger.info("Memory pool end. avail mem=%.2f GB", device.memory()[0] / 1024)
    _capture_graphs(server_args, behaviour, device, rank.number == 0)
    while behaviour.hang_at_load:
        time.sleep(60)
    return tokens


def _check_balance(pre_model_load_memory: float, local_gpu_memory: float) -> None:
    """All ranks need about the same room (GiB)."""
    if pre_model_load_memory >= local_gpu_memory * 0.9:
        return
    message = (
        "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory={}, local_gpu_memory={}, local_gpu_memory * 0.9={}".format(
            pre_model_load_memory, local_gpu_memory, local_gpu_memory * 0.9
        )
    )
    if os.environ.get("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "true").lower() in ("0", "false", "no"):
        logger.warning(message)
    else:
        raise RuntimeError(message)


def _load_weights(server_args: ServerArgs, behaviour: Behaviour, device: Device, rank: Rank) -> int:
    """Target, then draft. Returns the MiB that they take."""
    models = [(ModelConfig(server_args.model_path), behaviour.weights_mib)]
    speculates = server_args.speculative_algorithm not in (None, "NGRAM")
    if speculates:
        path = server_args.speculative_draft_model_path
        if path is None:
            raise AttributeError("'NoneType' object has no attribute 'startswith' (speculative_draft_model_path)")
        models.append((ModelConfig(path), behaviour.draft_weights_mib))
    for model, mib in models:
        free = device.memory()[0]
        logger.info("Load weight begin. avail mem=%.2f GB", free / 1024)
        load_shards(behaviour.load_seconds / len(models), behaviour.shards, visible=rank.number == 0)
        if behaviour.die_at_load:
            mib = max(mib, free + 1024)  # more than there is
        device.allocate(mib, "weights")
        logger.info(
            "Load weight end. elapsed=%.2f s, type=%s, avail mem=%.2f GB, mem usage=%.2f GB.",
            behaviour.load_seconds / len(models),
            model.architectures[0],
            device.memory()[0] / 1024,
            mib / 1024,
        )
    if speculates and 0 < models[1][0].hidden_size != models[0][0].hidden_size:
        raise RuntimeError(
            "The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension 0".format(
                models[1][0].hidden_size, models[0][0].hidden_size
            )
        )
    return sum(mib for _model, mib in models)


def _capture_graphs(server_args: ServerArgs, behaviour: Behaviour, device: Device, visible: bool) -> None:
    """The target's graphs, then the draft's."""
    if server_args.disable_cuda_graph or server_args.cuda_graph_backend_decode == "disabled":
        return
    kinds = [("graphs", "")]
    if server_args.speculative_algorithm not in (None, "NGRAM"):
        kinds.append(("draft_graphs", "draft "))
    largest = server_args.cuda_graph_max_bs or 8
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256) if size <= largest]
    for phase, which in kinds:
        free = device.memory()[0] / 1024
        logger.info("Capture %scuda graph begin. This can take up to several minutes. avail mem=%.2f GB", which, free)
        logger.info("Capture %scuda graph bs %s", which, sizes)
        if behaviour.graph_capture_failure:
            raise Exception(
                "Capture cuda graph failed: CUDA out of memory.\nPossible solutions:\n"
                "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
                "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
            )
        began = time.monotonic()
        capture_batches(behaviour.graph_seconds / len(kinds), sizes, free, visible)
        reach(behaviour, phase)
        logger.info(
            "Capture %scuda graph end. Time elapsed: %.2f s. mem usage=0.00 GB. avail mem=%.2f GB.",
            which,
            time.monotonic() - began,
            free,
        )


def _report(channel: Any, message: Any) -> None:
    with suppress(OSError):  # the parent may be gone; see run_scheduler
        channel.send(message)


def _serve(behaviour: Behaviour, channel: Any, segments: Segments) -> None:
    """Hold the memory until the parent says so or is gone."""
    try:
        channel.recv()
    except (EOFError, OSError):
        if behaviour.outlive_parent:
            linger(behaviour.orphan_seconds)
        os._exit(1)
    segments.remove()
    time.sleep(behaviour.unpin_seconds)
    os._exit(0)
