# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of another model, draft or version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.measured import check_measured

SETTINGS = Settings(
    model_path="/models/target/", speculative_algorithm="EAGLE3", speculative_draft_model_path="/models/draft"
)
MEASURED = {
    "sweep": "steps",
    "model_path": "/models/target",
    "draft_model_paths": ["/models/draft/", "/models/other"],
    "versions": ["0.5.16", "0.5.17"],
}


def check(measured=MEASURED, version="0.5.17", **settings):
    return [(found.status, found.message) for found in check_measured(measured, replace(SETTINGS, **settings), version)]


def test_what_fits_is_not_mentioned():
    assert check() == [] and check({}) == [] and check(version="") == []


@pytest.mark.parametrize(
    ("settings", "measured", "version", "status", "words"),
    [
        (
            {"model_path": "/models/new"},
            {},
            "0.5.17",
            "failed",
            "the model /models/target, and model_path is /models/new",
        ),
        (
            {"speculative_draft_model_path": "/d"},
            {},
            "",
            "failed",
            "/models/draft, /models/other, and speculative_draft",
        ),
        ({}, {}, "0.5.23", "warning", "SGLang 0.5.16, 0.5.17, and this host has 0.5.23"),
        ({}, {"model_path": ""}, "", "warning", "does not say what model"),
    ],
)
def test_what_does_not_fit(settings, measured, version, status, words):
    ((found, message),) = check({**MEASURED, **measured}, version, **settings)
    assert found == status and words in message and "the sweep steps" in message
    if status == "failed":
        assert "sglang_spec_profiles" in message


def test_a_baseline_has_no_draft_to_compare():
    assert check(speculative_algorithm=None, speculative_draft_model_path="/d") == []


def test_odd_measurements_say_nothing_about_a_draft_or_a_version():
    assert check({"sweep": 5, "model_path": "/models/target", "versions": "0.5", "draft_model_paths": 7}) == []
