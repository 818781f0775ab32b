# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a sweep on variables of hosts: a whole one, one that is killed anywhere, and what is refused."""

from __future__ import annotations

import json
import os
import time
from unittest import mock

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.inferops.sglang.plugins.action import sglang_sweep
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_store import Store, read_results

GPUS = [{"uuid": f"GPU-{number}", "name": "NVIDIA H200", "memory_total_mib": 143771} for number in range(4)]
# Throughput that EAGLE-3 has with one request and with eight, by steps; 0 is the baseline.
SPEED = {0: (100.0, 700.0), 1: (120.0, 640.0), 3: (150.0, 500.0)}


def found(**more):
    return {
        "base": {
            "speculative": {"algorithm": "EAGLE3", "draft_model_path": "/models/draft", "eagle_topk": 1},
            "environment": {"HF_TOKEN": "hidden-word"},
            "extra_args": [],
            "max_running_requests": 32,
            "mem_fraction_static": "",
            "profile": "",
        },
        "profiles": {},
        "tp_size": 2,
        "model": "/models/target",
        "model_sha256": "f" * 64,
        "gpus": GPUS,
        "driver": "580.159.04",
        "running": True,
        "release": "r1",
        "releases": [{"id": "r1", "proven": True, "last_good": True, "origin": "", "ready_after": 480.0}],
        **more,
    }


class Sweep:
    """The action on hosts, with what it shows."""

    def __init__(self, monkeypatch, folder, prompts):
        self.folder = str(folder)
        self.options = {
            "num_steps": [1, 3],
            "concurrencies": [1, 8],
            "repeats": 3,
            "prompts": str(prompts),
            "baseline": True,
            "write": True,
        }
        self.hosts = {}
        self.shown = []
        for name in "ab":
            self.add(name)
        monkeypatch.setattr(sglang_sweep, "Display", lambda: self)
        self.me = sglang_sweep._me
        # Processes that do not live any more.
        self.pid = 1 << 23
        monkeypatch.setattr(sglang_sweep, "_me", lambda: {**self.me(), "pid": self.pid})
        self._monkeypatch = monkeypatch

    def add(self, name, version="0.5.17", **more):
        self.hosts[name] = {
            "sglang_sweep_found": found(**more),
            "sglang_sweep_checked": {"version": version, "gpus": ["GPU-0", "GPU-1"], "unmanaged": None},
            "sglang_sweep_refused": {},
        }

    def display(self, line, stderr=False):
        self.shown.append(line)

    def __call__(self, step, host="a", check=False, **arguments):
        arguments = {"hosts": list(self.hosts), "dir": self.folder, **arguments}
        task = mock.Mock(args={"step": step, **arguments}, async_val=0, check_mode=check, diff=False)
        action = sglang_sweep.ActionModule(task, mock.Mock(), mock.Mock(), None, None, None)
        return action.run(task_vars={"hostvars": self.hosts, "inventory_hostname": host})

    def another_run(self):
        """From now on it is another process; the one before is dead."""
        self.pid += 1

    def real_run(self):
        """From now on it is the process that runs the tests."""
        self._monkeypatch.setattr(sglang_sweep, "_me", self.me)

    def begin(self, check=False, **options):
        self.options.update(options)
        planned = self("plan", options=self.options, check=check)
        return self("begin", options=self.options, plan=planned["plan"], check=check)

    def go_on(self, host="a", most=99, deadline=0.0):
        """Measure what falls to a host, at most so many points; tells what it was given."""
        told = []
        while most:
            turn = self("next", host, deadline=deadline)
            if not turn["configuration"]:
                break
            row = turn["configuration"]
            told.append((row["name"], turn["concurrencies"]))
            self("record", host, key=row["key"], row=self.row(row))
            for concurrency in turn["concurrencies"][:most]:
                self("record", host, key=row["key"], point=self.point(row, concurrency))
                most -= 1
        return told

    @staticmethod
    def row(row):
        steps = row["settings"].get("num_steps")
        effective = {"max_running_requests": 32, "speculative_num_steps": steps}
        command = ["python3", "--api-key", "hidden-word"]
        return {
            "state": "proven",
            "version": "0.5.17",
            "effective": effective,
            "command": command,
            "gpus": ["GPU-0", "GPU-1"],
            "ready_after": 480.0,
        }

    @staticmethod
    def point(row, concurrency):
        steps = row["settings"].get("num_steps", 0)
        speed = SPEED[steps][concurrency == 8]
        repeats = [
            {
                "output_throughput": speed * factor,
                "completed": 16,
                "failed": 0,
                "concurrency": float(concurrency),
                "duration": 2.0,
                "accept_length": None if not steps else 1.0 + 0.6 * steps,
                "accept_length_source": "requests" if steps else "",
            }
            for factor in (0.999, 1.0, 1.001)
        ]
        median = {"output_throughput": speed, "accept_length": repeats[1]["accept_length"], "concurrency": concurrency}
        return {
            "concurrency": str(concurrency),  # as older ansible-cores template it
            "num_prompts": 16,
            "state": "measured",
            "reason": "",
            "message": "",
            "repeats": repeats,
            "median": median,
            "spread": {},
            "warnings": [],
        }

    def results(self):
        return {row["name"]: row for row in read_results(self.folder)["configurations"]}


