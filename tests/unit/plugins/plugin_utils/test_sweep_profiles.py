# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles of what a sweep has measured: how they are made, kept in a file, found, and merged with an inventory."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.filter.sglang_settings import sglang_settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.adaptive import check_adaptive
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import REDACTED
from ansible_collections.inferops.sglang.plugins.plugin_utils.guard_rules import rules_of
from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import ProfileError, merge_settings
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles import (
    configuration_for,
    decision_of,
    make_profiles,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles_file import (
    SweepError,
    Unfinished,
    as_yaml,
    read_profiles,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_profile_samples import (
    CONFIG,
    RESULTS,
    results,
    row,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "profiles.yml").write_text(as_yaml(RESULTS), encoding="utf-8")
    return str(tmp_path)


def made(**analysis):
    return make_profiles(results(**analysis))


# ---- making


def test_each_proven_configuration_is_a_profile_with_what_it_ran_with():
    profiles = made()["sglang_spec_profiles"]
    assert profiles["baseline"] == {
        "speculative": {"algorithm": "none"},
        "max_running_requests": 64,
        "extra_args": ["--enable-metrics"],
    }
    assert profiles["eagle3-steps3"]["speculative"]["num_steps"] == 3
    assert profiles["eagle3-steps3"]["environment"] == {"NCCL_NVLS_ENABLE": "1"}
    assert "environment" not in profiles["eagle3-steps5"]
    assert "eagle3-steps9" not in profiles


def test_what_it_was_measured_with_is_kept():
    measured = made()["sglang_sweep_measured"]
    assert measured["model_path"] == "/models/target" and measured["draft_model_paths"] == ["/models/draft"]
    assert measured["versions"] == ["0.5.17"] and measured["gpus"] == ["NVIDIA H200"]
    assert measured["left_out"]["eagle3-steps9"] == "out of memory"


def test_the_adaptive_profile_is_the_base_configuration_with_the_computed_file():
    profile = made()["sglang_spec_profiles"]["adaptive"]
    assert profile["speculative"] == {
        "algorithm": "EAGLE3",
        "draft_model_path": "/models/draft",
        "num_steps": 3,
        "eagle_topk": 1,
        "num_draft_tokens": 4,
        "adaptive": True,
        "adaptive_config": CONFIG,
    }
    assert profile["environment"] == {"NCCL_NVLS_ENABLE": "1"} and profile["max_running_requests"] == 64


@pytest.mark.parametrize(
    ("adaptive", "words"),
    [
        ({"config": None, "num_steps": None, "reason": "eagle3 is faster everywhere"}, "faster everywhere"),
        ({"config": CONFIG, "num_steps": 0, "base": "eagle3-steps3"}, "has computed no adaptive configuration"),
        ({"config": CONFIG, "num_steps": 3, "base": "eagle3-steps9"}, "(eagle3-steps9) is no profile"),
        ({"config": CONFIG, "num_steps": 3, "base": None}, "not named"),
        ({}, "has computed no adaptive configuration"),
    ],
)
def test_without_an_adaptive_configuration_it_is_said_why(adaptive, words):
    found = made(adaptive=adaptive)
    assert "adaptive" not in found["sglang_spec_profiles"]
    assert words in found["sglang_sweep_measured"]["left_out"]["adaptive"]


@pytest.mark.parametrize("state", ["proven", "failed"])
def test_an_adaptive_configuration_that_was_tried_is_that_one_or_none(state):
    found = results()
    tried = row("adaptive", 3, adaptive=True, state=state, message="config_mismatch")
    tried["settings"].update(adaptive=True, adaptive_config={"1": {"candidate_steps": [1]}})
    found["configurations"].append(tried)
    content = make_profiles(found)
    if state == "proven":
        profile = content["sglang_spec_profiles"]["adaptive"]["speculative"]
        assert profile["adaptive_config"] == {"1": {"candidate_steps": [1]}}
    else:
        assert "adaptive" not in content["sglang_spec_profiles"]
        assert content["sglang_sweep_measured"]["left_out"]["adaptive"] == "config_mismatch"


@pytest.mark.parametrize(
    "hidden", [{"environment": {"HF_TOKEN": REDACTED}}, {"extra_args": ["--x", REDACTED]}], ids=["environment", "args"]
)
def test_a_configuration_with_a_secret_is_no_profile(hidden):
    found = results()
    found["configurations"][1] = row("eagle3-steps3", 3, **hidden)
    content = make_profiles(found)
    assert set(content["sglang_spec_profiles"]) == {"baseline", "eagle3-steps5"}
    assert "secret" in content["sglang_sweep_measured"]["left_out"]["eagle3-steps3"]
    assert REDACTED not in str(content)


def test_configurations_of_several_hosts_are_one_profile():
    found = results()
    found["configurations"] += [row("eagle3-steps3", 3, host="gpu-b"), row("eagle3-steps3", 3, state="failed")]
    found["analysis"]["configurations"].append({"configuration": "eagle3-steps3 (gpu-b)", "name": "eagle3-steps3"})
    found["analysis"]["decision"]["ranges"][0]["configuration"] = "eagle3-steps3 (gpu-b)"
    content = make_profiles(found)
    assert content["sglang_sweep_measured"]["decision"][0]["configuration"] == "eagle3-steps3"
    assert "eagle3-steps3" not in content["sglang_sweep_measured"]["left_out"]


@pytest.mark.parametrize(("requests", "name"), [(0.5, "eagle3-steps3"), (15, "eagle3-steps3"), (16, "baseline")])
def test_the_best_one_for_a_load(requests, name):
    assert configuration_for(decision_of(RESULTS["analysis"]), requests) == name
    found = results()
    found["sweep"]["expected_concurrency"] = requests
    profiles = make_profiles(found)["sglang_spec_profiles"]
    assert profiles["best"] == profiles[name]


def test_no_best_one_where_nothing_is_known():
    assert configuration_for([], 5) is None
    assert "sglang_sweep_expected_concurrency" in made()["sglang_sweep_measured"]["left_out"]["best"]
    assert "could not say" in made(decision={"ranges": []})["sglang_sweep_measured"]["left_out"]["best"]


@pytest.mark.parametrize("broken", [{}, {"configurations": [None, 5, {}]}, {"configurations": [], "analysis": []}])
def test_odd_results_make_no_profile(broken):
    assert make_profiles(broken)["sglang_spec_profiles"] == {}


def test_what_the_analysis_of_a_sweep_says_becomes_profiles_rules_and_a_file_that_sglang_takes():
    """The real analysis, on the example of its own tests, with the adaptive configuration not yet measured."""
    path = pathlib.Path(__file__).parent / "sweep_analysis" / "example_results.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    found["configurations"] = [one for one in found["configurations"] if not one["adaptive"]]
    told = {**found, "analysis": analyse(found)}
    content = yaml.safe_load(as_yaml(told))
    profiles = content["sglang_spec_profiles"]
    rules = rules_of(content["sglang_sweep_measured"]["decision"], 0.25, "/s")
    assert len(rules) > 1 and {rule.profile for rule in rules} <= set(profiles)
    merged = merge_settings({}, "adaptive", profiles)["speculative"]
    numbers = {"speculative_" + name: merged.pop(name) for name in ("num_steps", "eagle_topk", "num_draft_tokens")}
    settings = Settings(
        model_path="/models/target",
        speculative_algorithm=merged.pop("algorithm"),
        speculative_draft_model_path=merged.pop("draft_model_path"),
        adaptive_config=merged["adaptive_config"],
        speculative_options=merged,
        **numbers,
    )
    assert merged["adaptive"] is True and check_adaptive(settings, "0.5.23") == []


# ---- the file


def test_the_file_is_one_of_variables_and_read_back_as_it_was(folder):
    content = yaml.safe_load(as_yaml(RESULTS))
    assert content == make_profiles(RESULTS)
    found = read_profiles(folder)
    assert dict(found.profiles) == content["sglang_spec_profiles"]
    assert dict(found.measured) == content["sglang_sweep_measured"]


def test_without_the_file_the_results_do(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(RESULTS), encoding="utf-8")
    assert read_profiles(str(tmp_path)).profiles == make_profiles(RESULTS)["sglang_spec_profiles"]


def test_a_file_that_was_written_anew_is_read_anew(folder):
    assert "eagle3-steps5" in read_profiles(folder).profiles
    fewer = results()
    del fewer["configurations"][2]
    path = os.path.join(folder, "profiles.yml")
    with open(path + ".new", "w", encoding="utf-8") as stream:
        stream.write(as_yaml(fewer))
    os.replace(path + ".new", path)
    assert "eagle3-steps5" not in read_profiles(folder).profiles


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "is no folder of a sweep"),
        ({"sweep.json": "{}"}, "not at its end"),
        ({"profiles.yml": "a: ["}, "is not valid YAML"),
        ({"profiles.yml": "- 1"}, "was not written by a sweep"),
        ({"profiles.yml": "sglang_spec_profiles: {}"}, "was not written by a sweep"),
        ({"profiles.yml": "sglang_spec_profiles: {}\nsglang_sweep_measured: {format: 2}"}, "the format 2"),
        ({"profiles.yml": b"\xff\xfe"}, "is no text"),
        ({"results.json": "{"}, "is not valid JSON"),
        ({"results.json": "[]"}, "has no configurations"),
        ({"profiles.yml": None}, "cannot be read"),
    ],
)
def test_a_folder_that_is_none_is_named_with_the_remedy(tmp_path, files, words):
    for name, content in files.items():
        if content is None:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SweepError) as error:
        read_profiles(str(tmp_path))
    assert str(error.value).startswith("sglang_sweep_dir: ") and words in str(error.value)
    assert isinstance(error.value, Unfinished) == ("sweep.json" in files)


