# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as people read them: as many digits as mean something, and the unit that fits.  Pure."""

from __future__ import annotations

from typing import Optional

UNKNOWN = "?"
NONE = "-"
# A thin space groups digits without looking like a decimal point anywhere.
_GROUP = "\u202f"
_MINUS = "\u2212"


def number(value: Optional[float], digits: int = 3) -> str:
    """A number of about so many digits that mean something; whole numbers keep all of theirs."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size >= 10 ** (digits - 1) or value == int(value):
        text = "{:,.0f}".format(value)
    else:
        before = len(str(int(size))) if size >= 1 else 0
        text = "{:.{}f}".format(value, min(max(digits - before, 1), 4))
    return text.replace(",", _GROUP).replace("-", _MINUS)


def milliseconds(value: Optional[float]) -> str:
    """Milliseconds with their unit, seconds from ten seconds on."""
    if value is None:
        return UNKNOWN
    return number(value / 1000.0) + " s" if abs(value) >= 10_000 else number(value) + " ms"


def seconds(value: Optional[float]) -> str:
    """Seconds with their unit, minutes from two minutes on."""
    if value is None:
        return UNKNOWN
    return number(value / 60.0) + " min" if abs(value) >= 120 else number(value) + " s"


def span(low: Optional[float], high: Optional[float], digits: int = 3) -> str:
    """From one number to another one."""
    return "%s to %s" % (number(low, digits), number(high, digits))


def signed(value: Optional[float]) -> str:
    """A difference with two decimals and its sign."""
    if value is None:
        return NONE
    text = "%+.2f" % value
    return "0" if float(text) == 0 else text.replace("-", _MINUS)


def percent(ratio: Optional[float]) -> str:
    """How much more or less than one a ratio is: +12 %."""
    if ratio is None:
        return UNKNOWN
    points = round((ratio - 1.0) * 100)
    sign = "+" if points > 0 else ""
    return "%s%s %%" % (sign, number(float(points)))


def percent_span(low: Optional[float], high: Optional[float]) -> str:
    """The same for an interval: +8 to +15 %."""
    if low is None or high is None:
        return UNKNOWN
    return "%s to %s" % (percent(low).rpartition(" ")[0], percent(high))