@pytest.fixture
def sweep(monkeypatch, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join('{"prompt": "What is number %d about, in a few words?"}\n' % n for n in range(8)))
    made = Sweep(monkeypatch, tmp_path / "sweeps" / "llama", prompts)
    del made.hosts["b"]
    return made


def test_a_whole_sweep(sweep):
    begun = sweep.begin(adaptive=True)
    assert begun["most_turns"] == 3 and len(begun["left"]) == 3 and begun["deadline"] == 0
    assert any("Loading alone takes about 24 min" in line for line in sweep.shown)
    assert [name for name, _left in sweep.go_on()] == ["baseline", "eagle3-steps1", "eagle3-steps3"]
    assert "eagle3-steps3 on a, 8 at a time: 500.0 tok/s (0.71 of the baseline)" in "\n".join(sweep.shown)

    computed = sweep("adaptive", options={})
    assert computed["host"] == "a" and computed["configuration"]["adaptive"]
    row = computed["configuration"]
    config = row["speculative"]["adaptive_config"]
    assert row["speculative"]["adaptive"] is True and config["1"]["candidate_steps"] == [3]
    assert config[max(config, key=int)]["candidate_steps"] == [0]
    assert sweep.go_on() == [("adaptive", [1, 8])]
    # What it is made of is measured, so it is not computed again, nor measured again.
    assert sweep("adaptive", options={})["configuration"] == {}

    finish = sweep("finish", options=sweep.options)
    assert finish["targets"] == {"a": {"kind": "release", "release": "r1", "configuration": {}}}
    closed = sweep("close")
    assert closed["left"] == {} and closed["failed_configurations"] == []
    results = read_results(sweep.folder)
    assert results["sweep"]["ended"] and results["sweep"]["hosts"] == ["a"]
    row = results["configurations"][2]
    assert row["hardware"] == {
        "gpu": "NVIDIA H200",
        "count": 2,
        "driver": "580.159.04",
        "memory_total_mib": 143771,
    }
    assert (row["host"], row["version"], row["max_running_requests"]) == ("a", "0.5.17", 32)
    assert [point["concurrency"] for point in row["points"]] == [1, 8]
    assert os.path.isfile(os.path.join(sweep.folder, "profiles.yml"))


def test_no_secret_is_kept(sweep):
    sweep.begin()
    sweep.go_on()
    sweep("close")
    for folder, _folders, names in os.walk(sweep.folder):
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                assert "hidden-word" not in stream.read(), name


@pytest.mark.parametrize("points", range(7))
def test_a_run_that_is_killed_after_any_point_is_gone_on_with(sweep, points):
    sweep.begin()
    sweep.go_on(most=points)
    before = sweep.results()
    sweep.another_run()
    # A configuration of the sweep runs, which was never proven.
    known = sweep.hosts["a"]["sglang_sweep_found"]
    sweep.hosts["a"]["sglang_sweep_found"] = {**known, "release": "r9", "releases": [{"id": "r9"}, *known["releases"]]}
    begun = sweep.begin()
    assert sum(map(len, begun["left"].values())) == 6 - points
    sweep.go_on()
    after = sweep.results()
    for name, row in before.items():
        # Nothing is measured twice.
        assert after[name]["points"][: len(row["points"])] == row["points"]
    assert [len(row["points"]) for row in after.values()] == [2, 2, 2]
    assert sweep("finish", options=sweep.options)["targets"]["a"]["release"] == "r1"
    sweep("close")
    assert sweep.begin()["left"] == {}


def test_what_was_begun_comes_first_while_its_server_runs(sweep):
    sweep.begin()
    sweep.go_on(most=5)
    sweep.another_run()
    sweep.begin(num_steps=[3, 1])
    assert sweep.go_on(most=1) == [("eagle3-steps3", [8])]


