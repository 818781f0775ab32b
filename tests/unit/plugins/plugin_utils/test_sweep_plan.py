# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which configurations a sweep has, and which sweeps are refused."""

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils import sweep_plan
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_plan import SweepError, expand, on_hosts

BASE = {
    "speculative": {"algorithm": "EAGLE3", "draft_model_path": "/models/draft", "num_steps": 3, "eagle_topk": 1},
    "environment": {"NCCL_DEBUG": "WARN"},
    "extra_args": [],
    "max_running_requests": 64,
    "mem_fraction_static": "",
    "profile": "",
}
PROFILES = {
    "wide": {"algorithm": "EAGLE3", "num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 8},
    "eagle3-fa3": {"algorithm": "EAGLE3", "extra_args": ["--attention-backend", "fa3"]},
    "words": {"algorithm": "NGRAM", "num_draft_tokens": 12},
    "roomy": {"algorithm": "EAGLE3", "max_running_requests": 128},
    "plain": {"algorithm": "none", "environment": {"A": "1"}},
}


def made(base=None, **options):
    """The configurations, by name."""
    return {item.name: item for item in expand(options, {**BASE, **(base or {})}, PROFILES)}


def numbers(item):
    return "/".join(str(item.settings.get(name)) for name in sweep_plan.NUMBERS)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"num_steps": [1, 3, 5]},
            {
                "baseline": "None/None/None",
                "eagle3-steps1": "1/1/2",
                "eagle3-steps3": "3/1/4",
                "eagle3-steps5": "5/1/6",
            },
        ),
        ({"num_steps": "1,3", "baseline": False}, {"eagle3-steps1": "1/1/2", "eagle3-steps3": "3/1/4"}),
        # The number of the inventory is the default of what is not swept.
        ({"baseline": False}, {"eagle3-steps3": "3/1/4"}),
        (
            {"num_steps": 3, "eagle_topk": [1, 4], "num_draft_tokens": [4, 8], "baseline": False},
            {
                "eagle3-steps3-topk1": "3/1/4",
                "eagle3-steps3-topk4-tokens4": "3/4/4",
                "eagle3-steps3-topk4-tokens8": "3/4/8",
            },
        ),
        (
            {"profiles": ["wide", "words"], "baseline": False},
            # What the inventory says of another algorithm is none of its business.
            {"wide": "5/4/8", "words": "None/None/12"},
        ),
        (
            {"profiles": ["baseline", "eagle3-fa3"], "num_steps": [1, 2]},
            {"baseline": None, "eagle3-fa3-steps1": "1/1/2", "eagle3-fa3-steps2": "2/1/3"},
        ),
        (
            {"num_steps": [1], "environments": {"nvls": {"NCCL_NVLS_ENABLE": 1}}},
            {"baseline": None, "eagle3-steps1": "1/1/2", "eagle3-steps1-nvls": "1/1/2"},
        ),
    ],
)
def test_configurations(options, expected):
    found = made(**options)
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        assert wanted in (None, numbers(found[name]))


def test_what_a_configuration_is_deployed_with():
    found = made(num_steps=[2], environments={"nvls": {"NCCL_NVLS_ENABLE": 1}})
    assert found["baseline"].baseline and found["baseline"].settings == {
        "algorithm": "none",
        "max_running_requests": 64,
    }
    assert (found["baseline"].profile, found["baseline"].speculative) == ("baseline", {})
    item = found["eagle3-steps2-nvls"]
    assert item.speculative == {
        "algorithm": "EAGLE3",
        "draft_model_path": "/models/draft",
        "num_steps": 2,
        "eagle_topk": 1,
        "num_draft_tokens": 3,
    }
    assert (item.profile, item.environment_name) == ("", "nvls")
    # What the inventory gives all of them is no trait of one.
    assert item.environment == {"NCCL_NVLS_ENABLE": "1"}
    assert {found[name].max_running_requests for name in found} == {64}
    json.dumps(item.as_row())


def test_an_inventory_that_does_not_speculate_at_the_moment_is_swept_all_the_same():
    base = {"speculative": {**BASE["speculative"], "algorithm": "none"}, "profile": "baseline"}
    assert made(base, num_steps=[1])["eagle3-steps1"].settings["algorithm"] == "EAGLE3"


