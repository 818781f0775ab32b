# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One wait for one server, from its start until it is proven: what sglang_wait_ready does."""

from __future__ import annotations

import os
import pwd
import secrets
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.compared import effective_of
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.current_since import current_since
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import HttpClient, HttpError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import PROCESS, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.metrics import PATH as METRICS
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.metrics import active_tier, has_tiers
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.drain import LoadReader
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.failure_reasons import classify
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.main_process import (
    MainProcess,
    PidFileProcess,
    UnitProcess,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import port_owner
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import container_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness import proof
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.jit_locks import (
    jit_folders,
    stale_locks,
    waited_for,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.phases import LOADING, SOAKING
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.ranks import node_rank_of, parse_address
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.readiness import (
    Limits,
    NotReady,
    Waiter,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.soak import SoakPlan
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.start_progress import LogWatch
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.wait_state import WaitState, state_from
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.workers import (
    CONTROLLER,
    SCHEDULER,
    WorkerWatch,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    redact_info,
    redact_text,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    Release,
    ReleaseError,
    read_current,
    read_last_good,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.proof import read_proof
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import tls_of_fields, tls_of_release
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible, visible_value

_LOCK_REMEDY = (
    "A server that is killed while it compiles kernels leaves such a lock behind: if nobody else compiles there, stop "
    "the server, remove the lock, and start it again."
)


# Ansible blanks out a key wherever it occurs in a result.  A shorter one may occur anywhere in what one part of a wait
# hands to the next, which is then worthless (characters).
_SHORTEST_KEY = 8


class UsageError(Exception):
    """Options, or the files of the instance, that do not allow the wait to begin."""


def boot_clock() -> float:
    """Seconds since the host was booted, which nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WaitTask:
    """Who is waited for, what it must report, and what was found so far.

    params are the options of the module; run starts a program and is what the unit is asked with.
    Raises UsageError, InstanceError, ReleaseError, PidFileError and StateError.
    """

    def __init__(self, params: Dict[str, Any], run: Runner) -> None:
        self.params = params
        self.procfs = ProcFs()
        self.paths = InstancePaths(
            params["instance"], state_dir=params["state_dir"], run_dir=params["run_dir"], log_dir=params["log_dir"]
        )
        self.release: Optional[Release] = read_current(self.paths)
        self.host = self._setting("host")
        self.port = self._setting("port")
        if params["expected"] is None and self.release is None:
            raise UsageError("%s does not exist: deploy a release, or give expected." % self.paths.current_link)
        self.expected: Dict[str, Any] = params["expected"]
        if self.expected is None and self.release is not None:
            self.expected = self.release.effective
        self.api_key = params["api_key"] or (self.release.api_key() if self.release is not None else None)
        self.rank = node_rank_of(self.release)
        requested = redact_info(self.release.requested) if self.release else {}
        self.fields = proof.fields_to_compare(params["compare"], requested, self.expected)
        self.plan = SoakPlan(params["soak_requests"], params["soak_concurrency"], params["soak_tokens"])
        self.warnings: List[str] = []
        self.facts: Dict[str, Any] = {
            "instance": params["instance"],
            "release": self.release.id if self.release else "",
            "pid": None,
            "version": "",
            "requested": requested,
            "effective": {},
            "adjusted": {},
            "mismatches": [],
            "worker": "",
            "expected_worker": "",
            "accept_length": None,
            "spec_verify_ct": 0,
            "tier": None,
        }
        self.process: MainProcess
        if params["manager"] == PROCESS:
            self.process = PidFileProcess(self.paths.pid_file, self.paths.log_file, self.procfs)
        else:
            self.process = UnitProcess(
                self.paths.unit_name,
                run,
                self.procfs,
                lambda: container_id(self.release, self.paths, self.procfs, run),
            )
        self.state = self._state()
        self.log = LogWatch(lambda: self.process.log(self.secrets), boot_clock, seen=self.state.seen)
        self.workers = WorkerWatch(
            self.procfs,
            self.process.owns,
            boot_clock,
            self.state.workers,
            self._required_workers(),
            self.state.missing_since,
        )
        self.client = self._client()
        self.waiter = Waiter(
            self.client,
            self.process.look,
            lambda: port_owner(self.process.owns, self.host, self.port, self.procfs).foreign,
            Limits(params["timeout"], params["interval"], params["request_timeout"], self._return_after()),
            boot_clock,
            time.sleep,
            log=self.log,
            workers=self.workers,
            kept=self.state.kept,
            remote=self.rank > 0,
        )

    # -- before it begins

    def _setting(self, name: str) -> Any:
        given = self.params[name]
        if given is not None:
            return given
        if self.release is None:
            raise UsageError("%s: it is not given and %s does not exist: give it." % (name, self.paths.current_link))
        return getattr(self.release, name)

    def _required_workers(self) -> List[str]:
        """Titles that a server which listens has one process of each."""
        fields: Mapping[str, Any] = self.release.effective if self.release else {}
        if fields.get("use_ray"):
            return []  # its schedulers are Ray's
        replicas = fields.get("dp_size")
        several = isinstance(replicas, int) and replicas > 1
        return [SCHEDULER, CONTROLLER] if several else [SCHEDULER]

    def _return_after(self) -> float:
        """Seconds for this part, 0 for no parts."""
        key = self.params["api_key"]
        return 0.0 if key and len(key) < _SHORTEST_KEY else float(self.params["return_after"])

    def _client(self) -> HttpClient:
        elsewhere = self.params["rank_zero"] is not None
        host, port = parse_address(self.params["rank_zero"]) if elsewhere else (self.host, self.port)
        if self.release is not None:
            tls = tls_of_release(self.release, elsewhere)
        else:
            tls = tls_of_fields(self.expected, elsewhere)
        return HttpClient(host, port, self.api_key, tls=tls)

    def _state(self) -> WaitState:
        boot, release = self.procfs.boot_id(), self.release.id if self.release else ""
        if self.params["resume"] is None:
            return WaitState(boot=boot, release=release, nonce=secrets.token_hex(4))
        state = state_from(self.params["resume"])
        if state.boot == boot and self.process.identity is None:
            self.process.identity = state.identity
        return state

    @property
    def secrets(self) -> Set[str]:
        """What must not be shown."""
        found: Set[str] = {self.api_key} if self.api_key else set()
        if self.release is not None:
            found |= self.release.secrets()
        return found

    def shown(self, text: str) -> str:
        """A text that may quote a server, a log or another process, as one line that may be shown."""
        return " ".join(log_tail.clean(text, self.secrets))

    # -- the wait

    def run(self) -> None:
        """Wait and prove.  Raises NotReady and StillWaiting."""
        self._check_resumed()
        if self.rank and self.params["rank_zero"] is None:
            raise NotReady(
                "rank_unprovable",
                "This server is the node of rank %d of a server on several hosts: its /health answers 200 whatever "
                "becomes of it, and only rank 0 serves. Give rank_zero, the HOST:PORT of rank 0." % self.rank,
            )
        waiter, state = self.waiter, self.state
        if not state.samples[0]:
            waiter.wait_for_health()
            self._before_the_key()
        if state.judged < 1:
            self._sample(0, proof.PROMPTS)
            self._prove(0)
        if not self.plan.requests:
            return
        if state.soak.requests < self.plan.requests:
            waiter.soak(self.plan, state.soak, state.nonce)
        try:
            self._sample(1, proof.PROMPTS_AGAIN)
        except NotReady as error:
            if error.reason != "generation_timeout":
                raise
            message = "After %d answered requests it answers no more. %s" % (state.soak.answered, error)
            raise NotReady("hangs_under_load", message, error.in_log, error.status) from None
        self._prove(1)

    def _before_the_key(self) -> None:
        """Know who listens before the first request that has the key in it: somebody may wait there for keys."""
        if self.api_key:
            self._prove_listener()
            self.waiter.check_still_there()

    def _check_resumed(self) -> None:
        """Whether what the last part of the wait knew is still so."""
        state = self.state
        why = ""
        if state.boot != self.procfs.boot_id():
            why = "the host was booted"
        elif state.release != self.facts["release"]:
            why = "another release became the current one"
        elif None not in (state.identity, self.process.identity) and state.identity != self.process.identity:
            why = "its main process is another one now"
        if why:
            self.process.look()  # so that its log can be found
            raise NotReady("restarted", "The server was started again while it was waited for: %s." % why, True)

    def _sample(self, number: int, prompts: Sequence[str]) -> None:
        """Complete one sample."""
        if self.params["prompts"] is not None:
            prompts = self.params["prompts"]
        made = self.state.samples[number]
        while len(made) < len(prompts):
            made.append(self.waiter.generate(prompts[len(made)], self.params["max_new_tokens"]))
            if self.state.ready_after is None:
                self.state.ready_after = self._since_start()
            self.waiter.check_part()

    def _since_start(self) -> Optional[float]:
        """Seconds since the main process was started, None where it was not seen."""
        identity = self.process.identity
        if identity is None:
            return None
        # Both count from the boot of the host, so that a clock that is set meanwhile does not matter.
        return round(max(0.0, boot_clock() - identity.start_time / os.sysconf("SC_CLK_TCK")), 2)

    def _prove(self, number: int) -> None:
        """Judge one sample, and with it the process and its configuration."""
        self.warnings = []
        waiter = self.waiter
        self._prove_process()
        info = waiter.server_info()
        waiter.check_still_there()
        lines = self.process.log_start(self.secrets) + self.process.log(self.secrets)
        self._prove_configuration(info, lines)
        sample = self.state.samples[number]
        self.facts["tier"] = self._tier() if has_tiers(info) else None
        speculation = proof.judge_speculation(proof.algorithm_of(info), sample, self.params["min_accept_length"])
        self.facts["accept_length"] = speculation.accept_length
        self.facts["spec_verify_ct"] = speculation.verify_count
        notes = proof.log_warnings(lines)
        self.warnings += waiter.warnings() + proof.capacity_warnings(info) + notes
        if self.facts["mismatches"]:
            raise NotReady("config_mismatch", self._mismatch_message(notes), in_log=True)
        excuse = proof.excuse(speculation.problem, info, self._others()) if speculation.problem else ""
        if excuse:
            self.warnings.append("%s %s" % (speculation.message, excuse))
        elif speculation.problem:
            after = " This was after %d requests under load." % self.state.soak.answered if number else ""
            raise NotReady(speculation.problem, speculation.message + after, in_log=True)
        self.state.judged = number + 1

    def _tier(self) -> Optional[Dict[str, Any]]:
        """With how many steps it speculates at the moment; None where it does not tell."""
        try:
            answer = self.client.get(METRICS, self.params["request_timeout"])
        except HttpError:
            return None
        tier = active_tier(answer.body.decode("utf-8", "replace")) if answer.status == 200 else None
        return tier.to_dict() if tier is not None else None

    def _others(self) -> int:
        """How many requests of others the server has: of the own ones none is under way.  0 where it does not tell."""
        try:
            return LoadReader(self.client).read()[0] or 0
        except HttpError:
            return 0

    def _prove_listener(self) -> None:
        owner = port_owner(self.process.owns, self.host, self.port, self.procfs)
        if not owner.known and not self.rank:
            raise NotReady(
                "unknown_listener",
                "It cannot be seen whose socket listens on port %d, so it cannot be told whether this server answered. "
                "Run as root (in a container with the capability SYS_PTRACE) or as the server's user." % self.port,
            )

    def _prove_process(self) -> None:
        self._prove_listener()
        if self.release is None or self.process.identity is None:
            return
        why = self.process.stale(self.release, current_since(self.paths, self.procfs))
        pid = self.process.identity.pid
        if why:
            raise NotReady(
                "stale_process",
                "The process %d does not run the current release %s: %s. Stop it, then start it again."
                % (pid, self.release.id, why),
            )
        process = self.procfs.read(pid)
        # The main process of a container is a program of the engine.
        if process is None or self.release.container:
            return
        if proof.command_differs(process.argv, self.release.command):
            self.warnings.append(
                "The command line of the process %d is not the one of the release %s." % (pid, self.release.id)
            )

    def _prove_configuration(self, info: Dict[str, Any], lines: List[str]) -> None:
        facts = self.facts
        shown = redact_info(info)
        facts["version"] = visible(str(info.get("version") or ""))
        facts["effective"] = visible_value(effective_of(shown, self.fields))
        facts["adjusted"] = visible_value(proof.adjusted_of(facts["requested"], shown))
        facts["worker"] = proof.worker_of(info)
        environment: Mapping[str, str] = self.release.environment if self.release else {}
        facts["expected_worker"] = proof.expected_worker(
            facts["requested"], self.expected, environment, facts["version"]
        )
        expected = {**redact_info(self.expected), **self._own_fields()}
        found, corrected = proof.tell_corrected(proof.compare(expected, shown, self.fields))
        found = proof.merge(found, proof.judge_worker(facts["expected_worker"], info))
        found = proof.merge(found, proof.dropped_in_log(lines, facts["requested"], facts["expected_worker"]))
        found = proof.explained_by_log(found, lines)
        facts["mismatches"] = [mismatch.to_dict() for mismatch in found]
        self.warnings += corrected
        checked = self.release.sglang_version if self.release else ""
        if checked and facts["version"] and checked != facts["version"]:
            self.warnings.append(
                "The server runs SGLang %s, but its configuration was checked with %s." % (facts["version"], checked)
            )
        for name in self.params["compare"] or []:
            if name != proof.ALL_FIELDS and (name not in self.expected or name not in info):
                self.warnings.append("compare: %s was not compared, because only one side knows it, or none." % name)

    def _own_fields(self) -> Dict[str, Any]:
        """Of rank 0 some fields are its own: they are not compared."""
        own = ("node_rank", "host", "port") if self.rank else ()
        return dict.fromkeys(own)

    def _mismatch_message(self, notes: List[str]) -> str:
        found = "; ".join(proof.Mismatch(**mismatch).message() for mismatch in self.facts["mismatches"])
        # A line of the log that stands there already is not told twice.
        more = [note for note in notes if note.rpartition("Its log says: ")[2] not in found]
        return " ".join(["The server does not run with what was expected: %s." % found, *more])

    # -- results

    def results(self) -> Dict[str, Any]:
        """What is returned in any case."""
        identity, status = self.process.identity, self.waiter.status
        pid = identity.pid if identity is not None else status.pid if status is not None else None
        facts = {
            **self.facts,
            "pid": pid,
            "ready_after": self.state.ready_after,
            "phases": self.waiter.journal.phases(),
            "soak": self.state.soak.result(),
        }
        return {"changed": False, "sglang": facts, "waited": round(self.waiter.journal.elapsed, 3)}

    def proven(self) -> Dict[str, Any]:
        """The results for a server that was proven, with what is worth keeping of it as `proof`."""
        results = self.results()
        facts = results["sglang"]
        # Of a server that was up before, the phases of its start are not known, nor when it was ready.
        seen = not self.waiter.was_up
        proof = {
            "ready_after": facts["ready_after"] if seen else None,
            "accept_length": facts["accept_length"],
            "version": facts["version"],
            "phases": facts["phases"] if seen else [],
        }
        return {**results, "proof": proof}

    def part(self) -> Dict[str, Any]:
        """The results of a part of the wait after which there is more to do."""
        self.waiter.look_at_log()
        state = self.state
        state.kept = self.waiter.kept()
        state.identity = self.process.identity
        state.seen = self.log.seen
        state.workers, state.missing_since = self.workers.known(), self.workers.missing_since
        resume = state.to_dict()
        hidden = self.secrets
        resume["kept"]["answers"] = [redact_text(answer, hidden) for answer in resume["kept"]["answers"]]
        resume["soak"]["last_problem"] = redact_text(resume["soak"]["last_problem"], hidden)
        return {**self.results(), "waiting": True, "progress": self.progress(), "resume": resume}

    def progress(self) -> Dict[str, Any]:
        """How far it is, for somebody who waits."""
        phase = self.waiter.journal.phase
        elapsed = self._since_start()
        last = self._last_start()
        # The last start was measured up to its first generation.
        ahead = phase in LOADING or self.state.ready_after is None
        left = max(0.0, round(last - elapsed, 1)) if ahead and last is not None and elapsed is not None else None
        return {
            "phase": phase,
            "percent": self.log.progress.percent if self.log.progress.phase == phase else None,
            "elapsed": elapsed if elapsed is not None else round(self.waiter.journal.elapsed, 2),
            "left": left,
            "last_start": last if ahead else None,
            "requests": self.state.soak.requests if phase == SOAKING else None,
            "of": self.plan.requests if phase == SOAKING else None,
            "silent": round(self.log.silent, 1) if phase in LOADING else None,
        }

    def _last_start(self) -> Optional[float]:
        """Seconds that the last proven start took: of this release, else of the last proven one."""
        if self.release is None:
            return None
        known = read_proof(self.paths, self.release.id)
        if known is None or known.ready_after is None:
            try:
                good = read_last_good(self.paths)
            except ReleaseError:
                return None
            known = read_proof(self.paths, good.id) if good is not None else None
        return known.ready_after if known is not None else None

    def failure(self, error: NotReady) -> Dict[str, Any]:
        """The results of a server that is not ready."""
        status = error.status
        lines = self.process.log(self.secrets)
        reason, message = error.reason, str(error)
        if error.in_log:
            why = classify(
                lines, status.exit_status if status is not None else None, status is not None and status.killed
            )
            if reason == "died":
                reason = why.code
            if why.code != "unknown" or error.reason == "died":
                message = "%s %s" % (message, why.message())
        if error.reason == "timeout":
            message += self._lock_hint(lines)
        progress = self.progress()
        return {
            "msg": self.shown(message),
            "reason": reason,
            "phase": self.waiter.journal.phase,
            "percent": progress["percent"],
            "last_answers": log_tail.clean("\n".join(self.waiter.journal.answers), self.secrets),
            "exit_status": status.exit_status if status is not None else None,
            "log_tail": log_tail.tail(log_tail.without_probes(lines)),
        }

    def _lock_hint(self, lines: List[str]) -> str:
        """Whether a start that got stuck waits for a lock file that nobody will remove: a sentence, or ""."""
        if self.waiter.journal.listening or self.release is None:
            return ""
        found = waited_for(log_tail.without_probes(lines))
        if found:
            return " It waits for a lock: %s. %s" % (", ".join(found), _LOCK_REMEDY)
        process = self.procfs.read(self.process.identity.pid) if self.process.identity is not None else None
        if process is not None:
            found = stale_locks(jit_folders(self.release.environment, _home(process.uid)), process.started_at)
        if found:
            return " It may wait for a lock from before its start: %s. %s" % (", ".join(found), _LOCK_REMEDY)
        return ""


def _home(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/root" if uid == 0 else "/nonexistent"
