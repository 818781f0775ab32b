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
from sglang.srt.gpu_memory import Device
from sglang.srt.model_config import ModelConfig
from sglang.srt.processes import become
from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)

TOKENS_PER_MIB = 16


@dataclass
class Rank:
    """Which of the schedulers this is."""

    number: int
    gpu_id: int
    label: str  # as "DP0 PP1 TP3"; empty when there is only one

    @property
    def title(self) -> str:
        return "sglang::scheduler" + "".join("_" + part for part in self.label.split())


def run_scheduler(
    server_args: ServerArgs, behaviour: Behaviour, rank: Rank, meeting: Any, free_mib: Any, channel: Any
) -> None:
    """The process's whole life. ``meeting`` is a barrier of all ranks and ``free_mib`` their shared figures."""
    parent = multiprocessing.parent_process().pid
    time.sleep(behaviour.import_seconds)
    become(rank.title)
    logging.basicConfig(
        level=server_args.log_level.upper(),
        format="[%(asctime)s{}] %(message)s".format(" " + rank.label if rank.label else ""),
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        tokens = _load(server_args, behaviour, rank, meeting, free_mib)
        _report(channel, {"status": "ready", "max_total_num_tokens": tokens})
    except Exception:
        logger.error("Scheduler hit an exception: %s", traceback.format_exc())
        if os.getppid() == parent:
            os.kill(parent, signal.SIGQUIT)
        sys.exit(1)
    if os.getppid() != parent:
        _linger(behaviour)
    _serve(channel)


def _load(server_args: ServerArgs, behaviour: Behaviour, rank: Rank, meeting: Any, free_mib: Any) -> int:
    """Take the memory as the real one does, in the same order. Returns the room for tokens."""
    logger.info("Init torch distributed begin.")
    device = Device(rank.gpu_id)
    free, total = device.memory()
    free_mib[rank.number] = free
    meeting.wait()
    least = min(free_mib)
    meeting.wait()
    logger.info("Init torch distributed ends. elapsed=0.02 s, mem usage=0.09 GB")
    if len(free_mib) > 1:
        _check_balance(least / 1024, free / 1024)
    goal = int(server_args.mem_fraction_static * total)
    weights = _load_weights(server_args, behaviour, device, rank)
    cache = goal - weights
    if cache <= 0 or goal > free:
        raise RuntimeError(
            "Not enough memory. Please try to increase --mem-fraction-static. Current value: "
            "mem_fraction_static={}".format(server_args.mem_fraction_static)
        )
    device.allocate(cache, "kv-cache")
    tokens = min(cache * TOKENS_PER_MIB, server_args.max_total_tokens or sys.maxsize)
    logger.info("KV Cache is allocated. dtype: torch.bfloat16, #tokens: %d", tokens)
    logger.info("Memory pool end. avail mem=%.2f GB", device.memory()[0] / 1024)
    _capture_graphs(server_args, behaviour, device)
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
        _pretend_to_load(behaviour.load_seconds / len(models), progress=rank.number == 0)
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


def _pretend_to_load(seconds: float, progress: bool) -> None:
    shards = 4
    for done in range(shards + 1):
        if progress:
            sys.stderr.write(
                "\rLoading safetensors checkpoint shards: {:3d}% Completed | {}/{} [00:00<00:00, 9.02it/s]".format(
                    100 * done // shards, done, shards
                )
            )
            sys.stderr.flush()
        if done < shards:
            time.sleep(seconds / shards)
    if progress:
        sys.stderr.write("\n")


def _capture_graphs(server_args: ServerArgs, behaviour: Behaviour, device: Device) -> None:
    if server_args.disable_cuda_graph or server_args.cuda_graph_backend_decode == "disabled":
        return
    free = device.memory()[0] / 1024
    logger.info("Capture cuda graph begin. This can take up to several minutes. avail mem=%.2f GB", free)
    if behaviour.graph_capture_failure:
        raise Exception(
            "Capture cuda graph failed: CUDA out of memory.\nPossible solutions:\n"
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
            "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
        )
    logger.info("Capture cuda graph end. Time elapsed: 0.01 s. mem usage=0.00 GB. avail mem=%.2f GB.", free)


def _report(channel: Any, message: Any) -> None:
    with suppress(OSError):  # the parent may be gone; see _linger
        channel.send(message)


def _linger(behaviour: Behaviour) -> None:
    """An orphan from the import window: it came up after its parent was killed, holds its memory, and serves nobody.

    A real one stays until somebody ends it; this one leaves in the end, so that no test can leak it for ever.
    """
    time.sleep(behaviour.orphan_seconds)
    os._exit(1)


def _serve(channel: Any) -> None:
    """Hold the memory until the parent says so or is gone."""
    with suppress(EOFError, OSError):
        channel.recv()
    os._exit(0)
