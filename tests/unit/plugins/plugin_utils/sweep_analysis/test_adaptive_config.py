# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file for --speculative-adaptive-config, and what SGLang's own rules say of it."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.adaptive import (
    check_adaptive,
    check_reach,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import settings_from
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_analysis.synthetic_sweeps import (
    Truth,
    flat,
    noisy,
    results,
)

TRUTH = Truth(p=0.7, verified_token=0.4)
CONCURRENCIES = (1, 4, 16, 64, 128)


def rows(version="0.5.23", steps=(0, 1, 3), concurrencies=CONCURRENCIES, **effective):
    found = [noisy(TRUTH, each, concurrencies, 0.004, seed=6, version=version) for each in steps]
    for one in found:
        one["effective"].update(effective)
    return found


def computed(given):
    return analyse(results(*given))["adaptive"]


def checks(adaptive, version):
    """What a deployment with it would be told."""
    settings = settings_from(
        {
            "model_path": "/models/target",
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": "/models/draft",
            "speculative_num_steps": adaptive["num_steps"],
            "speculative_eagle_topk": adaptive["eagle_topk"],
            "speculative_num_draft_tokens": adaptive["num_draft_tokens"],
            "max_running_requests": adaptive["max_running_requests"],
            "speculative_options": {"adaptive": True, "adaptive_config": adaptive["config"]},
        }
    )
    effective = {"speculative_adaptive": True, "max_running_requests": adaptive["max_running_requests"]}
    return [one for one in check_adaptive(settings, version) if one.status == FAILED] + check_reach(settings, effective)


def test_the_steps_follow_the_batch():
    found = computed(rows())
    steps = {int(size): entry["candidate_steps"] for size, entry in found["config"].items()}
    assert list(steps.values()) == [[3], [1], [0]]
    small, middle, large = steps
    assert small == 1
    assert middle == pytest.approx(TRUTH.crossover(3, 1), rel=0.3)
    assert large == pytest.approx(TRUTH.crossover(1), rel=0.3)
    assert (found["num_steps"], found["eagle_topk"], found["num_draft_tokens"]) == (3, 1, 4)
    assert found["base"] == "eagle3-steps3"
    assert found["reason"].startswith("3 steps from a batch size of 1 on, then 1 step from a batch size of ")
    assert checks(found, "0.5.23") == []


def test_the_limit_that_it_was_measured_with_is_kept():
    assert computed(rows())["max_running_requests"] == 256


def test_a_limit_below_the_last_batch_size_is_raised():
    """With the default of 48 the entry of 64 would never be used."""
    found = computed(rows(steps=(0, 3), concurrencies=(1, 64, 128), effective_max_running_requests_per_dp=4))
    largest = max(map(int, found["config"]))
    assert found["max_running_requests"] == largest > 4
    assert "It was measured with 4, so larger batches did not run." in found["reason"]
    assert "unset it is 48" in found["reason"]
    assert ("which is too few" in found["reason"]) is (largest > 48)
    assert checks(found, "0.5.23") == []


@pytest.mark.parametrize("version", ["0.5.14", "0.5.19", "0.5.23", "0.5.23.post1"])
def test_versions_that_can_be_off(version):
    found = computed(rows(version))
    assert [0] in [entry["candidate_steps"] for entry in found["config"].values()]
    assert checks(found, version) == []


def test_a_version_with_batch_sizes_but_no_zero():
    found = computed(rows("0.5.13"))
    assert [entry["candidate_steps"] for entry in found["config"].values()] == [[3], [1]]
    assert "cannot switch speculation off" in found["reason"]
    assert checks(found, "0.5.13") == []


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.5.12", "adapts the steps to acceptance, not to the load"),
        ("0.5.11", "adapts the steps to acceptance, not to the load"),
        ("0.5.10", "has no adaptive speculation"),
        ("0.5.7", "has no adaptive speculation"),
        ("", "version of SGLang is not known"),
        ("main", "version of SGLang is not known"),
    ],
)
def test_versions_without(version, words):
    found = computed(rows(version))
    assert found["config"] is None
    assert words in found["reason"]


