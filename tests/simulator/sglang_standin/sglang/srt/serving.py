# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a running server: its status, its requests, what it generates."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional

from sglang.srt.behaviour import Behaviour
from sglang.srt.processes import responsive
from sglang.srt.server_args import ServerArgs, fields_of
from sglang.srt.spec import Speculation
from sglang.version import __version__, since

logger = logging.getLogger(__name__)

STARTING, UP, UNHEALTHY = "Starting", "Up", "UnHealthy"


class Server:
    """Everything that the endpoints show and change."""

    def __init__(
        self, server_args: ServerArgs, behaviour: Behaviour, max_total_num_tokens: int, scheduler_pids: List[int]
    ) -> None:
        self.args = server_args
        self.behaviour = behaviour
        self.speculation = Speculation(server_args, behaviour)
        self.max_total_num_tokens = max_total_num_tokens
        self.context_length = server_args.context_length or server_args.get_model_config().context_length
        self.concurrency = self._concurrency()
        self.status = STARTING
        self.leaving = False
        self.paused = False
        self.failed: Optional[str] = None
        self.alone = False  # another node of this server is gone
        self.started = time.time()
        self.first_request = threading.Event()
        self._scheduler_pids = scheduler_pids
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(self.concurrency)
        self._open = self._running = self._waiting = self._served = self._asked = 0
        self._abort = threading.Event()
        self._tokens = self._verifications = 0
        self._tier = self.speculation.active_steps(1)

    def _concurrency(self) -> int:
        limit = self.args.max_running_requests
        if limit is None:
            limit = min(max(int(self.max_total_num_tokens / self.context_length * 512), 2048), 4096)
        if self.args.enable_dp_attention:
            limit //= self.args.dp_size
        return max(1, limit)

    # ---- requests

    @property
    def open_requests(self) -> int:
        """Requests whose response is not written completely."""
        return self._open

    @contextmanager
    def open_request(self) -> Iterator[None]:
        """Hold this from a request's arrival until its response is written, so that a drain waits for it."""
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1

    @property
    def healthy(self) -> bool:
        return not self.behaviour.unhealthy and all(map(responsive, self._scheduler_pids))

    def stumbles(self) -> bool:
        """Whether the present request is one that gets 503; asking counts it."""
        with self._lock:
            self._asked += 1
            return bool(self.behaviour.fail_every) and self._asked % self.behaviour.fail_every == 0

    def abort_all(self) -> None:
        """End what runs with the tokens that it would have had."""
        with self._lock:
            aborted, self._abort = self._abort, threading.Event()
        aborted.set()

    def warm_up(self) -> None:
        """The server's own first request, which counts as none of its clients'."""
        self.first_request.set()
        self._run(8, None)

    def generate(
        self, tokens: int, on_progress: Optional[Callable[[int, Dict[str, Any]], None]] = None
    ) -> Dict[str, Any]:
        """One request: waits for a slot, takes its time, and returns the response's meta data.

        ``on_progress(number of tokens so far, meta data)`` is called for each step of a streamed response.
        """
        self.first_request.set()
        began = time.monotonic()
        with self._lock:
            self._waiting += 1
        with self._slots:
            with self._lock:
                self._waiting -= 1
                self._running += 1
                number = self._served
                self._served += 1
            try:
                self._misbehave(number)
                meta = self._run(tokens, on_progress)
            finally:
                with self._lock:
                    self._running -= 1
        meta["e2e_latency"] = time.monotonic() - began
        return meta

    def _misbehave(self, number: int) -> None:
        limit = self.behaviour.hang_after_requests
        while limit is not None and number >= limit:
            time.sleep(60)
        limit = self.behaviour.die_after_requests
        if limit is not None and number >= limit:
            self.failed = (
                "Scheduler hit an exception: RuntimeError: CUDA error: an illegal memory access was encountered"
            )
        while self.alone or not all(map(responsive, self._scheduler_pids)):
            time.sleep(0.1)

    def _run(self, tokens: int, on_progress: Optional[Callable[[int, Dict[str, Any]], None]]) -> Dict[str, Any]:
        running = self._running
        self._change_tier(running)
        meta: Dict[str, Any] = {
            "id": uuid.uuid4().hex,
            "finish_reason": {"type": "length", "length": tokens},
            "prompt_tokens": 8,
            "completion_tokens": tokens,
            "cached_tokens": 0,
            "weight_version": "default",
        }
        meta.update(self.speculation.meta(tokens, running))
        aborted = self._abort
        if on_progress is None:
            if aborted.wait(tokens / self.speculation.tokens_per_second(running)):
                meta["finish_reason"] = {"type": "abort", "message": "Abort in the waiting queue or while running"}
        else:
            plain = {name: value for name, value in meta.items() if not name.startswith("spec_")}
            for done in self._steps(tokens):
                aborted.wait(1 / self.speculation.tokens_per_second(self._running) * (done[1] - done[0]))
                # Of speculation only the last part of an answer tells.
                part = meta if done[1] == tokens else dict(plain, completion_tokens=done[1], finish_reason=None)
                on_progress(done[1], part)
        with self._lock:
            self._tokens += tokens
            self._verifications += meta.get("spec_verify_ct", 0)
        logger.info(
            "Decode batch, #running-req: %d, #token: %d, token usage: 0.00, %scuda graph: %s, "
            "gen throughput (token/s): %.2f, #queue-req: %d",
            running,
            tokens,
            "accept len: {:.2f}, accept rate: {:.2f}, ".format(meta["spec_accept_length"], meta["spec_accept_rate"])
            if self.speculation.enabled
            else "",
            not self.args.disable_cuda_graph,
            self.throughput(),
            self._waiting,
        )
        return meta

    def _change_tier(self, running: int) -> None:
        """Adaptive speculation goes by the requests that run, and says so in the log."""
        steps = self.speculation.active_steps(max(1, running))
        with self._lock:
            before, self._tier = self._tier, steps
        if before != steps:
            logger.info("Adaptive spec params updated: steps %d -> %d", before, steps)

    def _steps(self, tokens: int) -> Iterator[tuple[int, int]]:
        size = max(1, round(self.speculation.accept_length(self.speculation.active_steps(self._running))))
        for start in range(0, tokens, size):
            yield start, min(tokens, start + size)

    def throughput(self) -> float:
        """Tokens per second over all running streams."""
        running = max(1, self._running)
        return self.speculation.tokens_per_second(running) * running

    # ---- statistics

    def average_accept_length(self) -> Optional[float]:
        """Over everything since the start or the last flush; None while nothing was verified."""
        with self._lock:
            return self._tokens / self._verifications if self._verifications else None

    def flush(self) -> bool:
        """Forget the statistics and the cache; refused while requests run."""
        with self._lock:
            if self._running or self._waiting:
                return False
            self._tokens = self._verifications = 0
            return True

    # ---- what the endpoints show

    def info(self) -> Dict[str, Any]:
        """``/server_info``, keys and all: the real one shows API keys and the command line too."""
        shown = fields_of(self.args)
        shown.update(
            status="ready",
            max_total_num_tokens=self.max_total_num_tokens,
            max_req_input_len=self.context_length - 6,
            internal_states=[self._internal_state() for _rank in range(self.args.dp_size)],
            version=__version__,
        )
        if since(17):
            shown.update(startup_time={}, kv_events=None)
        if since(20):
            shown.update(launch_command=self.command_line, frontend="python")
        return shown

    command_line = ""

    def _internal_state(self) -> Dict[str, Any]:
        state = fields_of(self.args)
        state.update(
            last_gen_throughput=self.throughput() if self._served else 0.0,
            memory_usage={
                "weight": round(self.behaviour.weights_mib / 1024, 2),
                "kvcache": round(self.max_total_num_tokens / 16 / 1024, 2),
                "token_capacity": self.max_total_num_tokens,
                "graph": {"decode": 0.0} if since(17) else 0.0,
            },
        )
        if since(8):
            state["effective_max_running_requests_per_dp"] = self.concurrency
        average = self.average_accept_length()
        if self.speculation.enabled and average is not None:
            state["avg_spec_accept_length"] = average
        return state

    def model_info(self) -> Dict[str, Any]:
        model = self.args.get_model_config()
        shown = {
            "model_path": self.args.model_path,
            "tokenizer_path": self.args.tokenizer_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": model.model_type,
            "architectures": model.architectures,
        }
        if since(18):
            shown["served_model_name"] = self.args.served_model_name
        return shown

    def models(self) -> Dict[str, Any]:
        name = self.args.served_model_name
        model = {
            "id": name,
            "object": "model",
            "created": int(self.started),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self.context_length,
        }
        return {"object": "list", "data": [model]}

    def loads(self) -> Dict[str, Any]:
        average = self.average_accept_length() or 0.0
        loads = []
        for rank, (running, waiting) in enumerate(self._shares()):
            load = {
                "dp_rank": rank,
                "num_running_reqs": running,
                "num_waiting_reqs": waiting,
                "max_running_requests": self.concurrency,
                "token_usage": 0.0,
                "gen_throughput": self.throughput() if running else 0.0,
                "cache_hit_rate": 0.0,
                "utilization": running / self.concurrency,
                "memory": {},
                "queues": {},
            }
            if self.speculation.enabled:
                load["speculative"] = {"accept_length": average, "accept_rate": self._accept_rate(average)}
            loads.append(load)
        return {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "version": __version__,
            "accelerator": "NVIDIA H200",
            "num_accelerators": len(self._scheduler_pids),
            "loads": loads,
        }

    def early_loads(self) -> List[Dict[str, int]]:
        """``/get_load``, which later releases do not have."""
        return [
            {"dp_rank": rank, "num_reqs": running + waiting, "num_waiting_reqs": waiting, "num_tokens": 0}
            for rank, (running, waiting) in enumerate(self._shares())
        ]

    def _shares(self) -> Iterator[tuple[int, int]]:
        """Running and waiting requests of each replica."""
        ways = self.args.dp_size
        for rank in range(ways):
            yield (self._running + ways - 1 - rank) // ways, (self._waiting + ways - 1 - rank) // ways

    def _accept_rate(self, average: float) -> float:
        return max(0.0, average - 1) / self.speculation.steps if self.speculation.steps else 0.0

    def metrics(self) -> str:
        """Prometheus text."""
        labels = 'engine_type="unified",model_name="{}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'.format(
            self.args.served_model_name
        )
        average = self.average_accept_length() or 0.0
        values = {
            "num_running_reqs": self._running,
            "num_queue_reqs": self._waiting,
            "gen_throughput": self.throughput() if self._running else 0.0,
            "token_usage": 0.0,
        }
        if self.speculation.enabled:
            values["spec_accept_length"] = average
            values["spec_accept_rate"] = self._accept_rate(average)
        if since(13):
            steps = self.speculation.active_steps(max(1, self._running))
            adapts = getattr(self.args, "speculative_adaptive", False)
            values["spec_num_steps"] = steps
            values["spec_num_draft_tokens"] = steps + 1 if adapts else self.args.speculative_num_draft_tokens or 0
        lines = []
        for name, value in values.items():
            lines.append("# HELP sglang:{0} {0}".format(name))
            lines.append("# TYPE sglang:{} gauge".format(name))
            lines.append("sglang:{}{{{}}} {}".format(name, labels, float(value)))
        return "\n".join(lines) + "\n"
