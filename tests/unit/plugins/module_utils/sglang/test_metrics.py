# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The active tier of adaptive speculation out of Prometheus text."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.metrics import Tier, active_tier, has_tiers

LABELS = '{engine_type="unified",model_name="M",tp_rank="%d"}'


@pytest.mark.parametrize(
    ("lines", "tier"),
    [
        (["sglang:spec_num_steps%s 3.0" % LABELS % 0, "sglang:spec_num_draft_tokens%s 4.0" % LABELS % 0], Tier(3, 4)),
        (["sglang:spec_num_steps 0.0"], Tier(0, None)),
        (["sglang:spec_num_steps%s 1.0" % LABELS % rank for rank in range(2)] + ["sglang:spec_num_steps 3"], Tier(3)),
        (["# HELP sglang:spec_num_steps 5", "sglang:spec_num_steps_total 5"], None),
        (["sglang:spec_num_steps 1e300", "sglang:spec_num_steps ..", "sglang:spec_num_steps -1"], None),
        ([], None),
    ],
)
def test_the_gauges(lines, tier):
    assert active_tier("\n".join(lines) + "\n") == tier


def test_only_a_server_that_adapts_and_has_metrics_is_asked():
    assert has_tiers({"speculative_adaptive": True, "enable_metrics": True})
    for info in ({}, {"speculative_adaptive": True}, {"speculative_adaptive": "yes", "enable_metrics": True}):
        assert not has_tiers(info)


def test_as_modules_return_it():
    assert Tier(0, 1).to_dict() == {"num_steps": 0, "num_draft_tokens": 1}
