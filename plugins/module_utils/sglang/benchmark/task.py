# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One benchmark of one server, point after point: what sglang_benchmark does."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark import results
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_command import (
    RANDOM_IDS,
    base_url,
    client_launch,
    client_task,
    client_words,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_process import (
    ClientError,
    ClientProcess,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.client_script import SCRIPT_REASONS
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.prompts import (
    Prompts,
    choose,
    prompts_for,
    read_prompts,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.sampling import take_sample
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.state import BenchmarkState, state_from
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.subject import Refused, Subject
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import UnitError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import PidFileError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import tls_of_release
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import SENTENCE, visible

# Ansible blanks out a key wherever it occurs in a result.  A shorter one may occur anywhere in what one part hands to
# the next (characters).
_SHORTEST_KEY = 8
# Of the concurrency that was asked for, so much must be reached on average.
_REACHED = 0.8
# Of the client's output.
_TAIL_LINES = 30


class StillMeasuring(Exception):
    """The time of this part is over, and the client goes on."""


@dataclass(frozen=True)
class _Failure:
    """What the client said last: a code and a sentence."""

    reason: str
    message: str

    @classmethod
    def read(cls, event: Mapping[str, Any]) -> _Failure:
        """Take it from the event."""
        reason = str(event.get("reason"))
        why = str(event.get("message") or "it does not say why")
        return cls(
            reason if reason in SCRIPT_REASONS else "client_failed", "SGLang's benchmark client failed: %s" % why
        )


def boot_clock() -> float:
    """Seconds since the host was booted, which nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BenchmarkTask:
    """Who is measured, how, and what was found so far.

    params are the options of the module; run starts a program.  Raises Refused, PromptsError, StateError, and what
    Subject raises.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        run: Runner,
        clock: Callable[[], float] = boot_clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._params = params
        self._clock = clock
        self._sleep = sleep
        self._part_began = clock()
        self.prompts: Optional[Prompts] = None
        if params["dataset"] != RANDOM_IDS:
            self.prompts = read_prompts(params["prompts"])
        self.subject = Subject(params, run)
        boot = self.subject.procfs.boot_id()
        if params["resume"] is None:
            self.state = BenchmarkState(boot=boot, release=self.subject.release.id, nonce=secrets.token_hex(8))
        else:
            self.state = state_from(params["resume"])
        # Of the module, not of the host: two folders of releases may have an instance of the same name.
        folder = Path(params["run_dir"]) / (params["instance"] + ".benchmark")
        self.client = ClientProcess(folder, self.subject.procfs, self.state.nonce)

    # -- what is to be done

    def planned(self) -> List[Dict[str, int]]:
        """The points in their order."""
        return [
            {"concurrency": concurrency, "num_prompts": self._requests(concurrency)}
            for concurrency in self._params["concurrencies"]
        ]

    def _requests(self, concurrency: int) -> int:
        params = self._params
        return prompts_for(concurrency, params["num_prompts"], params["prompts_per_stream"], params["num_prompts_min"])

    def run(self) -> None:
        """Measure.  Raises Refused where nothing can be measured, StillMeasuring, UnitError and PidFileError."""
        if self._params["resume"] is None:
            self._begin()
        else:
            self._continue()
        concurrencies = self._params["concurrencies"]
        while len(self.state.points) < len(concurrencies):
            point = self._point(concurrencies[len(self.state.points)])
            self.state.points.append(point)
            self.state.began = None
            self.client.remove()

    def _begin(self) -> None:
        self.subject.check()
        try:
            self.client.refuse_other()
        except ClientError as error:
            raise Refused(error.reason, str(error)) from None
        state, subject = self.state, self.subject
        state.identity = subject.process.identity
        state.speculates, state.adaptive = subject.speculates, subject.adaptive
        state.max_running_requests = subject.max_running_requests
        state.model, state.tokenizer = subject.model_path, subject.tokenizer_path
        state.facts = subject.facts()

    def _continue(self) -> None:
        state, subject = self.state, self.subject
        if state.boot != subject.procfs.boot_id():
            raise Refused("server_restarted", "The host was booted while its server was measured.")
        if state.release != subject.release.id:
            raise Refused("server_restarted", "Another release became the current one while the server was measured.")
        if subject.process.identity is None:
            subject.process.identity = state.identity
        if state.began is not None:
            self.client.attach()

    # -- one point

    def _point(self, concurrency: int) -> Dict[str, Any]:
        try:
            if self.state.began is None:
                self._start(concurrency)
            self._wait(concurrency)
            return self._judged(concurrency)
        except (Refused, ClientError, results.ResultError) as error:
            return self._failed(concurrency, error.reason, str(error))
        except OSError as error:
            return self._failed(concurrency, "client_failed", "The client cannot be started: %s." % error)

    def _failed(self, concurrency: int, reason: str, message: str) -> Dict[str, Any]:
        self.client.end()
        repeats = []
        for event in self.client.events():
            if event["event"] == "repeat":
                try:
                    repeats.append(results.repeat_of(event, self._requests(concurrency), self.state.speculates))
                except results.ResultError:
                    continue
        lines = self.client.log(self.subject.secrets)
        return results.failed_point(
            concurrency,
            self._requests(concurrency),
            reason,
            visible(self.subject.shown(message), SENTENCE),
            repeats,
            self.state.warnings,
            log_tail.tail(lines, _TAIL_LINES),
        )

    def _start(self, concurrency: int) -> None:
        state, subject, params = self.state, self.subject, self._params
        state.warnings = []
        subject.check_same(state.identity)
        requests = self._requests(concurrency)
        self._warn_before(concurrency, requests)
        self._check_load()
        release = subject.release
        tls = tls_of_release(release) is not None
        url = base_url(release.host, release.port, tls)
        words = client_words(url, state.model, state.tokenizer, concurrency, requests, params)
        texts = choose(self.prompts, requests) if self.prompts is not None else None
        launch = client_launch(release, params["python"], os.environ, str(self.client.folder))
        task = client_task(words, concurrency, texts, requests, release, params, subject.api_key, state.tokenizer, tls)
        self.client.remove()
        self.client.start(launch, task)
        state.began = self._clock()

    def _warn_before(self, concurrency: int, requests: int) -> None:
        warnings, most = self.state.warnings, self.state.max_running_requests
        if most is not None and concurrency > most:
            warnings.append(
                "%d requests at a time are more than the %d that the server runs at a time: the others wait in its "
                "queue, and the latencies have that time in them." % (concurrency, most)
            )
        if self.prompts is None:
            warnings.append(
                "The prompts are random tokens: the acceptance says nothing about that of real prompts, nor does a "
                "comparison with another configuration that depends on it."
            )
        elif requests > len(self.prompts.texts):
            warnings.append(
                "%d requests come from %d prompts: some are sent again, with another beginning."
                % (requests, len(self.prompts.texts))
            )

    def _check_load(self) -> None:
        load = self.subject.wait_until_idle(self._params["idle_timeout"])
        if load.running is None:
            self.state.warnings.append(
                "It is not known whether the server had requests of others: %s." % visible(load.problem, SENTENCE)
            )
            return
        others = load.running + (load.waiting or 0)
        if not others:
            return
        if not self._params["allow_other_load"]:
            raise Refused(
                "other_load",
                "The server has %d requests of others: what is measured beside them is not its speed. Take it out of "
                "its router, or set allow_other_load to true." % others,
            )
        self.state.warnings.append("The server had %d requests of others." % others)

    def _wait(self, concurrency: int) -> None:
        """Until the client has ended.  Raises Refused, ClientError and StillMeasuring."""
        params = self._params
        while True:
            self.client.touch()
            if not self.client.running():
                return
            self.subject.check_same(self.state.identity)
            began = self.state.began if self.state.began is not None else self._clock()
            if self._clock() - began > params["timeout"]:
                raise ClientError(
                    "timeout",
                    "The point was not measured within timeout %g s: raise it, or send fewer prompts or ask for fewer "
                    "tokens. %s" % (params["timeout"], self._how_far()),
                )
            if self._part_is_over():
                raise StillMeasuring()
            self._sleep(params["interval"])

    def _how_far(self) -> str:
        progress = self.progress()
        return "It was at repeat %d of %d, with %d of %d requests done." % (
            progress["repeat"],
            progress["repeats"],
            progress["requests"],
            progress["of"],
        )

    def _part_is_over(self) -> bool:
        key = self._params["api_key"]
        if not self._params["return_after"] or (key and len(key) < _SHORTEST_KEY):
            return False
        return bool(self._clock() - self._part_began >= self._params["return_after"])

    def _judged(self, concurrency: int) -> Dict[str, Any]:
        """The point of a client that has ended.  Raises Refused, ClientError and ResultError."""
        state, requests = self.state, self._requests(concurrency)
        # A server that died takes the client's requests along: that is the reason then, and not what the client says.
        self.subject.check_same(state.identity)
        events = self.client.events()
        for event in events:
            if event["event"] == "client":
                state.client = {
                    "module": visible(str(event.get("module"))),
                    "version": visible(str(event.get("version"))),
                    "chat_template": bool(event.get("chat_template")),
                }
        failed = [event for event in events if event["event"] == "failed"]
        repeats = []
        for event in events:
            if event["event"] == "repeat":
                repeats.append(results.repeat_of(event, requests, state.speculates))
                self._check_flush(event)
        if failed:
            said = _Failure.read(failed[-1])
            raise ClientError(said.reason, said.message)
        if len(repeats) < self._params["repeats"]:
            status = self.client.status
            how = "" if status is None else " with status %d" % status
            raise ClientError("client_failed", "The client ended%s before it was done." % how)
        self._fill_acceptance(concurrency, repeats)
        self._warn_after(concurrency, repeats)
        return results.measured_point(concurrency, requests, repeats, state.warnings)

    def _check_flush(self, event: Mapping[str, Any]) -> None:
        heard = event.get("requests")
        status = heard.get("flush") if isinstance(heard, Mapping) else None
        if status is None:
            self.state.warnings.append("It could not be seen whether the client flushed the cache.")
        elif status != 200 and self._params["allow_other_load"]:
            self.state.warnings.append(
                "The cache was not flushed (/flush_cache answered %s): prompts of an earlier repeat cost nothing."
                % status
            )
        elif status != 200:
            raise results.ResultError(
                "not_flushed",
                "The cache was not flushed: /flush_cache answered %s. It holds the prompts of the repeat before, and "
                "the server may have requests of others, or want its admin key." % status,
            )

    def _fill_acceptance(self, concurrency: int, repeats: Sequence[Dict[str, Any]]) -> None:
        """Where the client's answers could not be listened to."""
        state, params = self.state, self._params
        if not state.speculates or self.prompts is None:
            return
        if all(repeat["accept_length_source"] == results.REQUESTS for repeat in repeats):
            return
        texts = choose(self.prompts, self._requests(concurrency))
        limit = max(params["request_timeout"], params["timeout"] / 4)
        sample = take_sample(self.subject.client, texts, concurrency, params["output_len"], limit)
        if sample.accept_length is None:
            return
        for repeat in repeats:
            repeat["accept_length"], repeat["accept_length_source"] = sample.accept_length, results.SAMPLE
            repeat["verify_steps"] = sample.steps

    def _warn_after(self, concurrency: int, repeats: Sequence[Mapping[str, Any]]) -> None:
        warnings = self.state.warnings
        most = self.state.max_running_requests
        reached = [repeat["concurrency"] for repeat in repeats if repeat["concurrency"] is not None]
        if reached and min(reached) < _REACHED * concurrency and not (most is not None and most < concurrency):
            warnings.append(
                "On average only %.1f requests were under way at a time, of %d that were asked for: send more prompts."
                % (min(reached), concurrency)
            )
        silent = [
            repeat
            for repeat in repeats
            if repeat["accept_length_source"] == results.REQUESTS and not repeat["verify_steps"]
        ]
        if self.state.speculates and not self.state.adaptive and silent:
            warnings.append("The server says that it speculates, and its answers have no verification in them.")
        self.state.warnings = list(dict.fromkeys(warnings))

    # -- results

    def results(self) -> Dict[str, Any]:
        """What is returned in any case."""
        params, state = self._params, self.state
        return {
            "changed": False,
            "sglang": state.facts,
            "points": list(state.points),
            "benchmark": {
                **(state.client or {"module": "", "version": "", "chat_template": False}),
                "dataset": params["dataset"],
                "prompts": self.prompts.to_dict() if self.prompts is not None else None,
                "output_len": params["output_len"],
                "input_len": params["input_len"] if self.prompts is None else None,
                "repeats": params["repeats"],
                "seed": params["seed"],
            },
        }

    def part(self) -> Dict[str, Any]:
        """The results of a part after which there is more to do."""
        return {**self.results(), "waiting": True, "progress": self.progress(), "resume": self.state.to_dict()}

    def progress(self) -> Dict[str, Any]:
        """How far it is, for somebody who waits."""
        concurrencies = self._params["concurrencies"]
        number = min(len(self.state.points), len(concurrencies) - 1)
        found: Dict[str, Any] = {
            "concurrency": concurrencies[number],
            "point": number + 1,
            "points": len(concurrencies),
            "repeat": 0,
            "repeats": self._params["repeats"],
            "requests": 0,
            "of": self._requests(concurrencies[number]),
            "output_throughput": None,
            "accept_length": None,
            "elapsed": round(self._clock() - self.state.began, 1) if self.state.began is not None else 0.0,
        }
        for event in self.client.events() if self.state.began is not None else ():
            if event["event"] == "repeat_begins":
                found.update(repeat=results.whole(event.get("number")), requests=0)
            elif event["event"] == "progress":
                found["requests"] = results.whole(event.get("done"))
            elif event["event"] == "repeat":
                found["requests"] = found["of"]
                self._tell_last(found, event)
        return found

    def _tell_last(self, found: Dict[str, Any], event: Mapping[str, Any]) -> None:
        try:
            repeat = results.repeat_of(event, found["of"], self.state.speculates)
        except results.ResultError:
            return
        found["output_throughput"], found["accept_length"] = repeat["output_throughput"], repeat["accept_length"]

    def give_up(self) -> None:
        """End the client that was started, where something else went wrong."""
        if self.state.began is not None:
            self.client.end()
            self.client.remove()


# What the unit or the PID file may answer while a server is watched.
UNKNOWN_STATE = (UnitError, PidFileError)
