# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout of the report's table."""

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.plugin_utils.table import table


def test_small_cells_keep_their_width():
    assert table(["a", "b"], [["1", "22"]]).splitlines() == ["a │ b", "──┼───", "1 │ 22"]


def test_a_cell_may_have_several_lines():
    assert table(["a", "b"], [["1\n2", "x"]]).splitlines()[2:] == ["1 │ x", "2 │"]


def test_the_widest_column_gives_way_and_words_stay_whole():
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    text = table(["host", "text"], [["gpu-a", " ".join(words)]], width=24)
    assert max(len(line) for line in text.splitlines()) <= 24
    for word in words:
        assert word in text


def test_a_long_word_is_kept_whole_even_if_the_table_gets_too_wide():
    word = "GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e"
    assert word in table(["a", "b"], [[word, "x"]], width=20)


def test_no_rows():
    assert table(["a"], []) == "a"
