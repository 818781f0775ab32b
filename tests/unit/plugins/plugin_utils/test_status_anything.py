# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a host returns, the status is shown: no answer breaks it, moves a terminal, or adds to the page."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.plugin_utils.status_differences import (
    conditions,
    differences,
    summary,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_host import host_entry
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_page import page
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_text import render
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.status_samples import gpus, server, servers

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def changed(sample):
    """A mapping like the sample, in which some values are anything."""
    return st.dictionaries(st.sampled_from(sorted(sample)), VALUES, max_size=4).map(lambda odd: {**sample, **odd})


GPU_RESULTS = VALUES | st.builds(
    lambda gpu, holder, odd: {**gpus(1), "gpus": [gpu], "holders": [holder], **odd},
    changed(gpus(1)["gpus"][0]),
    changed(gpus(1)["holders"][0]),
    st.dictionaries(st.sampled_from(["driver_version", "holders", "gpus", "unreachable", "msg"]), VALUES, max_size=2),
)
SERVER_RESULTS = VALUES | changed(server()).map(lambda odd: servers(odd, server("second")))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(GPU_RESULTS, SERVER_RESULTS), min_size=1, max_size=3))
def test_anything(results):
    hosts = [host_entry("gpu-%d" % number, "all", *pair) for number, pair in enumerate(results)]
    found = differences(hosts)
    counts = summary(hosts, found)
    text = "\n".join(render(hosts, found, counts, "gpus", 140))
    assert all(line.isprintable() for line in text.splitlines())
    html = page(hosts, found, counts, "2026-11-30T10:52:07Z")
    # One for each host, and the header.
    assert html.count("<tr") == len(hosts) + 1 and "<script" not in html
    held = conditions(hosts, found)
    for entry, (_gpus, told) in zip(hosts, results):
        states = [item.get("state") for item in told.get("servers", [])] if isinstance(told, dict) else []
        if states != ["serving"] * len(states) or not states:
            assert entry["host"] in held["not_serving"]
