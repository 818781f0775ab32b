# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The waves of a rollout: by table, and what must hold for any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_plan import (
    KEEP,
    OUTSIDE,
    REPLACE,
    VACANT,
    Group,
    Unit,
    as_facts,
    make_plan,
    waves_of,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError, Share

FATES = {"r": REPLACE, "v": VACANT, "k": KEEP, "o": OUTSIDE}


def group(fates, name="g", floor=None, steps=None):
    """A group of one unit for each letter, called a, b, … after its name."""
    units = tuple(
        Unit(("%s-%s" % (name, "abcdefghijklmnopqrstuvwxyz"[index]),), FATES[fate]) for index, fate in enumerate(fates)
    )
    more = {} if steps is None else {"ramp": tuple(steps)}
    return Group(name, units, floor, **more)


def number(amount):
    return Share(amount, False)


def percent(amount):
    return Share(amount, True)


def shape(waves):
    """Waves as words of the units' letters."""
    return ["".join(unit.name[-1] for unit in wave) for wave in waves]


@pytest.mark.parametrize(
    ("fates", "floor", "steps", "waves"),
    [
        ("r", None, None, ["a"]),
        ("rr", None, None, ["a", "b"]),
        ("rrrr", None, None, ["a", "bc", "d"]),
        ("rrrr", number(3), None, ["a", "b", "c", "d"]),
        ("rrrr", number(0), None, ["a", "bcd"]),
        ("rrrr", percent(25), [number(2)], ["ab", "cd"]),
        ("rrrrrrrr", number(0), [number(1), percent(50)], ["a", "bcde", "fgh"]),
        # Nothing runs anywhere: a first deployment takes nothing down, whatever the floor.
        ("vvvv", number(3), None, ["a", "bcd"]),
        # What serves nobody goes first, and serves after it.
        ("rrrv", number(2), None, ["d", "ab", "c"]),
        ("rvrv", number(3), [percent(100)], ["bd", "a", "c"]),
        # Others of the group, and those that are right already, count.
        ("roo", number(2), None, ["a"]),
        ("rrkk", number(2), None, ["a", "b"]),
        ("kk", number(2), None, []),
        ("rrrr", percent(50), [percent(1)], ["a", "b", "c", "d"]),
    ],
)
def test_waves(fates, floor, steps, waves):
    assert shape(waves_of(group(fates, floor=floor, steps=steps))) == waves


@pytest.mark.parametrize(("total", "floor"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (20, 10)])
def test_the_floor_where_none_is_set(total, floor):
    assert group("r" * total).floor == floor


@pytest.mark.parametrize(
    ("fates", "floor"), [("r", number(1)), ("rro", percent(100)), ("rv", number(7)), ("r", percent(50))]
)
def test_a_floor_that_can_never_be_kept(fates, floor):
    with pytest.raises(RolloutError, match="replica group g, which has %d replicas?: .*g-a" % len(fates)) as caught:
        waves_of(group(fates, floor=floor))
    assert "Set sglang_min_serving to %d at most" % (len(fates) - 1) in str(caught.value)


def test_one_group_after_the_other():
    plan = make_plan([group("rrr", "x", number(0)), group("kr", "y", number(0)), group("rr", "z")], at_a_time=1)
    assert [[unit.name for _group, unit in wave] for wave in plan.waves] == [
        ["y-a", "x-a"],
        ["x-b", "x-c"],
        ["y-b"],
        ["z-a"],
        ["z-b"],
    ]


def test_groups_side_by_side():
    plan = make_plan([group("rrr", "x"), group("r", "y"), group("rr", "z")], at_a_time=2)
    assert [[unit.name for _group, unit in wave] for wave in plan.waves] == [
        ["x-a", "y-a"],
        ["x-b", "z-a"],
        ["x-c", "z-b"],
    ]


def test_what_is_right_already_still_goes_through():
    plan = make_plan([group("kk")])
    assert [[unit.name for _group, unit in wave] for wave in plan.waves] == [["g-a", "g-b"]]


def test_as_plain_values():
    units = (Unit(("a0", "a1"), REPLACE), Unit(("b0", "b1"), REPLACE), Unit(("c0",), KEEP), Unit(("d0",), OUTSIDE))
    plan = make_plan([Group("g", units, number(3))])
    ask = {name: {"instance": "main", "state_dir": "/s"} for name in ("a0", "b0", "c0", "d0")}
    facts = as_facts(plan, ask)
    assert (facts["hosts"], facts["sizes"]) == (["c0", "a0", "a1", "b0", "b1"], [3, 2])
    assert facts["groups"]["g"]["floor"] == 3
    assert [(unit["hosts"], unit["fate"], unit["wave"]) for unit in facts["groups"]["g"]["units"]] == [
        (["a0", "a1"], "replace", 1),
        (["b0", "b1"], "replace", 2),
        (["c0"], "keep", 0),
        (["d0"], "outside", 0),
    ]
    assert facts["groups"]["g"]["units"][0]["ask"] == ask["a0"]


SHARES = st.one_of(
    st.builds(Share, st.integers(1, 9), st.just(False)), st.builds(Share, st.integers(1, 100), st.just(True))
)
FLOORS = st.one_of(st.none(), st.builds(Share, st.integers(0, 9), st.just(False)), SHARES)


@st.composite
def groups(draw):
    found = []
    for index in range(draw(st.integers(1, 3))):
        fates = draw(st.text("rrrvko", min_size=1, max_size=9))
        units = tuple(
            Unit(tuple("%d-%d-%d" % (index, place, rank) for rank in range(draw(st.integers(1, 3)))), FATES[fate])
            for place, fate in enumerate(fates)
        )
        found.append(Group("g%d" % index, units, draw(FLOORS), tuple(draw(st.lists(SHARES, min_size=1, max_size=3)))))
    return found


@given(groups(), st.integers(1, 3))
def test_what_must_hold_for_any_rollout(all_groups, at_a_time):
    try:
        plan = make_plan(all_groups, at_a_time)
    except RolloutError:
        impossible = [
            one for one in all_groups if one.floor >= len(one.units) and any(unit.fate == REPLACE for unit in one.units)
        ]
        assert impossible and all(one.min_serving is not None for one in impossible)
        return
    # Every unit of the run once and whole, none of the others.
    planned = [unit for wave in plan.waves for _name, unit in wave]
    assert sorted(planned, key=str) == sorted((u for g in all_groups for u in g.units if u.fate != OUTSIDE), key=str)
    facts = as_facts(plan, {unit.name: {} for one in all_groups for unit in one.units})
    assert sum(facts["sizes"]) == len(facts["hosts"]) == len(set(facts["hosts"]))
    touched_at_all = []
    for one in all_groups:
        serving = {unit for unit in one.units if unit.fate != VACANT}
        to_do = [unit for unit in one.units if unit.fate in (VACANT, REPLACE)]
        step = 0
        for number_of_wave, wave in enumerate(plan.waves):
            mine = [unit for name, unit in wave if name == one.name and unit.fate != KEEP]
            if not mine:
                continue
            touched_at_all.append((number_of_wave, one.name))
            size = one.ramp[min(step, len(one.ramp) - 1)].at_most(len(to_do))
            assert len(mine) <= size
            down = {unit for unit in mine if unit.fate == REPLACE}
            # The floor, unless the group is under it before anything is taken down; then nothing is.
            assert not down or len(serving - down) >= one.floor
            serving |= set(mine)
            step += 1
    for number_of_wave in range(len(plan.waves)):
        assert sum(1 for found, _name in touched_at_all if found == number_of_wave) <= at_a_time
