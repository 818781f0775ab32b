# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until a server is ready: nobody listens, 503, 200, and then it really generates.

A server listens only when its model is loaded, and then answers /health with 503 until its own warm-up
is over, while other endpoints (/v1/models, /server_info) already answer 200: those prove nothing.
Before every look at the server its main process is looked at, so that a dead one is noticed at once.

Requests, processes, clock and sleep come from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Union

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    BadAnswer,
    HttpError,
    Refused,
    TimedOut,
)

STARTING = "starting"  # nobody listens: loading, capturing graphs
WARMING_UP = "warming_up"  # it listens and answers 503
READY = "ready"  # /health answers 200
GENERATING = "generating"  # it is asked to generate
PROVING = "proving"  # it has generated; its configuration is compared

# So many answers in a row may be bad after the server said that it is ready, before that counts as a failure.
TOLERATED = 3
# What comes of a request.
Outcome = Union[Answer, HttpError]
# How many different answers a failure shows.
_REMEMBERED = 5


@dataclass(frozen=True)
class ProcessStatus:
    """What is known of the server's main process at one moment.

    pid is None where there is no main process (yet); dead says that there will be none any more, and
    detail why; exit_status is as in a shell (128 + N after signal N); replaced says that the process
    which is waited for was exchanged for another one; restarts counts how often a service manager has
    started it again by itself.
    """

    pid: Optional[int]
    dead: bool = False
    detail: str = ""
    exit_status: Optional[int] = None
    killed: bool = False
    replaced: bool = False
    restarts: int = 0


