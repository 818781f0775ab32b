# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file for --speculative-adaptive-config, computed from what was measured.

SGLang reads from it, for each batch size, how many steps it may draft: it pads the running batch to the next size that
has a CUDA graph, and takes the entry of the largest batch size that is not above it.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    version_tuple,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculation import (
    DEFAULT_MAX_RUNNING_REQUESTS,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.choice import Stretch, choose
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.limits import limit
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import Configuration, whole
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import FASTER, AdaptiveConfig
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.step_groups import (
    step_groups,
    without_steps,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep

_ALGORITHMS = frozenset(["EAGLE", "EAGLE3", "NEXTN"])
_FIRST = (0, 5, 11)
# Before it there was one list of steps for all batch sizes, chosen from by acceptance alone.
_BATCH_SIZES = (0, 5, 13)
# Before it speculation could not be switched off.
_OFF = (0, 5, 14)
# With these SGLang switches adaptive speculation off, with a line in its log, or refuses the two together.
_SWITCHED_OFF_BY = (
    ("enable_dp_attention", "attention-DP"),
    ("enable_multi_layer_eagle", "multi-layer EAGLE"),
    ("enable_two_batch_overlap", "two-batch overlap"),
    ("enable_pdmux", "multiplexing of prefill and decode"),
    ("enable_lora", "LoRA"),
    ("enable_hisparse", "HiSparse"),
)
_FIXED = " Use the fixed configurations of the decision, each for its load."


def adaptive_config(sweep: Sweep) -> AdaptiveConfig:
    """The configuration, or why there is none."""
    group = _group(sweep)
    if group is None:
        return _none("It needs EAGLE, EAGLE3 or NEXTN with top-k 1 and a known number of steps, and none was measured.")
    reference = without_steps(sweep, group)
    if reference is None:
        return _none("No baseline was measured, so it is not known where speculation should be off.")
    version = version_tuple(group[0].version)
    refusal = _refusal(group, version)
    if refusal:
        return _none(refusal)
    can_be_off = version >= _OFF
    stretches = choose(sweep, [reference, *group] if can_be_off else group)
    steps = [stretch.choice.num_steps or 0 for stretch in stretches]
    positive = [one for one in steps if one]
    if not positive:
        return _none("Speculation is not shown to pay at any measured concurrency: use %s." % reference.label)
    if len(set(steps)) == 1:
        return _none(
            "%s %s right at every measured concurrency: use %s as it is."
            % (words.steps(steps[0]).capitalize(), "is" if steps[0] == 1 else "are", stretches[0].choice.label)
        )
    return _computed(group, stretches, can_be_off, reference)


def _none(reason: str) -> AdaptiveConfig:
    return {
        "config": None,
        "num_steps": None,
        "eagle_topk": None,
        "num_draft_tokens": None,
        "max_running_requests": None,
        "configurations": [],
        "base": None,
        "reason": reason,
    }


def _group(sweep: Sweep) -> Optional[List[Configuration]]:
    """Of the configurations with one draft and other settings alike those with the best speedup."""
    found = [group for group in step_groups(sweep) if group[0].topk == 1 and group[0].algorithm in _ALGORITHMS]
    return max(found, key=lambda group: (_best(sweep, group), len(group)), default=None)


def _best(sweep: Sweep, group: Sequence[Configuration]) -> float:
    best = -math.inf
    for one in group:
        reference = sweep.reference(one)
        for concurrency in one.points if reference else ():
            result = sweep.compare(one, reference, concurrency) if reference else None
            if result is not None and result.log is not None and result.verdict == FASTER:
                best = max(best, result.log)
    return best


def _refusal(group: Sequence[Configuration], version: Tuple[int, ...]) -> str:
    text = group[0].version
    if len({one.version for one in group}) > 1:
        return "%s were not measured with the same version of SGLang." % words.names([one.label for one in group])
    if not version:
        return "The version of SGLang is not known, and before 0.5.14 it cannot switch speculation off by load."
    if version < _FIRST:
        return "SGLang %s has no adaptive speculation: it came with 0.5.11, and 0 steps with 0.5.14." % text + _FIXED
    if version < _BATCH_SIZES:
        return (
            "SGLang %s adapts the steps to acceptance, not to the load: batch sizes came with 0.5.13, and 0 steps with "
            "0.5.14." % text + _FIXED
        )
    for one in group:
        for name, what in _SWITCHED_OFF_BY:
            if one.has(name):
                return "%s was measured with %s, with which SGLang switches adaptive speculation off." % (
                    one.label,
                    what,
                )
        if (whole(one.value("attn_dp_size")) or 1) > 1:
            return "%s was measured with attention-DP, with which SGLang switches adaptive speculation off." % one.label
        if (whole(one.value("pp_size")) or 1) > 1:
            return (
                "%s was measured with pipeline parallelism, which SGLang refuses with adaptive speculation." % one.label
            )
    return ""


def _computed(
    group: Sequence[Configuration], stretches: Sequence[Stretch], can_be_off: bool, reference: Configuration
) -> AdaptiveConfig:
    base = next(stretch.choice for stretch in stretches if stretch.choice.num_steps)
    replicas = whole(base.value("dp_size")) or 1
    sizes = _graph_sizes(base)
    keys: List[Tuple[int, int]] = [(1, stretches[0].choice.num_steps or 0)]
    coarse: List[int] = []
    for before, stretch in zip(stretches, stretches[1:]):
        below = math.ceil(before.concurrencies[-1] / replicas)
        key = max(math.ceil(stretch.first / replicas), _padded(below, sizes) + 1, keys[-1][0] + 1)
        if key > math.ceil(stretch.concurrencies[0] / replicas):
            coarse.append(key)
        keys.append((key, stretch.choice.num_steps or 0))
    config: Dict[str, Dict[str, List[int]]] = {str(key): {"candidate_steps": [steps]} for key, steps in keys}
    largest = keys[-1][0] * replicas
    known = limit(base)
    needed = max(known or stretches[-1].last, largest)
    return {
        "config": config,
        "num_steps": base.num_steps,
        "eagle_topk": 1,
        "num_draft_tokens": (base.num_steps or 0) + 1,
        "max_running_requests": needed,
        "configurations": [one.label for one in (reference, *group)] if can_be_off else [one.label for one in group],
        "base": base.label,
        "reason": _reason(keys, needed, largest, known, coarse, can_be_off, reference, replicas),
    }


def _reason(
    keys: Sequence[Tuple[int, int]],
    needed: int,
    largest: int,
    known: Optional[int],
    coarse: Sequence[int],
    can_be_off: bool,
    reference: Configuration,
    replicas: int,
) -> str:
    parts = ["%s from a batch size of %d on" % (words.steps(steps), key) for key, steps in keys]
    text = ["%s." % ", then ".join(parts)]
    text.append(
        "Set max_running_requests to %d: below %d the last batch size never occurs, and unset it is %d%s."
        % (
            needed,
            largest,
            DEFAULT_MAX_RUNNING_REQUESTS,
            ", which is too few" if largest > DEFAULT_MAX_RUNNING_REQUESTS else "",
        )
    )
    if known is not None and known < largest:
        text.append("It was measured with %d, so larger batches did not run." % known)
    if replicas > 1:
        text.append("Batch sizes are those of one of %d replicas." % replicas)
    if coarse:
        text.append(
            "CUDA graphs are too few to switch where it was measured: the batch size %s is the next that works."
            % words.names([str(one) for one in coarse])
        )
    if not can_be_off:
        text.append(
            "This version cannot switch speculation off: where %s is faster, only another profile helps."
            % reference.label
        )
    return " ".join(text)


def _graph_sizes(one: Configuration) -> List[int]:
    """The batch sizes that have a CUDA graph, [] where they are not known."""
    for name in ("cuda_graph_bs_decode", "cuda_graph_bs"):
        given: Any = one.effective.get(name)
        if isinstance(given, list):
            sizes = [whole(size) for size in given]
            return sorted(size for size in sizes if size)
    return []


def _padded(batch: int, sizes: Sequence[int]) -> int:
    """The batch size that a batch runs as: larger ones than the largest graph are not padded."""
    return next((size for size in sizes if size >= batch), batch)
