# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many workers must be left."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.floor import parse_floor


@pytest.mark.parametrize(
    ("text", "workers", "needed"),
    [("0", 4, 0), ("2", 4, 2), (" 3 ", 1, 3), ("50%", 4, 2), ("50 %", 5, 3), ("1%", 8, 1), ("99%", 3, 3), ("0%", 3, 0)],
)
def test_how_many_that_are(text, workers, needed):
    assert parse_floor(text).of(workers) == needed


@pytest.mark.parametrize(("text", "shown"), [("2", "2"), ("050 %", "50%")])
def test_it_is_shown_as_it_was_meant(text, shown):
    assert parse_floor(text).describe() == shown


@pytest.mark.parametrize("text", ["", "-1", "1.5", "half", "%", "2 workers", "1" * 7])
def test_what_is_no_floor(text):
    with pytest.raises(ValueError, match="neither a number nor a percentage"):
        parse_floor(text)


@pytest.mark.parametrize("text", ["100%", "250%"])
def test_a_share_that_nobody_could_leave(text):
    with pytest.raises(ValueError, match="leaves no worker"):
        parse_floor(text)
