# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of one server other than the first: they serve nobody, and their /health says 200 whatever happens."""

from __future__ import annotations

import logging
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any, Callable

from sglang.srt.engine import Engine
from sglang.srt.http_server import PlainHttpServer
from sglang.srt.rendezvous import Ring
from sglang.srt.server_args import ServerArgs
from sglang.version import since

logger = logging.getLogger(__name__)

_TICK = 0.02


class _Dummy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/health", "/health_generate") else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def run_node(args: ServerArgs, engine: Engine, ring: Ring, watch: Callable[[], None]) -> int:
    """From the end of loading to the end. From 0.5.23 on SIGTERM alone ends nothing: the first node has to go first.

    ``watch`` looks after the other processes.
    """
    terminated = threading.Event()

    def on_term(number: int, frame: Any) -> None:
        logger.warning("SIGTERM received on node rank %d. Waiting for node rank 0.", args.node_rank)
        terminated.set()

    if since(23):
        signal.signal(signal.SIGTERM, on_term)
    dummy = PlainHttpServer((args.host, args.port), _Dummy)
    threading.Thread(target=dummy.serve_forever, name="http", daemon=True).start()
    logger.info("Dummy health check server started in background thread at %s:%d", args.host, args.port)
    while not (terminated.is_set() and ring.broken()):
        watch()
        time.sleep(_TICK)
    engine.shut_down()
    return 0
