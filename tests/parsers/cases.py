# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the releases make of one configuration after the other, as measured by running them.

A new release is measured with ``python -m pytest tests/parsers -k silence``: the difference that a failure shows is
what has changed, and belongs in docs/versions.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from releases import numbers

# The fields of a result that was accepted, in this order.
FIELDS = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_adaptive",
    "max_running_requests",
    "disable_overlap_schedule",
)
Accepted = tuple[Any, ...]
Refused = str


@dataclass(frozen=True)
class Case:
    """One configuration: options of sglang_preflight, words for extra_args, variables."""

    options: dict[str, Any] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def argv(self, models: dict[str, str]) -> list[str]:
        """The command line."""
        words = ["--model-path", models["TARGET"]]
        for name, value in self.options.items():
            words += ["--" + name.replace("_", "-"), models.get(value, str(value))]
        return words + [models.get(word, word) for word in self.extra]


def eagle3(steps: int | None = None, topk: int | None = None, tokens: int | None = None, **more: Any) -> dict[str, Any]:
    """Options for EAGLE-3 with a draft model and some of the three numbers."""
    numbers = {"num_steps": steps, "eagle_topk": topk, "num_draft_tokens": tokens}
    given = {f"speculative_{name}": value for name, value in numbers.items() if value is not None}
    return {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "DRAFT", **given, **more}


ADAPTIVE = ("--speculative-adaptive",)
V2 = {"SGLANG_ENABLE_SPEC_V2": "True"}
V1 = {"SGLANG_ENABLE_SPEC_V2": "False"}

