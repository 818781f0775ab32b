# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as people read them."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report import numbers


@pytest.mark.parametrize(
    "shown, text",
    [
        (numbers.number(None), "?"),
        (numbers.number(0), "0"),
        (numbers.number(250), "250"),
        (numbers.number(12345.6), "12\u202f346"),
        (numbers.number(2.5312), "2.53"),
        (numbers.number(0.7), "0.700"),
        (numbers.number(0.7, 2), "0.70"),
        (numbers.number(-2.5), "\u22122.50"),
        (numbers.milliseconds(None), "?"),
        (numbers.milliseconds(41.23), "41.2 ms"),
        (numbers.milliseconds(12100), "12.1 s"),
        (numbers.seconds(41.5), "41.5 s"),
        (numbers.seconds(600), "10 min"),
        (numbers.seconds(None), "?"),
        (numbers.span(1.5, 2.25), "1.50 to 2.25"),
        (numbers.signed(None), "-"),
        (numbers.signed(-0.001), "0"),
        (numbers.signed(0.25), "+0.25"),
        (numbers.signed(-0.25), "\u22120.25"),
        (numbers.percent(None), "?"),
        (numbers.percent(1.0), "0 %"),
        (numbers.percent(1.234), "+23 %"),
        (numbers.percent(0.79), "\u221221 %"),
        (numbers.percent_span(0.92, 1.05), "\u22128 to +5 %"),
        (numbers.percent_span(None, 1.0), "?"),
    ],
)
def test_it_reads_so(shown, text):
    assert shown == text