# ---- merging


def merge(name, folder, settings=None, profiles=None, concurrency=""):
    return sglang_settings(settings or {}, name, profiles or {}, folder, concurrency)


def test_the_profile_adaptive_is_found_by_its_name_alone(folder):
    merged = merge("adaptive", folder, {"speculative": {"draft_model_path": "/models/draft"}})
    assert merged["speculative"]["adaptive_config"] == CONFIG and merged["speculative"]["adaptive"] is True
    assert merged["max_running_requests"] == 64 and merged["environment"] == {"NCCL_NVLS_ENABLE": "1"}
    assert merged["measured"] == {
        "sweep": "steps",
        "model_path": "/models/target",
        "draft_model_paths": ["/models/draft"],
        "versions": ["0.5.17"],
    }


def test_ones_own_profile_wins_and_needs_no_folder(tmp_path):
    merged = merge("adaptive", str(tmp_path / "none"), profiles={"adaptive": {"algorithm": "EAGLE3"}})
    assert merged["speculative"] == {"algorithm": "EAGLE3"} and "measured" not in merged


def test_a_measured_baseline_takes_the_place_of_the_built_in_one(folder, tmp_path):
    assert merge("baseline", folder)["max_running_requests"] == 64
    running = tmp_path / "running"
    running.mkdir()
    (running / "sweep.json").write_text("{}")
    assert merge("baseline", str(running)) == merge("baseline", "")


