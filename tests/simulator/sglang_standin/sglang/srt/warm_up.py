# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's first request, which it sends to itself through HTTP: proxies of the environment get in its way."""

from __future__ import annotations

import time
import traceback
import urllib.request
from typing import Optional

from sglang.srt.behaviour import Behaviour
from sglang.srt.faults import reach
from sglang.srt.serving import Server
from sglang.srt.tls import client_context, serves_https

_REQUEST_TIMEOUT = 5
_PAUSE = 0.05


def warm_up(server: Server, behaviour: Behaviour) -> Optional[str]:
    """Ask for the model, then generate. Returns what the log says of a failure, which ends the server."""
    time.sleep(behaviour.warmup_seconds)
    if behaviour.die_in_warmup:
        return _failed("AssertionError: {'error': {'message': 'Internal server error'}}")
    problem = _ask_for_model(server, behaviour.warmup_polls)
    if problem is not None:
        return _failed(problem)
    server.first_request.set()
    try:
        _check_layers(server)
        reach(behaviour, "warm_up")
    except Exception:
        return "Scheduler hit an exception: " + traceback.format_exc()
    server.warm_up()
    return None


def _failed(problem: str) -> str:
    return "Initialization failed. warmup error: Traceback (most recent call last):\n" + problem


def _ask_for_model(server: Server, polls: int) -> Optional[str]:
    """None, or why it cannot be reached. The real one tries 120 times, a second apart."""
    args = server.args
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(args.host, args.host)
    scheme, context = "https" if serves_https(args) else "http", client_context(args)
    request = urllib.request.Request("{}://{}:{}/model_info".format(scheme, host, args.port))
    if args.api_key:
        request.add_header("Authorization", "Bearer " + args.api_key)
    problem = None
    for _poll in range(polls):
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT, context=context):
                return None
        except OSError as error:  # urllib's own errors are such, too
            problem = "AssertionError: res=<Response [{}]>, {}".format(getattr(error, "code", None), error)
        time.sleep(_PAUSE)
    return problem


def _check_layers(server: Server) -> None:
    """The layers whose states the draft wants. :raises RuntimeError: when the target has no such layers."""
    args = server.args
    if args.speculative_algorithm != "EAGLE3":
        return
    from sglang.srt.model_config import ModelConfig

    layers = ModelConfig(args.model_path).values.get("num_hidden_layers", 0)
    eagle = ModelConfig(args.speculative_draft_model_path).values.get("eagle_config") or {}
    wanted = eagle.get("eagle_aux_hidden_state_layer_ids") or []
    missing = [layer for layer in wanted if not 0 <= layer < layers]
    if missing:
        raise RuntimeError(
            "Expected {} aux_hidden_states for layers {}, got {}: shape mismatch".format(
                len(wanted), wanted, len(wanted) - len(missing)
            )
        )
