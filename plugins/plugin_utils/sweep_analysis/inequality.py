# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A warning about something that configurations do not have in common."""

from __future__ import annotations

from typing import Callable, Dict, List, Sequence

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Condition

UNSET = "unset"
NOT_KNOWN = "not known"


def different(
    what: str,
    title: str,
    measured: Sequence[Configuration],
    getter: Callable[[Configuration], str],
    consequence: str,
) -> List[Condition]:
    """The warning, if getter has more than one value; consequence is what cannot be compared then."""
    values = values_of(measured, getter)
    if len(values) < 2:
        return []
    message = "%s is not the same: %s. This makes incomparable: %s." % (title, told(values), consequence)
    return [{"what": what, "values": values, "message": message}]


def values_of(measured: Sequence[Configuration], getter: Callable[[Configuration], str]) -> Dict[str, List[str]]:
    """Each value with the configurations that have it."""
    values: Dict[str, List[str]] = {}
    for one in measured:
        values.setdefault(getter(one), []).append(one.label)
    return values


def told(values: Dict[str, List[str]]) -> str:
    """The values in a sentence: "256 for a and b; 48 for c"."""
    return "; ".join("%s for %s" % (value, words.names(labels)) for value, labels in values.items())