def test_two_hosts_share_a_sweep(sweep):
    sweep.add("b")
    begun = sweep.begin()
    assert begun["most_turns"] == 4
    assert sweep("next", "b")["configuration"]["host"] == "b"
    assert sweep("next", "a")["configuration"]["name"] == "baseline"
    told = sweep.go_on("a")
    # The one that b has begun is left to it.
    assert [name for name, _left in told] == ["baseline", "eagle3-steps1", "eagle3-steps3"]
    assert [name for name, _left in sweep.go_on("b")] == ["baseline"]
    assert {row["host"] for row in read_results(sweep.folder)["configurations"]} == {"a", "b"}


def test_what_a_host_has_begun_that_gives_up_is_for_the_others(sweep):
    sweep.add("b")
    sweep.begin()
    sweep.go_on("a", most=2)
    assert sweep("next", "a")["configuration"]["name"] == "eagle3-steps1"
    sweep.hosts["a"]["sglang_sweep_failure"] = "the GPUs were not freed"
    assert [name for name, _left in sweep.go_on("b")] == ["baseline", "eagle3-steps1", "eagle3-steps3"]


def test_a_configuration_that_does_not_start_is_a_row(sweep):
    sweep.begin()
    row = sweep("next")["configuration"]
    sweep("record", key=row["key"], row={"state": "failed", "reason": "out_of_memory", "message": "It\ndied."})
    assert [name for name, _left in sweep.go_on()] == ["eagle3-steps1", "eagle3-steps3"]
    kept = sweep.results()["baseline"]
    assert (kept["state"], kept["reason"], kept["message"]) == ("failed", "out_of_memory", "It died.")
    assert sweep("close")["failed_configurations"] == ["baseline"]
    # It is not tried again, unless that is wanted.
    assert sweep.begin()["left"] == {}
    assert list(sweep.begin(retry_failed=True)["left"]) == [row["key"]]
    assert [name for name, _left in sweep.go_on()] == ["baseline"]


def test_a_point_that_failed_is_kept_and_tried_again_when_that_is_wanted(sweep):
    sweep.begin()
    row = sweep("next")["configuration"]
    failed = {"concurrency": 8, "state": "failed", "reason": "timeout", "message": "It took long."}
    sweep("record", key=row["key"], row=sweep.row(row))
    sweep("record", key=row["key"], point=failed)
    assert sweep.shown[-1].startswith("baseline on a, 8 at a time: failed (timeout): It took long.; 5 points")
    assert sweep("next")["concurrencies"] == [1]
    sweep.begin(retry_failed=True)
    assert sweep("next")["concurrencies"] == [1, 8]


def test_after_the_deadline_nothing_is_begun(sweep):
    begun = sweep.begin(stop_after=3600)
    assert begun["deadline"] > 3600
    assert sweep.go_on(deadline=1.0) == []
    closed = sweep("close")
    assert len(closed["left"]) == 3 and not read_results(sweep.folder)["sweep"]["ended"]


def test_what_could_not_be_started_in_time_is_not_begun(sweep):
    sweep.begin()
    key = sweep("next")["configuration"]["key"]
    claim = Store(sweep.folder).claim(key)
    # Loading it took ten minutes, and five are left.
    Store(sweep.folder).write_claim(key, {**claim, "last": time.time() - 600})
    sweep("record", key=key, row=sweep.row({"settings": {}}))
    assert sweep("next", deadline=time.time() + 300)["configuration"] == {}
    assert sweep("next", deadline=time.time() + 900)["configuration"]["key"] == key


def test_further_configurations_can_be_added(sweep):
    sweep.begin()
    sweep.go_on()
    sweep("close")
    del sweep.options["num_steps"]
    sweep.hosts["a"]["sglang_sweep_found"]["base"]["speculative"]["num_steps"] = 1
    sweep.begin(environments={"nvls": {"NCCL_NVLS_ENABLE": "1"}})
    assert sweep.go_on() == [("eagle3-steps1-nvls", [1, 8])]
    assert list(sweep.results()) == ["baseline", "eagle3-steps1", "eagle3-steps3", "eagle3-steps1-nvls"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrencies": [1, 16]}, r"concurrencies: \[1, 8\] there, \[1, 16\] now"),
        ({"repeats": 5}, "repeats: 3 there, 5 now"),
        ({"benchmark": {"output_len": 64}}, "benchmark: "),
        ({"repeats": 0}, "sglang_sweep_repeats is '?0"),
        ({"finally": "best"}, "best for how many requests is not said"),
        ({"finally": "last"}, "sglang_sweep_finally is 'last'"),
        ({"prompts": "/nowhere/prompts.jsonl"}, "prompts: /nowhere/prompts.jsonl cannot be read"),
    ],
)
def test_another_sweep_in_the_same_folder_is_refused(sweep, options, words):
    sweep.begin()
    with pytest.raises(AnsibleActionFail, match=words):
        sweep.begin(**options)