def test_the_profile_of_the_inventory_is_swept_where_none_is_named():
    assert list(made({"profile": "eagle3-fa3"}, num_steps=[1])) == ["baseline", "eagle3-fa3-steps1"]


def test_another_profile_without_speculation_is_a_baseline_of_its_own():
    found = made(profiles=["plain", "eagle3-fa3"])
    assert found["plain"].baseline and not found["eagle3-fa3-steps3"].baseline


def test_secrets_are_in_no_row():
    base = {"environment": {"HF_TOKEN": "hidden-word"}, "extra_args": ["--api-key", "hidden-word"]}
    found = made(base, num_steps=[1], environments={"x": {"MY_PASSWORD": "hidden-word"}})
    assert "hidden-word" not in json.dumps([item.as_row() for item in found.values()])


def test_a_key_is_of_what_runs_and_not_of_names():
    one, other = made(num_steps=[1, 3]), made(num_steps=[3])
    assert one["eagle3-steps3"].key == other["eagle3-steps3"].key
    assert len({item.key for item in one.values()}) == len(one)
    renamed = expand({"profiles": ["same"]}, BASE, {"same": {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1}})
    assert renamed[-1].settings == one["eagle3-steps3"].settings
    assert renamed[-1].key == one["eagle3-steps3"].key
    more = made({"max_running_requests": 65}, num_steps=[3])
    assert more["eagle3-steps3"].key != other["eagle3-steps3"].key


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_steps": [1, 3, 1]}, "sglang_sweep_num_steps has 1 twice"),
        ({"num_steps": [0]}, "sglang_sweep_num_steps has 0: give whole numbers from 1 up"),
        ({"num_steps": "1,x"}, "sglang_sweep_num_steps has 'x'"),
        ({"num_steps": [True]}, "sglang_sweep_num_steps has True"),
        ({"eagle_topk": [4]}, "num_draft_tokens is not given beside num_steps 3, eagle_topk 4"),
        (
            {"num_steps": [1], "eagle_topk": [4], "num_draft_tokens": [8]},
            "num_draft_tokens 8 with num_steps 1 and eagle_topk 4: their tree has 5",
        ),
        (
            {"num_steps": [3], "num_draft_tokens": [8]},
            "sglang_sweep_num_draft_tokens has 8, which no configuration can",
        ),
        (
            {"profiles": ["wide"], "num_steps": [1, 3]},
            r"num_steps is \[1, 3\], and the profile wide sets num_steps to 5",
        ),
        ({"profiles": ["absent"]}, "sglang_sweep_profiles has 'absent', and there are baseline, eagle3"),
        ({"profiles": ["wide", "wide"]}, "sglang_sweep_profiles has wide twice"),
        ({"environments": {"a b": {}}}, "sglang_sweep_environments has the name 'a b'"),
        ({"environments": {"x": "Y=1"}}, "sglang_sweep_environments.x is 'Y=1': give a dictionary"),
        ({"environments": {"same": {"NCCL_DEBUG": "WARN"}}}, "eagle3-steps3 and eagle3-steps3-same are the same"),
        ({"profiles": ["baseline"]}, "nothing to compare"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_touched(options, words):
    with pytest.raises(SweepError, match=words) as refused:
        made(**options)
    assert str(refused.value).endswith("Nothing was touched.")


def test_a_profile_and_the_inventory_that_contradict_each_other_are_refused():
    with pytest.raises(SweepError, match=r"The configuration eagle3-fa3-steps3: .*--attention-backend"):
        made({"extra_args": ["--attention-backend", "triton"]}, profiles=["eagle3-fa3"])


def test_the_same_limit_for_all():
    assert sweep_plan.common_limit(list(made(num_steps=[1]).values())) == 64
    with pytest.raises(SweepError, match="is not given for baseline, eagle3-steps1: SGLang takes 48"):
        sweep_plan.common_limit(list(made({"max_running_requests": ""}, num_steps=[1]).values()))
    mixed = [made(num_steps=[1])["baseline"], *made({"max_running_requests": ""}, profiles=["roomy"]).values()]
    with pytest.raises(SweepError, match="not the same for all configurations: 64 for baseline; 128 for roomy-steps3"):
        sweep_plan.common_limit([item for item in mixed if item.max_running_requests])


@pytest.mark.parametrize(
    ("given", "limit", "expected"),
    [
        ([], 250, [1, 2, 4, 8, 16, 32, 64, 128, 250]),
        (None, 48, [1, 2, 4, 8, 16, 32, 48]),
        ("", 1, [1]),
        ([64, 1, 8], 32, [1, 8, 64]),
        ("8,1", 32, [1, 8]),
    ],
)
def test_concurrencies(given, limit, expected):
    assert sweep_plan.concurrencies(given, limit) == expected


def test_concurrencies_twice_are_refused():
    with pytest.raises(SweepError, match="sglang_sweep_concurrencies has 8 twice"):
        sweep_plan.concurrencies([8, 8], 32)


def test_each_host_measures_the_baseline_and_they_share_the_rest():
    rows = on_hosts(list(made(num_steps=[1, 3]).values()), ["a", "b"])
    assert [(item.name, item.host) for item in rows] == [
        ("baseline", "a"),
        ("baseline", "b"),
        ("eagle3-steps1", ""),
        ("eagle3-steps3", ""),
    ]
    assert len({item.key for item in rows}) == 4
    # Another host more changes no key: what is measured stays measured.
    assert rows[0].key == on_hosts(list(made(num_steps=[1]).values()), ["a"])[0].key


def test_hosts_that_differ():
    alike = {"GPUs": ["H200"] * 8, "SGLang": "0.5.17"}
    assert sweep_plan.differences({"a": alike, "b": dict(alike)}) == []
    (line,) = sweep_plan.differences({"a": alike, "b": alike, "c": {**alike, "SGLang": "0.5.16"}})
    assert line == "SGLang: 0.5.17 on a, b; 0.5.16 on c"


def test_a_folder_of_another_sweep():
    now = {"model": "/models/a", "repeats": 3, "prompts": {"sha256": "1"}}
    sweep_plan.refuse_other_sweep(dict(now), now, "/sweeps/x")
    with pytest.raises(SweepError, match=r"/sweeps/x holds another sweep.*repeats: 5 there, 3 now"):
        sweep_plan.refuse_other_sweep({**now, "repeats": 5}, now, "/sweeps/x")


@pytest.mark.parametrize(("version", "refused"), [((0, 5, 13), True), ((0, 5, 14), False), ((), False)])
def test_versions_that_cannot_adapt(version, refused):
    if refused:
        with pytest.raises(SweepError, match="sglang_sweep_adaptive: SGLang X has no adaptive"):
            sweep_plan.refuse_adaptive("X", version)
    else:
        sweep_plan.refuse_adaptive("X", version)


CONFIG = {"1": {"candidate_steps": [3]}, "8": {"candidate_steps": [0]}}


def test_the_adaptive_configuration_takes_the_rest_from_a_measured_one():
    row = made(num_steps=[3], environments={"nvls": {"NCCL_NVLS_ENABLE": 1}})["eagle3-steps3-nvls"].as_row()
    item = sweep_plan.adaptive_configuration(row, CONFIG, 3, PROFILES)
    assert item.adaptive and item.name == "adaptive" and item.environment_name == "nvls"
    assert item.speculative == {
        "algorithm": "EAGLE3",
        "draft_model_path": "/models/draft",
        "adaptive": True,
        "adaptive_config": CONFIG,
        "num_steps": 3,
        "eagle_topk": 1,
        "num_draft_tokens": 4,
    }
    assert item.key != row["key"] and item.max_running_requests == 64
    other = sweep_plan.adaptive_configuration(row, {"1": {"candidate_steps": [3]}}, 3, PROFILES)
    assert other.key != item.key


def test_the_adaptive_configuration_of_a_profile():
    row = made(profiles=["eagle3-fa3"])["eagle3-fa3-steps3"].as_row()
    item = sweep_plan.adaptive_configuration(row, CONFIG, 3, PROFILES)
    assert item.profile == "eagle3-fa3" and item.extra_args == ("--attention-backend", "fa3")
    # A profile with numbers of its own would contradict: what it means goes without its name.
    row = made(profiles=["wide"])["wide"].as_row()
    item = sweep_plan.adaptive_configuration(row, CONFIG, 3, PROFILES)
    assert item.profile == "" and item.speculative["draft_model_path"] == "/models/draft"
    with pytest.raises(SweepError, match="The profile wide has numbers of its own beside extra_args"):
        sweep_plan.adaptive_configuration(row, CONFIG, 3, {"wide": {**PROFILES["wide"], "extra_args": ["--x"]}})
