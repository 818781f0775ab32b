# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what becomes of each process on the selected GPUs.  Pure: it signals nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Holder

END = "end"
PROTECTED = "protected"
SKIPPED = "skipped"
UNRESOLVED = "unresolved"

_UNREADABLE = "its executable cannot be read, so it may be a protected one: run the task as root (become: true)"


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


def plan_reclaim(holders: Sequence[Holder], selected: FrozenSet[str], users: FrozenSet[int]) -> Plan:
    """Decide about every holder of the selected GPUs (UUIDs); others are left out.

    users: end only processes of these user ids; empty: of any.
    """
    mine = [holder for holder in holders if selected.intersection(holder.gpus)]
    return Plan(tuple(_decide(holder, users) for holder in sorted(mine, key=lambda holder: holder.pid)))


def _decide(holder: Holder, users: FrozenSet[int]) -> Decision:
    if holder.protected_by:
        return Decision(holder, PROTECTED, holder.protected_by)
    if holder.process is None or holder.doubt:
        return Decision(holder, UNRESOLVED, holder.doubt)
    if users and holder.process.uid not in users:
        return Decision(holder, SKIPPED, "its user %s is not in users" % holder.process.user)
    if not holder.process.exe:
        return Decision(holder, UNRESOLVED, _UNREADABLE)
    return Decision(holder, END, "listed by the driver")
