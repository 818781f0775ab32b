# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes that serve below a server's main one, watched for those that go missing.

A scheduler, a detokenizer or a data-parallel controller may die while the main process lives on and
answers 503 for ever.  They are known by the titles that SGLang gives them; the many helpers that come
and go during a start (compilers, for example) have none.

Some that had died before anybody watched are missed as well, as soon as the server listens: it does not
before all of them are ready.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcessInfo, ProcFs

# How long one must be gone: a server that notices it goes down with a better reason (seconds).
PATIENCE = 5.0
# Seconds between two searches for new ones: that is a look at each process of the host.
SEARCH_INTERVAL = 2.0

_TITLE = "sglang::"
_PID_IN_TITLE = re.compile(r":\d+$")
SCHEDULER = "sglang::scheduler"
CONTROLLER = "sglang::data_parallel_controller"


@dataclass(frozen=True)
class Worker:
    """One of them; gone_since is the time at which it was first missed, None while it lives (seconds)."""

    identity: ProcessIdentity
    name: str
    gone_since: Optional[float] = None

    @property
    def pool(self) -> str:
        """What it is one of many of, "" for most: uvicorn starts another tokenizer worker when one dies."""
        name, number = _PID_IN_TITLE.subn("", self.name)
        return name if number else ""


class WorkerWatch:
    """Knows the workers of one server.

    owns says whether a process belongs to it; required are the beginnings of titles of which a server that
    listens has one each.  They count only where any title is seen: an installation may set none.  missing_since
    is since when one of them has not been there, None where all are (seconds).
    """

    def __init__(
        self,
        procfs: ProcFs,
        owns: Callable[[ProcessInfo], bool],
        clock: Callable[[], float],
        known: Sequence[Worker] = (),
        required: Sequence[str] = (),
        missing_since: Optional[float] = None,
    ) -> None:
        self._procfs = procfs
        self._owns = owns
        self._clock = clock
        self._known: Dict[ProcessIdentity, Worker] = {worker.identity: worker for worker in known}
        self._required = required
        self.missing_since = missing_since
        self._due = clock()

    def look(self, listening: bool = False) -> str:
        """Who has been gone for long, in words; "" where nobody is.  listening: the server answers on its port."""
        now = self._clock()
        if now >= self._due:
            self._search()
            self._due = now + SEARCH_INTERVAL
        for identity, worker in list(self._known.items()):
            if worker.gone_since is None and not self._procfs.alive(identity):
                self._known[identity] = Worker(identity, worker.name, now)
        pools = {worker.pool for worker in self._known.values() if worker.gone_since is None} - {""}
        gone = [
            worker
            for worker in self._known.values()
            if worker.gone_since is not None and now - worker.gone_since >= PATIENCE and worker.pool not in pools
        ]
        if gone or not listening:
            return ", ".join("%s (PID %d)" % (worker.name, worker.identity.pid) for worker in gone)
        return self._missing(now)

    def _missing(self, now: float) -> str:
        alive = [worker.name for worker in self._known.values() if worker.gone_since is None]
        absent = [title for title in self._required if not any(name.startswith(title) for name in alive)]
        if not alive or not absent:
            self.missing_since = None
            return ""
        if self.missing_since is None:
            self.missing_since = now
        return ", ".join(absent) if now - self.missing_since >= PATIENCE else ""

    def _search(self) -> None:
        for pid in self._procfs.pids():
            if not self._titled(pid):
                continue
            process = self._procfs.read(pid)
            if process is None or process.dead or process.identity in self._known or not self._owns(process):
                continue
            if process.name.startswith(_TITLE):
                self._known[process.identity] = Worker(process.identity, process.name)

    def _titled(self, pid: int) -> bool:
        """Whether its short name begins as those of workers do: one small read instead of many."""
        try:
            with open("%s/%d/comm" % (self._procfs.root, pid), encoding="utf-8", errors="replace") as stream:
                return stream.read().startswith(_TITLE)
        except OSError:
            return False

    def known(self) -> List[Worker]:
        """All that were seen, for the next part of the same wait."""
        return list(self._known.values())


def workers_from(rows: Sequence[Any]) -> List[Worker]:
    """Workers from rows of PID, start time, name and time.  Raises ValueError or TypeError for other rows."""
    found = []
    for pid, start_time, name, gone_since in rows:
        since = None if gone_since is None else float(gone_since)
        found.append(Worker(ProcessIdentity(int(pid), int(start_time)), str(name), since))
    return found
