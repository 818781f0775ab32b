# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast the stand-in is, which tests of benchmarks take for the truth."""

from __future__ import annotations

import json
from typing import Any, Dict

import pytest
from harness import Host

PROBE = """
import json
from types import SimpleNamespace
from sglang.srt.behaviour import Behaviour
from sglang.srt.spec import Speculation
args = SimpleNamespace(speculative_algorithm="EAGLE3", speculative_num_steps=3, speculative_num_draft_tokens=4)
none = SimpleNamespace(speculative_algorithm=None, speculative_num_steps=None, speculative_num_draft_tokens=None)
how = Behaviour(tokens_per_second=400, saturation=2)
eagle, baseline = Speculation(args, how), Speculation(none, how)
print(json.dumps({
    "eagle": {n: n * eagle.tokens_per_second(n) for n in (1, 2, 3, 8)},
    "baseline": {n: n * baseline.tokens_per_second(n) for n in (1, 2, 3, 8)},
    "histogram": eagle.meta(2952, 1)["spec_correct_drafts_histogram"],
    "few": eagle.meta(32, 1),
    "fixed": Speculation(args, Behaviour(accept=1.0)).meta(32, 1)["spec_correct_drafts_histogram"],
}))
"""


@pytest.fixture
def found(host: Host) -> Dict[str, Any]:
    return dict(json.loads(host.python(PROBE)))


def test_speculation_wins_at_one_stream_and_loses_at_eight(found: Dict[str, Any]) -> None:
    assert found["baseline"] == pytest.approx({"1": 400, "2": 600, "3": 720, "8": 960})
    assert found["eagle"] == pytest.approx({"1": 513.4, "2": 649.9, "3": 713.0, "8": 812.0}, rel=1e-3)
    for streams, wins in (("1", True), ("2", True), ("3", False), ("8", False)):
        assert (found["eagle"][streams] > found["baseline"][streams]) is wins


def test_histogram(found: Dict[str, Any]) -> None:
    assert found["histogram"] == pytest.approx([200, 160, 128, 512], abs=1)
    assert sum(found["few"]["spec_accept_histogram"]) == found["few"]["spec_verify_ct"]
    assert found["fixed"] == [32, 0, 0, 0]
