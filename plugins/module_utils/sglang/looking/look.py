# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at the instances of a host: first the files and processes of all, then all servers are asked at once.

Nothing is changed, and no instance that is broken keeps the others from being looked at.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.compared import (
    COMPARED,
    effective_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import HttpClient
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    PROCESS,
    SYSTEMD,
    InstanceError,
    InstancePaths,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.load import Load, mean_accept_length
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.questions import (
    Told,
    ask_info,
    ask_state,
    not_told,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.shown import (
    MOST_MESSAGE,
    one_line,
    plain,
    plain_fields,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.states import (
    FAILED,
    SERVING,
    STOPPED,
    UNKNOWN,
    State,
    state_of_process,
    state_of_rank,
    state_without_process,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.together import together
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import UnitError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.failure_reasons import classify
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.main_process import (
    MainProcess,
    PidFileProcess,
    UnitProcess,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import port_owner
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import (
    Running,
    RunningError,
    container_id,
    find_all,
    has_unit,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import PidFileError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.ranks import node_rank_of
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, ReleaseError, read_current
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.listing import linked_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import tls_of_release
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner

# How much longer than its questions a server is waited for: a name may have to be resolved (seconds).
_SLACK = 2.0
# Questions to one server that follow one another at most: load, /health, one generation.
_IN_A_ROW = 3
_LONGEST_VERSION = 60
# Failures whose cause may stand in the log.
_IN_LOG = ("died", "restarts")


@dataclass(frozen=True)
class Wish:
    """What to look at, and how.

    timeout is in seconds, for each question; generate: let each serving server generate a little;
    rank_zero is the (host, port) of rank 0, for nodes of a higher rank, None where that is not known;
    for load_window seconds the load of each is looked at, 0 for one look.
    """

    timeout: float
    generate: bool = False
    rank_zero: Optional[Tuple[str, int]] = None
    load_window: float = 0.0


def instance_names(state_dir: str) -> List[str]:
    """The instances that have a current release, by name; [] where the folder is missing.  Raises OSError."""
    try:
        names = sorted(path.name for path in Path(state_dir).iterdir() if (path / "current").is_symlink())
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        try:
            InstancePaths(name, state_dir=state_dir)
        except InstanceError:
            continue  # a folder of something else
        found.append(name)
    return found


@dataclass(frozen=True)
class _Found:
    """An instance before its server was asked; problem says what could not be found out."""

    paths: InstancePaths
    release: Optional[Release] = None
    running: Optional[Running] = None
    problem: str = ""
    reason: str = ""


def _boot_clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class Looker:
    """Looks at instances; the host is reached through procfs and run."""

    wish: Wish
    run: Runner
    procfs: ProcFs = field(default_factory=ProcFs)
    client: Callable[..., Any] = HttpClient
    boot_clock: Callable[[], float] = _boot_clock

    def look(self, instances: Sequence[InstancePaths]) -> List[Dict[str, Any]]:
        """One result for each instance, in their order."""
        found = [self._find(paths) for paths in instances]
        told = self._ask(found)
        return [self._result(one, told.get(place)) for place, one in enumerate(found)]

    # -- files and processes

    def _find(self, paths: InstancePaths) -> _Found:
        release, problem, reason = None, "", ""
        try:
            release = read_current(paths)
        except ReleaseError as error:
            problem, reason = str(error), "unreadable_release"
        manager = release.manager if release is not None else SYSTEMD if has_unit(paths) else PROCESS
        try:
            everywhere = find_all(paths, manager, release, self.procfs, self.run)
        except RunningError as error:
            return _Found(paths, release, None, str(error), "unknown_manager_state")
        running = next((one for one in everywhere if one.process is not None), everywhere[0])
        return _Found(paths, release, running, problem, reason)

    # -- questions

    def _ask(self, found: Sequence[_Found]) -> Dict[int, Told]:
        """What the servers answer that can be asked, by their place in the list."""
        wish = self.wish
        places: List[int] = []
        jobs: List[Callable[[], Told]] = []
        for place, one in enumerate(found):
            if one.running is None or one.running.process is None or one.release is None:
                continue
            rank = node_rank_of(one.release)
            if rank and wish.rank_zero is None:
                continue
            client = self._client_of(one.release, rank)
            places.append(place)
            jobs.append(partial(ask_state, client, wish.timeout, not rank, wish.generate, wish.load_window))
            jobs.append(partial(ask_info, client, wish.timeout))
        patience = wish.load_window + _IN_A_ROW * wish.timeout + _SLACK
        answers = together(jobs, patience, not_told(wish.timeout))
        merged = {}
        for number, place in enumerate(places):
            state, info = answers[2 * number], answers[2 * number + 1]
            merged[place] = replace(state, info=info.info, tier=info.tier, problems=[*state.problems, *info.problems])
        return merged

    def _client_of(self, release: Release, rank: int) -> Any:
        elsewhere = rank > 0
        host, port = self.wish.rank_zero if elsewhere and self.wish.rank_zero else (release.host, release.port)
        return self.client(host, port, release.api_key(), tls=tls_of_release(release, elsewhere))

    # -- results

    def _result(self, found: _Found, told: Optional[Told]) -> Dict[str, Any]:
        release, running = found.release, found.running
        hidden = sorted(release.secrets()) if release is not None else []
        state = self._state(found, told, hidden)
        process = running.process if running is not None else None
        info = told.info if told is not None else {}
        load = told.load if told is not None else None
        problems = [found.problem] if found.problem and found.problem != state.message else []
        problems += told.problems if told is not None else []
        manager = running.manager if running is not None else release.manager if release is not None else ""
        return {
            "instance": found.paths.instance,
            "state": state.state,
            "reason": state.reason,
            "message": one_line(state.message, hidden, MOST_MESSAGE),
            "pid": process.pid if process is not None else None,
            "started": _utc(process.started_at) if process is not None else None,
            "uptime": self._uptime(process.identity.start_time) if process is not None else None,
            "user": process.user if process is not None else release.user if release is not None else "",
            "manager": manager,
            "unit": running.unit if running is not None else "",
            "container": running.container if running is not None else "",
            "restarts": running.state.restarts if running is not None and running.state is not None else None,
            "release": running.release if running is not None and process is not None else "",
            "stale": running.release != release.id if running is not None and process is not None and release else None,
            "current": linked_id(found.paths.current_link) or "",
            "last_good": linked_id(found.paths.last_good_link) or "",
            "host": release.host if release is not None else "",
            "port": release.port if release is not None else None,
            "https": tls_of_release(release) is not None if release is not None else False,
            "node_rank": node_rank_of(release),
            "gpus": [one_line(str(gpu)) for gpu in release.gpus] if release is not None else [],
            "version": one_line(str(info.get("version") or ""), hidden, _LONGEST_VERSION),
            "effective": plain_fields(effective_of(info, COMPARED), hidden),
            "accept_length": _accept_length(info, load),
            "tier": told.tier.to_dict() if told is not None and told.tier is not None else None,
            "load": (load or Load()).to_dict(),
            "load_window": told.window.to_dict() if told is not None and told.window is not None else None,
            "generation": _generation(told),
            "problems": [one_line(text, hidden, MOST_MESSAGE) for text in problems],
        }

    def _uptime(self, ticks: int) -> float:
        """Seconds since the start of a process; both count from the boot of the host, so nobody can set that clock."""
        return round(max(0.0, self.boot_clock() - ticks / os.sysconf("SC_CLK_TCK")), 1)

    def _state(self, found: _Found, told: Optional[Told], hidden: Sequence[str]) -> State:
        running, release = found.running, found.release
        if running is None:
            return State(UNKNOWN, found.reason, found.problem)
        process = running.process
        if process is None:
            # What runs is known without its release.
            state = state_without_process(running, self._deployed(found))
            if self._ended_by_itself(state, found, hidden):
                state = State(FAILED, "died", "%s Nobody stopped it: its log has the reason." % state.message)
            return self._explained(state, found, hidden)
        if release is None:
            if not found.problem:
                return State(UNKNOWN, "no_release", "It runs, and there is no release that tells its port.")
            return State(UNKNOWN, found.reason, found.problem)
        rank = node_rank_of(release)
        if told is None:
            return state_of_rank(rank)
        state = state_of_process(
            running,
            told.health,
            port_owner(running.owns, release.host, release.port, self.procfs),
            self.procfs.alive(process.identity),
            lambda: self._log(found, hidden),
            remote=rank > 0,
        )
        if state.state == SERVING and told.generated is not None and told.generated.problem:
            reason = "generation_timeout" if told.generated.timed_out else "generation_failed"
            message = "/health answers 200, but it does not generate: %s." % told.generated.problem
            return State(UNKNOWN, reason, message)
        return self._explained(state, found, hidden)

    @staticmethod
    def _deployed(found: _Found) -> bool:
        return linked_id(found.paths.current_link) is not None

    def _ended_by_itself(self, state: State, found: _Found, hidden: Sequence[str]) -> bool:
        """Whether a unit that is inactive was not stopped.

        SGLang ends with SIGKILL when it was stopped and when it dies, so that systemd calls both a success.  It notes
        in the journal that it stops a unit, and nothing where the unit ended before that.
        """
        unit = found.running.state if found.running is not None else None
        if unit is None or state.state != STOPPED or state.reason or not unit.exec_code:
            return False
        lines = self._log(found, hidden)
        told = any(line.startswith(unit.name + ": ") for line in lines)
        return told and not any(line.startswith("Stopping ") for line in lines)

    def _explained(self, state: State, found: _Found, hidden: Sequence[str]) -> State:
        """A failure with the reason that the log has for it."""
        if state.state != FAILED or state.reason not in _IN_LOG or found.running is None:
            return state
        unit = found.running.state
        why = classify(
            self._log(found, hidden),
            unit.exit_status if unit is not None else None,
            unit.killed if unit is not None else False,
        )
        if why.code == "unknown":
            return state
        return State(state.state, why.code, "%s %s" % (state.message, why.message()))

    def _log(self, found: _Found, hidden: Sequence[str]) -> List[str]:
        """The beginning, as far as it is at hand, and the end of what the server logged since its start."""
        try:
            process = self._main_process(found)
            process.look()
            return process.log_start(hidden) + process.log(hidden)
        except (UnitError, PidFileError):
            return []

    def _main_process(self, found: _Found) -> MainProcess:
        paths, release = found.paths, found.release
        if found.running is not None and found.running.manager == PROCESS:
            return PidFileProcess(paths.pid_file, paths.log_file, self.procfs)
        return UnitProcess(
            paths.unit_name,
            self.run,
            self.procfs,
            lambda: container_id(release, paths, self.procfs, self.run),
        )


def _generation(told: Optional[Told]) -> Optional[Dict[str, Any]]:
    generated = told.generated if told is not None else None
    return generated.to_dict() if generated is not None and not generated.problem else None


def _accept_length(info: Mapping[str, Any], load: Optional[Load]) -> Optional[float]:
    """Tokens per verification since the start or the last flush, None without speculation or before it counted."""
    if not plain(info.get("speculative_algorithm")):
        return None
    states = info.get("internal_states")
    rows = states if isinstance(states, list) else []
    lengths = [row.get("avg_spec_accept_length") for row in rows if isinstance(row, Mapping)]
    found = mean_accept_length(lengths)
    return found if found is not None or load is None else load.accept_length


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
