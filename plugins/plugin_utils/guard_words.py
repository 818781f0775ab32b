# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the guard says of a group: one line, pure."""

from __future__ import annotations

from typing import Optional

from ansible_collections.inferops.sglang.plugins.plugin_utils import guard_decision as reasons
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_decision import Settings, Verdict
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_rules import Load


def line(group: str, verdict: Verdict, settings: Settings) -> str:
    """Load, present profile, wanted profile, decision and why not."""
    parts = ["load %s" % load_in_words(verdict.load)]
    if verdict.present:
        parts.append("runs %s%s" % (verdict.present, " in part" if verdict.unfinished else ""))
    if verdict.wanted:
        parts.append("wants %s" % verdict.wanted)
    return "Group %s: %s: %s" % (group, ", ".join(parts), decision(verdict, settings))


def load_in_words(load: Optional[Load]) -> str:
    """The load of a server."""
    if load is None:
        return "not known"
    return "%s%.1f requests a server" % ("" if load.complete else "at least ", load.value)


def decision(verdict: Verdict, settings: Settings) -> str:
    """What is done, or why nothing is."""
    reason, detail = verdict.reason, verdict.detail
    if reason == reasons.SWITCH:
        return "switch to %s%s." % (verdict.wanted, " (the last one did not get to its end)" * verdict.unfinished)
    told = {
        reasons.AS_WANTED: "nothing to do.",
        reasons.NOT_YET: "no switch: %d of %d runs agree (sglang_guard_samples)."
        % (settings.samples - verdict.missing, settings.samples),
        reasons.TOO_SOON: "no switch: the last start or switch is too recent, %s to go (sglang_guard_min_interval)."
        % _time(verdict.left),
        reasons.UNKNOWN_LOAD: "no switch: an unknown load is not a low one.",
        reasons.UNKNOWN_AGE: "no switch: it is not known since when %s serves." % detail,
        reasons.NOT_SERVING: "no switch: %s." % detail,
        reasons.NOTHING_SERVES: "no switch: all servers are stopped.",
        reasons.UNKNOWN_PROFILE: "no switch: %s. Restart with one of them: -e sglang_spec_profile=%s."
        % (detail, settings.rules[0].profile),
        reasons.MIXED: "no switch: different profiles run (%s). Restart all with one of them: "
        "-e sglang_spec_profile=%s." % (detail, settings.rules[0].profile),
        reasons.BUSY: "no switch: another run is switching%s." % (" (%s)" % detail if detail else ""),
    }
    return told[reason]


def _time(seconds: float) -> str:
    return "%.0f s" % seconds if seconds < 120 else "%.0f min" % (seconds / 60)
