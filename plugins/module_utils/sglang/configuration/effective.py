# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server will really run with, and where that differs from what was asked."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import (
    Settings,
    requested_fields,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculation import (
    implied_draft_tokens,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_info

_NAME = "adjusted"
_SCALARS = (str, int, float, bool, type(None))

# SGLang derives these from the GPUs: found without a GPU, they say nothing about the real start.
_FROM_HARDWARE = frozenset(
    [
        "attention_backend",
        "chunked_prefill_size",
        "cuda_graph_bs",
        "cuda_graph_max_bs",
        "decode_attention_backend",
        "device",
        "grammar_backend",
        "kv_cache_dtype",
        "max_prefill_tokens",
        "mem_fraction_static",
        "moe_runner_backend",
        "page_size",
        "prefill_attention_backend",
        "sampling_backend",
        "speculative_draft_attention_backend",
    ]
)
# Each start gets others.
_PER_START = frozenset(["random_seed", "nccl_port", "dist_init_addr", "launch_command"])
# SGLang's own names for what was asked under another name.
_RENAMED = {("speculative_algorithm", "NEXTN"): "EAGLE"}
# Values that SGLang turns into something that means just that.
_MEANS = {("speculative_draft_model_quantization", "unquant"): None}
# Flags that SGLang drops with nothing but a line in its log, although they were the point.
_MUST_STAY = frozenset(
    ["speculative_adaptive", "speculative_use_block_verification", "speculative_use_rejection_sampling"]
)


def effective_from_parser(
    fields: Mapping[str, Any], requested: Mapping[str, Any], assumed_device: bool
) -> Dict[str, Any]:
    """The parser's result as plain values, without secrets and without what differs from start to start.

    assumed_device: no GPU was visible to the parser, so what it derived from one is left out.
    """
    dropped = (_PER_START | _FROM_HARDWARE if assumed_device else _PER_START) - set(requested)
    plain = {name: value for name, value in redact_info(fields).items() if name not in dropped and _is_plain(value)}
    return dict(sorted(plain.items()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, _SCALARS) for item in value)
    return isinstance(value, _SCALARS)


def effective_without_parser(settings: Settings) -> Dict[str, Any]:
    """What can be known without SGLang: the request, and the adjustments that every version makes."""
    fields = requested_fields(settings)
    for (name, asked), becomes in _RENAMED.items():
        if fields.get(name) == asked:
            fields[name] = becomes
    tokens = implied_draft_tokens(settings)
    if tokens is not None and settings.speculative_algorithm is not None:
        fields["speculative_num_draft_tokens"] = tokens
    return dict(sorted(fields.items()))


def adjusted_fields(requested: Mapping[str, Any], effective: Mapping[str, Any]) -> Dict[str, Dict[str, Any]]:
    """The fields that differ, where both sides know them: {field: {requested, effective}}."""
    return {
        name: {"requested": value, "effective": effective[name]}
        for name, value in sorted(requested.items())
        if name in effective
        and not same_value(value, effective[name])
        and not means(name, value, effective[name])
        and not moved(name, value, effective)
    }


def moved(name: str, asked: Any, effective: Mapping[str, Any]) -> bool:
    """Whether a value stands in another field now: with attention-DP newer versions have dp_size in attn_dp_size."""
    return name == "dp_size" and effective.get(name) == 1 and effective.get("attn_dp_size") == asked


def means(name: str, asked: Any, got: Any) -> bool:
    """Whether SGLang turned a value into another one that means just that."""
    return isinstance(asked, str) and (name, asked) in _MEANS and _MEANS[name, asked] == got


def same_value(asked: Any, got: Any) -> bool:
    """Whether two values are the same to SGLang, which may read "0.80" as 0.8 and one word as a list of one."""
    if asked == got:
        return True
    if isinstance(asked, bool) or isinstance(got, bool):
        return False
    if isinstance(got, list):
        words = asked if isinstance(asked, list) else [asked]
        return len(words) == len(got) and all(same_value(a, b) for a, b in zip(words, got))
    try:
        return float(asked) == float(got)
    except (TypeError, ValueError):
        return str(asked) == str(got)


def check_adjusted(adjusted: Mapping[str, Mapping[str, Any]]) -> List[Check]:
    """One entry for each field: speculation that gets lost is an error, everything else worth knowing."""
    found = []
    for name, values in adjusted.items():
        asked, got = values["requested"], values["effective"]
        if name == "speculative_algorithm" and not (asked and got):
            found.append(
                failed(_NAME, f"SGLang would run with speculative_algorithm {got} although {asked} was asked for.")
            )
        elif name in _MUST_STAY and asked is True and not got:
            found.append(
                failed(
                    _NAME, f"SGLang would switch {name} off in this configuration: remove it, or what is against it."
                )
            )
        else:
            found.append(warning(_NAME, f"SGLang changes {name} from {asked} to {got}."))
    return found
