# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From start to end: load, bind, warm up, serve, drain, leave."""

from __future__ import annotations

import copy
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from sglang.srt.behaviour import Behaviour, load_behaviour
from sglang.srt.engine import Engine
from sglang.srt.faults import reach
from sglang.srt.http_server import listen
from sglang.srt.node import run_node
from sglang.srt.processes import kill_descendants, kill_own_tree
from sglang.srt.rendezvous import Ring
from sglang.srt.resolution import disable_adaptive
from sglang.srt.segments import Segments, refuse_stale
from sglang.srt.server_args import ServerArgs
from sglang.srt.serving import UNHEALTHY, UP, Server
from sglang.srt.spawning import spawn_by_forks
from sglang.srt.tls import serves_https
from sglang.srt.warm_up import warm_up
from sglang.version import since

logger = logging.getLogger(__name__)

# How often the main thread looks after the others (seconds).
TICK = 0.02
# Longer than a busy machine keeps a thread waiting (seconds).
_LATE = 10


def serve(server_args: ServerArgs) -> None:
    """Run the server. Does not return; the process ends with the exit code of the release."""
    code = 1
    try:
        args = server_args.effective()
        args.check_server_args()
        behaviour = load_behaviour(args)
        code = _Life(_as_it_will_run(args, behaviour), behaviour).run()
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except Exception:
        logger.exception("The server failed to start")
    finally:
        kill_descendants()
    logging.shutdown()
    os._exit(code)


def _as_it_will_run(args: ServerArgs, behaviour: Behaviour) -> ServerArgs:
    """The arguments with the differences that this server is to have."""
    changed = copy.copy(args)
    if behaviour.report_adaptive_false and hasattr(changed, "speculative_adaptive"):
        changed.speculative_adaptive = False
    if behaviour.adaptive_disabled_by and getattr(changed, "speculative_adaptive", False):
        # What only the running server finds out: its parser alone had let it pass.
        disable_adaptive(changed, behaviour.adaptive_disabled_by)
    for field, value in behaviour.effective_override.items():
        setattr(changed, field, value)
    return changed


class _Life:
    """One run of the main process."""

    def __init__(self, args: ServerArgs, behaviour: Behaviour) -> None:
        self.args = args
        self.behaviour = behaviour
        self._handles_term = threading.Event()

    def run(self) -> int:
        """Returns the exit code of an orderly end."""
        signal.signal(signal.SIGQUIT, self._child_failed)
        if self.behaviour.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        logger.info("server_args=%r", self.args)
        if self.behaviour.refuse_stale_segments:
            refuse_stale()
        began = time.monotonic()
        self.segments = Segments()
        self.segments.of_main_process(self.args.enable_metrics)
        spawn_by_forks()
        self.engine = Engine(self.args, self.behaviour)
        self.ring = Ring(self.args)
        tokens = self._load()
        logger.info(
            "max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, max_running_requests=%s",
            tokens,
            self.args.chunked_prefill_size,
            self.args.max_prefill_tokens,
            self.args.max_running_requests,
        )
        if self.args.node_rank > 0:
            return run_node(self.args, self.engine, self.ring, self._watch_children)
        if since(17):
            logger.info(
                "Engine startup timings (s): load_weight=%.2f, kv_cache_allocation=0.00, tokenizer_e2e=%.2f",
                self.behaviour.load_seconds,
                time.monotonic() - began,
            )
        reach(self.behaviour, "bind")
        self.server = Server(self.args, self.behaviour, tokens, self.engine.scheduler_pids)
        self.server.command_line = " ".join(sys.argv[1:])
        logger.info("INFO:     Started server process [%d]", os.getpid())
        logger.info("INFO:     Waiting for application startup.")
        logger.info("INFO:     Application startup complete.")
        http = listen(self.server)
        where = ("https" if serves_https(self.args) else "http", self.args.host, self.args.port)
        logger.info("INFO:     Uvicorn running on %s://%s:%d (Press CTRL+C to quit)", *where)
        threading.Thread(target=http.serve_forever, name="http", daemon=True).start()
        threading.Thread(target=self._warm_up, name="warm-up", daemon=True).start()
        self._supervise()
        return self._leave()

    # ---- starting

    def _load(self) -> int:
        """The room for tokens, when all nodes have loaded."""
        if self.args.nnodes > 1:
            self.ring.meet(self.engine.schedulers.check_alive)
            self.engine.schedulers.go()
        tokens = self.engine.schedulers.wait_until_loaded()
        self.ring.finish_loading(self.engine.schedulers.check_alive)
        return tokens

    def _child_failed(self, number: int, frame: Any) -> None:
        self._collapse()

    def _collapse(self) -> None:
        """A child has failed: the end of all."""
        if since(17):
            logger.error("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        else:
            logger.error("Received sigquit from a child process. It usually means the child failed.")
        time.sleep(self.behaviour.diagnosis_seconds)
        kill_own_tree()

    def _warm_up(self) -> None:
        """One real generation, and then the server counts as up."""
        if self.behaviour.never_ready:
            return
        if not self.args.skip_server_warmup:
            self.server.failed = warm_up(self.server, self.behaviour)
            if self.server.failed:
                return
            if not self.behaviour.ignore_term:
                # Whoever ends a server that is up ends it in good order, however late the main thread was.
                self._handles_term.wait(_LATE)
        self.server.status = UP
        logger.info("The server is fired up and ready to roll!")

    # ---- serving

    def _supervise(self) -> None:
        """Look after the processes, until SIGTERM. Signal handlers need the main thread, so this is it."""
        while not self.server.leaving:
            wanted = self.server.first_request.is_set() and not self.behaviour.ignore_term
            if wanted and not self._handles_term.is_set():
                # Before the first request a SIGTERM simply ends the process.
                signal.signal(signal.SIGTERM, self._on_term)
                self._handles_term.set()
            if self.server.failed:
                logger.error(self.server.failed)
                kill_own_tree()
            self.server.alone = self.server.alone or self.ring.broken()
            self._watch_children()
            time.sleep(TICK)

    def _watch_children(self) -> None:
        for process in self.engine.watched:
            if not process.is_alive() and since(10):
                logger.error(
                    "Subprocess %s (pid=%d) crashed with exit code %s. Triggering SIGQUIT for cleanup...",
                    process.name,
                    process.pid,
                    process.exitcode,
                )
                self._collapse()

    def _on_term(self, number: int, frame: Any) -> None:
        logger.warning("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.server.leaving = True

    # ---- leaving

    def _leave(self) -> int:
        """Wait for the requests, without a limit; then end everything as the release does."""
        began = time.monotonic()
        while self.server.open_requests or time.monotonic() - began < self.behaviour.slow_drain:
            if self.server.status == UNHEALTHY or os.environ.get("SGL_FORCE_SHUTDOWN"):
                logger.error("Signal SIGTERM received while health check failed. Force exiting.")
                break
            self._watch_children()
            logger.info("Gracefully exiting... Remaining number of requests %d.", self.server.open_requests)
            time.sleep(self.behaviour.drain_poll_seconds)
        if not since(14):
            kill_own_tree()
        self.engine.shut_down()
        if not since(19):
            kill_own_tree()
        self.segments.remove()
        return 0
