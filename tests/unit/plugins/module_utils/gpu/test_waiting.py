# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.matching import Who
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Verdict
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.observer import Look
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.verdict import Limits
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.waiting import (
    FreeWatch,
    Sample,
    Timeline,
    samples_of,
    wait_until_free,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    FakeClock,
    holder,
    listed,
    reading,
)

FREE = Verdict("free", "", "free.")
BUSY = Verdict("busy", "memory", "busy.")
HUNG = Verdict("unknown", "hung", "no answer.")
LOST = Verdict("unknown", "lost", "gone.", permanent=True)


def gpu(verdict=FREE, used=0, pids=(), blockers=(), index=0):
    return Sample(index, verdict, used, frozenset((pid, 1) for pid in pids), tuple(((p, 1), "Xorg") for p in blockers))


def feed(watch, *steps):
    """Feed (time, sample) pairs; the states that came of them."""
    return [watch.feed(at, [sample]).state for at, sample in steps]


def test_free_for_long_enough():
    watch = FreeWatch(2.0)
    assert feed(watch, (0, gpu()), (1, gpu()), (1.9, gpu()), (2.0, gpu())) == ["waiting"] * 3 + ["free"]
    assert watch.feed(2.1, [gpu()]).free_since == 0


@pytest.mark.parametrize("stable_for", [0.0, 0.01, 5.0])
def test_one_or_two_good_looks_prove_nothing(stable_for):
    watch = FreeWatch(stable_for)
    assert feed(watch, (0, gpu()), (100, gpu()), (200, gpu())) == ["waiting", "waiting", "free"]


@pytest.mark.parametrize("bad", [BUSY, HUNG])
def test_one_bad_look_starts_the_window_anew(bad):
    watch = FreeWatch(2.0)
    assert "free" not in feed(watch, (0, gpu()), (1, gpu()), (1.5, gpu(bad)), (2, gpu()), (3, gpu()), (3.9, gpu()))
    assert watch.feed(4.0, [gpu()]).free_since == 2


def test_all_gpus_must_be_free():
    watch = FreeWatch(0.0)
    for at in range(9):
        assert watch.feed(at, [gpu(index=0), gpu(BUSY, index=1)]).state == "waiting"


def test_no_gpus_are_never_free():
    watch = FreeWatch(0.0)
    assert [watch.feed(at, []).state for at in range(5)] == ["waiting"] * 5


def test_free_without_a_figure_is_not_free():
    assert "free" not in feed(FreeWatch(0.0), *((at, gpu(used=None)) for at in range(5)))


def test_a_new_allowed_holder_starts_the_window_anew():
    watch = FreeWatch(2.0)
    feed(watch, (0, gpu(pids=[7])), (1, gpu(pids=[7])), (1.5, gpu(pids=[7, 8])))
    assert watch.feed(2.5, [gpu(pids=[7, 8])]).state == "waiting"
    assert watch.feed(3.5, [gpu(pids=[7, 8])]).free_since == 1.5


def test_a_holder_that_leaves_does_not():
    watch = FreeWatch(2.0)
    assert feed(watch, (0, gpu(pids=[7, 8])), (1, gpu(pids=[7])), (2, gpu(pids=[]))) == ["waiting", "waiting", "free"]


def test_a_holder_that_comes_back_under_the_same_pid_is_a_new_one():
    watch = FreeWatch(2.0)
    other = Sample(0, FREE, 0, frozenset([(7, 999)]))
    assert feed(watch, (0, gpu(pids=[7])), (1, gpu(pids=[7])), (2, other))[-1] == "waiting"


def test_memory_that_rises_starts_the_window_anew():
    watch = FreeWatch(2.0)
    assert feed(watch, (0, gpu(used=10)), (1, gpu(used=26)), (2, gpu(used=27)))[-1] == "waiting"
    assert watch.feed(3, [gpu(used=27)]).free_since == 2


def test_memory_that_creeps_is_measured_from_its_lowest():
    watch = FreeWatch(10.0)
    states = feed(watch, *((at, gpu(used=at * 4)) for at in range(11)))
    assert "free" not in states


def test_memory_that_falls_is_fine():
    assert feed(FreeWatch(2.0), (0, gpu(used=200)), (1, gpu(used=100)), (2, gpu(used=0)))[-1] == "free"


def test_a_permanent_failure_is_pointless_at_once():
    progress = FreeWatch(2.0).feed(0, [gpu(), gpu(LOST, None, index=3)])
    assert progress.state == "pointless"
    assert "GPU 3" in progress.why


def test_a_hang_is_waited_for():
    assert feed(FreeWatch(2.0), *((at, gpu(HUNG, None)) for at in range(9))) == ["waiting"] * 9


