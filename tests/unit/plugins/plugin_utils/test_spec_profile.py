# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a profile and the variables of the inventory make together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import ProfileError, merge_settings

NOTHING = {
    "speculative": {},
    "max_running_requests": None,
    "mem_fraction_static": None,
    "extra_args": [],
    "environment": {},
}
MINE = {
    "fast": {
        "algorithm": "EAGLE3",
        "num_steps": 3,
        "eagle_topk": 1,
        "num_draft_tokens": 4,
        "max_running_requests": 64,
        "extra_args": ["--enable-metrics", "--log-level", "info"],
        "environment": {"NCCL_NVLS_ENABLE": 1, "HF_TOKEN": "p-s3cr3t"},
    },
    "nested": {"speculative": {"algorithm": "NGRAM", "brand_new_option": 1}},
    "off": {"algorithm": "NONE", "max_running_requests": 64},
    "empty": None,
}


def refused(*args):
    with pytest.raises(ProfileError) as error:
        merge_settings(*args)
    return str(error.value)


@pytest.mark.parametrize("profile", ["", None])
def test_without_a_profile_the_settings_stay(profile):
    settings = {
        "speculative": {"algorithm": "EAGLE3", "num_steps": ""},
        "max_running_requests": "",
        "environment": {"A": 1},
    }
    assert merge_settings(settings, profile, MINE) == {
        **NOTHING,
        "profile": "",
        "speculative": {"algorithm": "EAGLE3"},
        "environment": {"A": "1"},
    }


def test_the_built_in_profiles():
    assert merge_settings({}, "baseline")["speculative"] == {"algorithm": "none"}
    merged = merge_settings({"speculative": {"draft_model_path": "/d", "num_steps": 2}}, "eagle3")
    assert merged == {
        **NOTHING,
        "profile": "eagle3",
        "speculative": {"algorithm": "EAGLE3", "draft_model_path": "/d", "num_steps": 2},
    }


def test_a_built_in_profile_can_be_defined_anew():
    assert merge_settings({}, "eagle3", {"eagle3": {"algorithm": "EAGLE"}})["speculative"] == {"algorithm": "EAGLE"}


def test_the_variables_fill_what_the_profile_leaves_open():
    merged = merge_settings(
        {
            "speculative": {"draft_model_path": "/d", "adaptive": True},
            "mem_fraction_static": 0.8,
            "extra_args": ["--context-length", "4096"],
            "environment": {"A": "x"},
        },
        "fast",
        MINE,
    )
    assert merged["speculative"] == {
        "algorithm": "EAGLE3",
        "num_steps": 3,
        "eagle_topk": 1,
        "num_draft_tokens": 4,
        "draft_model_path": "/d",
        "adaptive": True,
    }
    assert (merged["max_running_requests"], merged["mem_fraction_static"]) == (64, 0.8)
    assert merged["extra_args"] == ["--enable-metrics", "--log-level", "info", "--context-length", "4096"]
    assert merged["environment"] == {"A": "x", "HF_TOKEN": "p-s3cr3t", "NCCL_NVLS_ENABLE": "1"}


@pytest.mark.parametrize(
    "same",
    [
        {"speculative": {"num_steps": 3}},
        {"speculative": {"num_steps": "3"}},
        {"speculative": {"algorithm": "eagle3"}},
        {"speculative": {"algorithm": "", "num_steps": None}},
        {"max_running_requests": "64"},
        {"extra_args": ["--log-level", "info"]},
        {"environment": {"NCCL_NVLS_ENABLE": "1"}},
    ],
)
def test_the_same_value_twice_is_no_contradiction(same):
    assert merge_settings(same, "fast", MINE) == merge_settings({}, "fast", MINE)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"speculative": {"num_steps": 2}}, ["num_steps to 3", "sglang_spec_num_steps is 2"]),
        ({"speculative": {"algorithm": "EAGLE"}}, ["algorithm to 'EAGLE3'", "sglang_spec_algorithm is 'EAGLE'"]),
        ({"speculative": {"algorithm": "none"}}, ["algorithm to 'EAGLE3'", "'none'"]),
        ({"max_running_requests": 48}, ["max_running_requests to 64", "sglang_max_running_requests is 48"]),
        ({"extra_args": ["--log-level", "debug"]}, ["--log-level in extra_args to info", "debug"]),
        ({"extra_args": ["--enable-metrics", "x"]}, ["a flag without a value"]),
        ({"environment": {"NCCL_NVLS_ENABLE": 0}}, ["NCCL_NVLS_ENABLE in environment to '1'", "'0'"]),
        ({"environment": {"HF_TOKEN": "v-s3cr3t"}}, ["HF_TOKEN in environment to ********"]),
    ],
)
def test_a_contradiction_names_profile_setting_values_and_remedy(settings, parts):
    message = refused(settings, "fast", MINE)
    assert all(part in message for part in ["The profile fast", "remove one of them", *parts]), message
    assert "s3cr3t" not in message


