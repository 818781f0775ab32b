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
from sglang.srt.http_server import listen
from sglang.srt.processes import kill_descendants, kill_own_tree
from sglang.srt.server_args import ServerArgs
from sglang.srt.serving import UNHEALTHY, UP, Server
from sglang.version import since

logger = logging.getLogger(__name__)

# How often the main thread looks after the others (seconds).
TICK = 0.02


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
    for field, value in behaviour.effective_override.items():
        setattr(changed, field, value)
    return changed


class _Life:
    """One run of the main process."""

    def __init__(self, args: ServerArgs, behaviour: Behaviour) -> None:
        self.args = args
        self.behaviour = behaviour

    def run(self) -> int:
        """Returns the exit code of an orderly end."""
        signal.signal(signal.SIGQUIT, self._child_failed)
        if self.behaviour.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        logger.info("server_args=%r", self.args)
        self.engine = Engine(self.args, self.behaviour)
        tokens = self.engine.wait_until_loaded()
        logger.info(
            "max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, max_running_requests=%s",
            tokens,
            self.args.chunked_prefill_size,
            self.args.max_prefill_tokens,
            self.args.max_running_requests,
        )
        self.server = Server(self.args, self.behaviour, tokens, [p.pid for p in self.engine.schedulers])
        self.server.command_line = " ".join(sys.argv[1:])
        logger.info("INFO:     Started server process [%d]", os.getpid())
        http = listen(self.server)
        logger.info("INFO:     Uvicorn running on http://%s:%d (Press CTRL+C to quit)", self.args.host, self.args.port)
        threading.Thread(target=http.serve_forever, name="http", daemon=True).start()
        threading.Thread(target=self._warm_up, name="warm-up", daemon=True).start()
        self._supervise()
        return self._leave()

    # ---- starting

    def _child_failed(self, number: int, frame: Any) -> None:
        logger.error("Received sigquit from a child process. It usually means the child failed.")
        kill_own_tree()

    def _warm_up(self) -> None:
        """One real generation, and then the server counts as up."""
        if self.behaviour.never_ready:
            return
        if not self.args.skip_server_warmup:
            time.sleep(self.behaviour.warmup_seconds)
            if self.behaviour.die_in_warmup:
                self.server.failed = (
                    "Initialization failed. warmup error: Traceback (most recent call last):\n"
                    "AssertionError: {'error': {'message': 'Internal server error'}}"
                )
                return
            self.server.warm_up()
        self.server.status = UP
        logger.info("The server is fired up and ready to roll!")

    # ---- serving

    def _supervise(self) -> None:
        """Look after the processes, until SIGTERM. Signal handlers need the main thread, so this is it."""
        handles_term = False
        while not self.server.leaving:
            if not handles_term and self.server.first_request.is_set() and not self.behaviour.ignore_term:
                # Before the first request a SIGTERM simply ends the process.
                signal.signal(signal.SIGTERM, self._on_term)
                handles_term = True
            if self.server.failed:
                logger.error(self.server.failed)
                kill_own_tree()
            self._watch_children()
            time.sleep(TICK)

    def _watch_children(self) -> None:
        for process in self.engine.processes():
            if not process.is_alive() and since(10):
                logger.error(
                    "Subprocess %s (pid %d) crashed with exit code %s. Killing the server.",
                    process.name,
                    process.pid,
                    process.exitcode,
                )
                kill_own_tree()

    def _on_term(self, number: int, frame: Any) -> None:
        logger.warning("SIGTERM received. signum=%d. Draining requests and shutting down...", number)
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
        return 0