def test_a_protected_holder_is_pointless_after_a_while():
    watch = FreeWatch(2.0)
    busy = gpu(BUSY, 500, pids=[7], blockers=[7])
    assert feed(watch, (0, busy), (1, busy), (1.9, busy)) == ["waiting"] * 3
    progress = watch.feed(2.0, [busy])
    assert progress.state == "pointless"
    assert "Xorg" in progress.why
    assert "allow_executables" in progress.why


def test_a_protected_holder_that_leaves_in_between_is_not():
    watch = FreeWatch(2.0)
    busy = gpu(BUSY, 500, pids=[7], blockers=[7])
    assert feed(watch, (0, busy), (1, gpu(BUSY)), (2, busy), (3.9, busy)) == ["waiting"] * 4


def test_a_single_look_never_makes_it_pointless_because_of_a_holder():
    assert FreeWatch(0.0).feed(0, [gpu(BUSY, blockers=[7])]).state == "waiting"


samples = st.builds(
    gpu, st.sampled_from([FREE, FREE, FREE, BUSY, HUNG]), st.integers(0, 60), st.sets(st.integers(3, 5))
)


@given(st.lists(st.tuples(st.floats(0.01, 2), samples), min_size=1, max_size=30), st.floats(0, 3))
def test_free_means_an_undisturbed_window(steps, stable_for):
    watch, now, history = FreeWatch(stable_for), 0.0, []
    for gap, sample in steps:
        now += gap
        history.append((now, sample))
        progress = watch.feed(now, [sample])
        if progress.state == "free":
            window = [s for at, s in history if at >= progress.free_since]
            assert now - progress.free_since >= stable_for
            assert len(window) >= 3
            assert all(s.verdict is FREE for s in window)
            for earlier, later in zip(window, window[1:]):
                assert later.holders <= earlier.holders
            assert all(
                later.used_mib <= earlier.used_mib + 16 for n, earlier in enumerate(window) for later in window[n:]
            )


# -- the loop


def loop(script, clock=None, cost=0.0, timeout=10.0, stable_for=1.0, interval=0.1):
    """Run the loop over `script(seconds since the start)`, where each look takes `cost` seconds."""
    clock = clock or FakeClock()
    began = clock.now

    def look():
        clock.sleep(cost)
        return [script(clock.now - began)]

    return wait_until_free(look, timeout, stable_for, interval, clock.monotonic, clock.sleep)


def test_the_loop_returns_when_the_window_is_full():
    result = loop(lambda at: gpu(BUSY, 30000) if at < 3 else gpu())
    assert (result.outcome, result.why) == ("free", "")
    assert result.free_after == pytest.approx(3.0, abs=0.11)
    assert result.elapsed == pytest.approx(result.free_after + 1.0, abs=0.11)
    assert result.samples == pytest.approx(42, abs=2)
    assert [(c.verdict, c.used_mib) for c in result.timeline.changes] == [("busy", 30000), ("free", 0)]


def test_the_loop_gives_up_in_time():
    result = loop(lambda at: gpu(BUSY, 30000))
    assert (result.outcome, result.free_after) == ("timeout", None)
    assert result.elapsed == pytest.approx(10.0, abs=0.01)


def test_a_window_that_is_not_full_in_time_is_told():
    result = loop(lambda at: gpu(BUSY) if at < 9.45 else gpu())
    assert result.outcome == "timeout"
    assert "free for only 0.5 s" in result.why


def test_a_flapping_gpu_never_passes():
    assert loop(lambda at: gpu(BUSY if int(at * 10) % 7 == 0 else FREE)).outcome == "timeout"


def test_slow_looks_are_not_slept_upon():
    result = loop(lambda at: gpu(), cost=0.5, interval=0.1, stable_for=2.0)
    assert result.outcome == "free"
    assert result.elapsed == pytest.approx(2.5)


def test_the_last_look_counts():
    assert loop(lambda at: gpu(), cost=4.9, timeout=14.0, stable_for=9.0).outcome == "free"


def test_pointless_ends_the_loop():
    result = loop(lambda at: gpu(LOST, None))
    assert (result.outcome, result.samples) == ("pointless", 1)


# -- the timeline


def test_small_moves_of_memory_are_no_change():
    timeline = Timeline()
    for at, used in enumerate([0, 16, 3, 20, 4, None, None, 4]):
        timeline.add(at, [gpu(used=used)])
    assert [(c.at, c.used_mib) for c in timeline.changes] == [(0, 0), (3, 20), (5, None), (7, 4)]


