# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the fleet's benchmark that cost nothing: counting, commands, lines through sizes, stretched records."""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import sys

import pytest
import yaml

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.fixture
def load(monkeypatch):
    """Import a script as it imports its neighbours."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in SCRIPTS:
        sys.modules.pop(name, None)


@pytest.fixture
def cost(load):
    def make(hosts, wall, calls=None, controller=10.0, on_hosts=0.0):
        return load("fleet_cost").Cost(hosts, wall, controller, on_hosts, 100.0, calls or {})

    return make


# ------------------------------------------------------------------------------------------------------------- costs


def test_calls_are_counted_by_host(load, cost):
    counts = load("fleet_cost").count_calls("10.0.0.1\n10.0.0.2\n10.0.0.1\n")
    assert counts == {"10.0.0.1": 2, "10.0.0.2": 1}
    assert cost(2, 1.0, counts).most_calls == 2
    assert cost(2, 1.0).most_calls == 0


def test_the_processor_time_of_a_group_is_read_in_seconds(load):
    assert load("fleet_cost").usage_seconds("usage_usec 2500000\nuser_usec 1\n") == 2.5
    with pytest.raises(OSError):
        load("fleet_cost").usage_seconds("user_usec 1\n")


def test_shared_memory_is_counted_once(load):
    assert load("fleet_cost").proportional_mb("Rss:  9000 kB\nPss:   1000 kB\nPss_Dirty: 5 kB\n") == 1.024
    assert load("fleet_cost").proportional_mb("") == 0.0


# ------------------------------------------------------------------------------------------------------- larger fleets


def test_a_line_goes_through_what_was_measured(load):
    line = load("fleet_model").fit([(1, 12.0), (10, 30.0), (100, 210.0)])
    assert (round(line.fixed, 6), round(line.each, 6)) == (10.0, 2.0)
    assert round(line.at(1000), 3) == 2010.0


def test_one_size_makes_no_line(load):
    with pytest.raises(ValueError):
        load("fleet_model").fit([(10, 1.0), (10, 2.0)])


@pytest.mark.parametrize(
    "fleet, seconds",
    [
        ({"hosts": 100}, 110.0),
        ({"hosts": 100, "controllers": 3}, 44.0),  # 34 hosts on one of them
        ({"hosts": 100, "waves": 2}, 120.0),
        ({"hosts": 100, "waves": 2, "more_load": 60.0}, 240.0),
    ],
)
def test_a_slice_takes_what_its_controller_takes(load, fleet, seconds):
    model = load("fleet_model")
    assert model.Fleet(**fleet).seconds(model.Line(10.0, 1.0)) == seconds


def test_memory_is_that_of_a_waves_forks(load):
    assert load("fleet_model").Fleet(100, controllers=2, waves=5).memory_gb(500.0, 50.0) == 1.0


# -------------------------------------------------------------------------------------------------------------- report


def test_the_rows_compare_with_the_playbook_of_shell_tasks(load, cost):
    bench, ways = load("fleet_restart"), load("fleet_ways")
    table = {ways.SHELL: {10: [cost(10, 30.0)]}, ways.OURS: {10: [cost(10, 20.0, {"a": 13, "b": 14}, on_hosts=50.0)]}}
    shell, ours = [dict(zip(bench.HEADER, line)) for line in bench.rows(table)]
    assert shell["the playbook of shell tasks takes"] == "" and shell["processor time on each host"] == ""
    assert ours["the playbook of shell tasks takes"] == "1.50 times"
    assert (ours["round trips of a host"], ours["for each host"]) == ("14", "1 s")
    assert ours["processor time on each host"] == "5 s"


def test_a_forecast_needs_two_sizes(load, cost):
    bench, ways = load("fleet_restart"), load("fleet_ways")
    assert bench.forecast({ways.OURS: {10: [cost(10, 20.0)]}}, 8.0) == []
    lines = bench.forecast({ways.OURS: {size: [cost(size, 20.0 + size)] for size in (10, 100)}}, 8.0)
    assert len(lines) == 2 * len(bench.FLEETS) and lines[0][:4] == ["1000", "1", "0.133 min", "17.0 min"]


@pytest.mark.parametrize("text, sizes", [("1,10", [1, 10]), (" 50 ", [50]), ("", [])])
def test_sizes_are_read(load, text, sizes):
    assert load("fleet_restart").sizes_of(text) == sizes


@pytest.mark.parametrize("text", ["0", "1,-2", "x"])
def test_senseless_sizes_are_refused(load, text):
    with pytest.raises((argparse.ArgumentTypeError, ValueError)):
        load("fleet_restart").sizes_of(text)


# ---------------------------------------------------------------------------------------------------------------- ways


def test_all_ways_run_in_turn_and_start_a_server_first(load):
    ways, calls = load("fleet_ways"), []
    ways.in_order(calls.append, [ways.OURS, ways.SHELL], 2)
    assert calls == [ways.LOOP, ways.SHELL, ways.SHELL, ways.OURS, ways.OURS]


@pytest.mark.parametrize("way", ["OURS", "RAMP", "SHELL"])
def test_every_playbook_gets_as_many_forks_as_hosts(load, way):
    ways, here = load("fleet_ways"), pathlib.Path("/x")
    command = ways.playbook(getattr(ways, way), 3, 50, here, here / "ssh", here / "report")
    assert command[command.index("-f") + 1] == "50" and "ansible_ssh_executable=/x/ssh" in command
    assert ("sglang_min_serving=0" in command) == (way == "OURS")


def test_a_host_that_was_not_restarted_spoils_the_run(load, tmp_path):
    report = tmp_path / "report.json"
    check = load("fleet_ways").check_report
    report.write_text(json.dumps({"finished": True, "hosts": [{"outcome": "restarted"}]}))
    check(report, 1)
    with pytest.raises(OSError):
        check(report, 2)
    report.write_text(json.dumps({"finished": True, "hosts": [{"outcome": "unchanged"}]}))
    with pytest.raises(OSError):
        check(report, 1)


def test_all_ways_start_the_same_server(load):
    """A difference would make one of them faster for no reason of its own."""
    variables = yaml.safe_load((FOLDER / "fleet" / "servers.yml").read_text())["all"]["vars"]
    wanted = {
        "--model-path": variables["sglang_model_path"],
        "--tp-size": variables["sglang_tp_size"],
        "--max-running-requests": variables["sglang_max_running_requests"],
        "--speculative-algorithm": variables["sglang_spec_algorithm"],
        "--speculative-draft-model-path": variables["sglang_spec_draft_model_path"],
        "--speculative-eagle-topk": variables["sglang_spec_eagle_topk"],
    }
    for name in ("shell_restart.yml", "shell_restart.sh"):
        text = (FOLDER / "fleet" / name).read_text()
        assert [option for option, value in wanted.items() if "%s %s" % (option, value) not in text] == []
        assert "sleep 5" in text or "seconds: 5" in text


def test_replayed_hosts_are_an_inventory(load):
    found = yaml.safe_load(load("fleet_replay").inventory(3))["gpu_hosts"]
    assert [host["ansible_host"] for host in found["hosts"].values()] == ["replay-1", "replay-2", "replay-3"]


@pytest.fixture
def calls(load):
    replay = load("fleet_replay")
    return replay.read_calls("".join("%g 0 %d\n" % (0.5 + 8 * (number == 3), number) for number in range(6)))


def test_a_record_is_read_and_written(load, calls):
    replay = load("fleet_replay")
    assert calls[3] == replay.Call(8.5, 0, 3) and replay.read_calls(replay.written(calls)) == calls


def test_a_longer_load_is_one_longer_call_to_this_collection(load, calls):
    longer = load("fleet_replay").longer_wait(calls, 52.0)
    assert [call.seconds for call in longer] == [0.5, 0.5, 0.5, 60.5, 0.5, 0.5]
    assert [call.answer for call in longer] == [0, 1, 2, 3, 4, 5]


def test_a_longer_load_is_more_questions_to_the_playbook_of_shell_tasks(load):
    replay = load("fleet_replay")
    calls = [replay.Call(0.5, 0, number) for number in range(7)]
    longer = replay.more_polls(calls, 55.0)
    assert [call.answer for call in longer] == [0, 1, 2, *[3] * 11, 4, 5, 6]
    with pytest.raises(OSError):
        replay.more_polls(calls[:5], 55.0)


def test_the_playbook_of_shell_tasks_is_the_one_that_is_stretched(load):
    replay = load("fleet_replay")
    (play,) = yaml.safe_load((FOLDER / "fleet" / "shell_restart.yml").read_text())
    assert play["tasks"][replay._BEFORE_POLLS + 1]["delay"] == replay.POLL_DELAY  # one of them is no call: the pause
