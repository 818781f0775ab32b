# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.exit_status import expected_status, judge


@pytest.mark.parametrize(
    ("version", "status"),
    [("0.5.7", 137), ("0.5.13", 137), ("0.5.18", 137), ("0.5.18.post2", 137), ("0.5.19", 0), ("0.6.0", 0), ("", None)],
)
def test_what_a_version_ends_with(version, status):
    assert expected_status(version) == status


@pytest.mark.parametrize(
    ("status", "version", "killed", "clean", "words"),
    [
        (137, "0.5.17", False, True, ""),
        (0, "0.5.23", False, True, ""),
        (143, "0.5.17", False, True, ""),
        (143, "0.5.23", False, True, ""),
        (0, "", False, True, ""),
        (137, "", False, True, ""),
        (None, "0.5.17", False, None, ""),
        (0, "0.5.17", False, False, "ends with 137"),
        (137, "0.5.23", False, False, "status 137, and SGLang 0.5.23 ends with 0"),
        (1, "", False, False, "0 or 137"),
        (137, "0.5.17", True, False, "was killed"),
        (None, "0.5.17", True, False, "was killed"),
    ],
)
def test_how_an_end_is_judged(status, version, killed, clean, words):
    found, warning = judge(status, version, killed)
    assert found is clean and words in warning and bool(words) == bool(warning)


def test_the_remedy_is_the_limit_that_cut_it_off():
    assert "Give it more with grace, or" in judge(137, "0.5.17", True)[1]
    assert "Give it more with TimeoutStopSec, or" in judge(137, "0.5.17", True, "TimeoutStopSec")[1]


@pytest.mark.parametrize(("status", "podman", "clean"), [(127, True, None), (127, False, False), (137, True, True)])
def test_podman_may_have_forgotten_it(status, podman, clean):
    found, warning = judge(status, "0.5.17", False, podman=podman)
    assert found is clean and bool(warning) == (clean is False)