def test_another_version_or_other_gpus_in_the_same_folder_are_refused(sweep):
    sweep.begin()
    sweep.add("a", version="0.5.18")
    with pytest.raises(AnsibleActionFail, match=r"SGLang: 0.5.18 on a; 0.5.17 on the sweep in the folder"):
        sweep.begin()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"version": "0.5.16"}, r"The hosts are not alike.* SGLang: 0.5.17 on a; 0.5.16 on b"),
        ({"gpus": [{**gpu, "name": "NVIDIA H100"} for gpu in GPUS]}, r"GPUs: .*H200.* on a; .*H100.* on b"),
        ({"model": "/models/other"}, "model: /models/target on a; /models/other on b"),
        ({"model_sha256": "0" * 64}, "config.json of the model: ffff"),
        ({"base": {**found()["base"], "extra_args": ["--x"]}}, r"sglang_extra_args: \[\] on a; \['--x'\] on b"),
    ],
)
def test_hosts_that_are_not_alike_are_refused(sweep, more, words):
    sweep.add("b", **more)
    with pytest.raises(AnsibleActionFail, match=words):
        sweep.begin()
    assert not os.path.exists(sweep.folder)


def test_drivers_may_differ_and_that_is_said(sweep):
    sweep.add("b", driver="570.1")
    sweep.begin()
    assert "! The drivers differ: driver: 580.159.04 on a; 570.1 on b" in sweep.shown


def refuse(sweep, host, *numbers, message="no draft"):
    rows = sweep("plan", options=sweep.options)["plan"]["check"]
    refused = {rows[number]["key"]: {"reason": "refused", "message": message} for number in numbers}
    sweep.hosts[host]["sglang_sweep_refused"] = refused


def test_a_configuration_that_is_refused_is_a_row_at_once(sweep):
    refuse(sweep, "a", 2)
    assert len(sweep.begin()["left"]) == 2
    assert "  eagle3-steps3  EAGLE3 3/1/4: refused: no draft" in sweep.shown
    row = sweep.results()["eagle3-steps3"]
    assert (row["state"], row["reason"], row["message"]) == ("failed", "refused", "no draft")


@pytest.mark.parametrize(
    ("numbers", "words"),
    [((0,), "The baseline is refused: no draft"), ((1, 2), "All configurations are refused. eagle3-steps1: no draft;")],
)
def test_a_sweep_with_nothing_to_compare_is_refused(sweep, numbers, words):
    refuse(sweep, "a", *numbers)
    with pytest.raises(AnsibleActionFail, match=words):
        sweep.begin()
    assert not os.path.exists(sweep.folder)


def test_hosts_that_do_not_agree_about_a_configuration_are_not_alike(sweep):
    sweep.add("b")
    refuse(sweep, "b", 3)
    with pytest.raises(AnsibleActionFail, match="b refuses eagle3-steps3, and a does not, so they are not alike: no"):
        sweep.begin()


def test_a_page_that_cannot_be_made_is_told_before_anything_is_measured(sweep, monkeypatch):
    monkeypatch.setattr(sglang_sweep.plots, "missing", lambda: "No matplotlib here.")
    with pytest.raises(AnsibleActionFail, match=r"No matplotlib here[.] Or set sglang_sweep_html to"):
        sweep("plan", options={**sweep.options, "html": True})
    assert sweep("plan", options=sweep.options)["plan"]["left"]


def test_only_the_first_of_each_host_may_be_checked(sweep):
    sweep.add("b")
    plan = sweep("plan", options={**sweep.options, "check_all": False})["plan"]
    assert [(row["name"], row["host"]) for row in plan["check"]] == [("baseline", "a"), ("baseline", "b")]


@pytest.mark.parametrize("how", [{"check": True}, {"write": False}])
def test_a_plan_alone_writes_nothing(sweep, how):
    begun = sweep.begin(**how)
    assert begun["changed"] is False and len(begun["left"]) == 3
    assert not os.path.exists(sweep.folder)
    assert sweep.shown[1].startswith("Sweep llama: 3 configurations, 6 points of 6")


