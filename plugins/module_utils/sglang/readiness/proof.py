# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a running server does what was asked of it: pure comparisons, no I/O.

SGLang changes, ignores or drops settings with no more than a line in its log.  So the configuration is
read back from the server, and that it speculates is taken from what it says about real generations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.compared import COMPARED
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.effective import means, moved
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    SPEC_V2,
    is_off,
    version_tuple,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.readiness import Generation
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible, visible_value

# Of a value of a server, in messages and results (characters).
_LONGEST_VALUE = 300
_LONGEST_NUMBER = 40
# In place of names: everything that is expected.
ALL_FIELDS = "all"
# SGLang may still correct these while it starts, as it sees the GPUs and the model: worth knowing, and no failure.
_CORRECTED_AT_START = frozenset(["mem_fraction_static"])
# Each start and each host has its own, or SGLang derives it from the GPUs: compared only where it was asked for.
_NOT_COMPARABLE = frozenset(
    [
        "attention_backend",
        "chunked_prefill_size",
        "config",
        "cuda_graph_bs",
        "cuda_graph_config",
        "cuda_graph_max_bs",
        "decode_attention_backend",
        "device",
        "dist_init_addr",
        "grammar_backend",
        "kv_cache_dtype",
        "max_prefill_tokens",
        "mem_fraction_static",
        "moe_runner_backend",
        "nccl_port",
        "page_size",
        "prefill_attention_backend",
        "random_seed",
        "sampling_backend",
        "speculative_draft_attention_backend",
    ]
)

# A server that does not report one of these although it was set cannot be proven right.
_INDISPENSABLE = frozenset(
    [
        "model_path",
        "speculative_algorithm",
        "speculative_draft_model_path",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_adaptive",
    ]
)
# SGLang stores the second under the first's name.
_ALGORITHM_ALIASES = {"NEXTN": "EAGLE"}
# Algorithms whose worker exists, or existed, in two kinds.
_TWO_WORKERS = frozenset(["EAGLE", "EAGLE3", "STANDALONE"])
# Where SGLang has turned the adaptive mode off; it says so in its log and nowhere else.
_ADAPTIVE_OFF = "speculative_adaptive disabled"
_TURNED_OFF = "SGLang turned it off"
# It finds its drafts in what was generated before.
_WITHOUT_DRAFT_MODEL = "NGRAM"
# From this version on there is only the newer kind.
_ONE_WORKER_SINCE = (0, 5, 13)

# Natural text: on random tokens no draft model is any good.
PROMPTS = (
    "Question: Why does the sky look blue during the day and red at sunset? Answer:",
    "The following is a short introduction to how a bicycle works, written for children.\n\n",
    'def fibonacci(n):\n    """Return the first n Fibonacci numbers as a list."""\n',
)
# For the sample after the soak: other texts, whose beginning is in no cache yet.
PROMPTS_AGAIN = (
    "Question: How do vaccines teach the body to fight a disease? Answer:",
    "The following paragraph describes how bread is baked, for a cookery book.\n\n",
    'def count_words(text):\n    """Return how often each word occurs in the text, as a dict."""\n',
)


@dataclass(frozen=True)
class Mismatch:
    """A field whose value is not the expected one; actual is None also where the server does not report it."""

    field: str
    expected: Any
    actual: Any
    note: str = ""

    def to_dict(self) -> Dict[str, Any]:
        """As it is returned by the module."""
        # What a server reports may be anything.
        actual = visible_value(self.actual, _LONGEST_VALUE)
        return {"field": self.field, "expected": self.expected, "actual": actual, "note": self.note}

    def message(self) -> str:
        """As a part of a sentence."""
        text = "%s is %s instead of %s" % (self.field, _shown(self.actual), _shown(self.expected))
        return "%s (%s)" % (text, self.note) if self.note else text


def _shown(value: Any) -> str:
    return "unset" if value is None else visible(str(value), _LONGEST_VALUE)


# -- comparing


def algorithm_of(config: Mapping[str, Any]) -> Optional[str]:
    """The speculative algorithm of a configuration under its stored name; None for no speculation."""
    value = config.get("speculative_algorithm")
    if value is None or str(value).strip().lower() in ("", "none", "null"):
        return None
    name = str(value).strip().upper()
    return _ALGORITHM_ALIASES.get(name, name)


