# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a sweep: what is in it after any end of a run, and who may write into it."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_store import (
    Store,
    SweepStoreError,
    read_results,
)

ROWS = [{"name": "baseline", "key": "aa", "baseline": True}, {"name": "eagle3-steps3", "key": "bb", "baseline": False}]
POINT = {"concurrency": 8, "state": "measured", "repeats": [], "median": {"output_throughput": 2.5}}
OWNER = {"pid": 4711, "start_ticks": 99, "node": "here"}


@pytest.fixture
def store(tmp_path):
    made = Store(str(tmp_path / "sweeps" / "one"))
    made.make()
    made.write_plan({"name": "one", "concurrencies": [1, 8]}, ROWS)
    return made


def write(store, name, text):
    path = os.path.join(store.folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def test_everything_in_one(store):
    store.write_row("bb", {**ROWS[1], "state": "proven", "host": "gpu-a"})
    store.write_point("bb", POINT)
    store.write_point("bb", {**POINT, "concurrency": 1})
    results = read_results(store.folder)
    assert results["format"] == 1 and results["sweep"]["name"] == "one"
    baseline, eagle = results["configurations"]
    assert (baseline["state"], baseline["points"]) == ("pending", [])
    assert eagle["state"] == "proven" and eagle["host"] == "gpu-a"
    assert [point["concurrency"] for point in eagle["points"]] == [1, 8]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"concurrency": 8, "state": "meas',
        "[]",
        "null",
        '{"concurrency": 1, "state": "measured"}',  # of another one
        '{"concurrency": 8}',
        "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
        "[" * 100000,
    ],
)
def test_a_point_whose_file_is_torn_was_not_measured(store, text):
    write(store, "points/bb/8.json", text)
    write(store, "points/bb/.inferops.x1", "{")  # what a killed writer leaves
    assert store.point("bb", 8) == {}
    assert store.results()["configurations"][1]["points"] == []
    store.write_point("bb", POINT)
    assert store.point("bb", 8) == POINT


def test_a_row_whose_file_is_torn_is_pending(store):
    write(store, "configurations/bb.json", "{")
    assert store.results()["configurations"][1]["state"] == "pending"


def test_a_plan_that_is_torn_is_no_new_sweep(store):
    write(store, "sweep.json", "{")
    with pytest.raises(SweepStoreError, match=r"sweep.json cannot be read as the plan of a sweep"):
        store.plan()


def test_what_ran_before_is_never_guessed(store):
    assert store.host("gpu-a") == {}
    store.write_host("gpu-a", {"original": {"kind": "stopped"}})
    assert store.host("gpu-a")["original"] == {"kind": "stopped"}
    write(store, "hosts/gpu-a.json", "{")
    with pytest.raises(SweepStoreError, match=r"gpu-a.json cannot be read, which says what ran on gpu-a"):
        store.host("gpu-a")


@pytest.mark.parametrize("name", ["../../escape", "/etc/passwd", "a/b", ".hidden", "ü", "a b"])
def test_a_name_of_a_host_stays_in_its_folder(store, name):
    store.write_host(name, {"original": {"kind": "stopped"}})
    assert store.host(name)["original"] == {"kind": "stopped"}
    (file,) = os.listdir(os.path.join(store.folder, "hosts"))
    assert file.startswith("_")


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SweepStoreError, match=r"sglang_sweep_dir: .* holds other files"):
        Store(str(tmp_path)).refuse_foreign()
    with pytest.raises(SweepStoreError, match=r"notes.txt is a file"):
        Store(str(tmp_path / "notes.txt")).refuse_foreign()
    Store(str(tmp_path / "new" / "deep")).refuse_foreign()
    assert not (tmp_path / "new").exists()
    with pytest.raises(SweepStoreError, match="holds no sweep"):
        read_results(str(tmp_path))


def test_another_run_is_held_off_while_it_lives(store):
    store.take(OWNER, alive=False)
    store.take(OWNER, alive=True)  # itself, once more
    with pytest.raises(SweepStoreError, match=r"another run sweeps in .*, PID 4711 on here"):
        store.take({**OWNER, "pid": 4712}, alive=True)
    store.take({**OWNER, "pid": 4712}, alive=False)
    assert store.owner()["pid"] == 4712
    store.release()
    store.release()
    assert store.owner() == {}


def test_a_run_on_another_controller_counts_until_it_has_been_silent_for_long(store):
    store.take(OWNER, alive=False)
    elsewhere = {**OWNER, "node": "there"}
    with pytest.raises(SweepStoreError, match=r"If it is dead, remove .*run.json"):
        store.take(elsewhere, alive=False)
    path = os.path.join(store.folder, "run.json")
    long_ago = time.time() - 7200
    os.utime(path, (long_ago, long_ago))
    store.take(elsewhere, alive=False)


def test_one_writer_at_a_time(store):
    order = []

    def other():
        with Store(store.folder).locked():
            order.append("other")

    with store.locked():
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.05)
        order.append("one")
    thread.join()
    assert order == ["one", "other"]


def test_points_of_a_host_that_is_gone_are_forgotten(store):
    store.write_point("bb", POINT)
    store.forget_points("bb")
    store.forget_points("cc")
    assert store.point("bb", 8) == {}


def test_claims(store):
    assert store.claim("bb") == {}
    store.write_claim("bb", {"host": "a"})
    assert store.claim("bb") == {"host": "a"}
    store.drop_claim("bb")
    store.drop_claim("bb")
    assert store.claim("bb") == {}


def test_files_are_for_their_owner_alone(store):
    store.write_point("bb", POINT)
    path = os.path.join(store.folder, "points", "bb", "8.json")
    assert os.stat(path).st_mode & 0o077 == 0
    assert os.stat(store.folder).st_mode & 0o077 == 0
    with open(path, encoding="utf-8") as stream:
        assert json.load(stream) == POINT
