# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in, on which most tests of this collection rely, answers as the releases do that it stands for."""

from __future__ import annotations

import sys

import pytest
from cases import CASES, FIELDS, expected
from conftest import TESTS, started
from releases import releases

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.effective import (
    effective_from_parser,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import ACCEPTED, REFUSED

# What the stand-in does not model: an algorithm that nobody simulates.
NOT_MODELLED = {"UNO"}
# Options of some releases that it has for all of them; and a field that it has for more of them than it should.
FOR_ALL_RELEASES = {
    *("--admin-api-key", "--mm-feature-transport", "--torchao-config", "--cuda-graph-bs", "--cuda-graph-max-bs"),
    *("--cuda-graph-backend-decode", "--cuda-graph-backend-prefill", "--cuda-graph-bs-decode"),
}
OTHER_VALUES = {"mm_feature_transport"}


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory):
    """The stand-in for every release."""
    environment = {"PYTHONPATH": str(TESTS / "simulator" / "sglang_standin"), "PYTHONDONTWRITEBYTECODE": "1"}
    with started(dict.fromkeys(releases(), sys.executable), tmp_path_factory.mktemp("stand-in"), environment) as found:
        yield found


@pytest.fixture
def stand_in(release, stand_ins):
    """Ask the stand-in for the same release."""
    return stand_ins[release.version].ask


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_MODELLED])
def test_it_resolves_as_the_release_does(stand_in, release, models, name):
    result = stand_in(CASES[name].argv(models), CASES[name].environment)
    wanted = expected(name, release.numbers)
    assert result.version == release.version
    if isinstance(wanted, str):
        assert result.status == REFUSED, result
        # The kind of error, and of those that the release words with care, the beginning.
        assert result.message.partition(":")[0] == wanted.partition(":")[0]
        return
    assert result.status == ACCEPTED, result
    found = {"speculative_adaptive": False, **result.fields}
    assert tuple(found[field] for field in FIELDS) == wanted


@pytest.mark.parametrize("name", ["no speculation", "3/1/4", "NGRAM"])
def test_fields_that_both_know_have_the_same_values(stand_in, release, models, name):
    case = CASES[name]
    real, fake = (
        effective_from_parser(answer.fields, {}, answer.assumed_device)
        for answer in (release.ask(case.argv(models)), stand_in(case.argv(models), {}))
    )
    both = (set(real) & set(fake)) - OTHER_VALUES
    differences = {field: (fake[field], real[field]) for field in both if fake[field] != real[field]}
    assert differences == {}


def test_it_has_no_option_that_the_release_lacks(stand_in, release, models):
    argv = CASES["no speculation"].argv(models)
    assert set(stand_in(argv, {}).options) - set(release.ask(argv).options) <= FOR_ALL_RELEASES
