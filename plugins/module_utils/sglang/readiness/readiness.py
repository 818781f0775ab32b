# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until a server is ready: nobody listens, 503, 200, and then it really generates.

A server listens only when its model is loaded, and then answers /health with 503 until its own warm-up
is over, while other endpoints (/v1/models, /server_info) already answer 200: those prove nothing.
Before every look at the server its main process is looked at, so that a dead one is noticed at once.

A wait may be done in parts, so that somebody can be told how far it is: each part ends with
StillWaiting, and the next one begins with what the last one knew (see wait_state).

Requests, processes, log, clock and sleep come from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Union

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    BadAnswer,
    Broken,
    HttpError,
    Refused,
    TimedOut,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.process_status import ProcessStatus
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.phases import (
    GENERATING,
    LOADING,
    PROVING,
    READY,
    SOAKING,
    STARTING,
    WARMING_UP,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.soak import (
    Load,
    SoakCount,
    SoakOutcome,
    SoakPlan,
    soak_prompt,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.start_progress import LogWatch
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.workers import WorkerWatch
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

# So many answers in a row may be bad after the server said that it is ready, before that counts as a failure.
TOLERATED = 3
# What comes of a request.
Outcome = Union[Answer, HttpError]
# How many different answers a failure shows, and how many phases are kept.
_REMEMBERED = 5
_MOST_PHASES = 40
# A log that was quiet for so long is worth a word when the time is over (seconds).
_SILENT = 60.0
# At least so long is paused after a bad answer of a server that was ready, twice as long after each further one
# (seconds): one that refuses because its queue is full needs more than a moment.
_FIRST_PATIENCE = 1.0
# So many times as long for a server that was up before: others may stand in its queue.
_BUSY_PATIENCE = 4.0
# What is quoted of a server (characters).
_LONGEST_SAID = 300
# How long a server whose main process lives may stop listening: one that goes down may take long to end (seconds).
_CLOSED = 30.0


class NotReady(Exception):
    """The server is not ready and will not be: reason is a code, the message says what to do.

    in_log says that the log of the server is likely to know more; status is of the process that died.
    """

    def __init__(self, reason: str, message: str, in_log: bool = False, status: Optional[ProcessStatus] = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.in_log = in_log
        self.status = status


class StillWaiting(Exception):
    """The time of this part of the wait is over, and not the time of the whole wait."""


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
    """All in seconds: for everything together, between two looks, for one request, and for this part (0: no parts)."""

    timeout: float
    interval: float
    request_timeout: float
    return_after: float = 0.0


@dataclass(frozen=True)
class Generation:
    """One answer of /generate: the tokens that it has, what SGLang says about it, and the seconds it took."""

    completion_tokens: int
    meta_info: Mapping[str, Any]
    seconds: float

    @property
    def verified(self) -> int:
        """How often draft tokens were verified for it."""
        value = self.meta_info.get("spec_verify_ct")
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


@dataclass(frozen=True)
class Kept:
    """What a waiter knows, for the next part of the same wait.

    began and the times in entered are of the clock that the parts share; bad counts the answers in a row
    that were not what they should be; was_up says that the first answer was already that of a ready server.
    """

    began: float
    entered: Sequence[Mapping[str, Any]]
    answers: Sequence[str] = ()
    bad: int = 0
    asked: bool = False
    was_up: bool = False
    pid: Optional[int] = None
    restarts: int = 0


class Journal:
    """The phases that a server went through, with their times, and the last answers that it gave."""

    def __init__(self, clock: Callable[[], float], kept: Optional[Kept] = None) -> None:
        self._clock = clock
        self.began = clock() if kept is None else kept.began
        self._entered: List[Dict[str, Any]] = [{"name": STARTING, "at": self.began}]
        if kept is not None:
            self._entered = [dict(entry) for entry in kept.entered]
        self.answers: List[str] = [] if kept is None else list(kept.answers)

    @property
    def phase(self) -> str:
        """The phase that was reached."""
        return str(self._entered[-1]["name"])

    @property
    def listening(self) -> bool:
        """Whether somebody has listened already."""
        return self.phase not in LOADING

    @property
    def elapsed(self) -> float:
        """Seconds since the waiting began."""
        return self._clock() - self.began

    def enter(self, phase: str) -> bool:
        """Note that a phase begins now, unless it is the present one; whether it is a new one."""
        if phase == self.phase:
            return False
        self._entered.append({"name": phase, "at": self._clock()})
        del self._entered[1:-_MOST_PHASES]
        return True

    def note(self, answer: str) -> None:
        """Remember an answer; one that repeats the last one is kept once."""
        if not self.answers or self.answers[-1] != answer:
            self.answers = (self.answers + [answer])[-_REMEMBERED:]

    def entered(self) -> List[Dict[str, Any]]:
        """Each phase with the time at which it began."""
        return [dict(entry) for entry in self._entered]

    def phases(self) -> List[Dict[str, Any]]:
        """Each phase with the seconds spent in it, in order."""
        ends = [entry["at"] for entry in self._entered[1:]] + [self._clock()]
        return [
            {"name": entry["name"], "seconds": round(end - entry["at"], 3)} for entry, end in zip(self._entered, ends)
        ]


class Waiter:
    """Waits for one server.  All its methods raise NotReady, and StillWaiting where the wait is done in parts.

    was_up says that the server answered as a ready one at once.

    inspect tells how the main process is; claimed_by says who listens on the port instead of this
    server ("" if it is this server, or nobody can tell).  remote: another host is asked than the one
    whose process is watched, so that a broken connection may mean that it is not up yet.
    """

    def __init__(
        self,
        client: Client,
        inspect: Callable[[], ProcessStatus],
        claimed_by: Callable[[], str],
        limits: Limits,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        log: Optional[LogWatch] = None,
        workers: Optional[WorkerWatch] = None,
        kept: Optional[Kept] = None,
        remote: bool = False,
    ) -> None:
        self._client = client
        self._inspect = inspect
        self._claimed_by = claimed_by
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._log = log
        self._workers = workers
        self._remote = remote
        self._part_began = clock()
        self._news = False
        # What nobody has asked yet in this part is no bad answer.
        self._last_ok = True
        self.journal = Journal(clock, kept)
        self._deadline = self.journal.began + limits.timeout
        self._bad = kept.bad if kept is not None else 0
        self._asked = kept is not None and kept.asked
        self.was_up = kept is not None and kept.was_up
        self.status: Optional[ProcessStatus] = None
        if kept is not None and kept.asked:
            self.status = ProcessStatus(kept.pid, restarts=kept.restarts)

    def kept(self) -> Kept:
        """What the next part of the wait must know."""
        status = self.status or ProcessStatus(None)
        return Kept(
            self.journal.began,
            self.journal.entered(),
            list(self.journal.answers),
            self._bad,
            self._asked,
            self.was_up,
            status.pid,
            status.restarts,
        )

    def warnings(self) -> List[str]:
        """What is remarkable about a server that is up."""
        found = []
        if self.status is not None and self.status.restarts:
            found.append(
                "The service manager has started this server again %d times by itself since it was started."
                % self.status.restarts
            )
        gone = self._workers.look() if self._workers is not None else ""
        if gone:
            found.append("A process of the server has ended although the server answers: %s." % gone)
        return found

    # -- until /health answers 200

    def wait_for_health(self) -> None:
        """Wait until /health answers 200."""
        while True:
            self._check_process()
            answer = self._ask(lambda seconds: self._client.get("/health", seconds))
            healthy = isinstance(answer, Answer) and answer.status == 200
            self._watch_log()
            if isinstance(answer, Refused) or (self._remote and isinstance(answer, Broken)):
                if self.journal.listening:
                    self._bad += 1
                    self._check_closed()
            else:
                if not self.journal.listening:
                    # An older server that still has the port would answer for the one that is loading.
                    self._check_owner()
                    self._enter(WARMING_UP)
                if healthy:
                    self.was_up = self.was_up or not self._asked
                    self._asked, self._bad = True, 0
                    self._enter(READY)
                    return
                # 503 is the plain "not yet", and a busy server may be slow: only time decides about those.
                expected = isinstance(answer, TimedOut) or (isinstance(answer, Answer) and answer.status == 503)
                self._bad = 0 if expected else self._bad + 1
            if not self._asked and not self.journal.listening:
                # One that answers, if only 503, may have been up for long since.
                self._check_restarts()
            self._asked = True
            if self._bad > TOLERATED and not isinstance(answer, Refused):
                self._check_process()
                raise NotReady(
                    "unexpected_answer",
                    "What answers on %s is no SGLang server that starts: %s. Check host and port."
                    % (self._client.address, _told(answer)),
                )
            self._pause()

    def _check_closed(self) -> None:
        """After it was up once, that nobody listens any more means that the server is going down."""
        if self._bad <= TOLERATED or self._bad * self._limits.interval < _CLOSED:
            return
        self._check_process()
        raise NotReady(
            "unexpected_answer",
            "The server does not listen on %s any more although its main process lives: it seems to be going down. "
            "See its log." % self._client.address,
            in_log=True,
        )

    # -- until it has generated

    def generate(self, prompt: str, max_new_tokens: int) -> Generation:
        """Let the server generate, greedily and to the full length."""
        self._enter(GENERATING)
        payload = _payload(prompt, max_new_tokens)
        return _generation(self._insist("/generate", lambda seconds: self._client.post("/generate", payload, seconds)))

    def server_info(self) -> Dict[str, Any]:
        """What the server says about itself."""
        self._enter(PROVING)
        answer = self._insist("/server_info", lambda seconds: self._client.get("/server_info", seconds))
        try:
            return answer.json_object()
        except BadAnswer as error:
            raise NotReady("unexpected_answer", "%s." % error) from None

    def check_still_there(self) -> None:
        """Once more: the process is the one that was waited for, and the port is its own."""
        self._check_process()
        self._check_owner()

    def check_part(self) -> None:
        """End this part of the wait if its time is over; for use after each step.  Raises StillWaiting."""
        if self._part_over(self._limits.return_after):
            raise StillWaiting

    # -- under load

    def soak(self, plan: SoakPlan, count: SoakCount, nonce: str) -> None:
        """Let the server answer what is left of a plan; the count goes on, also when this fails or a part ends."""
        self._enter(SOAKING)
        began, before = self._clock(), count.seconds
        load = Load(count.requests, plan, lambda number: self._soak_once(soak_prompt(number, nonce), plan.tokens))
        load.start()
        try:
            while not load.finished:
                outcome = load.outcome(self._limits.interval)
                count.seconds = before + self._clock() - began
                if outcome is not None:
                    count.add(outcome)
                    self._last_ok = not outcome.problem
                    if outcome.problem:
                        self.journal.note("%s: %s" % (self.journal.phase, outcome.problem))
                self._check_process()
                self._judge_soak(plan, count)
                if self._clock() >= self._deadline:
                    self._fail_late("%d of %d requests were answered" % (count.answered, plan.requests))
                if self._part_over(self._limits.return_after):
                    load.stop()
        finally:
            load.stop()
        if count.requests < plan.requests:
            raise StillWaiting

    @property
    def _soak_timeout(self) -> float:
        """Seconds for one request under load."""
        return self._limits.request_timeout * (_BUSY_PATIENCE if self.was_up else 1.0)

    def _soak_once(self, prompt: str, tokens: int) -> SoakOutcome:
        """One request; runs in a thread of its own, so that it may only ask and tell."""
        seconds = min(self._soak_timeout, max(self._deadline - self._clock(), 0.1))
        try:
            answer = self._client.post("/generate", _payload(prompt, tokens), seconds)
            if answer.status != 200:
                return SoakOutcome(problem=_told(answer))
            generation = _generation(answer)
        except HttpError as error:
            return SoakOutcome(problem=str(error), timed_out=isinstance(error, TimedOut))
        except NotReady as error:
            return SoakOutcome(problem=str(error))
        return SoakOutcome(generation.completion_tokens, generation.verified)

    def _judge_soak(self, plan: SoakPlan, count: SoakCount) -> None:
        if count.failed <= plan.tolerated:
            return
        self._check_process()
        under = "/health of %s answered 200 and it generated, but not under load (%d requests at a time): " % (
            self._client.address,
            plan.concurrency,
        )
        if count.timed_out * 2 >= count.failed:
            raise NotReady(
                "hangs_under_load",
                under
                + "of %d requests it has answered %d, and %d got no answer within %.4g s each; %d may. It hangs."
                % (plan.requests, count.answered, count.timed_out, self._soak_timeout, plan.tolerated),
                in_log=True,
            )
        raise NotReady(
            "generation_failed",
            under
            + "%d of %d requests failed, last: %s; %d may. See its log."
            % (count.failed, count.requests, count.last_problem, plan.tolerated),
            in_log=True,
        )

    # -- single steps

    def _enter(self, phase: str) -> None:
        self._news = self.journal.enter(phase) or self._news

    def _watch_log(self, now: bool = False) -> None:
        """Take the phase of a server that nobody can ask from its log."""
        if self._log is not None and not self.journal.listening:
            phase = self._log.look(now).phase
            # A part of a wait that has not read the log yet knows no better than the one before.
            if self._log.read and phase in LOADING:
                self._enter(phase)

    def look_at_log(self) -> None:
        """Take a fresh look at the log of a server that nobody can ask yet."""
        self._watch_log(now=True)

    def where(self) -> str:
        """The phase, with how much of it is done where that is known."""
        if self._log is not None and self._log.progress.phase == self.journal.phase:
            return self._log.progress.where
        return self.journal.phase

    def _part_over(self, seconds: float) -> bool:
        return self._limits.return_after > 0 and self._clock() - self._part_began >= seconds

    def _ask(self, request: Callable[[float], Answer], times: int = 1) -> Outcome:
        left = max(self._deadline - self._clock(), 0.1)
        try:
            answer = request(min(self._limits.request_timeout * times, left))
        except HttpError as error:
            self._last_ok = False
            self.journal.note("%s: %s" % (self.journal.phase, error))
            return error
        self._last_ok = answer.status == 200
        self.journal.note("%s: %s answered %d %s" % (self.journal.phase, answer.path, answer.status, _excerpt(answer)))
        return answer

    def _insist(self, path: str, request: Callable[[float], Answer]) -> Answer:
        """Ask until 200; a few bad answers in a row are bridged, because a server may stumble once."""
        while True:
            self._check_process()
            # Whoever gives up and asks again stands at the end of the queue again.
            times = 2**self._bad if self.was_up else 1
            answer = self._ask(request, times)
            if isinstance(answer, Answer):
                if answer.status == 200:
                    self._bad = 0
                    return answer
                self._refuse_client_errors(path, answer)
            self._bad += 1
            if self._bad > TOLERATED:
                break
            patience = _FIRST_PATIENCE * 2 ** (self._bad - 1) * (_BUSY_PATIENCE if self.was_up else 1.0)
            # What timed out has had its time.
            self._pause(0.0 if isinstance(answer, TimedOut) else patience)
        # A process that has just died explains a broken connection better than the connection does.
        self._check_process()
        reason = "generation_failed" if path == "/generate" else "unexpected_answer"
        hint = "See its log."
        if isinstance(answer, TimedOut):
            reason = "generation_timeout" if path == "/generate" else "no_answer"
            hint = (
                "It hangs, has more requests than it can serve, or needs a larger request_timeout (%.4g s now)."
                % self._limits.request_timeout
            )
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

    def _pause(self, least: float = 0.0) -> None:
        left = self._deadline - self._clock()
        if left <= 0:
            self._fail_late()
        # News is told sooner than that nothing has changed.
        if self._part_over(self._limits.return_after / 2 if self._news else self._limits.return_after):
            raise StillWaiting
        self._sleep(min(max(self._limits.interval, least), left))

    def _fail_late(self, further: str = "") -> None:
        """The time is over: say how far it got."""
        self._watch_log(now=True)
        words = ["it got to the phase %s" % self.where()]
        if further:
            words.append(further)
        if self._log is not None and self._log.progress.line:
            words.append("the last line of its log is %r" % self._log.progress.line)
            if self._log.silent >= _SILENT:
                words.append("the log has not moved for %.0f s" % self._log.silent)
        raise NotReady(
            "timeout",
            "The server on %s was not ready within %.4g s; %s. Last answers: %s. "
            "If it only needs longer, raise timeout."
            % (
                self._client.address,
                self._limits.timeout,
                "; ".join(words),
                "; ".join(self.journal.answers) or "none",
            ),
            in_log=True,
        )

    def _check_process(self) -> None:
        before, status = self.status, self._inspect()
        self.status = status
        if status.dead:
            self._watch_log(now=True)
            raise NotReady("died", "The server died in the phase %s: %s." % (self.where(), status.detail), True, status)
        if status.replaced or (before is not None and _exchanged(before, status)):
            raise NotReady(
                "restarted",
                "The server was started again while it was waited for (phase %s): %s."
                % (self.journal.phase, status.detail or "its main process is another one now"),
                True,
                status,
            )
        gone = self._workers.look(self.journal.listening) if self._workers is not None else ""
        if gone and not self._last_ok:
            self._watch_log(now=True)
            raise NotReady(
                "worker_died",
                "A process of the server has ended while its main process lives on and does not serve (phase %s): %s. "
                "The server will not recover; stop it." % (self.where(), gone),
                True,
                status,
            )

    def _check_restarts(self) -> None:
        """A service manager that has started it again before this wait: a loop, as it is not up now."""
        if self.status is not None and self.status.restarts:
            raise NotReady(
                "restarted",
                "The service manager has started the server again %d times by itself and it is not up: it seems to die "
                "at each start." % self.status.restarts,
                True,
                self.status,
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


def _payload(prompt: str, max_new_tokens: int) -> Dict[str, Any]:
    """A request for exactly so many tokens, the likeliest at each step."""
    return {
        "text": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True},
        "stream": False,
    }


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
        said = visible(str(finish.get("message") or "it says no reason"), _LONGEST_SAID)
        raise NotReady("generation_failed", "The server gave up a generation: %s." % said, True)
    tokens = meta.get("completion_tokens")
    if not isinstance(tokens, int) or tokens < 1:
        raise NotReady(
            "generation_failed", "/generate answered with %s tokens. See the log." % visible(repr(tokens)), True
        )
    return Generation(tokens, meta, answer.seconds)
