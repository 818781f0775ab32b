# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which settings of a running server are compared with what was asked for."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence

# What is compared unless the caller says otherwise, by SGLang's own names.
COMPARED = (
    "model_path",
    "served_model_name",
    "tp_size",
    "pp_size",
    "dp_size",
    "context_length",
    "quantization",
    "max_running_requests",
    "disable_overlap_schedule",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_draft_model_quantization",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_adaptive",
    "speculative_adaptive_config",
    "speculative_attention_mode",
    "speculative_accept_threshold_single",
    "speculative_accept_threshold_acc",
    "speculative_token_map",
    "enable_multi_layer_eagle",
)


def effective_of(info: Mapping[str, Any], fields: Sequence[str]) -> Dict[str, Any]:
    """The fields as the server reports them, sorted by name."""
    return {name: info[name] for name in sorted(set(fields)) if name in info}
