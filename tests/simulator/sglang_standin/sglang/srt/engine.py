# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting the server's other processes and waiting until they are ready."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from typing import Any, List

from sglang.srt.behaviour import Behaviour
from sglang.srt.detokenizer_process import run_detokenizer
from sglang.srt.scheduler_process import Rank, run_scheduler
from sglang.srt.server_args import ServerArgs


def ranks_of(server_args: ServerArgs) -> List[Rank]:
    """The schedulers of one node, with CUDA's number of the GPU that each uses."""
    replicas = 1 if server_args.enable_dp_attention else server_args.dp_size
    ranks: List[Rank] = []
    for dp in range(replicas):
        for pp in range(server_args.pp_size):
            for tp in range(server_args.tp_size):
                parts = []
                if server_args.dp_size > 1:
                    owner = tp * server_args.dp_size // server_args.tp_size if server_args.enable_dp_attention else dp
                    parts.append("DP{}".format(owner))
                if server_args.pp_size > 1:
                    parts.append("PP{}".format(pp))
                if server_args.tp_size > 1 or parts:
                    parts.append("TP{}".format(tp))
                gpu_id = server_args.base_gpu_id + len(ranks) * server_args.gpu_id_step
                ranks.append(Rank(len(ranks), gpu_id, " ".join(parts)))
    return ranks


class Engine:
    """The processes below the main one."""

    def __init__(self, server_args: ServerArgs, behaviour: Behaviour) -> None:
        context = multiprocessing.get_context("spawn")
        ranks = ranks_of(server_args)
        meeting = context.Barrier(len(ranks))
        free_mib = context.Array("q", len(ranks))
        self.schedulers: List[Any] = []
        self._channels: List[Any] = []
        for rank in ranks:
            ours, theirs = context.Pipe()
            process = context.Process(
                target=run_scheduler, args=(server_args, behaviour, rank, meeting, free_mib, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self.schedulers.append(process)
            self._channels.append(ours)
        ours, theirs = context.Pipe()
        self.detokenizer = context.Process(target=run_detokenizer, args=(behaviour, theirs), daemon=True)
        self.detokenizer.start()
        theirs.close()
        self._channels.append(ours)
        # Keeps the shared figures and the barrier alive as long as a child may still look at them.
        self._shared = meeting, free_mib

    def wait_until_loaded(self) -> int:
        """The room for tokens, when all schedulers have it.

        :raises RuntimeError: when one of them dies first without saying so by SIGQUIT.
        """
        room = []
        for number, channel in enumerate(self._channels[:-1]):
            while not channel.poll(0.5):
                self._check_alive()
            try:
                room.append(channel.recv()["max_total_num_tokens"])
            except EOFError:
                self._check_alive()
                raise RuntimeError("Rank {} scheduler died during initialization".format(number)) from None
        return min(room)

    def _check_alive(self) -> None:
        for number, process in enumerate(self.schedulers):
            if not process.is_alive():
                raise RuntimeError(
                    "Rank {} scheduler died during initialization (exit code: {}). If exit code is -9 (SIGKILL), "
                    "a common cause is the OS OOM killer.".format(number, process.exitcode)
                )

    def processes(self) -> List[Any]:
        return [*self.schedulers, self.detokenizer]

    def shut_down(self, timeout: float = 15.0) -> None:
        """Ask every process to leave, and wait for it (seconds)."""
        for channel in self._channels:
            with suppress(OSError):
                channel.send("shutdown")
        for process in self.processes():
            process.join(timeout)
