# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes records of events and brings them into the file and the journal."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Collection, Dict, List, Mapping, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system import audit_journal
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_file import LineFile, Refused
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_record import encode
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_who import who
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

FORMAT = 1
# What is said of a target in the journal's sentence, in this order, as far as it is known; then the rest of it, but
# what makes the sentence longer and not clearer.
_FIRST = ("service", "unit", "instance", "release", "pid", "name", "user", "container", "gpus")
_UNSAID = frozenset(["start_ticks", "exe", "command", "kind", "state_dir"])
_EMPTY: Tuple[Any, ...] = (None, "", [], {})
_MOST_SAID = 120


class Writer:
    """Writes the records of one run of a module; see audit.AuditLog for the arguments.

    needs_journal: the journal alone was asked for, so that it is a problem where there is none.
    now gives the time in seconds since the epoch.
    """

    def __init__(
        self,
        path: str,
        journal: str,
        module: str = "",
        run: str = "",
        needs_journal: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._file = LineFile(path) if path else None
        self._journal = journal
        self._module = module
        self._needs_journal = needs_journal
        self._now = now
        self._who = who(os.environ, run)
        self._boot = _boot_id()

    def write(
        self,
        identifier: str,
        action: str,
        target: Mapping[str, Any],
        evidence: Mapping[str, Any],
        outcome: str,
        detail: str,
        hidden: Collection[str] = (),
        durable: bool = False,
    ) -> List[str]:
        """Write one record; sentences about what could not be written.  hidden: secrets, which are replaced."""
        record: Dict[str, Any] = {
            "format": FORMAT,
            "id": identifier,
            "time": _utc(self._now()),
            "uptime": round(time.clock_gettime(time.CLOCK_BOOTTIME), 3),
            "boot": self._boot,
            "host": os.uname().nodename,
            "module": self._module,
            "pid": os.getpid(),
            "action": action,
            "outcome": outcome,
            "detail": detail,
            "target": target,
            "evidence": evidence,
            "who": self._who,
        }
        line = encode(record, hidden)
        in_file = self._to_file(line, durable)
        in_journal = self._to_journal(line)
        if in_file:
            rest = "the journal alone has it" if not in_journal else "it is recorded nowhere"
            return ["What is done is not recorded in %s, %s: %s." % (self._path, rest, in_file)]
        if in_journal and self._needs_journal:
            return ["What is done is not recorded: the journal cannot be reached (%s)." % in_journal]
        return []

    def _to_file(self, line: bytes, durable: bool) -> str:
        if self._file is None:
            return ""
        try:
            self._file.append(line, durable)
        except Refused as refused:
            return str(refused)
        except OSError as error:
            return "%s: set audit_path to a file that can be written" % (error.strerror or error)
        return ""

    def _to_journal(self, line: bytes) -> str:
        try:
            audit_journal.send(journal_fields(line), self._journal)
        except OSError as error:
            return error.strerror or str(error)
        return ""


def journal_fields(line: bytes) -> Dict[str, str]:
    """The fields of the journal's entry, made from the line, so that both say the same and nothing more."""
    import json

    record = json.loads(line)
    return {
        "MESSAGE": message(record),
        "PRIORITY": str(audit_journal.priority_of(record["outcome"])),
        "SYSLOG_IDENTIFIER": audit_journal.IDENTIFIER,
        "INFEROPS_ID": record["id"],
        "INFEROPS_MODULE": record["module"],
        "INFEROPS_ACTION": record["action"],
        "INFEROPS_OUTCOME": record["outcome"],
        "INFEROPS_RECORD": line.decode("ascii").rstrip("\n"),
    }


def message(record: Mapping[str, Any]) -> str:
    """The event in words, in one line without control characters."""
    target = record.get("target") or {}
    names = [*_FIRST, *(name for name in target if name not in _FIRST and name not in _UNSAID)]
    words = ["%s %s" % (_said(name), _said(target[name])) for name in names if target.get(name) not in _EMPTY]
    text = "%s: %s %s: %s" % (record["module"] or "inferops", record["action"], record["outcome"], ", ".join(words))
    if record["detail"]:
        text += "; %s" % _said(record["detail"])
    doer = record.get("who") or {}
    return "%s; by %s" % (text, _said(doer.get("login_user") or doer.get("user") or "somebody"))


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        value = " ".join(str(item) for item in value.values() if item)
    elif isinstance(value, list):
        value = " ".join(str(item) for item in value)
    return visible(str(value), _MOST_SAID)


def _utc(moment: float) -> str:
    """A time in UTC as ISO 8601 with milliseconds."""
    seconds, milliseconds = divmod(int(moment * 1000), 1000)
    return "%s.%03dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)), milliseconds)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""
