# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides whether a wave may begin: enough other servers of each of its groups must serve now: pure, no I/O.

Nothing counts as serving but what has just answered so: neither what was planned, nor what was proven a while ago.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_plan import REPLACE, VACANT

SERVING = "serving"
# Who answers so serves nobody, so that its replacement is nobody's loss.
_IDLE = ("stopped", "failed")
# What is said of an instance that this collection has not deployed: another server may well be in its place.
_NOT_OURS = "not_deployed"
# Characters of what a host says of its server that are kept.
_LONGEST = 300


@dataclass(frozen=True)
class Answer:
    """What is known of a server.  state: as sglang_info has it, "unknown" where nobody could say."""

    state: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Demand:
    """What a wave needs of one group.

    taken_down: the units of the wave whose servers are stopped.  others: all other units, the likeliest to serve first.
    Units are named by the host that is asked.  hosts: all hosts of those that have several.
    """

    group: str
    floor: int
    total: int
    taken_down: Tuple[str, ...]
    others: Tuple[str, ...]
    hosts: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)

    def serving(self, answers: Mapping[str, Answer]) -> List[str]:
        """Those of the others that are known to serve."""
        return [name for name in self.others if name in answers and answers[name].state == SERVING]

    def is_met(self, answers: Mapping[str, Answer]) -> bool:
        """Whether enough others serve, or nothing that serves is taken down."""
        return len(self.serving(answers)) >= self.floor or all(_is_idle(answers.get(name)) for name in self.taken_down)

    def open_questions(self, answers: Mapping[str, Answer]) -> List[str]:
        """Whom to ask next: as many as are missing, then all others, then those that are to be taken down."""
        if self.is_met(answers):
            return []
        missing = self.floor - len(self.serving(answers))
        unasked = [name for name in self.others if name not in answers]
        if not answers.keys() & set(self.others):
            return unasked[:missing] or [name for name in self.taken_down if name not in answers]
        # Some that were asked do not serve: no further round for each of those that are left.
        return unasked or [name for name in self.taken_down if name not in answers]


@dataclass(frozen=True)
class Decision:
    """What comes next.  ask: whom; nobody where the gate is open, or is shut.  shut: demands that are not met."""

    ask: Tuple[str, ...] = ()
    shut: Tuple[Demand, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the wave may begin."""
        return not self.ask and not self.shut


def _is_idle(answer: Any) -> bool:
    return answer is not None and answer.state in _IDLE and answer.reason != _NOT_OURS


def demands(plan: Mapping[str, Any], wave: int, unlikely: Sequence[str] = ()) -> List[Demand]:
    """What a wave needs, by its number from 1 on.

    plan: as `rollout_plan.as_facts` has it.  unlikely: hosts that were lost, or came to nothing, in this run: they are
    asked last.
    """
    found = []
    gone = set(unlikely)
    for name, group in plan["groups"].items():
        units = group["units"]
        taken_down = [unit for unit in units if unit["fate"] == REPLACE and unit["wave"] == wave]
        if not taken_down or group["floor"] < 1:
            continue
        others = [unit for unit in units if unit not in taken_down]
        others.sort(
            key=lambda unit: (
                not gone.isdisjoint(unit["hosts"]),
                unit["fate"] == VACANT and unit["wave"] >= wave,
            )
        )
        found.append(
            Demand(
                name,
                group["floor"],
                len(units),
                tuple(unit["hosts"][0] for unit in taken_down),
                tuple(unit["hosts"][0] for unit in others),
                {unit["hosts"][0]: tuple(unit["hosts"]) for unit in units if len(unit["hosts"]) > 1},
            )
        )
    return found


def decide(wanted: Sequence[Demand], answers: Mapping[str, Answer]) -> Decision:
    """Open the gate, ask further, or keep it shut."""
    ask = [name for demand in wanted for name in demand.open_questions(answers)]
    if ask:
        return Decision(ask=tuple(dict.fromkeys(ask)))
    return Decision(shut=tuple(demand for demand in wanted if not demand.is_met(answers)))


def spread(ask: Sequence[str], askers: Sequence[str]) -> Dict[str, List[str]]:
    """Divide questions among the hosts of a wave, in whose names they are asked side by side.

    A host that is to be asked does it itself where it is of the wave.
    """
    divided: Dict[str, List[str]] = {}
    turn = 0
    for name in ask:
        asker = name
        if name not in askers:
            asker = askers[turn % len(askers)]
            turn += 1
        divided.setdefault(asker, []).append(name)
    return divided


def read_answer(result: Mapping[str, Any], instance: str) -> Answer:
    """What one result of sglang_info says of an instance."""
    if result.get("unreachable"):
        return Answer("unknown", "unreachable", "it cannot be reached: %s" % _first_line(result.get("msg")))
    servers = result.get("servers")
    if result.get("failed") or not isinstance(servers, list):
        return Answer("unknown", "not_asked", "it could not be asked: %s" % _first_line(result.get("msg")))
    for server in servers:
        if isinstance(server, Mapping) and server.get("instance") == instance:
            state, reason, message = (_plain(server.get(key)) for key in ("state", "reason", "message"))
            return Answer(state, reason, message)
    return Answer("unknown", "not_asked", "its host knows no instance %s" % instance)


def _first_line(text: Any) -> str:
    lines = str(text or "").strip().splitlines()
    return _plain(lines[0]) if lines else "it gave no reason"


def _plain(text: Any) -> str:
    """What a host said, short and without anything that moves a terminal."""
    return visible(str(text or ""), _LONGEST)