def test_holders_and_verdicts_are_changes():
    timeline = Timeline()
    for at, sample in enumerate([gpu(BUSY, pids=[9, 7]), gpu(BUSY, pids=[7]), gpu(FREE, pids=[7])]):
        timeline.add(at, [sample])
    assert [(c.holders, c.verdict, c.reason) for c in timeline.changes] == [
        ((7, 9), "busy", "memory"),
        ((7,), "busy", "memory"),
        ((7,), "free", ""),
    ]


def test_a_long_timeline_keeps_its_two_ends():
    timeline = Timeline()
    for at in range(1000):
        timeline.add(at, [gpu(used=at % 2 * 100)])
    times = [c.at for c in timeline.changes]
    assert len(times) == 200
    assert times == [*range(100), *range(900, 1000)]
    assert timeline.dropped == 800


# -- from looks to samples


def test_samples_of_a_look():
    look = Look(
        (
            reading(0, used=300, processes=[listed(7), listed(8)]),
            reading(1),
        ),
        (holder(7, protected_by="the X server"), holder(8, protected_by="protect_users", uid=5)),
    )
    first, second = samples_of(look, Limits(allowance=Allowance(Who(frozenset([5])))))
    assert first.holders == {(7, 5007), (8, 5008)}
    assert [key for key, _what in first.blockers] == [(7, 5007)]
    assert "the X server" in first.blockers[0][1]
    assert (first.verdict.state, first.used_mib) == ("busy", 300)
    assert (second.verdict.state, second.holders, second.blockers) == ("free", frozenset(), ())


def test_a_gpu_without_a_figure_has_none_in_its_sample():
    look = Look((reading(3, memory=None, identity=None), reading(5, used=7)), ())
    assert [(s.index, s.verdict.reason, s.used_mib) for s in samples_of(look, Limits())] == [
        (3, "unread", None),
        (5, "", 7),
    ]


def test_a_blocker_is_described_by_what_it_is_and_why_it_stays():
    look = Look((reading(0, processes=[listed(7), listed(8)]),), (holder(7, protected_by="the X server"), holder(8)))
    (sample,) = samples_of(look, Limits())
    assert sample.blockers == (((7, 5007), "PID 7 sglang::scheduler_TP0 of llm, the X server"),)


# -- several GPUs in one window


def feed_all(watch, *steps):
    """Feed (time, samples) pairs; the progress that came of each."""
    return [watch.feed(at, samples) for at, samples in steps]


def test_each_gpu_has_its_own_lowest_figure():
    steady = [gpu(used=0, index=0), gpu(used=200, index=1)]
    watch = FreeWatch(2.0)
    assert [p.state for p in feed_all(watch, (0, steady), (1, steady), (2, steady))] == ["waiting", "waiting", "free"]
    risen = [gpu(used=17, index=0), gpu(used=200, index=1)]
    assert watch.feed(3, risen).free_since == 3


def test_a_holder_that_moves_to_another_gpu_is_new_there():
    first = [gpu(pids=[7], index=0), gpu(index=1)]
    second = [gpu(index=0), gpu(pids=[7], index=1)]
    progress = feed_all(FreeWatch(2.0), (0, first), (1, first), (2, second))[-1]
    assert (progress.state, progress.free_since) == ("waiting", 2)


def test_a_window_begins_anew_with_the_figures_of_its_own():
    # 300 MiB are fine when they are there from the window's first look on.
    watch = FreeWatch(2.0)
    feed(watch, (0, gpu(used=0)), (1, gpu(BUSY, 300)), (2, gpu(used=300)), (3, gpu(used=300)))
    assert watch.feed(4, [gpu(used=300)]).state == "free"


def test_the_looks_of_an_earlier_window_do_not_count():
    watch = FreeWatch(0.0)
    assert feed(watch, (0, gpu()), (1, gpu()), (2, gpu(used=50)), (3, gpu(used=50))) == ["waiting"] * 4
    assert watch.feed(4, [gpu(used=50)]).state == "free"


def test_what_is_pointless_is_no_window():
    watch = FreeWatch(2.0)
    lost, fine = [gpu(LOST, None)], [gpu()]
    assert feed_all(watch, (0, fine), (1, fine), (2, lost))[-1].free_since is None
    assert [p.free_since for p in feed_all(watch, (3, fine), (4, fine))] == [3, 3]


def test_a_failure_that_may_pass_is_not_told_as_hopeless():
    assert FreeWatch(2.0).feed(0, [gpu(HUNG, None)]).why == ""
    assert FreeWatch(2.0).feed(0, [gpu(LOST, None, index=3)]).why == "GPU 3 cannot be read: gone."


def test_of_several_protected_holders_the_first_by_pid_is_told():
    look = [gpu(BUSY, 500, pids=[9], blockers=[9], index=1), gpu(BUSY, 500, pids=[7], blockers=[7], index=2)]
    progress = feed_all(FreeWatch(2.0), (0, look), (1, look), (2, look))[-1]
    assert progress.why.startswith("GPU 2 is held by Xorg, which nothing will end")


