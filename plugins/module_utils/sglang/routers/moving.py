# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes one worker out of its routers, and puts it back: all of them, or a failure that says which not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Set

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.client import Job
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.errors import RouterError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.floor import Floor
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.looking import (
    View,
    below_floor,
    check_known,
    unknown_worker,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.places import (
    HTTP,
    HTTPS,
    Place,
    parse_place,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.records import Record, Records
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.workers import Worker, payload

_INTERVAL = 0.25
# What may be over in a moment: the router, or a proxy before it, is being started.
_PASSING = ("router_unreachable", "router_refused")


class Router(Protocol):
    """What is needed of a router (see client.RouterClient)."""

    url: str

    def workers(self) -> List[Worker]:
        """Raises RouterError."""

    def remove(self, worker: Worker) -> None:
        """Raises RouterError."""

    def add(self, new: Mapping[str, Any]) -> Optional[str]:
        """Raises RouterError."""

    def job(self, worker_id: str) -> Job:
        """Raises RouterError."""


@dataclass(frozen=True)
class Time:
    """The clock, and how long things may take, in seconds.

    removal: until a worker is in no list any more; settle: what a request that was already given to it may
    need to arrive there; ready: until a worker counts as healthy.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], None]
    removal: float = 120.0
    settle: float = 1.0
    ready: float = 120.0


@dataclass(frozen=True)
class Wish:
    """How the worker is put back.  attributes win over what was recorded; register: also where nothing was."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    register: bool = False
    api_key: Optional[str] = None


def look(routers: Sequence[Router], worker: Place) -> List[View]:
    """What all routers say now.  Raises RouterError."""
    return [_look(router, worker) for router in routers]


def _look(router: Router, worker: Place) -> View:
    return View(router.url, router.workers(), worker)


# -- out


class Removal:
    """Takes the worker out of all of its routers."""

    def __init__(
        self,
        routers: Sequence[Router],
        worker: Place,
        floor: Floor,
        wish: Wish,
        time: Time,
        returned: Callable[[str], None] = lambda router: None,
    ) -> None:
        """returned is told each router that got it back because another one failed."""
        self._routers = routers
        self._worker = worker
        self._floor = floor
        self._wish = wish
        self._time = time
        self._returned = returned
        self._before: Dict[str, View] = {}
        # What each router said when it had let the worker go.
        self.after: Dict[str, View] = {}

    def plan(self, views: Sequence[View], kept: Mapping[str, Record]) -> Records:
        """What to keep of the worker: the routers that have it.  Raises RouterError where it must stay."""
        check_known(views, kept, self._wish.register)
        for view in views:
            problem = below_floor(view, self._floor)
            if problem:
                raise RouterError("too_few_workers", problem)
        self._before = {view.router: view for view in views if view.ours}
        return {router: view.record() for router, view in self._before.items()}

    def run(self) -> List[str]:
        """Do what was planned; the routers that it was taken out of.

        Raises RouterError when one of them fails, after the others have the worker back.
        """
        leaving = [router for router in self._routers if router.url in self._before]
        left: List[str] = []
        try:
            for router in leaving:
                # Also where the answer is lost the removal may have begun.
                left.append(router.url)
                for worker in self._before[router.url].ours:
                    if not worker.draining:
                        router.remove(worker)
            self._wait_until_gone(leaving)
            self._check_again(leaving)
        except RouterError as error:
            raise RouterError(error.reason, "%s %s" % (error, self._back(leaving, left))) from None
        if left:
            self._time.sleep(self._time.settle)
        return left

    def _wait_until_gone(self, leaving: Sequence[Router]) -> None:
        waiting = list(leaving)
        deadline = self._time.clock() + self._time.removal
        while waiting:
            problem = ""
            for router in tuple(waiting):
                try:
                    view = _look(router, self._worker)
                    if not view.ours:
                        waiting.remove(router)
                        self.after[router.url] = view
                    self._check_jobs(router, view.ours)
                except RouterError as error:
                    if error.reason not in _PASSING:
                        raise
                    problem = " %s" % error
            if not waiting:
                return
            if self._time.clock() >= deadline:
                names = ", ".join(router.url for router in waiting)
                raise RouterError(
                    "not_removed",
                    "After %g s %s is still in the list of %s.%s Look at the router's log, or raise removal_timeout."
                    % (self._time.removal, self._worker.url, names, problem),
                )
            self._time.sleep(_INTERVAL)

    def _check_jobs(self, router: Router, ours: Sequence[Worker]) -> None:
        for worker in ours:
            job = Job() if worker.draining else router.job(worker.id)
            if job.failed:
                raise RouterError(
                    "not_removed",
                    "The router %s could not take %s out: %s."
                    % (router.url, worker.url, job.message or "it does not say why"),
                )

    def _check_again(self, leaving: Sequence[Router]) -> None:
        """Two hosts may have decided at the same moment, each for itself."""
        for router in leaving:
            problem = below_floor(self._before[router.url], self._floor, self.after[router.url])
            if problem:
                raise RouterError("too_few_workers", "Others have left at the same time. " + problem)

    def _back(self, leaving: Sequence[Router], left: Sequence[str]) -> str:
        """Put the worker back where it was taken out; says how that went."""
        again = [router for router in leaving if router.url in left]
        records = {router: view.record() for router, view in self._before.items()}
        wish = Wish(self._wish.attributes, False, self._wish.api_key)
        insertion = Insertion(again, self._worker, records, wish, self._time, self._returned)
        try:
            insertion.run()
        except RouterError as error:
            return "It was not put back everywhere: %s" % error
        return "It has the worker back, as all others." if again else ""


# -- in


@dataclass
class _Entry:
    """How far it is with one router."""

    router: Router
    new: Optional[Mapping[str, Any]]
    worker_id: Optional[str] = None
    asked: bool = False
    problem: str = "it has not answered yet"


class Insertion:
    """Puts the worker into all of its routers, and waits until they give it requests."""

    def __init__(
        self,
        routers: Sequence[Router],
        worker: Place,
        kept: Mapping[str, Record],
        wish: Wish,
        time: Time,
        returned: Callable[[str], None] = lambda router: None,
    ) -> None:
        """returned is told each router that has it back."""
        self._routers = routers
        self._worker = worker
        self._kept = kept
        self._wish = wish
        self._time = time
        self._returned = returned
        self.added: Set[str] = set()
        # What each router said first, and when it had the worker back.
        self.before: Dict[str, View] = {}
        self.after: Dict[str, View] = {}

    def plan(self, views: Sequence[View]) -> List[str]:
        """The routers that it would be put into.  Raises RouterError where it cannot be known as what."""
        check_known(views, self._kept, self._wish.register)
        return [view.router for view in views if not view.ours or view.draining]

    def run(self) -> List[str]:
        """Put it in; the routers that it was added to.  Raises RouterError that names those that do not have it."""
        waiting = [_Entry(router, self._new(router.url)) for router in self._routers]
        failures: List[RouterError] = []
        deadline = self._time.clock() + self._time.ready
        while waiting:
            for entry in tuple(waiting):
                try:
                    done = self._advance(entry)
                except RouterError as error:
                    failures.append(error)
                    done = True
                if done:
                    waiting.remove(entry)
            if waiting and self._time.clock() >= deadline:
                failures += [self._late(entry) for entry in waiting]
                break
            if waiting:
                self._time.sleep(_INTERVAL)
        if failures:
            raise RouterError(failures[0].reason, " ".join(str(error) for error in failures))
        return sorted(self.added)

    def _new(self, router: str) -> Optional[Mapping[str, Any]]:
        """The worker as it is put into a router, None where there is nothing to go by."""
        record = self._kept.get(router)
        if record is None and not self._wish.register:
            return None
        url = self._worker.url if record is None else self._url(record.worker_url)
        attributes = record.attributes if record is not None else {}
        return payload(url, attributes, self._wish.attributes, self._wish.api_key)

    def _url(self, recorded: str) -> str:
        """The URL that the router had, with http or https as the server speaks it now."""
        place, scheme = parse_place(recorded), self._worker.scheme
        if {place.scheme, scheme} <= {HTTP, HTTPS} and place.scheme != scheme:
            return place.speaking(scheme).url
        return recorded

    def _advance(self, entry: _Entry) -> bool:
        """One step; whether the router gives the worker requests.  Raises RouterError where waiting does not help."""
        router = entry.router
        try:
            view = _look(router, self._worker)
        except RouterError as error:
            if error.reason not in _PASSING:
                raise
            # It may be starting anew, and then it knows nothing of what it was asked.
            entry.problem, entry.asked = str(error), False
            return False
        self.before.setdefault(router.url, view)
        if view.serving:
            self.after[router.url] = view
            self._returned(router.url)
            return True
        if view.draining:
            entry.problem = "the worker is still being taken out of it"
        elif view.ours:
            entry.problem = "it has the worker, and does not find it healthy"
            self._check_job(entry)
        elif not entry.asked:
            self._add(entry, view)
        else:
            entry.problem = "it was asked to add the worker, and has not done so"
            self._check_job(entry)
        return False

    def _add(self, entry: _Entry, view: View) -> None:
        if entry.new is None:
            raise RouterError("unknown_worker", unknown_worker(view))
        try:
            entry.worker_id = entry.router.add(entry.new)
        except RouterError as error:
            if error.reason not in _PASSING:
                raise
            entry.problem = str(error)
            return
        # None: it came into the list a moment ago, or it is not quite gone from it.
        entry.asked = entry.worker_id is not None
        if entry.asked:
            self.added.add(entry.router.url)

    def _check_job(self, entry: _Entry) -> None:
        if not entry.worker_id:
            return
        try:
            job = entry.router.job(entry.worker_id)
        except RouterError as error:
            entry.problem = str(error)
            return
        if job.failed:
            raise RouterError(
                "not_added",
                "The router %s could not add the worker %s: %s. Can it reach that URL? The server goes on running; run "
                "the same again to put it in." % (entry.router.url, self._worker.url, job.message or "it says no more"),
            )

    def _late(self, entry: _Entry) -> RouterError:
        return RouterError(
            "not_in_router",
            "The router %s does not give requests to the worker %s after %g s: %s. The server goes on running; run the "
            "same again to put it in, or raise ready_timeout (sglang_router_ready_timeout)."
            % (entry.router.url, self._worker.url, self._time.ready, entry.problem),
        )