def test_a_second_run_is_held_off_while_the_first_one_lives(sweep, monkeypatch):
    sweep.real_run()
    sweep.begin()
    with open(os.path.join(sweep.folder, "run.json"), encoding="utf-8") as stream:
        assert json.load(stream)["pid"] == os.getppid()
    monkeypatch.setattr(sglang_sweep, "_me", lambda: {**sweep.me(), "pid": 1})
    with pytest.raises(AnsibleActionFail, match=r"another run sweeps in .*llama, PID \d+"):
        sweep.begin()


def test_a_run_that_was_taken_over_stops(sweep):
    sweep.begin()
    Store(sweep.folder).release()
    with pytest.raises(AnsibleActionFail, match="is not this run's any more"):
        sweep("next")


def test_a_server_that_was_taken_over_comes_back(sweep):
    sweep.hosts["a"]["sglang_sweep_found"].update(running=False, release="", releases=[])
    sweep.hosts["a"]["sglang_sweep_checked"]["unmanaged"] = {"pid": 5}
    sweep.begin()
    assert sweep("finish", options=sweep.options)["targets"]["a"]["kind"] == "unmanaged"
    sweep("record", adopted="r2")
    assert sweep("finish", options=sweep.options)["targets"]["a"]["release"] == "r2"
    assert read_results(sweep.folder)["sweep"]["original"]["a"] == {"kind": "release", "release": "r2"}


@pytest.mark.parametrize(
    ("options", "most", "expected"),
    [
        ({"finally": "best", "expected_concurrency": 1}, 99, "eagle3-steps3"),
        ({"finally": "best", "expected_concurrency": "8"}, 99, "baseline"),
        ({"finally": "keep"}, 99, "eagle3-steps3"),
        # As long as something is left, the run is not at its end.
        ({"finally": "best", "expected_concurrency": 1}, 3, ""),
        ({"finally": "original", "expected_concurrency": 1}, 99, ""),
    ],
)
def test_what_runs_in_the_end(sweep, options, most, expected):
    sweep.begin(**options)
    sweep.go_on(most=most)
    target = sweep("finish", options=sweep.options)["targets"]["a"]
    assert target["configuration"].get("name", "") == expected
    assert target["release"] == ("" if expected else "r1")


def test_a_host_that_is_not_back_is_owed_what_ran_before(sweep):
    sweep.begin()
    sweep.hosts["a"]["sglang_sweep_not_restored"] = " it did not start "
    sweep("close")
    sweep.hosts["a"]["sglang_sweep_found"].update(running=False, release="")
    sweep.begin()
    assert sweep("finish", options=sweep.options)["targets"]["a"]["release"] == "r1"
    sweep.hosts["a"]["sglang_sweep_not_restored"] = " "
    sweep("close")
    # Now it is as it was found: nothing runs.
    sweep.begin()
    assert sweep("finish", options=sweep.options)["targets"]["a"]["kind"] == "stopped"


def test_versions_that_cannot_adapt_are_refused_before_anything_is_touched(sweep):
    sweep.add("a", version="0.5.12")
    with pytest.raises(AnsibleActionFail, match=r"sglang_sweep_adaptive: SGLang 0.5.12 has no"):
        sweep.begin(adaptive=True)


def test_an_adaptive_configuration_that_cannot_be_computed_is_a_row(sweep, monkeypatch):
    sweep.begin(adaptive=True)
    assert sweep("adaptive", options={})["configuration"] == {}  # not before the others
    sweep.go_on()
    told = sglang_sweep.analysis.analyse(read_results(sweep.folder))
    nothing = {**told["adaptive"], "config": None, "reason": "Speculation is never faster."}
    monkeypatch.setattr(sglang_sweep.analysis, "analyse", lambda results: {**told, "adaptive": nothing})
    assert sweep("adaptive", options={})["configuration"] == {}
    row = sweep.results()["adaptive"]
    assert (row["state"], row["reason"], row["message"]) == ("failed", "not_computed", "Speculation is never faster.")


def test_a_host_that_is_not_in_the_inventory_is_named(sweep):
    with pytest.raises(AnsibleActionFail, match="hosts: 'x' is not in the inventory"):
        sweep("plan", hosts=["x"], options=sweep.options)


@pytest.mark.parametrize("point", [{"state": "measured"}, {"concurrency": 8}, {"concurrency": "x", "state": "failed"}])
def test_what_is_no_point_is_not_kept(sweep, point):
    sweep.begin()
    key = sweep("next")["configuration"]["key"]
    with pytest.raises(AnsibleActionFail, match="it needs concurrency and state"):
        sweep("record", key=key, point=point)