def test_paths_are_compared_as_they_are():
    assert refused(
        {"speculative": {"draft_model_path": "/M"}}, "p", {"p": {"algorithm": "EAGLE3", "draft_model_path": "/m"}}
    )


def test_secrets_in_extra_args_are_not_shown():
    profiles = {"p": {"extra_args": ["--api-key", "p-s3cr3t"]}}
    message = refused({"extra_args": ["--api-key", "v-s3cr3t"]}, "p", profiles)
    assert "--api-key" in message and "s3cr3t" not in message


@pytest.mark.parametrize("profile", ["baseline", "off"])
def test_nothing_contradicts_a_profile_without_speculation(profile):
    merged = merge_settings(
        {
            "speculative": {"algorithm": "EAGLE3", "num_steps": 3, "draft_model_path": "/d"},
            "extra_args": ["--speculative-attention-mode", "decode"],
        },
        profile,
        dict(MINE, off=dict(MINE["off"], extra_args=["--speculative-attention-mode", "prefill"])),
    )
    assert merged["speculative"]["algorithm"] == "none"
    # sglang_preflight drops these, and says which.
    assert merged["speculative"]["num_steps"] == 3


def test_without_speculation_other_settings_still_contradict():
    assert "max_running_requests" in refused({"max_running_requests": 48}, "off", MINE)


def test_options_that_only_a_version_knows():
    assert merge_settings({}, "nested", MINE)["speculative"] == {"algorithm": "NGRAM", "brand_new_option": 1}
    assert merge_settings({"speculative": {"brand_new_option": 1}}, "")["speculative"] == {"brand_new_option": 1}


def test_an_empty_profile_is_one():
    assert merge_settings({}, "empty", MINE) == {**NOTHING, "profile": "empty"}


def test_an_unknown_profile():
    message = refused({}, "fsat", MINE)
    assert "'fsat'" in message and "did you mean fast?" in message
    assert "baseline, eagle3, empty, fast, nested, off" in message


@pytest.mark.parametrize(
    ("profile", "part"),
    [
        ({"num_step": 3}, "has no setting 'num_step': did you mean num_steps?"),
        ({"speculative_num_steps": 3}, "write num_steps"),
        ({"sglang_spec_num_steps": 3}, "write num_steps"),
        ({"tp_size": 3}, "has no setting 'tp_size'"),
        ({"environmet": {}}, "did you mean environment?"),
        ([], "must be a dictionary"),
        ("x", "must be a dictionary"),
        ({"speculative": "EAGLE3"}, "must be a dictionary"),
        ({"environment": ["A=1"]}, "must be a dictionary"),
        ({"extra_args": "--a b"}, "must be a list"),
        ({"num_steps": 3, "speculative": {"num_steps": 2}}, "stands twice"),
    ],
)
def test_profiles_that_cannot_be(profile, part):
    assert part in refused({}, "p", {"p": profile})


def test_settings_that_cannot_be():
    assert "must be a dictionary" in refused({}, "p", ["p"])
    assert "has no setting" in refused({"max_runing_requests": 3}, "")


def test_the_input_is_left_alone():
    settings = {"speculative": {"draft_model_path": "/d"}, "extra_args": ["--a"], "environment": {"A": 1}}
    before = repr((settings, MINE))
    merge_settings(settings, "fast", MINE)
    assert repr((settings, MINE)) == before


VALUES = st.dictionaries(
    st.sampled_from(["num_steps", "eagle_topk", "draft_model_path"]), st.sampled_from(["1", "2", ""])
)


@given(VALUES, VALUES)
def test_the_result_has_all_that_either_gives_or_is_refused(base, ours):
    try:
        merged = merge_settings({"speculative": ours}, "p", {"p": base})["speculative"]
    except ProfileError:
        assert any(base[key] != ours[key] for key in set(base) & set(ours) if base[key] and ours[key])
    else:
        for given_values in (base, ours):
            assert all(merged[key] == value for key, value in given_values.items() if value)