class NotReady(Exception):
    """The server is not ready and will not be: reason is a code, the message says what to do.

    in_log says that the log of the server is likely to know more; status is of the process that died.
    """

    def __init__(self, reason: str, message: str, in_log: bool = False, status: Optional[ProcessStatus] = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.in_log = in_log
        self.status = status


class Client(Protocol):
    """What is needed of a client (see http_client.HttpClient)."""

    @property
    def address(self) -> str:
        """Host and port."""

    def get(self, path: str, timeout: float) -> Answer:
        """Raises HttpError."""

    def post(self, path: str, payload: Mapping[str, Any], timeout: float) -> Answer:
        """Raises HttpError."""


@dataclass(frozen=True)
class Limits:
    """All in seconds: for everything together, between two looks, and for one request."""

    timeout: float
    interval: float
    request_timeout: float


@dataclass(frozen=True)
class Generation:
    """One answer of /generate: the tokens that it has, what SGLang says about it, and the seconds it took."""

    completion_tokens: int
    meta_info: Mapping[str, Any]
    seconds: float


class Journal:
    """The phases that a server went through, with their times, and the last answers that it gave."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._entered: List[Dict[str, Any]] = [{"name": STARTING, "at": self._began}]
        self.answers: List[str] = []

    @property
    def phase(self) -> str:
        """The phase that was reached."""
        return str(self._entered[-1]["name"])

    @property
    def elapsed(self) -> float:
        """Seconds since the waiting began."""
        return self._clock() - self._began

    def enter(self, phase: str) -> None:
        """Note that a phase begins now, unless it is the present one."""
        if phase != self.phase:
            self._entered.append({"name": phase, "at": self._clock()})

    def note(self, answer: str) -> None:
        """Remember an answer; one that repeats the last one is kept once."""
        if not self.answers or self.answers[-1] != answer:
            self.answers = (self.answers + [answer])[-_REMEMBERED:]

    def phases(self) -> List[Dict[str, Any]]:
        """Each phase with the seconds spent in it, in order."""
        ends = [entry["at"] for entry in self._entered[1:]] + [self._clock()]
        return [
            {"name": entry["name"], "seconds": round(end - entry["at"], 3)} for entry, end in zip(self._entered, ends)
        ]


class Waiter:
    """Waits for one server.  All its methods raise NotReady.

    inspect tells how the main process is; claimed_by says who listens on the port instead of this
    server ("" if it is this server, or nobody can tell).
    """

    def __init__(
        self,
        client: Client,
        inspect: Callable[[], ProcessStatus],
        claimed_by: Callable[[], str],
        limits: Limits,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._client = client
        self._inspect = inspect
        self._claimed_by = claimed_by
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._deadline = clock() + limits.timeout
        self.journal = Journal(clock)
        self.status: Optional[ProcessStatus] = None
        self.warnings: List[str] = []

    # -- until /health answers 200

    def wait_for_health(self) -> None:
        """Wait until /health answers 200."""
        bad = 0
        first = True
        while True:
            self._check_process()
            answer = self._ask(lambda seconds: self._client.get("/health", seconds))
            if isinstance(answer, Refused):
                # After it was up once, that it listens no more means that it is going down.
                bad = bad + 1 if self.journal.phase != STARTING else 0
            else:
                if self.journal.phase == STARTING:
                    # An older server that still has the port would answer for the one that is loading.
                    self._check_owner()
                    self.journal.enter(WARMING_UP)
                if isinstance(answer, Answer) and answer.status == 200:
                    self.journal.enter(READY)
                    self._check_restarts(failed=False)
                    return
                # 503 is the plain "not yet", and a busy server may be slow: only time decides about those.
                expected = isinstance(answer, TimedOut) or (isinstance(answer, Answer) and answer.status == 503)
                bad = 0 if expected else bad + 1
            if first:
                self._check_restarts(failed=True)
                first = False
            if bad > TOLERATED:
                self._check_process()
                raise NotReady(
                    "unexpected_answer",
                    "What answers on %s is no SGLang server that starts: %s. Check host and port."
                    % (self._client.address, _told(answer)),
                )
            self._pause()

    # -- until it has generated

    def generate(self, prompts: Sequence[str], max_new_tokens: int) -> List[Generation]:
        """Let the server generate for every prompt, greedily and to the full length."""
        self.journal.enter(GENERATING)
        return [self._generate(prompt, max_new_tokens) for prompt in prompts]

    def _generate(self, prompt: str, max_new_tokens: int) -> Generation:
        payload = {
            "text": prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True},
            "stream": False,
        }
        return _generation(self._insist("/generate", lambda seconds: self._client.post("/generate", payload, seconds)))

    def server_info(self) -> Dict[str, Any]:
        """What the server says about itself."""
        self.journal.enter(PROVING)
        answer = self._insist("/server_info", lambda seconds: self._client.get("/server_info", seconds))
        try:
            return answer.json_object()
        except BadAnswer as error:
            raise NotReady("unexpected_answer", "%s." % error) from None

    def check_still_there(self) -> None:
        """Once more: the process is the one that was waited for, and the port is its own."""
        self._check_process()
        self._check_owner()

    # -- single steps

    def _ask(self, request: Callable[[float], Answer]) -> Outcome:
        left = max(self._deadline - self._clock(), 0.1)
        try:
            answer = request(min(self._limits.request_timeout, left))
        except HttpError as error:
            self.journal.note("%s: %s" % (self.journal.phase, error))
            return error
        self.journal.note("%s: %s answered %d %s" % (self.journal.phase, answer.path, answer.status, _excerpt(answer)))
        return answer

    def _insist(self, path: str, request: Callable[[float], Answer]) -> Answer:
        """Ask until 200; a few bad answers in a row are bridged, because a server may stumble once."""
        for attempt in range(TOLERATED + 1):
            if attempt:
                self._pause()
            self._check_process()
            answer = self._ask(request)
            if isinstance(answer, Answer):
                if answer.status == 200:
                    return answer
                self._refuse_client_errors(path, answer)
        # A process that has just died explains a broken connection better than the connection does.
        self._check_process()
        reason = "generation_failed" if path == "/generate" else "unexpected_answer"
        hint = "See its log."
        if isinstance(answer, TimedOut):
            reason = "generation_timeout" if path == "/generate" else "no_answer"
            hint = "It hangs, or needs a larger request_timeout (%.4g s now)." % self._limits.request_timeout
        raise NotReady(
            reason,
            "/health of %s answered 200, but %s failed %d times in a row, last: %s. %s"
            % (self._client.address, path, TOLERATED + 1, _told(answer), hint),
            in_log=True,
        )

    def _refuse_client_errors(self, path: str, answer: Answer) -> None:
        if answer.status in (401, 403):
            raise NotReady(
                "unauthorized",
                "%s of %s answered %d: it wants another key. Give the server's key in api_key."
                % (path, self._client.address, answer.status),
            )
        if 400 <= answer.status < 500 and answer.status not in (408, 429):
            raise NotReady(
                "unexpected_answer",
                "%s of %s answered %d: %s. Check that an SGLang server with a generating model listens there."
                % (path, self._client.address, answer.status, _excerpt(answer)),
            )

    def _pause(self) -> None:
        left = self._deadline - self._clock()
        if left <= 0:
            raise NotReady(
                "timeout",
                "The server on %s was not ready within %.4g s; it got to the phase %s. Last answers: %s. "
                "If it only needs longer, raise timeout."
                % (
                    self._client.address,
                    self._limits.timeout,
                    self.journal.phase,
                    "; ".join(self.journal.answers) or "none",
                ),
                in_log=True,
            )
        self._sleep(min(self._limits.interval, left))

    def _check_process(self) -> None:
        before, status = self.status, self._inspect()
        self.status = status
        if status.dead:
            raise NotReady(
                "died", "The server died in the phase %s: %s." % (self.journal.phase, status.detail), True, status
            )
        if status.replaced or (before is not None and _exchanged(before, status)):
            raise NotReady(
                "restarted",
                "The server was started again while it was waited for (phase %s): %s."
                % (self.journal.phase, status.detail or "its main process is another one now"),
                True,
                status,
            )

    def _check_restarts(self, failed: bool) -> None:
        """A service manager that has started it again before this wait: a loop, if it is not up now."""
        if self.status is None or not self.status.restarts:
            return
        if failed:
            raise NotReady(
                "restarted",
                "The service manager has started the server again %d times by itself and it is not up: it seems to die "
                "at each start." % self.status.restarts,
                True,
                self.status,
            )
        self.warnings.append(
            "The service manager has started this server again %d times by itself since it was started."
            % self.status.restarts
        )

    def _check_owner(self) -> None:
        other = self._claimed_by()
        if other:
            self._check_process()
            raise NotReady(
                "foreign_listener",
                "What answers on %s is not this server: %s. End it, or give this server another port."
                % (self._client.address, other),
            )


def _exchanged(before: ProcessStatus, now: ProcessStatus) -> bool:
    """Whether the main process is not the one of the look before."""
    if now.restarts > before.restarts:
        return True
    return before.pid is not None and now.pid is not None and now.pid != before.pid


def _told(answer: Outcome) -> str:
    if isinstance(answer, Answer):
        return ("%s answered %d %s" % (answer.path, answer.status, _excerpt(answer))).strip()
    return str(answer)


def _excerpt(answer: Answer) -> str:
    """Of bad answers only: good ones may hold anything, secrets included."""
    return "" if answer.status == 200 else answer.text(200)


def _generation(answer: Answer) -> Generation:
    """Read an answer of /generate.  Raises NotReady where it holds no generated tokens."""
    try:
        body = answer.json_object()
    except BadAnswer as error:
        raise NotReady("unexpected_answer", "%s." % error) from None
    meta = body.get("meta_info")
    if not isinstance(meta, dict):
        raise NotReady("unexpected_answer", "/generate answered without meta_info: %s." % answer.text())
    finish = meta.get("finish_reason")
    if isinstance(finish, dict) and finish.get("type") == "abort":
        said = finish.get("message") or "it says no reason"
        raise NotReady("generation_failed", "The server gave up a generation: %s." % said, True)
    tokens = meta.get("completion_tokens")
    if not isinstance(tokens, int) or tokens < 1:
        raise NotReady("generation_failed", "/generate answered with %r tokens. See the log." % (tokens,), True)
    return Generation(tokens, meta, answer.seconds)
