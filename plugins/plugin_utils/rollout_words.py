# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said about a rollout: pure, no I/O."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_gate import SERVING, Answer, Demand
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_plan import KEEP, OUTSIDE, VACANT
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import names

# Of so many servers it is said why they do not serve; the others are counted.
_MOST_STORIES = 5


def count(amount: int, thing: str) -> str:
    """An amount with its noun."""
    return "%d %s%s" % (amount, thing, "" if amount == 1 else "s")


def plan_lines(plan: Mapping[str, Any]) -> List[str]:
    """A plan for people: what each group keeps up, and who goes when."""
    lines = []
    waves: Dict[int, List[str]] = {}
    for name, group in plan["groups"].items():
        units = group["units"]
        lines.append("Group %s, %s" % (name, _of_the_group(group)))
        for unit in units:
            if unit["wave"]:
                vacant = " (nothing runs there)" if unit["fate"] == VACANT else ""
                waves.setdefault(unit["wave"], []).append(" + ".join(unit["hosts"]) + vacant)
    lines += ["Wave %d: %s" % (number, names(waves[number])) for number in sorted(waves)]
    return lines


def _of_the_group(group: Mapping[str, Any]) -> str:
    units = group["units"]
    kept = [unit for unit in units if unit["fate"] == KEEP]
    outside = [unit for unit in units if unit["fate"] == OUTSIDE]
    told = [count(len(units), "replica")]
    if outside:
        told.append("%d of them not in this run" % len(outside))
    if kept:
        told.append("%d as wanted already" % len(kept))
    told.append("at least %d serve all the time" % group["floor"])
    return ", ".join(told)


def waiting_line(wave: int, shut: Sequence[Demand], answers: Mapping[str, Answer], left: float) -> str:
    """One line while a wave waits for others."""
    told = [
        "%d of %d serve in the group %s; %s"
        % (len(demand.serving(answers)), demand.floor, demand.group, _who_does_not(demand, answers))
        for demand in shut
    ]
    return "Wave %d waits, %.0f s at most: %s" % (wave, left, "; ".join(told))


def refusal(wave: int, shut: Sequence[Demand], answers: Mapping[str, Answer], waited: float) -> str:
    """Why a wave did not begin, and what to do."""
    told = ["Nothing of wave %d was touched%s." % (wave, ", after %.0f s of waiting" % waited if waited >= 1 else "")]
    for demand in shut:
        serving = demand.serving(answers)
        told.append(
            "At least %d of the %s of the group %s must serve (sglang_min_serving). Without %s %s would; %s."
            % (
                demand.floor,
                count(demand.total, "replica"),
                demand.group,
                names(list(demand.taken_down)),
                "only %s" % names(serving) if serving else "none",
                _who_does_not(demand, answers),
            )
        )
        missing = [name for name in demand.others if name not in serving]
        if missing:
            told.append(
                "Look at %s. Restart first what does not serve, by itself: --limit %s. Then run the same again."
                % (names(missing), ",".join(demand.hosts.get(missing[0], (missing[0],))))
            )
    return " ".join(told)


def _who_does_not(demand: Demand, answers: Mapping[str, Answer]) -> str:
    told = []
    for name in demand.others:
        answer = answers.get(name)
        if answer is None or answer.state == SERVING:
            continue
        why = answer.message or " ".join(part for part in (answer.state, answer.reason) if part)
        told.append("%s does not: %s" % (name, why.rstrip(". ")))
    if len(told) > _MOST_STORIES + 1:
        told[_MOST_STORIES:] = ["%d more do not" % (len(told) - _MOST_STORIES)]
    return "; ".join(told) or "it has no others"


def stop_line(failed: Sequence[str], lost: Sequence[str], allowed: int) -> str:
    """Why no further wave begins."""
    told = []
    if failed:
        told.append("%s %s not proven" % (names(list(failed)), "is" if len(failed) == 1 else "are"))
    if lost:
        told.append("%s cannot be reached" % names(list(lost)))
    text = " and ".join(told)
    if allowed:
        text += ", which is more than sglang_max_failed=%d allows" % allowed
    return "%s: no further wave begins." % text


def going_on_line(failed: Sequence[str], lost: Sequence[str], allowed: int) -> str:
    """That the run goes on although something failed."""
    bad = [*failed, *lost]
    return "The run goes on without %s: sglang_max_failed=%d allows it." % (names(bad), allowed)


def left_line(left: Sequence[str]) -> str:
    """What a later run has to do; nothing where nothing is left."""
    if not left:
        return ""
    verb = "is" if len(left) == 1 else "are"
    return "Mend what failed and run the same again: %s %s left (%s)." % (
        count(len(left), "host"),
        verb,
        names(list(left)),
    )
