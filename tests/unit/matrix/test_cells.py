# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cells there are, and which of them are the ends."""

from __future__ import annotations

import pathlib
import re

import cells
import pytest
import yaml
from cells import NEWEST, OLDEST

ROOT = pathlib.Path(__file__).resolve().parents[3]
ALL_PYTHONS = tuple(cells.TARGET_PYTHONS)


def names(listed):
    return [cell.name for cell in listed]


def test_names_are_unique():
    assert len(set(names(cells.everything()))) == len(cells.everything())


def test_names_are_fit_for_files():
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in names(cells.everything()))


def test_no_cell_is_called_like_the_summary_of_the_ends():
    assert "ends" not in names(cells.everything())


def test_every_target_python_has_both_ends_of_ansible_core():
    for python in ALL_PYTHONS:
        lines = {cell.core for cell in cells.everything() if cell.kind == cells.TARGET and cell.pythons == (python,)}
        assert lines == set(cells.target_lines(python))


@pytest.mark.parametrize(
    ("python", "lines"),
    [((3, 8), ["2.18", "2.19"]), ((3, 9), ["2.18", NEWEST]), ((3, 13), ["2.18", NEWEST]), ((3, 14), ["2.20", NEWEST])],
)
def test_lines_of_a_target_python(python, lines):
    assert cells.target_lines(python) == lines


def test_every_line_has_a_controller_and_a_play():
    for kind in (cells.CONTROLLER, cells.PLAY):
        lines = [cell.core for cell in cells.everything() if cell.kind == kind]
        assert lines == [*(line.name for line in cells.CORE_LINES), NEWEST]


def test_the_oldest_line_is_what_the_collection_requires():
    runtime = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))
    assert runtime["requires_ansible"] == f">={cells.CORE_LINES[0].name}.0"


@pytest.mark.parametrize("listed", [cells.everything(), cells.ends(ALL_PYTHONS)], ids=["all", "ends"])
def test_every_test_that_a_cell_names_exists(listed):
    for cell in listed:
        assert cell.tests
        for pattern in (*cell.tests, *cell.without):
            assert list(ROOT.glob(pattern)), f"{cell.name}: {pattern}"


def test_the_whole_matrix_leaves_nothing_out():
    assert not [cell.name for cell in cells.everything() if cell.without]


def test_the_binding_has_both_ends():
    assert [cell.binding for cell in cells.everything() if cell.kind == cells.BINDING] == [OLDEST, NEWEST]


class TestEnds:
    def test_a_machine_with_everything(self):
        assert names(cells.ends(ALL_PYTHONS)) == [
            "target-3.8-core-2.18",
            "target-3.14-core-newest",
            "controller-2.18",
            "controller-newest",
        ]

    def test_what_is_missing_at_an_end_is_named_and_the_next_one_taken(self):
        targets = [cell.name for cell in cells.ends([(3, 9), (3, 12)]) if cell.kind == cells.TARGET]
        assert targets == [
            "target-3.8-core-2.18",
            "target-3.9-core-2.18",
            "target-3.14-core-newest",
            "target-3.13-core-newest",
            "target-3.12-core-newest",
        ]

    def test_the_oldest_is_one_of_them(self):
        assert names(cells.oldest(ALL_PYTHONS)) == ["target-3.8-core-2.18"]
        assert names(cells.oldest([(3, 10), (3, 12)])) == [f"target-3.{minor}-core-2.18" for minor in (8, 9, 10)]

    def test_one_python_is_both_ends(self):
        found = [cell for cell in cells.ends([(3, 11)]) if cell.pythons == ((3, 11),)]
        assert names(found) == ["target-3.11-core-2.18", "target-3.11-core-newest"]

    @pytest.mark.parametrize("present", [ALL_PYTHONS, [(3, 11)]])
    def test_both_ends_of_the_binding_are_there(self, present):
        targets = [cell for cell in cells.ends(present) if cell.pythons[0] in present and cell.kind == cells.TARGET]
        assert [cell.binding for cell in targets] == [OLDEST, NEWEST]
        assert set(cells.GPU_PROCESS_TESTS) < set(targets[0].tests)

    def test_names_are_unique_and_those_of_the_whole_matrix(self):
        for present in (ALL_PYTHONS, [(3, 11)], []):
            found = names(cells.ends(present))
            assert len(set(found)) == len(found)
            assert set(found) <= set(names(cells.everything()))

    def test_a_machine_with_none_names_them_all(self):
        targets = [cell for cell in cells.ends([]) if cell.kind == cells.TARGET]
        assert {cell.pythons[0] for cell in targets} == set(ALL_PYTHONS)

    def test_the_newest_controller_takes_the_newest_python_first(self):
        newest = next(cell for cell in cells.ends(ALL_PYTHONS) if cell.name == "controller-newest")
        assert newest.pythons == tuple(sorted(newest.pythons, reverse=True))

    def test_the_oldest_controller_takes_the_oldest_python_first(self):
        oldest = next(cell for cell in cells.ends(ALL_PYTHONS) if cell.name == "controller-2.18")
        assert oldest.pythons == ((3, 11), (3, 12), (3, 13))

    def test_no_play(self):
        assert not [cell for cell in cells.ends(ALL_PYTHONS) if cell.kind == cells.PLAY]


class TestChosen:
    def test_no_pattern_chooses_all(self):
        assert cells.chosen(cells.everything(), []) == cells.everything()

    @pytest.mark.parametrize("pattern", ["target-3.8", "target-3.8-*", "*3.8-core*"])
    def test_a_part_or_a_pattern(self, pattern):
        assert names(cells.chosen(cells.everything(), [pattern])) == ["target-3.8-core-2.18", "target-3.8-core-2.19"]

    def test_several_patterns(self):
        assert names(cells.chosen(cells.everything(), ["restart-2.18", "controller-2.2?"])) == [
            "controller-2.20",
            "controller-2.21",
            "restart-2.18",
        ]

    def test_none_fits(self):
        assert cells.chosen(cells.everything(), ["windows"]) == []
