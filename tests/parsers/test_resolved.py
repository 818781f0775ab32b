# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What comes of a configuration: accepted as it is, adjusted, or refused."""

from __future__ import annotations

import pytest
from cases import CASES, EXPECTED, FIELDS, expected

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.parser_probe import ACCEPTED, REFUSED


def test_every_case_has_its_result():
    assert list(CASES) == list(EXPECTED)


@pytest.mark.parametrize("name", CASES)
def test_resolved(release, models, name):
    result = release.ask(CASES[name].argv(models), CASES[name].environment)
    wanted = expected(name, release.numbers)
    assert result.version == release.version
    if isinstance(wanted, str):
        assert result.status == REFUSED, result
        assert result.message.startswith(wanted)
        return
    assert result.status == ACCEPTED, result
    # The oldest has no adaptive speculation at all.
    found = {"speculative_adaptive": False, **result.fields}
    assert tuple(found[field] for field in FIELDS) == wanted


def test_a_host_without_a_gpu_is_refused_unless_a_device_is_named(release, models):
    """Which is why the probe names one; that the host really has one is for other checks to say."""
    bare = release.ask(CASES["no speculation"].argv(models))
    assert bare.assumed_device and bare.fields["device"] == "cuda"
    own = release.ask([*CASES["no speculation"].argv(models), "--device", "cpu"])
    assert not own.assumed_device and own.fields["device"] == "cpu"