def same(name: str, expected: Any, actual: Any) -> bool:
    """Whether two values of a field mean the same to SGLang."""
    if name == "speculative_algorithm":
        return algorithm_of({name: expected}) == algorithm_of({name: actual})
    return bool(_canonical(name, expected) == _canonical(name, actual))


def _canonical(name: str, value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip()
        lowered = text.lower()
        if lowered in ("", "none", "null"):
            return None
        if lowered in ("true", "false"):
            return lowered == "true"
        # The length first: of a million digits the pattern would need hours to see that they are no number.
        if len(lowered) <= _LONGEST_NUMBER and re.fullmatch(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", lowered):
            return float(text)
        if name.endswith(("_path", "_config", "_map")) or name in ("model", "served_model_name"):
            return text.rstrip("/") or "/"
        return text
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, (list, tuple)):
        items = [_canonical(name, item) for item in value]
        return items[0] if len(items) == 1 else items
    return value


def compare(expected: Mapping[str, Any], reported: Mapping[str, Any], fields: Sequence[str]) -> List[Mismatch]:
    """The fields in which the server differs from what is expected, in the order of `fields`.

    A field that is expected to be unset says "whatever SGLang chooses", with one exception:
    speculative_algorithm, because a baseline that speculates is no baseline.  A field that the server
    does not report is left out, unless it is indispensable.
    """
    found = []
    for name in fields:
        if name not in expected:
            continue
        wanted = expected[name]
        if _canonical(name, wanted) is None and name != "speculative_algorithm":
            continue
        if name not in reported:
            # Versions before adaptive speculation do not know the field: that is off.
            off = wanted is False or (name == "speculative_algorithm" and algorithm_of(expected) is None)
            if name in _INDISPENSABLE and not off:
                found.append(Mismatch(name, wanted, None, "the server does not report it"))
            continue
        actual = reported[name]
        if wanted is False and actual is None:
            continue
        # Without its parser nobody knows beforehand what SGLang makes of these.
        if moved(name, wanted, reported) or means(name, wanted, actual):
            continue
        if not same(name, wanted, actual):
            found.append(Mismatch(name, wanted, actual, _explanation(name, wanted, actual)))
    return found


def fields_to_compare(
    chosen: Optional[Sequence[str]], requested: Mapping[str, Any], expected: Mapping[str, Any]
) -> List[str]:
    """The fields that are compared: the chosen ones, or the usual ones, and always all that were asked for."""
    names = list(COMPARED) if chosen is None else list(chosen)
    if ALL_FIELDS in names:
        names = [name for name in names if name != ALL_FIELDS]
        names += [name for name in expected if name not in _NOT_COMPARABLE]
    names += sorted(requested)
    return list(dict.fromkeys(names))


def explained_by_log(found: Sequence[Mismatch], lines: Sequence[str]) -> List[Mismatch]:
    """The mismatches, and with an adaptive mode that SGLang turned off the line of its log that says why."""
    line = _line_with(_ADAPTIVE_OFF, lines)
    note = "the log says: %s" % line if line else "SGLang turned it off, and what is left of its log does not say why"
    return [replace(mismatch, note=note) if mismatch.note == _TURNED_OFF else mismatch for mismatch in found]


def tell_corrected(found: Sequence[Mismatch]) -> Tuple[List[Mismatch], List[str]]:
    """Take out what SGLang may correct by itself: the mismatches that are left, and sentences about the others."""
    left = [mismatch for mismatch in found if mismatch.field not in _CORRECTED_AT_START]
    told = ["SGLang corrected a setting while it started: %s." % m.message() for m in found if m not in left]
    return left, told


def _explanation(name: str, wanted: Any, actual: Any) -> str:
    if name == "speculative_algorithm":
        if algorithm_of({name: actual}) is None:
            return "the server serves without speculation"
        if algorithm_of({name: wanted}) is None:
            return "the server speculates although it must not"
    if name == "speculative_adaptive" and not actual:
        return _TURNED_OFF
    if name == "speculative_num_draft_tokens":
        return "with a top-k of 1 SGLang takes the number of steps plus 1"
    if name == "max_running_requests" and same(name, 48, actual):
        return "48 is SGLang's own limit for servers that speculate, where none is given"
    return ""


def adjusted_of(requested: Mapping[str, Any], effective: Mapping[str, Any]) -> Dict[str, Dict[str, Any]]:
    """What was asked for and came out otherwise: {field: {requested, effective}}."""
    return {
        name: {"requested": value, "effective": effective[name]}
        for name, value in sorted(requested.items())
        if name in effective
        and (value is not None or name == "speculative_algorithm")
        and not same(name, value, effective[name])
        and not (value is False and effective[name] is None)
        and not means(name, value, effective[name])
        and not moved(name, value, effective)
    }


def capacity_warnings(info: Mapping[str, Any]) -> List[str]:
    """Where the memory allows fewer concurrent requests than the server was configured for."""
    configured = _count(info.get("max_running_requests"))
    states = info.get("internal_states")
    if not configured or not isinstance(states, list):
        return []
    counts = [_count(state.get("effective_max_running_requests_per_dp")) for state in states if isinstance(state, dict)]
    counts = [count for count in counts if count]
    if not counts:
        return []
    # With attention-DP the configured number is split over the workers, which are listed one by one.
    ways = _count(info.get("attn_dp_size") or (info.get("dp_size") if info.get("enable_dp_attention") else 1)) or 1
    possible = min(counts) * ways
    # Not divisible by the number of workers, a few get lost.
    if possible + ways > configured:
        return []
    return [
        "The server runs at most %d requests at a time although max_running_requests is %d: "
        "its memory does not suffice for more." % (possible, configured)
    ]


def _count(value: Any) -> int:
    """A positive whole number; 0 for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def worker_of(info: Mapping[str, Any]) -> str:
    """Which implementation of the draft worker runs: v1, v2, v2_synchronous, or "" where that is no question.

    Up to 0.5.12 a server has both and the overlap of scheduling decides; from 0.5.13 on there is only
    the newer one, driven synchronously where there is no overlap.
    """
    version = version_tuple(str(info.get("version") or ""))
    no_overlap = info.get("disable_overlap_schedule")
    if algorithm_of(info) not in _TWO_WORKERS or not version or not isinstance(no_overlap, bool):
        return ""
    if not no_overlap:
        return "v2"
    return "v1" if version < _ONE_WORKER_SINCE else "v2_synchronous"


def expected_worker(
    requested: Mapping[str, Any], effective: Mapping[str, Any], environment: Mapping[str, str], version: str
) -> str:
    """Which implementation of the draft worker was asked for (see worker_of), "" where nobody asked for one."""
    number = version_tuple(version)
    if algorithm_of(effective) not in _TWO_WORKERS or not number:
        return ""
    no_overlap = _canonical("disable_overlap_schedule", requested.get("disable_overlap_schedule")) is True
    if number >= _ONE_WORKER_SINCE:
        return "v2_synchronous" if no_overlap else ""
    if environment.get(SPEC_V2, "").strip():
        return "v1" if is_off(environment[SPEC_V2]) else "v2"
    return "v1" if no_overlap else ""


def judge_worker(expected: str, info: Mapping[str, Any]) -> List[Mismatch]:
    """Whether the worker that was asked for runs: one mismatch, or none."""
    actual = worker_of(info)
    if not expected or not actual or actual == expected:
        return []
    note = "the overlap of scheduling decides which one runs, and the version which ones there are; the log says why"
    return [Mismatch("worker", expected, actual, note)]


# -- speculation


@dataclass(frozen=True)
class Speculation:
    """What the generations show.

    accept_length is tokens per verification, the one that the target model adds included, so that 1.0
    means that no draft token was accepted; None where nothing was verified.  problem is a code, ""
    where all is well.
    """

    accept_length: Optional[float]
    verify_count: int
    tokens: int
    problem: str = ""
    message: str = ""


def judge_speculation(
    algorithm: Optional[str], generations: Sequence[Generation], min_accept_length: float
) -> Speculation:
    """Whether the generations were speculative as they should, with enough accepted."""
    counts = [_count(generation.meta_info.get("spec_verify_ct")) for generation in generations]
    tokens = sum(generation.completion_tokens for generation in generations)
    verified = sum(counts)
    length = round(tokens / verified, 4) if verified else None
    if algorithm is None:
        if not verified:
            return Speculation(None, 0, tokens)
        return Speculation(
            length,
            verified,
            tokens,
            "unexpected_speculation",
            "The server verified draft tokens %d times although it must not speculate." % verified,
        )
    silent = counts.count(0)
    if silent or length is None:
        return Speculation(
            length,
            verified,
            tokens,
            "no_speculation",
            "The server reports %s, but in %d of %d generations it did not verify a single draft token. "
            "See its log for why speculation is off." % (algorithm, silent, len(generations)),
        )
    if length < min_accept_length:
        return Speculation(
            length,
            verified,
            tokens,
            "low_acceptance",
            "The server accepts too little: %.2f tokens per verification; min_accept_length demands %.4g (1.0 means "
            "that no draft token was accepted). Most likely the draft model was not trained for this target, or its "
            "hidden layers are wired wrongly." % (length, min_accept_length),
        )
    return Speculation(length, verified, tokens)


def excuse(problem: str, info: Mapping[str, Any], others: int) -> str:
    """Why a problem of judge_speculation says nothing about the configuration: a sentence, "" where it does.

    others is how many requests of others the server has.
    """
    if problem == "low_acceptance" and algorithm_of(info) == _WITHOUT_DRAFT_MODEL:
        return "NGRAM has no draft model that could be the wrong one: what it accepts depends on the texts alone."
    if problem in ("low_acceptance", "no_speculation") and info.get("speculative_adaptive") is True and others:
        return (
            "It has %d other requests, and adaptive speculation drafts less under load, or nothing: only on an idle "
            "server this would be a failure." % others
        )
    return ""


# -- the log

_LOG_WARNINGS: Tuple[Tuple[str, str], ...] = (
    (_ADAPTIVE_OFF, "SGLang turned adaptive speculation off"),
    ("Spec v1 is used", "SGLang runs the older speculative worker, without overlap"),
    ("SGLANG_ENABLE_SPEC_V2 has been removed", "SGLang ignores SGLANG_ENABLE_SPEC_V2: remove it from the environment"),
    ("Overlap scheduler is disabled", "SGLang does not overlap scheduling and generating"),
    ("Non-overlap (synchronous) spec v2 is used", "SGLang drives the speculative worker synchronously"),
)


def log_warnings(lines: Sequence[str]) -> List[str]:
    """What the log of the start says about settings that were dropped; each once, with its line."""
    found = []
    for text, meaning in _LOG_WARNINGS:
        line = _line_with(text, lines)
        if line:
            found.append("%s. Its log says: %s" % (meaning, line))
    return found


def dropped_in_log(lines: Sequence[str], requested: Mapping[str, Any], worker: str) -> List[Mismatch]:
    """Settings that were asked for and that the log says were dropped, whatever the server reports.

    worker is what expected_worker says.
    """
    found = []
    line = _line_with(_ADAPTIVE_OFF, lines)
    if line and _canonical("speculative_adaptive", requested.get("speculative_adaptive")) is True:
        found.append(Mismatch("speculative_adaptive", True, False, "the log says: %s" % line))
    line = _line_with("Spec v1 is used", lines)
    if line and worker == "v2":
        found.append(Mismatch("worker", "v2", "v1", "the log says: %s" % line))
    line = _line_with("spec v2 is used", [text for text in lines if "non-overlap" in text.lower()])
    if line and worker == "v2":
        found.append(Mismatch("worker", "v2", "v2_synchronous", "the log says: %s" % line))
    return found


def _line_with(text: str, lines: Sequence[str]) -> str:
    """The first line that holds a text in any case, "" where none does; SGLang's line of all arguments is none."""
    wanted = text.lower()
    line = next((line for line in lines if wanted in line.lower() and "server_args=" not in line), "")
    return line.strip()[:300]


def merge(first: Sequence[Mismatch], more: Sequence[Mismatch]) -> List[Mismatch]:
    """Both, with one mismatch for each field."""
    named = {mismatch.field for mismatch in first}
    return [*first, *(mismatch for mismatch in more if mismatch.field not in named)]


# -- the process


def command_differs(argv: Sequence[str], command: Sequence[str]) -> bool:
    """Whether a process was started by another command than the given one.

    The program itself is not compared: a script's first line puts its interpreter before it.
    """
    arguments = list(command[1:])
    return bool(arguments) and list(argv[-len(arguments) :]) != arguments