@pytest.mark.parametrize(
    ("effective", "words"),
    [
        ({"enable_dp_attention": True}, "attention-DP"),
        ({"attn_dp_size": 2}, "attention-DP"),
        ({"enable_multi_layer_eagle": True}, "multi-layer EAGLE"),
        ({"enable_two_batch_overlap": True}, "two-batch overlap"),
        ({"enable_lora": True}, "LoRA"),
        ({"pp_size": 2}, "pipeline parallelism"),
    ],
)
def test_what_switches_it_off(effective, words):
    found = computed(rows(**effective))
    assert found["config"] is None
    assert words in found["reason"]


@pytest.mark.parametrize("words", [["--enable-dp-attention"], ["--enable-dp-attention=true"]])
def test_what_switches_it_off_in_extra_arguments(words):
    given = rows()
    for one in given:
        one["extra_args"] = words
    assert "attention-DP" in computed(given)["reason"]


def test_without_a_baseline():
    assert "No baseline was measured" in computed(rows()[1:])["reason"]


def test_without_a_suitable_configuration():
    assert "top-k 1" in computed([rows()[0], flat({1: 100}, steps=3, topk=4)])["reason"]


def test_speculation_that_never_pays():
    near = {1: [100, 101, 102], 8: [700, 705, 710]}
    slow = {1: [80, 81, 82], 8: [500, 505, 510]}
    found = computed([flat(near), flat(slow, steps=1), flat(slow, steps=3)])
    assert found["config"] is None
    assert found["reason"] == "Speculation is not shown to pay at any measured concurrency: use baseline."


def test_one_that_is_best_everywhere():
    found = computed(rows(concurrencies=(1, 2)))
    assert found["config"] is None
    assert found["reason"] == "3 steps are right at every measured concurrency: use eagle3-steps3 as it is."


def test_two_drafts_the_better_one_counts():
    given = rows()
    other = noisy(TRUTH, 5, CONCURRENCIES, 0.004, seed=6, factor=0.7, name="other-draft")
    other["settings"]["draft_model_path"] = other["effective"]["speculative_draft_model_path"] = "/models/other"
    assert "other-draft" not in computed([*given, other])["configurations"]


def test_versions_that_differ():
    given = rows()
    given[1]["version"] = "0.5.14"
    assert "not measured with the same version" in computed(given)["reason"]


class TestGraphSizes:
    """A batch is padded to the next size that has a CUDA graph, so it must not reach the next entry by that."""

    def test_a_measured_batch_keeps_its_steps(self):
        free = list(computed(rows())["config"])
        found = computed(rows(cuda_graph_bs=[1, 2, 4, 8, 40, 64]))
        # Measured at 16 with 1 step; it runs padded to 40, so no speculation may begin at 41 at the earliest.
        assert int(list(found["config"])[2]) >= 41
        assert list(found["config"])[:2] == free[:2]

    def test_too_few_graphs(self):
        found = computed(rows(cuda_graph_bs=[1, 2, 80, 160]))
        assert "CUDA graphs are too few" in found["reason"]
        assert checks(found, "0.5.23") == []

    @pytest.mark.parametrize("sizes", [None, "many", [], [None]])
    def test_unknown_sizes(self, sizes):
        assert computed(rows(cuda_graph_bs=sizes))["config"] == computed(rows())["config"]


def test_replicas_share_the_load():
    one, two = computed(rows()), computed(rows(dp_size=2, effective_max_running_requests_per_dp=128))
    sizes = [[int(size) for size in found["config"]] for found in (one, two)]
    assert sizes[1][1:] == [-(-size // 2) for size in sizes[0][1:]]
    assert two["max_running_requests"] == 256
    assert "one of 2 replicas" in two["reason"]


def test_it_is_a_file():
    found = computed(rows())
    assert json.loads(json.dumps(found["config"])) == found["config"]
