# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is not the same for all configurations of a sweep, and what it makes incomparable."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis import words
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.inequality import (
    NOT_KNOWN,
    UNSET,
    different,
    told,
    values_of,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.limits import limits
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.measured import (
    REACHED,
    Configuration,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.shapes import Condition, Hosts
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.sweep import Sweep

# The outputs of a request may differ by so much in length.
_SAME_LENGTH = 0.05
_ALL = "nothing measured with them can be compared"
_LOAD = "throughput under load"
_OVERLAP = "disable_overlap_schedule"
_SIMULATED = "SGLANG_SIMULATE_ACC_LEN"

# Arguments of the server that change its speed: a name for people, and what a difference makes incomparable.
_ARGUMENTS: Tuple[Tuple[str, str], ...] = (
    ("model_path", _ALL),
    ("revision", _ALL),
    ("quantization", _ALL),
    ("dtype", _ALL),
    ("kv_cache_dtype", _ALL),
    ("tp_size", _ALL),
    ("pp_size", _ALL),
    ("ep_size", _ALL),
    ("dp_size", _LOAD),
    ("context_length", "long requests"),
    ("mem_fraction_static", _LOAD + ", as one has more room for requests than the other"),
    ("attention_backend", "all throughputs, as the kernels differ"),
    ("sampling_backend", "all throughputs, as the kernels differ"),
    ("chunked_prefill_size", "time to first token, and " + _LOAD),
    ("schedule_policy", "time to first token, and " + _LOAD),
    ("disable_radix_cache", "prefill, as one reuses prompts and the other does not"),
    ("disable_cuda_graph", _ALL),
    ("cuda_graph_max_bs", _LOAD + " above the smaller one"),
)
_HARDWARE = (
    ("gpu", "GPU", _ALL),
    ("count", "number of GPUs", _ALL),
    ("memory_total_mib", "memory of a GPU in MiB", _LOAD),
    ("driver", "driver", "small differences"),
)


def conditions(sweep: Sweep, hosts: Hosts) -> List[Condition]:
    """Every inequality as a warning."""
    measured = [one for one in sweep.configurations if one.points]
    found: List[Condition] = []
    if measured and not sweep.baselines:
        message = "No baseline was measured, so it is not known whether speculation pays."
        found.append({"what": "baseline", "values": {}, "message": message})
    found += limits(measured)
    found += different(
        "version", "The version of SGLang", measured, lambda one: one.version or NOT_KNOWN, "small differences"
    )
    for name, consequence in _ARGUMENTS:
        getter = _argument(name)
        if any(getter(one) != UNSET for one in measured):
            found += different(name, name, measured, getter, consequence)
    # The baseline overlaps anyway; of those that speculate older versions drive some with a worker that does not.
    speculating = [one for one in measured if one.algorithm]
    found += different(_OVERLAP, _OVERLAP, speculating, _argument(_OVERLAP), "their speedups, as the workers differ")
    for name, title, consequence in _HARDWARE:
        found += different(name, "The " + title, measured, _hardware(name), consequence)
    found += different("extra_args", "Extra arguments", measured, _extra, "what these arguments change")
    found += _environment(measured)
    found += _prompts(measured)
    found += _loops(sweep, measured)
    found += _repeats(measured)
    if hosts["alike"] is False or hosts["without_baseline"]:
        found.append({"what": "hosts", "values": {}, "message": hosts["message"]})
    return found


def _argument(name: str) -> Callable[[Configuration], str]:
    return lambda one: str(_known(one.effective.get(name), one.settings.get(name)))


def _known(*values: Any) -> Any:
    return next((value for value in values if value is not None), UNSET)


def _extra(one: Configuration) -> str:
    return " ".join(one.extra_args) or "none"


def _hardware(name: str) -> Callable[[Configuration], str]:
    return lambda one: str(one.hardware.get(name) or NOT_KNOWN)


def _variable(name: str) -> Callable[[Configuration], str]:
    return lambda one: str(one.environment.get(name, UNSET))


def _num_prompts(concurrency: int) -> Callable[[Configuration], str]:
    return lambda one: str(one.points[concurrency].num_prompts or NOT_KNOWN)


def _environment(measured: Sequence[Configuration]) -> List[Condition]:
    found: List[Condition] = []
    for name in sorted({name for one in measured for name in one.environment}):
        values = values_of(measured, _variable(name))
        if name == _SIMULATED:
            made_up = [one.label for one in measured if str(one.environment.get(name, "")) not in ("", "0", "-1")]
            if made_up:
                message = "%s is set for %s: acceptance is made up there, and so is all that was measured." % (
                    name,
                    words.names(made_up),
                )
                found.append({"what": name, "values": values, "message": message})
        elif len(values) > 1:
            message = "%s is not the same: %s. A speedup between these is also that of this variable." % (
                name,
                told(values),
            )
            found.append({"what": name, "values": values, "message": message})
    return found


def _prompts(measured: Sequence[Configuration]) -> List[Condition]:
    """Prompts, their number, and the length of the answers."""
    found: List[Condition] = []
    if any(one.prompts for one in measured):
        found += different("prompts", "The prompt file", measured, lambda one: one.prompts or NOT_KNOWN, _ALL)
    for concurrency in sorted({number for one in measured for number in one.points}):
        here = [one for one in measured if concurrency in one.points]
        title = "The number of prompts at concurrency %d" % concurrency
        found += different("num_prompts", title, here, _num_prompts(concurrency), "the points at this concurrency")
        lengths = {one.label: one.points[concurrency].output_tokens for one in here}
        known = {label: length for label, length in lengths.items() if length}
        if known and max(known.values()) > (1 + _SAME_LENGTH) * min(known.values()):
            values: Dict[str, List[str]] = {}
            for label, length in known.items():
                values.setdefault(words.number(length, 1), []).append(label)
            lengths_told = told({"%s tokens" % value: labels for value, labels in values.items()})
            message = (
                "Answers are not of the same length at concurrency %d: %s. This makes incomparable: latencies, and "
                "throughput in so far as prefill counts." % (concurrency, lengths_told)
            )
            found.append({"what": "output_length", "values": values, "message": message})
    return found


def _loops(sweep: Sweep, measured: Sequence[Configuration]) -> List[Condition]:
    """Points that did not reach the concurrency that was asked for."""
    found: List[Condition] = []
    for concurrency in sweep.concurrencies:
        values: Dict[str, List[str]] = {}
        for one in measured:
            point = one.points.get(concurrency)
            if point is not None and point.counts_as < concurrency:
                values.setdefault(words.number(point.counts_as, 1), []).append(one.label)
        if values:
            message = (
                "At concurrency %d fewer requests were open on average than asked for (below %d %%): %s. These points "
                "count at what was reached: give more prompts, or look whether requests waited."
                % (concurrency, round(100 * REACHED), told(values))
            )
            found.append({"what": "concurrency_not_reached", "values": values, "message": message})
    return found


def _repeats(measured: Sequence[Configuration]) -> List[Condition]:
    single = [one.label for one in measured if any(len(point.repeats) < 2 for point in one.points.values())]
    if not single:
        return []
    message = (
        "Some points of %s have a single repeat, so they have no interval, and only large differences are called so."
        % words.names(single)
    )
    values: Dict[str, List[Any]] = {"1": single}
    return [{"what": "repeats", "values": values, "message": message}]
