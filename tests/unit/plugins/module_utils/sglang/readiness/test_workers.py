# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers that go missing, on a tree that stands in for /proc."""

from __future__ import annotations

import os
import types

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.workers import (
    PATIENCE,
    SEARCH_INTERVAL,
    WorkerWatch,
    workers_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity


class Processes:
    """The few questions that the watch asks, about processes in a dict: PID -> (title, ours)."""

    def __init__(self, root):
        self.root = str(root)
        self.table = {}
        self.now = 50.0
        self.reads = []

    def put(self, pid, title, ours=True):
        self.table[pid] = (title, ours)
        folder = "%s/%d" % (self.root, pid)
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/comm", "w", encoding="utf-8") as stream:
            stream.write(title[:15] + "\n")

    def pids(self):
        return sorted(self.table)

    def read(self, pid):
        self.reads.append(pid)
        title, ours = self.table[pid]
        identity = ProcessIdentity(pid, pid * 10)
        return types.SimpleNamespace(pid=pid, identity=identity, name=title, dead=False, ours=ours)

    def alive(self, identity):
        return identity.pid in self.table

    def clock(self):
        return self.now

    def watch(self, known=(), required=(), missing_since=None):
        return WorkerWatch(self, lambda process: process.ours, self.clock, known, required, missing_since)


@pytest.fixture
def processes(tmp_path):
    processes = Processes(tmp_path)
    processes.put(7, "sglang::scheduler_TP0")
    processes.put(8, "sglang::detokenizer")
    processes.put(9, "nvcc")
    processes.put(10, "sglang::scheduler_TP0", ours=False)
    return processes


def test_one_that_is_gone_is_told_after_a_while(processes):
    watch = processes.watch()
    assert watch.look() == ""
    del processes.table[7]
    processes.now += 1
    assert watch.look() == ""
    processes.now += PATIENCE - 0.1
    assert watch.look() == ""
    processes.now += 0.1
    assert watch.look() == "sglang::scheduler_TP0 (PID 7)"


def test_helpers_and_those_of_others_may_go(processes):
    watch = processes.watch()
    watch.look()
    del processes.table[9], processes.table[10]
    processes.now += 1
    watch.look()
    processes.now += PATIENCE
    assert watch.look() == ""
    # Of what does not have the title not more than the short name is read.
    assert 9 not in processes.reads


def test_new_ones_are_searched_for_now_and_then(processes):
    watch = processes.watch()
    watch.look()
    processes.put(11, "sglang::data_parallel_controller")
    processes.now += SEARCH_INTERVAL / 2
    watch.look()
    assert len(watch.known()) == 2
    processes.now += SEARCH_INTERVAL / 2
    watch.look()
    assert {worker.name for worker in watch.known()} >= {"sglang::data_parallel_controller"}


def test_one_that_was_replaced_is_not_missed(processes):
    """uvicorn starts another tokenizer worker when one dies."""
    processes.put(11, "sglang::tokenizer_worker:11")
    watch = processes.watch()
    watch.look()
    del processes.table[11]
    processes.put(12, "sglang::tokenizer_worker:12")
    for _second in range(10):
        processes.now += 1
        assert watch.look(True) == ""
    del processes.table[12]
    processes.now += 1
    watch.look(True)
    processes.now += PATIENCE
    assert watch.look(True) == "sglang::tokenizer_worker:11 (PID 11), sglang::tokenizer_worker:12 (PID 12)"


def test_one_of_two_of_the_same_title_is_missed(processes):
    processes.put(11, "sglang::detokenizer")
    watch = processes.watch()
    watch.look()
    del processes.table[11]
    processes.now += 1
    watch.look()
    processes.now += PATIENCE
    assert watch.look() == "sglang::detokenizer (PID 11)"


def test_the_next_part_knows_those_that_went_missing_in_between(processes):
    watch = processes.watch()
    watch.look()
    rows = [[w.identity.pid, w.identity.start_time, w.name, w.gone_since] for w in watch.known()]
    del processes.table[8]
    later = processes.watch(workers_from(rows))
    assert later.look() == ""
    processes.now += PATIENCE
    assert later.look() == "sglang::detokenizer (PID 8)"


def test_those_that_were_gone_before_are_missed_once_the_server_listens(processes):
    watch = processes.watch(required=["sglang::scheduler", "sglang::data_parallel_controller"])
    for seconds, listening, told in (
        (0, False, ""),
        (PATIENCE, False, ""),
        (0, True, ""),
        (PATIENCE, True, "sglang::da"),
    ):
        processes.now += seconds
        assert watch.look(listening).startswith(told) and bool(watch.look(listening)) == bool(told)
    assert "scheduler" not in watch.look(True)


def test_short_parts_do_not_forget_since_when_one_is_missed(processes):
    watch = processes.watch(required=["sglang::data_parallel_controller"])
    for _part in range(int(PATIENCE)):
        assert watch.look(True) == ""
        processes.now += 1
        watch = processes.watch(watch.known(), ["sglang::data_parallel_controller"], watch.missing_since)
    assert watch.look(True) == "sglang::data_parallel_controller"


def test_nothing_is_missed_where_no_process_has_a_title(processes):
    processes.table = {9: ("nvcc", True)}
    watch = processes.watch(required=["sglang::scheduler"])
    watch.look(True)
    processes.now += PATIENCE
    assert watch.look(True) == ""


@pytest.mark.parametrize("rows", [[[1, 2, "x"]], [["a", 2, "x", None]], [None]])
def test_rows_that_are_none(rows):
    with pytest.raises((ValueError, TypeError)):
        workers_from(rows)
