# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a router's workers, and what may be done to this host's one: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Collection, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.errors import RouterError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.floor import Floor
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.places import Place
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.records import Record
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.workers import Worker, attributes_of

# Of a large fleet a message names a few.
_NAMED = 8


@dataclass(frozen=True)
class View:
    """What one router says: router is its URL, ours are the entries of this host's worker."""

    router: str
    workers: Sequence[Worker]
    worker: Place

    @property
    def ours(self) -> List[Worker]:
        """The entries of this host's worker: none, one, or one for each data-parallel rank."""
        return [worker for worker in self.workers if worker.place.key == self.worker.key]

    @property
    def serving(self) -> bool:
        """Whether the router gives requests to this host's worker."""
        return bool(self.ours) and all(worker.healthy for worker in self.ours)

    @property
    def draining(self) -> bool:
        """Whether it is on its way out already."""
        return bool(self.ours) and all(worker.draining for worker in self.ours)

    def record(self) -> Record:
        """What makes this host's worker again.  Only where it is there."""
        first = self.ours[0]
        return Record(first.url, attributes_of(first.row))

    @property
    def groups(self) -> FrozenSet[Tuple[str, str]]:
        """Model and kind of this host's worker."""
        return frozenset(worker.group for worker in self.ours)

    def others(self, groups: Optional[Collection[Tuple[str, str]]] = None) -> Set[Place]:
        """Other workers of its model and kind, or of these, a worker with several ranks once."""
        wanted = self.groups if groups is None else groups
        others = (worker for worker in self.workers if worker.place.key != self.worker.key)
        return {_whole(worker) for worker in others if worker.group in wanted}

    def healthy_others(self, groups: Optional[Collection[Tuple[str, str]]] = None) -> Set[Place]:
        """Those of them that get requests, with all their ranks."""
        down = {_whole(worker) for worker in self.workers if not worker.healthy}
        return self.others(groups) - down

    def to_dict(self) -> Dict[str, Any]:
        """As the module returns it."""
        ours = self.ours
        return {
            "url": self.router,
            "registered": bool(ours),
            "healthy": self.serving,
            "draining": self.draining,
            "ids": [worker.id for worker in ours],
            "model": ours[0].model if ours else "",
            "worker_type": ours[0].kind if ours else "",
            "attributes": self.record().attributes if ours else {},
            "workers": len({_whole(worker) for worker in self.workers}),
            "healthy_others": len(self.healthy_others()),
        }


def _whole(worker: Worker) -> Place:
    """A worker without its rank."""
    place = worker.place
    return Place("", *place.key)


def check_known(views: Sequence[View], records: Mapping[str, Record], register: bool) -> None:
    """Refuse to touch a worker that a router does not know, or knows in a way that could not be put back.

    Raises RouterError.
    """
    for view in views:
        _check_one(view)
        if not view.ours and not register and view.router not in records:
            raise RouterError("unknown_worker", unknown_worker(view))


def _check_one(view: View) -> None:
    ours = view.ours
    if any(worker.fixed for worker in ours):
        raise RouterError(
            "unremovable_worker",
            "The router %s is a sglang-router that tells the data-parallel ranks of %s apart (--dp-aware), and such a "
            "router does not take them out. Start it without --dp-aware, or use smg." % (view.router, view.worker.url),
        )
    models = sorted({worker.model for worker in ours})
    if len(models) > 1:
        raise RouterError(
            "ambiguous_worker",
            "The router %s has %s under several models (%s): it cannot be told which of them to put back. Leave one "
            "of them registered." % (view.router, view.worker.url, ", ".join(name or "none" for name in models)),
        )
    ranks = [worker.place.rank for worker in ours]
    if len(set(ranks)) < len(ranks):
        ids = ", ".join(worker.id for worker in ours)
        raise RouterError(
            "ambiguous_worker",
            "The router %s has %s several times (%s). Leave one of them: DELETE /workers/ID."
            % (view.router, view.worker.url, ids),
        )


def unknown_worker(view: View) -> str:
    """Why nothing is done to a router that has never heard of this worker, with what it has."""
    urls = sorted({worker.url for worker in view.workers})
    known = ", ".join(urls[:_NAMED]) + (" and %d more" % (len(urls) - _NAMED) if len(urls) > _NAMED else "")
    return (
        "The router %s does not know the worker %s. It has %s. Give the worker's URL as the router has it in "
        "worker_url (sglang_router_worker_url), or have it registered once it serves with register "
        "(sglang_router_register)." % (view.router, view.worker.url, known or "no worker at all")
    )


def below_floor(before: View, floor: Floor, after: Optional[View] = None) -> Optional[str]:
    """Why this host's worker must not leave a router; None where it may.

    after is what the router says once it has left: meanwhile others may have left, too.  A worker that gets
    no requests anyway takes nothing away.
    """
    if not any(worker.healthy for worker in before.ours):
        return None
    groups = before.groups
    left = len((after or before).healthy_others(groups))
    needed = floor.of(len(before.others(groups)) + 1)
    if left >= needed:
        return None
    model = before.ours[0].model or "its model"
    return (
        "Without %s the router %s would have %d healthy workers of %s left, and min_healthy "
        "(sglang_router_min_healthy) is %s%s. Bring the others back first, restart fewer hosts at a time, or lower it."
        % (
            *(before.worker.url, before.router, left, model, floor.describe()),
            ", here %d" % needed if floor.percent else "",
        )
    )
