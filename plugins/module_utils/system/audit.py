# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records on the host what is done to it: who, when, what, on which evidence, and what came of it.

Each event goes as one line into a file that only root can read, and into the journal.  Recording never
raises, never waits for long and never keeps a module from its work: what could not be recorded is told in
`problems`, which modules show as warnings.

The files behind this one are imported with the first event, as most runs of a module do nothing.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Protocol, Set, Type

DEFAULT_PATH = "/var/log/inferops/audit.jsonl"
JOURNAL_SOCKET = "/run/systemd/journal/socket"

# What is done to a host.
SIGNAL = "signal"
STOP = "stop"
START = "start"
RESET = "reset"
CONFIGURATION = "configuration"
DRIVER_SETTING = "driver_setting"

# Outcomes that are not a caller's own words.
BEGUN = "begun"
DONE = "done"
FAILED = "failed"

# A reset may take the host down with it, so its first line must be on the disk by then.
_DURABLE = frozenset([RESET])


class Module(Protocol):
    """What is asked of an AnsibleModule."""

    params: Dict[str, Any]
    check_mode: bool

    def fail_json(self, msg: str, **results: Any) -> Any:
        """End the module."""


def audit_options() -> Dict[str, Dict[str, Any]]:
    """The argument spec that goes with the doc fragment audit."""
    return {"audit_path": {"type": "path", "default": DEFAULT_PATH}}


class Event:
    """Something that is being done; set `outcome` (and `detail`) before the block ends.

    target and evidence may be added to until then.  An exception that leaves the block makes the outcome
    `failed`, with its text as the detail.
    """

    def __init__(self, log: AuditLog, action: str, target: Mapping[str, Any], evidence: Mapping[str, Any]) -> None:
        self.id = os.urandom(8).hex()
        self.action = action
        self.target: Dict[str, Any] = dict(target)
        self.evidence: Dict[str, Any] = dict(evidence)
        self.outcome = ""
        self.detail = ""
        self._log = log

    def note(self, outcome: str, detail: str = "") -> None:
        """Record a state of it, as its beginning."""
        self._log.write(self, outcome, detail)

    def __enter__(self) -> Event:
        self.note(BEGUN)
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _trace: Optional[TracebackType]
    ) -> None:
        # A module ends by SystemExit, whatever has become of its work.
        if error is None or isinstance(error, SystemExit):
            self.note(self.outcome or DONE, self.detail)
        else:
            self.note(FAILED, str(error) or type(error).__name__)


class AuditLog:
    """Records the events of one run of a module.

    path: the file, "" for the journal alone; module: who acts; run: what the controller calls this run;
    hidden: secrets, which are replaced wherever they occur, also those that are added to it later;
    enabled: whether anything is recorded at all, as nothing is in check mode.

    Without root the default file is left out, as only root can write it.
    """

    def __init__(
        self,
        path: str = DEFAULT_PATH,
        module: str = "",
        run: str = "",
        hidden: Collection[str] = (),
        enabled: bool = True,
        journal: str = JOURNAL_SOCKET,
        now: Optional[Callable[[], float]] = None,
    ) -> None:
        self.problems: List[str] = []
        self._path = path if path != DEFAULT_PATH or os.geteuid() == 0 else ""
        self._journal_only = path == ""
        self._module = module
        self._run = run
        self._hidden = hidden
        self._also_hidden: Set[str] = set()
        self._enabled = enabled
        self._journal = journal
        self._now = now
        self._writer: Optional[Callable[..., List[str]]] = None

    @classmethod
    def of_module(cls, module: Module) -> AuditLog:
        """That of a module with the options of audit_options; one without them uses the default file.

        Fails the module where audit_path is no path.
        """
        path = module.params.get("audit_path")
        if path is None:
            path = DEFAULT_PATH
        problem = audit_path_problem(path)
        if problem:
            module.fail_json(msg=problem)
        return cls(
            path,
            # inferops.sglang.gpu_reclaim
            module=str(getattr(module, "_name", "")).rpartition(".sglang.")[2],
            run=str(getattr(module, "_target_log_info", None) or ""),
            hidden=getattr(module, "no_log_values", ()),
            enabled=not module.check_mode,
            journal=JOURNAL_SOCKET,
        )

    @property
    def enabled(self) -> bool:
        """Whether anything is recorded."""
        return self._enabled

    def hide(self, secrets: Iterable[str]) -> None:
        """Replace these as well, wherever they occur from now on."""
        if self._enabled:
            self._also_hidden.update(secrets)

    def event(self, action: str, target: Mapping[str, Any], evidence: Mapping[str, Any]) -> Event:
        """Something that is about to be done, for a `with` block: recorded as begun, and with its outcome."""
        return Event(self, action, target, evidence)

    def record(
        self, action: str, target: Mapping[str, Any], evidence: Mapping[str, Any], outcome: str, detail: str = ""
    ) -> None:
        """Record something that was done in one step."""
        Event(self, action, target, evidence).note(outcome, detail)

    def write(self, event: Event, outcome: str, detail: str) -> None:
        """Record one state of an event; `Event.note` is for callers."""
        if not self._enabled:
            return
        try:
            if self._writer is None:
                self._writer = self._open()
            problems = self._writer(
                event.id,
                event.action,
                event.target,
                event.evidence,
                outcome,
                detail,
                hidden=self._also_hidden.union(self._hidden),
                durable=event.action in _DURABLE and outcome == BEGUN,
            )
        except Exception as error:  # pylint: disable=broad-except
            # Whatever it is: a GPU is not left half-way reset because a line could not be written.
            problems = ["What is done could not be recorded: %s: %s" % (type(error).__name__, error)]
        self.problems += [problem for problem in problems if problem not in self.problems]

    def _open(self) -> Callable[..., List[str]]:
        from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_writer import Writer

        now = {} if self._now is None else {"now": self._now}
        writer = Writer(
            self._path,
            self._journal,
            module=self._module,
            run=self._run,
            needs_journal=self._journal_only,
            **now,
        )
        return writer.write


def audit_path_problem(path: str) -> str:
    """What is wrong with the option, "" for nothing."""
    if path == "" or (path.startswith("/") and "\0" not in path and not path.endswith("/")):
        return ""
    return "audit_path: %r is not an absolute path of a file: give one, or an empty text for the journal alone." % path


# For those who act without anybody who listens, such as tests.
NO_AUDIT = AuditLog("", enabled=False)
