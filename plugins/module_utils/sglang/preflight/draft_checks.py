# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a draft model takes over from the model that it drafts for: layers and quantization.

Wrong ones seldom stop a start before the warm-up, and some never: acceptance is then poor for no
visible reason.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.models_dir import Model

_NAME = "draft_fits_model"
_LAYERS = "eagle_aux_hidden_state_layer_ids"
# So many layers' states are laid side by side for the draft's first matrix, unless num_aux_hidden_states says else.
_USUAL_COUNT = 3


def check_aux_layers(algorithm: str, target: Model, draft: Model) -> List[Check]:
    """The target's layers whose states an EAGLE-3 draft is fed with, as its config.json names them."""
    layers = target.number("num_hidden_layers")
    if algorithm != "EAGLE3" or draft.config is None or layers is None:
        return []
    where, ids = _layer_ids(draft.config)
    if ids is None:
        return []
    text = f"The draft model's {where} is {ids}"
    count = draft.number("num_aux_hidden_states") or _USUAL_COUNT
    if not isinstance(ids, list) or not all(isinstance(n, int) and not isinstance(n, bool) for n in ids):
        return [failed(_NAME, f"{text}: it must be a list of numbers of layers.")]
    if where == _LAYERS and ids != _default_ids(layers):
        # SGLang reads it below eagle_config, and takes layers of its own choice where nothing is there.
        return [
            warning(
                _NAME,
                f"{text}, and SGLang reads {_LAYERS} only inside eagle_config: without it, most versions take "
                f"{_default_ids(layers)}, and acceptance is poor where the draft was trained with others. "
                "Move it into eagle_config of the draft's config.json.",
            ),
            *_range_problems(text, ids, layers, count, certain=False),
        ]
    return _range_problems(text, ids, layers, count, certain=where != _LAYERS)


def _layer_ids(config: Mapping[str, Any]) -> Tuple[str, Any]:
    inner = config.get("eagle_config")
    if isinstance(inner, Mapping):
        if inner.get("use_aux_hidden_state") is False:
            return "", None
        if inner.get(_LAYERS) is not None:
            return f"eagle_config.{_LAYERS}", inner[_LAYERS]
    return _LAYERS, config.get(_LAYERS)


def _default_ids(layers: int) -> List[int]:
    # SGLang takes the states before the layers 2, n/2 and n-3, that is, after the ones before these.
    return [1, layers // 2 - 1, layers - 4]


def _range_problems(text: str, ids: Sequence[int], layers: int, count: int, certain: bool) -> List[Check]:
    """SGLang takes the state in front of layer id + 1, and one that never comes is missing from the row.

    The first matrix of the draft then has the wrong width, and the server dies in its warm-up.
    """
    refuse = failed if certain else warning
    dies = "the server would die in its warm-up, for it is made for another model"
    outside = [n for n in ids if n < -1 or n >= layers]
    if outside:
        return [
            refuse(_NAME, f"{text}, and the model has the layers 0 to {layers - 1}: {outside[0]} is none, and {dies}.")
        ]
    if len(set(ids)) != len(ids):
        return [refuse(_NAME, f"{text}, which names a layer twice: it is taken once, and {dies}.")]
    if len(ids) != count:
        # Versions differ: some size the matrix by this list, some by num_aux_hidden_states, older ones by three.
        return [
            warning(_NAME, f"{text}, {len(ids)} layers, and its first matrix is for {count}: many versions would die.")
        ]
    edge = [n for n in ids if n in (-1, layers - 1)]
    if edge:
        # In front of the first layer and behind the last one, which not every model's class hands out.
        return [
            warning(_NAME, f"{text}: for many models SGLang cannot take the state at {edge[0]}, the edge of the model.")
        ]
    return []


def check_quantization(
    target: Model, draft: Model, target_option: Any, draft_option: Any, effective: Mapping[str, Any]
) -> List[Check]:
    """A draft model without a quantization of its own gets the target's, and may not load with it.

    The options are --quantization and --speculative-draft-model-quantization, None where not given;
    effective is what SGLang's parser made of them.
    """
    if draft.config is None or _method(draft) or draft_option is not None:
        return []
    name = "speculative_draft_model_quantization"
    inherited = effective.get(name, target_option)
    if inherited:
        return [
            warning(
                _NAME,
                f"The draft model is not quantized and inherits {inherited} from the model: set "
                "speculative_options.draft_model_quantization to unquant, and see that the running server reports it.",
            )
        ]
    if name not in effective and _method(target):
        return [
            warning(
                _NAME,
                f"The model is quantized ({_method(target)}) and the draft model is not: some versions of SGLang load "
                "the draft model with the model's quantization. Set speculative_options.draft_model_quantization to "
                "unquant.",
            )
        ]
    return []


def _method(model: Model) -> Optional[str]:
    found = model.value("quantization_config") or model.value("compression_config")
    if not isinstance(found, Mapping):
        return None
    return str(found.get("quant_method") or found.get("quant_algo") or "unnamed")