CASES = {
    "no speculation": Case(),
    "3/1/4": Case(eagle3(3, 1, 4)),
    "3/1/4, second worker": Case(eagle3(3, 1, 4), environment=V2),
    "3/1/4, first worker": Case(eagle3(3, 1, 4), environment=V1),
    "3/1/8": Case(eagle3(3, 1, 8)),
    "3/1/4, 250 requests": Case(eagle3(3, 1, 4, max_running_requests=250)),
    "no numbers": Case(eagle3()),
    "no numbers, second worker": Case(eagle3(), environment=V2),
    "5/4/8": Case(eagle3(5, 4, 8)),
    "5/4/8, second worker": Case(eagle3(5, 4, 8), environment=V2),
    "steps alone": Case(eagle3(3)),
    "topk alone": Case(eagle3(topk=4)),
    "tokens alone": Case(eagle3(tokens=4)),
    "steps and topk": Case(eagle3(3, 1)),
    "no draft model": Case({k: v for k, v in eagle3(3, 1, 4).items() if k != "speculative_draft_model_path"}),
    "no algorithm": Case({"speculative_draft_model_path": "DRAFT", "speculative_num_steps": 3}),
    "lower case": Case(eagle3(3, 1, 4, speculative_algorithm="eagle3")),
    "NEXTN": Case(eagle3(3, 1, 4, speculative_algorithm="NEXTN")),
    "EAGLE": Case(eagle3(3, 1, 4, speculative_algorithm="EAGLE")),
    "STANDALONE": Case(eagle3(speculative_algorithm="STANDALONE")),
    "FOO": Case({"speculative_algorithm": "FOO"}),
    "adaptive": Case(eagle3(), ADAPTIVE),
    "adaptive 3/1/4": Case(eagle3(3, 1, 4), ADAPTIVE),
    "adaptive 5/4/8": Case(eagle3(5, 4, 8), ADAPTIVE),
    "adaptive 4/1/5": Case(eagle3(4, 1, 5), ADAPTIVE),
    "adaptive STANDALONE": Case(eagle3(3, 1, 4, speculative_algorithm="STANDALONE"), ADAPTIVE),
    "NGRAM": Case({"speculative_algorithm": "NGRAM"}),
    "NGRAM 8 tokens": Case({"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8}),
    "DFLASH": Case({"speculative_algorithm": "DFLASH", "speculative_draft_model_path": "DRAFT"}),
    "DSPARK": Case({"speculative_algorithm": "DSPARK", "speculative_draft_model_path": "DRAFT"}),
    "UNO": Case({"speculative_algorithm": "UNO"}),
    "no overlap": Case(eagle3(3, 1, 4), ("--disable-overlap-schedule",)),
    "no overlap, second worker": Case(eagle3(3, 1, 4), ("--disable-overlap-schedule",), V2),
    "weights cache": Case(eagle3(3, 1, 4), ("--weight-cache-mode", "client")),
    "two pipeline stages": Case(eagle3(3, 1, 4, pp_size=2)),
    "DP attention": Case(eagle3(3, 1, 4, tp_size=2, dp_size=2), ("--enable-dp-attention",)),
    "NGRAM with DP attention": Case(
        {"speculative_algorithm": "NGRAM", "tp_size": 2, "dp_size": 2}, ("--enable-dp-attention",)
    ),
    "colon in the name": Case({"served_model_name": "a:b"}),
    "abbreviated": Case(
        {},
        (
            *("--speculative-algo", "EAGLE3", "--speculative-draft-model-path", "DRAFT"),
            *("--speculative-num-step", "3", "--speculative-eagle", "1", "--speculative-num-draft", "4"),
        ),
    ),
    "unknown option": Case({}, ("--no-such-option",)),
    "option of the future": Case(eagle3(3, 1, 4), ("--speculative-draft-kv-cache-dtype", "auto")),
    "no such model": Case({}, ("--model-path", "/nowhere/at/all")),
}

NOT_A_CANDIDATE = "ValueError: --speculative-num-steps=4 is not in the adaptive config candidate_steps"
NO_PIPELINE = "AssertionError: Pipeline parallelism is not compatible with overlap schedule, speculative decoding"

# By case, what comes of it from a release on: the fields, or the beginning of the refusal.
EXPECTED: dict[str, dict[str, Accepted | Refused]] = {
    "no speculation": {"0.5.7": (None, None, None, None, False, None, False)},
    "3/1/4": {
        "0.5.7": ("EAGLE3", 3, 1, 4, False, 48, True),
        "0.5.12": ("EAGLE3", 3, 1, 4, False, 48, False),
    },
    "3/1/4, second worker": {"0.5.7": ("EAGLE3", 3, 1, 4, False, 48, False)},
    "3/1/4, first worker": {
        "0.5.7": ("EAGLE3", 3, 1, 4, False, 48, True),
        "0.5.17": ("EAGLE3", 3, 1, 4, False, 48, False),
    },
    "3/1/8": {
        "0.5.7": ("EAGLE3", 3, 1, 4, False, 48, True),
        "0.5.12": ("EAGLE3", 3, 1, 4, False, 48, False),
    },
    "3/1/4, 250 requests": {
        "0.5.7": ("EAGLE3", 3, 1, 4, False, 250, True),
        "0.5.12": ("EAGLE3", 3, 1, 4, False, 250, False),
    },
    "no numbers": {
        "0.5.7": ("EAGLE3", 5, 4, 8, False, 48, True),
        "0.5.12": ("EAGLE3", 5, 4, 8, False, 48, False),
    },
    "no numbers, second worker": {"0.5.7": ("EAGLE3", 5, 4, 8, False, 48, False)},
    "5/4/8": {
        "0.5.7": ("EAGLE3", 5, 4, 8, False, 48, True),
        "0.5.17": ("EAGLE3", 5, 4, 8, False, 48, False),
    },
    "5/4/8, second worker": {
        "0.5.7": "ValueError: Spec v2 currently only supports topk = 1 for speculative decoding.",
        "0.5.12": ("EAGLE3", 5, 4, 8, False, 48, True),
        "0.5.17": ("EAGLE3", 5, 4, 8, False, 48, False),
    },
    "steps alone": {"0.5.7": "TypeError: '>' not supported between instances of 'NoneType' and 'int'"},
    "topk alone": {"0.5.7": "AssertionError"},
    "tokens alone": {"0.5.7": "AssertionError"},
    "steps and topk": {
        "0.5.7": ("EAGLE3", 3, 1, 4, False, 48, True),
        "0.5.12": ("EAGLE3", 3, 1, 4, False, 48, False),
    },
    "no draft model": {
        "0.5.7": ("EAGLE3", 3, 1, 4, False, 48, True),
        "0.5.12": ("EAGLE3", 3, 1, 4, False, 48, False),
    },
    "no algorithm": {"0.5.7": (None, 3, None, None, False, None, False)},
    "lower case": {
        "0.5.7": "argument --speculative-algorithm: invalid choice: 'eagle3'",
        "0.5.12": ("EAGLE3", 3, 1, 4, False, 48, False),
    },
    "NEXTN": {
        "0.5.7": ("EAGLE", 3, 1, 4, False, 48, True),
        "0.5.12": ("EAGLE", 3, 1, 4, False, 48, False),
    },
    "EAGLE": {
        "0.5.7": ("EAGLE", 3, 1, 4, False, 48, True),
        "0.5.12": ("EAGLE", 3, 1, 4, False, 48, False),
    },
    "STANDALONE": {
        "0.5.7": ("STANDALONE", 3, 1, 4, False, 48, True),
        "0.5.12": ("STANDALONE", 3, 1, 4, False, 48, False),
    },
    "FOO": {
        "0.5.7": "argument --speculative-algorithm: invalid choice: 'FOO'",
        "0.5.12": "ValueError: Unknown speculative algorithm name: FOO",
    },
    "adaptive": {
        "0.5.7": "unrecognized arguments: --speculative-adaptive",
        "0.5.12": ("EAGLE3", 5, 4, 8, False, 48, False),
        "0.5.17": ("EAGLE3", 3, 1, 4, True, 48, False),
    },
    "adaptive 3/1/4": {
        "0.5.7": "unrecognized arguments: --speculative-adaptive",
        "0.5.12": ("EAGLE3", 3, 1, 4, True, 48, False),
    },
    "adaptive 5/4/8": {
        "0.5.7": "unrecognized arguments: --speculative-adaptive",
        "0.5.12": ("EAGLE3", 5, 4, 8, False, 48, True),
        "0.5.17": ("EAGLE3", 5, 4, 8, False, 48, False),
    },
    "adaptive 4/1/5": {
        "0.5.7": "unrecognized arguments: --speculative-adaptive",
        "0.5.12": ("EAGLE3", 4, 1, 5, True, 48, False),
        "0.5.17": f"{NOT_A_CANDIDATE} [0, 1, 3, 7].",
        "0.5.23": f"{NOT_A_CANDIDATE} [0, 1, 3, 5, 7].",
    },
    "adaptive STANDALONE": {
        "0.5.7": "unrecognized arguments: --speculative-adaptive",
        "0.5.12": ("STANDALONE", 3, 1, 4, False, 48, False),
    },
    "NGRAM": {
        "0.5.7": ("NGRAM", None, 10, 12, False, 48, True),
        "0.5.17": ("NGRAM", 1, 10, 12, False, 48, False),
    },
    "NGRAM 8 tokens": {
        "0.5.7": ("NGRAM", None, 10, 8, False, 48, True),
        "0.5.17": ("NGRAM", 0, 10, 8, False, 48, False),
    },
    "DFLASH": {
        "0.5.7": "argument --speculative-algorithm: invalid choice: 'DFLASH'",
        "0.5.12": ("DFLASH", 1, 1, 16, False, 48, True),
        "0.5.17": ("DFLASH", 1, 1, 16, False, 48, False),
    },
    "DSPARK": {
        "0.5.7": "argument --speculative-algorithm: invalid choice: 'DSPARK'",
        "0.5.12": "ValueError: Unknown speculative algorithm name: DSPARK",
        "0.5.17": ("DSPARK", 1, 1, 8, False, 48, False),
    },
    "UNO": {
        "0.5.7": "argument --speculative-algorithm: invalid choice: 'UNO'",
        "0.5.12": "ValueError: Unknown speculative algorithm name: UNO",
        "0.5.23": "ValueError: UNO requires --uno-lora-path.",
    },
    "no overlap": {"0.5.7": ("EAGLE3", 3, 1, 4, False, 48, True)},
    "no overlap, second worker": {
        "0.5.7": ("EAGLE3", 3, 1, 4, False, 48, False),
        "0.5.12": ("EAGLE3", 3, 1, 4, False, 48, True),
    },
    "weights cache": {
        "0.5.7": "unrecognized arguments: --weight-cache-mode client",
        "0.5.17": "ValueError: --weight-cache-mode is not supported together with speculative decoding",
    },
    "two pipeline stages": {
        "0.5.7": NO_PIPELINE,
        "0.5.23": "AssertionError: Pipeline parallelism currently only supports EAGLE",
    },
    "DP attention": {
        "0.5.7": ("EAGLE3", 3, 1, 4, False, 48, True),
        "0.5.12": ("EAGLE3", 3, 1, 4, False, 48, False),
    },
    "NGRAM with DP attention": {
        "0.5.7": "ValueError: Currently ngram speculative decoding does not support dp attention."
    },
    "colon in the name": {"0.5.7": "AssertionError: served_model_name cannot contain a colon (':') character."},
    "abbreviated": {
        "0.5.7": ("EAGLE3", 3, 1, 4, False, 48, True),
        "0.5.12": ("EAGLE3", 3, 1, 4, False, 48, False),
    },
    "unknown option": {"0.5.7": "unrecognized arguments: --no-such-option"},
    "option of the future": {
        "0.5.7": "unrecognized arguments: --speculative-draft-kv-cache-dtype auto",
        "0.5.23": ("EAGLE3", 3, 1, 4, False, 48, False),
    },
    "no such model": {"0.5.7": "OSError: "},
}


def expected(name: str, release: tuple[int, ...]) -> Accepted | Refused:
    """What a release makes of a case."""
    results = EXPECTED[name]
    return results[max((since for since in results if numbers(since) <= release), key=numbers)]