def test_a_protected_holder_counts_from_when_it_came():
    watch = FreeWatch(2.0)
    one = gpu(BUSY, 500, pids=[7], blockers=[7])
    other = gpu(BUSY, 500, pids=[8], blockers=[8])
    assert feed(watch, (0, one), (1, one), (2, other), (3, other), (4, other))[2:] == [
        "waiting",
        "waiting",
        "pointless",
    ]


def test_without_a_time_to_wait_for_the_second_look_at_a_protected_holder_is_enough():
    busy = gpu(BUSY, 500, pids=[7], blockers=[7])
    assert feed(FreeWatch(0.0), (1, busy), (1, busy), (1.1, busy)) == ["waiting", "waiting", "pointless"]


# -- when the loop looks


def looks(script, cost, **told):
    """The times of the looks, and the result."""
    clock, times = FakeClock(), []
    began = clock.now

    def noting(at):
        times.append(round(at - cost, 6))
        return script(at)

    result = loop(noting, clock=clock, cost=cost, **told)
    return times, clock.now - began, result


def test_the_interval_runs_from_look_to_look():
    times, _end, _result = looks(lambda at: gpu(), cost=0.25, interval=1.0, stable_for=3.0)
    assert times == [0, 1, 2, 3]
    times, _end, _result = looks(lambda at: gpu(), cost=1.5, interval=1.0, stable_for=3.0)
    assert times == [0, 1.5, 3.0]


def test_the_last_look_is_made_when_the_time_is_over():
    times, end, result = looks(lambda at: gpu(BUSY, 9000), cost=0.0, interval=4.0, timeout=10.0)
    assert times == [0, 4, 8, 10] and end == pytest.approx(10)
    assert (result.outcome, result.why, result.samples) == ("timeout", "", 4)


def test_a_wait_without_time_looks_once():
    times, _end, result = looks(lambda at: gpu(), cost=0.0, timeout=0.0)
    assert times == [0] and result.outcome == "timeout"
    assert result.why == "they have been free for only 0.0 s"


def test_how_long_it_took_and_when_they_became_free():
    _times, _end, result = looks(
        lambda at: gpu(BUSY, 9000) if at < 3 else gpu(), cost=0.0, interval=1.0, stable_for=2.0, timeout=30.0
    )
    assert (result.outcome, result.elapsed, result.free_after, result.samples) == ("free", 5.0, 3.0, 6)
    assert [(c.at, c.index) for c in result.timeline.changes] == [(0, 0), (3, 0)]


def test_what_is_pointless_is_told_with_its_reason_and_no_time():
    _times, _end, result = looks(lambda at: gpu(LOST, None), cost=0.0)
    assert (result.why, result.free_after) == ("GPU 0 cannot be read: gone.", None)


# -- the timeline of several GPUs


def test_each_gpu_has_its_own_line():
    timeline = Timeline()
    for at in (0.12345, 1, 2):
        timeline.add(at, [gpu(used=0, index=0), gpu(used=500, index=1)])
    assert [(c.at, c.index, c.used_mib) for c in timeline.changes] == [(0.123, 0, 0), (0.123, 1, 500)]


@pytest.mark.parametrize(("number", "times", "dropped"), [(4, [0, 1, 2, 3], 0), (5, [0, 1, 3, 4], 1), (2, [0, 1], 0)])
def test_how_many_changes_a_timeline_keeps(number, times, dropped):
    timeline = Timeline(half=2)
    for at in range(number):
        timeline.add(at, [gpu(used=at * 100)])
    assert ([c.at for c in timeline.changes], timeline.dropped) == (times, dropped)


@pytest.mark.parametrize("late", [gpu(pids=[7], index=1), gpu(used=17, index=1)])
def test_a_gpu_that_shows_late_is_as_new_as_what_is_on_it(late):
    progress = feed_all(FreeWatch(2.0), (0, [gpu()]), (1, [gpu()]), (2, [gpu(), late]))[-1]
    assert (progress.state, progress.free_since) == ("waiting", 2)


def test_two_protected_processes_of_one_pid_are_told_as_well():
    look = [Sample(0, BUSY, 500, blockers=(((7, 1), "Xorg"), ((7, None), "an older one")))]
    assert [p.state for p in feed_all(FreeWatch(1.0), (0, look), (1, look))] == ["waiting", "pointless"]


def test_what_is_not_yet_free_for_long_enough_has_no_time_of_becoming_free():
    result = loop(lambda at: gpu(BUSY) if at < 9.45 else gpu())
    assert (result.outcome, result.free_after) == ("timeout", None)
