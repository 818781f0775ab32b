# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting the server's other processes and waiting until they are ready."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from typing import Any, Callable, List

from sglang.srt.behaviour import Behaviour
from sglang.srt.detokenizer_process import run_detokenizer
from sglang.srt.scheduler_process import UNKNOWN, Rank, run_scheduler
from sglang.srt.server_args import ServerArgs


def ranks_of(server_args: ServerArgs) -> List[Rank]:
    """The schedulers of this node, with CUDA's number of the GPU that each uses."""
    replicas = 1 if server_args.enable_dp_attention else server_args.dp_size
    nodes_per_stage = max(server_args.nnodes // server_args.pp_size, 1)
    tp_here = server_args.tp_size // nodes_per_stage
    pp_here = max(server_args.pp_size // server_args.nnodes, 1)
    first_tp = server_args.node_rank % nodes_per_stage * tp_here
    first_pp = server_args.node_rank // nodes_per_stage * pp_here
    ranks: List[Rank] = []
    for dp in range(replicas):
        first = len(ranks)
        for pp in range(first_pp, first_pp + pp_here):
            for tp in range(first_tp, first_tp + tp_here):
                parts = []
                if server_args.dp_size > 1:
                    owner = tp * server_args.dp_size // server_args.tp_size if server_args.enable_dp_attention else dp
                    parts.append("DP{}".format(owner))
                if server_args.pp_size > 1:
                    parts.append("PP{}".format(pp))
                if server_args.tp_size > 1 or parts:
                    parts.append("TP{}".format(tp))
                gpu_id = server_args.base_gpu_id + len(ranks) * server_args.gpu_id_step
                ranks.append(Rank(len(ranks), gpu_id, " ".join(parts), dp, len(ranks) - first))
    return ranks


class SchedulerGroup:
    """The schedulers of this node, as children of the calling process."""

    def __init__(self, server_args: ServerArgs, behaviour: Behaviour) -> None:
        context = multiprocessing.get_context("spawn")
        ranks = ranks_of(server_args)
        sizes = [sum(rank.replica == number for rank in ranks) for number in range(ranks[-1].replica + 1)]
        # Kept as long as a child may still look at them. No barriers: each of those would leave semaphores in the
        # host's /dev/shm when the server is killed.
        self._figures = [context.RawArray("q", [UNKNOWN] * size) for size in sizes]
        self.processes: List[Any] = []
        self._channels: List[Any] = []
        for rank in ranks:
            ours, theirs = context.Pipe()
            process = context.Process(
                target=run_scheduler,
                args=(server_args, behaviour, rank, self._figures[rank.replica], theirs),
                daemon=True,
                name="scheduler_{}".format(rank.number),
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self._channels.append(ours)

    @property
    def pids(self) -> List[int]:
        return [process.pid for process in self.processes]

    def go(self) -> None:
        """All nodes are there."""
        _tell(self._channels, "go")

    def wait_until_loaded(self, check: Callable[[], None] = lambda: None) -> int:
        """The room for tokens, when all schedulers have it; ``check`` is called meanwhile and may raise.

        :raises RuntimeError: when one of them dies first without saying so by SIGQUIT.
        """
        room = []
        for number, channel in enumerate(self._channels):
            while not channel.poll(0.2):
                self.check_alive()
                check()
            try:
                room.append(channel.recv()["max_total_num_tokens"])
            except EOFError:
                self.check_alive()
                raise RuntimeError("Rank {} scheduler died during initialization".format(number)) from None
        return min(room)

    def check_alive(self) -> None:
        for number, process in enumerate(self.processes):
            if not process.is_alive():
                raise RuntimeError(
                    "Rank {} scheduler died during initialization (exit code: {}). If exit code is -9 (SIGKILL), "
                    "a common cause is the OS OOM killer.".format(number, process.exitcode)
                )

    def shut_down(self, timeout: float) -> None:
        _tell(self._channels, "shutdown")
        for process in self.processes:
            process.join(timeout)


class ControllerLink:
    """With several data-parallel replicas: the process that has the schedulers as its children."""

    def __init__(self, server_args: ServerArgs, behaviour: Behaviour) -> None:
        from sglang.srt.data_parallel_controller import run_controller

        context = multiprocessing.get_context("spawn")
        self._channel, theirs = context.Pipe()
        # Only a process that is no daemon may have children of its own.
        self._process = context.Process(
            target=run_controller, args=(server_args, behaviour, theirs), name="data_parallel_controller"
        )
        self._process.start()
        theirs.close()
        self.pids: List[int] = []
        # It is looked after by nobody: the main process does not notice its end.
        self.processes: List[Any] = []

    def go(self) -> None:
        _tell([self._channel], "go")

    def wait_until_loaded(self, check: Callable[[], None] = lambda: None) -> int:
        while not self._channel.poll(0.2):
            self.check_alive()
            check()
        try:
            answer = self._channel.recv()
        except EOFError:
            raise RuntimeError("Rank 0 scheduler is dead. Please check if there are relevant logs.") from None
        self.pids = answer["pids"]
        return answer["max_total_num_tokens"]

    def check_alive(self) -> None:
        if not self._process.is_alive():
            raise RuntimeError("Rank 0 scheduler is dead. Please check if there are relevant logs.")

    def shut_down(self, timeout: float) -> None:
        _tell([self._channel], "shutdown")
        self._process.join(timeout)


class Engine:
    """The processes below the main one."""

    def __init__(self, server_args: ServerArgs, behaviour: Behaviour) -> None:
        kind = ControllerLink if server_args.dp_size > 1 else SchedulerGroup
        self.schedulers = kind(server_args, behaviour)
        self.watched: List[Any] = list(self.schedulers.processes)
        self._detokenizer: List[Any] = []
        if server_args.node_rank == 0:
            self._start_detokenizer(behaviour)

    def _start_detokenizer(self, behaviour: Behaviour) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=run_detokenizer, args=(behaviour, theirs), daemon=True, name="detokenizer")
        process.start()
        theirs.close()
        self.watched.append(process)
        self._detokenizer = [process, ours]

    @property
    def scheduler_pids(self) -> List[int]:
        return self.schedulers.pids

    def shut_down(self, timeout: float = 15.0) -> None:
        """Ask every process to leave, and wait for it (seconds)."""
        if self._detokenizer:
            _tell(self._detokenizer[1:], "shutdown")
        self.schedulers.shut_down(timeout)
        for process in self._detokenizer[:1]:
            process.join(timeout)


def _tell(channels: List[Any], message: str) -> None:
    for channel in channels:
        with suppress(OSError):
            channel.send(message)