@pytest.mark.parametrize(("requests", "algorithm"), [(8, "EAGLE3"), ("40", "none")])
def test_best_goes_by_the_load_that_is_expected(folder, requests, algorithm):
    assert merge("best", folder, concurrency=requests)["speculative"]["algorithm"] == algorithm


@pytest.mark.parametrize(
    ("name", "settings", "concurrency", "words"),
    [
        ("eagle3-steps9", {}, "", "has no profile eagle3-steps9: out of memory. Known"),
        ("best", {}, "", "sglang_sweep_expected_concurrency"),
        ("best", {}, "many", "'many' is no number of requests"),
        ("best", {}, -1, "is no number of requests"),
        ("adaptve", {}, "", "did you mean adaptive?"),
        ("adaptive", {"speculative": {"num_steps": 5}}, "", "sets num_steps to 3, and sglang_spec_num_steps is 5"),
    ],
)
def test_what_cannot_be_is_refused_by_name(folder, name, settings, concurrency, words):
    with pytest.raises(Exception, match="sglang") as error:
        merge(name, folder, settings, concurrency=concurrency)
    assert words in str(error.value)


def test_without_a_folder_the_remedy_is_to_give_one():
    with pytest.raises(ProfileError, match="or give the folder of a sweep in sglang_sweep_dir"):
        merge_settings({}, "adaptive")
    with pytest.raises(Exception, match=r"sglang_spec_profile is 'adaptive'\. sglang_sweep_dir: there is no folder"):
        merge("adaptive", "/nonexistent/sweep")
