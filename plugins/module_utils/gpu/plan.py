# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what becomes of each process on the selected GPUs.  Pure: it signals nobody."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import FrozenSet, Mapping, Optional, Pattern, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import container_matches, unit_matches
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessInfo

END = "end"
PROTECTED = "protected"
SKIPPED = "skipped"
UNRESOLVED = "unresolved"

# What a process is to which a descriptor or a mapping is the only tie (option attached).
EXCLUSIVE = "exclusive"
ANY = "any"
NEVER = "never"

_UNREADABLE = "its executable cannot be read, so it may be a protected one: run the task as root (become: true)"


@dataclass(frozen=True)
class Filters:
    """Which processes may be ended at all: those that fit every filter that is set.

    uids are user ids; units and containers are entries as in matching.py; command is searched in the
    command line.
    """

    uids: FrozenSet[int] = frozenset()
    units: Tuple[str, ...] = ()
    containers: Tuple[str, ...] = ()
    command: Optional[Pattern[str]] = None

    def refuses(self, process: ProcessInfo) -> str:
        """Why a process does not fit, or ""."""
        if self.uids and process.uid not in self.uids:
            return "its user %s is not in users" % process.user
        container = process.container
        if self.units and (container is not None or not unit_matches(process.unit or "", self.units)):
            return "%s is not in units" % ("its unit %s" % process.unit if process.unit else "a process without a unit")
        if self.containers and (container is None or not container_matches(container, self.containers)):
            where = "its container %s" % container.label if container is not None else "a process without a container"
            return "%s is not in containers" % where
        if self.command is not None and not self.command.search(" ".join(process.argv)):
            return "command_pattern does not fit its command line"
        return ""


@dataclass(frozen=True)
class Rules:
    """What the task was told: filters, and what to do with processes that merely have a GPU open."""

    filters: Filters = Filters()
    attached: str = EXCLUSIVE


@dataclass(frozen=True)
class Decision:
    """What is to become of a holder (end, protected, skipped, unresolved), and why."""

    holder: Holder
    action: str
    why: str


@dataclass(frozen=True)
class Plan:
    """All decisions, by ascending PID."""

    decisions: Tuple[Decision, ...]

    def having(self, action: str) -> Tuple[Holder, ...]:
        """The holders with this decision."""
        return tuple(decision.holder for decision in self.decisions if decision.action == action)

    @property
    def targets(self) -> Tuple[Holder, ...]:
        """The holders to be ended."""
        return self.having(END)


def plan_reclaim(holders: Sequence[Holder], selected: FrozenSet[str], rules: Rules) -> Plan:
    """Decide about every holder that uses a selected GPU (UUIDs) or has it open; others are left out."""
    mine = [holder for holder in holders if selected.intersection(holder.gpus + holder.attached)]
    decisions = [_decide(holder, selected, rules) for holder in sorted(mine, key=lambda holder: holder.pid)]
    doomed = {d.holder.pid: d.holder for d in decisions if d.action == END and selected.intersection(d.holder.gpus)}
    return Plan(tuple(_with_its_parent(decision, doomed, selected, rules) for decision in decisions))


def _with_its_parent(
    decision: Decision, doomed: Mapping[int, Holder], selected: FrozenSet[str], rules: Rules
) -> Decision:
    """End a process that would keep the GPU of one that is ended, since it was forked from it.

    It would show as a user of the GPU only when its parent is dead, and would have to be ended then.
    """
    holder, process = decision.holder, decision.holder.process
    if decision.action != SKIPPED or process is None or holder.listed or holder.monitor or holder.outside:
        return decision
    for pid in (process.ppid, process.pgid, process.session):
        parent = doomed.get(pid)
        if parent is not None and pid != holder.pid and selected.intersection(parent.gpus, holder.attached):
            if rules.filters.refuses(process) or not process.exe:
                return decision
            return Decision(holder, END, "it would keep the GPU of PID %d, which it was forked from" % pid)
    return decision


def _decide(holder: Holder, selected: FrozenSet[str], rules: Rules) -> Decision:
    if holder.protected_by:
        return Decision(holder, PROTECTED, holder.protected_by)
    if holder.process is None or holder.doubt:
        return Decision(holder, UNRESOLVED, holder.doubt)
    uses = bool(selected.intersection(holder.gpus))
    mere = "" if uses else _leave_attached(holder, rules.attached)
    if mere:
        return Decision(holder, SKIPPED, mere)
    refusal = rules.filters.refuses(holder.process)
    if refusal:
        return Decision(holder, SKIPPED, refusal)
    if not holder.process.exe:
        return Decision(holder, UNRESOLVED, _UNREADABLE)
    return Decision(holder, END, _why(holder, uses))


def _leave_attached(holder: Holder, attached: str) -> str:
    """Why a process that only has the GPU open is left alone, or ""."""
    if holder.outside:
        return holder.outside
    if attached == ANY:
        return ""
    if attached == NEVER:
        return "it only has the GPU open (attached is never)"
    if holder.monitor:
        return "it only asks the driver about the GPU, as monitors do"
    if holder.listed or holder.elsewhere:
        return "it only has the GPU open, and has others open too"
    return ""


def _why(holder: Holder, uses: bool) -> str:
    if holder.heir_of is not None and uses:
        return "it inherited the GPU from PID %d, which has ended" % holder.heir_of
    if uses:
        return "listed by the driver"
    return "it has the GPU open (%s)" % ", ".join(holder.evidence)


def compile_pattern(text: str) -> Optional[Pattern[str]]:
    """The command pattern, or None where there is none.  Raises re.error."""
    return re.compile(text) if text else None
