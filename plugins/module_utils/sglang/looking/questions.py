# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one server is asked, each question with a limit: load, /health, /server_info and, on request, one generation.

The load is read first, so that the requests of this look are not counted in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    BadAnswer,
    HttpError,
    Refused,
    TimedOut,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.load import Load, read_load
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.states import Outcome
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.window import Window, watch_load
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.metrics import PATH as METRICS
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.metrics import Tier, active_tier, has_tiers
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_info

# What is generated where that is asked for: enough to verify drafts, and too little to disturb anybody (tokens).
TOKENS = 16
_PROMPT = "The sky looks blue during the day because"


class Client(Protocol):
    """What is needed of a client (see http_client.HttpClient)."""

    def get(self, path: str, timeout: float) -> Answer:
        """Raises HttpError."""

    def post(self, path: str, payload: Mapping[str, Any], timeout: float) -> Answer:
        """Raises HttpError."""


@dataclass(frozen=True)
class Generated:
    """One generation: its tokens, the seconds it took, and how often drafts were verified for it; or the problem."""

    tokens: int = 0
    seconds: float = 0.0
    verified: int = 0
    accept_length: Optional[float] = None
    problem: str = ""
    timed_out: bool = False

    def to_dict(self) -> Dict[str, Any]:
        """As it is returned by the module."""
        return {
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "spec_verify_ct": self.verified,
            "accept_length": self.accept_length,
        }


@dataclass(frozen=True)
class Told:
    """What one server answered.

    info is /server_info without its secrets, {} where it was not told; load and window are None where they were not
    asked for; tier is None where the server does not adapt, or does not tell; problems are sentences about the
    questions that got no usable answer, apart from /health.
    """

    health: Outcome
    info: Dict[str, Any] = field(default_factory=dict)
    load: Optional[Load] = None
    window: Optional[Window] = None
    tier: Optional[Tier] = None
    generated: Optional[Generated] = None
    problems: List[str] = field(default_factory=list)


def not_told(timeout: float) -> Told:
    """What is known of a server that was given up."""
    return Told(TimedOut("it gave no answer within %.4g s" % timeout))


def ask_state(client: Client, timeout: float, with_load: bool, generate: bool, load_window: float = 0.0) -> Told:
    """Ask for everything that takes the server's own work; timeout in seconds for each question.  Never raises.

    load_window: for so many seconds the load is looked at.
    """
    load, window = None, None
    if with_load and load_window > 0:
        load, window = watch_load(client, timeout, load_window)
    elif with_load:
        load = read_load(client, timeout)
    health = _outcome(lambda: client.get("/health", timeout))
    problems = [load.problem] if load is not None and load.problem and not isinstance(health, Refused) else []
    healthy = isinstance(health, Answer) and health.status == 200
    generated = _generate(client, timeout) if generate and healthy else None
    return Told(health, load=load, window=window, generated=generated, problems=problems)


def ask_info(client: Client, timeout: float) -> Told:
    """Ask for the configuration that the server runs with.  Never raises."""
    answer = _outcome(lambda: client.get("/server_info", timeout))
    if isinstance(answer, HttpError):
        return Told(answer, problems=[] if isinstance(answer, Refused) else [str(answer)])
    if answer.status != 200:
        return Told(answer, problems=["/server_info answers %d" % answer.status])
    try:
        info = redact_info(answer.json_object())
    except BadAnswer as error:
        return Told(answer, problems=[str(error)])
    return Told(answer, info, tier=_tier(client, timeout) if has_tiers(info) else None)


def _tier(client: Client, timeout: float) -> Optional[Tier]:
    answer = _outcome(lambda: client.get(METRICS, timeout))
    if isinstance(answer, HttpError) or answer.status != 200:
        return None
    return active_tier(answer.body.decode("utf-8", "replace"))


def _outcome(request: Callable[[], Answer]) -> Outcome:
    try:
        return request()
    except HttpError as error:
        return error


def _generate(client: Client, timeout: float) -> Generated:
    payload = {
        "text": _PROMPT,
        "sampling_params": {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True},
        "stream": False,
    }
    answer = _outcome(lambda: client.post("/generate", payload, timeout))
    if isinstance(answer, HttpError):
        return Generated(problem=str(answer), timed_out=isinstance(answer, TimedOut))
    if answer.status != 200:
        return Generated(problem="/generate answers %d: %s" % (answer.status, answer.text()))
    try:
        body = answer.json_object()
    except BadAnswer as error:
        return Generated(problem=str(error))
    meta = body.get("meta_info")
    tokens = _count(meta.get("completion_tokens")) if isinstance(meta, dict) else 0
    if not isinstance(meta, dict) or not tokens:
        return Generated(problem="/generate answered without a token: %s" % answer.text())
    return Generated(tokens, answer.seconds, _count(meta.get("spec_verify_ct")), _length(meta))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else 0


def _length(meta: Mapping[str, Any]) -> Optional[float]:
    value = meta.get("spec_accept_length")
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not _count(meta.get("spec_verify_ct")):
        return None
    return round(float(value), 3) if math.isfinite(value) and 0 < value < 10**9 else None
