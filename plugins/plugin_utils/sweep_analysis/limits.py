# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""max_running_requests: as it was asked for, as it is, and what it does to a comparison."""

from __future__ import annotations

from typing import List, Optional, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculation import (
    DEFAULT_MAX_RUNNING_REQUESTS,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.inequality import (
    NOT_KNOWN,
    UNSET,
    different,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration, whole
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Condition


def limit(one: Configuration) -> Optional[int]:
    """How many requests the whole server runs at a time, None where it is not known."""
    each = whole(one.effective.get("effective_max_running_requests_per_dp"))
    if each is not None:
        return each * (whole(one.value("dp_size")) or 1)
    known = whole(one.effective.get("max_running_requests")) or one.max_running_requests
    known = known or whole(one.settings.get("max_running_requests"))
    return known or (DEFAULT_MAX_RUNNING_REQUESTS if one.algorithm else None)


def limits(measured: Sequence[Configuration]) -> List[Condition]:
    """The warnings."""
    found = _capped(measured) or different(
        "max_running_requests",
        "max_running_requests",
        measured,
        lambda one: str(_asked(one) or one.max_running_requests or UNSET),
        "all concurrencies above the smaller one",
    )
    found += different(
        "effective_max_running_requests",
        "The number of requests that really run at a time",
        measured,
        lambda one: str(limit(one) or NOT_KNOWN),
        "all concurrencies above the smallest one",
    )
    return found + _queued(measured)


def _asked(one: Configuration) -> Optional[int]:
    """What was set, None where it was left to SGLang: 48 that nobody asked for is what it takes when it speculates."""
    given = whole(one.settings.get("max_running_requests"))
    if given is None and one.max_running_requests != DEFAULT_MAX_RUNNING_REQUESTS:
        return one.max_running_requests
    return given


def _capped(measured: Sequence[Configuration]) -> List[Condition]:
    """Speculation that SGLang limits, against a baseline that it does not."""
    capped = [one for one in measured if one.algorithm and _asked(one) is None]
    capped = [one for one in capped if limit(one) == DEFAULT_MAX_RUNNING_REQUESTS]
    free = [one for one in measured if not one.algorithm and limit(one) != DEFAULT_MAX_RUNNING_REQUESTS]
    if not capped or not free:
        return []
    values = {str(DEFAULT_MAX_RUNNING_REQUESTS): [one.label for one in capped]}
    for one in free:
        values.setdefault(str(limit(one) or UNSET), []).append(one.label)
    message = (
        "max_running_requests is unset, so SGLang runs at most %d requests at a time for %s, because they speculate, "
        "but %s for %s. Above a concurrency of %d it is this limit that is measured, not speculation: set "
        "max_running_requests to the same number for all."
        % (
            DEFAULT_MAX_RUNNING_REQUESTS,
            words.names([one.label for one in capped]),
            words.names(sorted({str(limit(one) or "as many as fit") for one in free}), "or"),
            words.names([one.label for one in free]),
            DEFAULT_MAX_RUNNING_REQUESTS,
        )
    )
    return [{"what": "capped_by_speculation", "values": values, "message": message}]


def _queued(measured: Sequence[Configuration]) -> List[Condition]:
    """Concurrencies of which a part only waits."""
    found: List[Condition] = []
    queued = [(one, most) for one in measured if (most := limit(one)) is not None and max(one.points) > most]
    for most in sorted({most for _one, most in queued}):
        labels = [one.label for one, own in queued if own == most]
        above = sorted({number for one, own in queued if own == most for number in one.points if number > most})
        message = "At concurrency %s %s %s at most %d requests at a time, and the others wait." % (
            words.names([str(number) for number in above]),
            words.names(labels),
            "runs" if len(labels) == 1 else "run",
            most,
        )
        found.append({"what": "queued", "values": {str(most): labels}, "message": message})
    return found
