# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a router's list says of one worker, and what of it makes the same worker again: pure.

Two dialects: sglang-router 0.3 has model_id and metadata, the SGLang Model Gateway (smg) has models, labels and a
status.  What a router does not know in a new worker it ignores, so that the words of one do no harm to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.places import (
    Place,
    parse_place,
    without_rank,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

# What a worker is at the moment, or is called by this router, or what the router finds out by itself.
_OF_THE_MOMENT = frozenset(("id", "url", "is_healthy", "status", "load", "job_status", "api_key", "connection_mode"))
# A later release may have more single values that somebody gave a worker; of larger ones these are known to be so.
_GIVEN = frozenset(("health", "http_pool", "resilience"))
# Of each rank; the router makes the ranks anew from what the server says.
_OF_THE_RANK = frozenset(("dp_base_url", "dp_rank", "dp_size"))
# Labels that a router reads from the server itself.  A new server may answer them otherwise.
_DISCOVERED = frozenset(
    (
        *("model_id", "model_path", "served_model_name", "model_type", "architectures", "tokenizer_path"),
        *("tp_size", "dp_size", "pp_size", "cp_size", "load_balance_method", "disaggregation_mode", "version"),
        *("enable_dp_attention",),
        *("is_embedding", "is_generation", "has_image_understanding", "has_audio_understanding", "supports_vision"),
        *("context_length", "max_context_length", "max_model_len", "max_seq_len", "max_total_tokens"),
        *("max_batch_size", "max_prefill_tokens", "max_running_requests", "max_num_reqs", "max_req_input_len"),
        *("weight_version", "id2label_json", "num_labels", "vocab_size", "eos_token_ids", "pad_token_id"),
        *("bos_token_id", "preferred_sampling_params", "default_sampling_params_json"),
        # sglang-router has the two among the labels as well.
        *("priority", "cost"),
    )
)
_NAMES_A_MODEL = ("served_model_name", "model_id", "model_path")
_UNKNOWN_MODEL = "unknown"
# Of what somebody else has put there, for a message (characters).
_LONGEST = 200


@dataclass(frozen=True)
class Worker:
    """One entry of a router's list.

    url is as the router has it, without a rank; model is "" where the router names none; kind is regular,
    prefill or decode; draining: it gets no more requests and will be gone soon.
    """

    id: str
    url: str
    place: Place
    model: str
    kind: str
    healthy: bool
    draining: bool
    row: Mapping[str, Any]

    @property
    def fixed(self) -> bool:
        """Whether its router does not take it out: sglang-router 0.3 accepts that for a rank, and then fails."""
        return self.place.rank is not None and "status" not in self.row

    @property
    def group(self) -> Tuple[str, str]:
        """Workers that can stand in for each other."""
        return self.model, self.kind


def parse_worker(row: Any) -> Worker:
    """One element of a router's list.  Raises ValueError saying what is wrong with it."""
    if not isinstance(row, Mapping) or not isinstance(row.get("id"), str) or not isinstance(row.get("url"), str):
        raise ValueError("an entry has no id or no url")
    try:
        place = parse_place(row["url"])
    except ValueError:  # somebody else's, whatever it is
        place = Place("", visible(row["url"], _LONGEST), 0)
    status = str(row.get("status") or "").lower()
    draining = status == "draining"
    return Worker(
        id=row["id"],
        url=visible(without_rank(row["url"]), _LONGEST),
        place=place,
        model=_model(row),
        kind=str(row.get("worker_type") or "regular").lower(),
        healthy=row.get("is_healthy") is True and not draining,
        draining=draining,
        row=row,
    )


def _model(row: Mapping[str, Any]) -> str:
    model = row.get("model_id")
    if not model:
        models = _models(row)
        model = models[0].get("id") if models else ""
    return "" if model in (None, _UNKNOWN_MODEL) else visible(str(model), _LONGEST)


def _models(row: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    models = row.get("models")
    return [model for model in models if isinstance(model, Mapping)] if isinstance(models, list) else []


def attributes_of(row: Mapping[str, Any]) -> Dict[str, Any]:
    """What of an entry makes the same worker again, as a router takes it in.

    All but what holds for the moment, and what the router has read from the server: it will read that again,
    from a server that may run with something else.
    """
    labels = _labels(row)
    found = {
        name: value
        for name, value in row.items()
        if name not in _OF_THE_MOMENT | _OF_THE_RANK | {"model_id"}
        and (name in _GIVEN or isinstance(value, (str, int, float)))
        and value not in ("", {})
    }
    own = {name: value for name, value in labels.items() if name not in _DISCOVERED}
    if own:
        found["labels"] = own
    discovered = {labels[name] for name in _NAMES_A_MODEL if labels.get(name)}
    models = _models(row)
    if models and not (len(models) == 1 and models[0].get("id") in discovered and not models[0].get("aliases")):
        found["models"] = [dict(model) for model in models]
    model = _model(row)
    if model and model not in discovered and "models" not in row:
        found["model_id"] = model
    if "runtime_type" in found and "models" not in row and "labels" not in row:
        # sglang-router calls it so where it takes it in.
        found["runtime"] = found.pop("runtime_type")
    return found


def _labels(row: Mapping[str, Any]) -> Dict[str, str]:
    for name in ("labels", "metadata"):
        labels = row.get(name)
        if isinstance(labels, Mapping):
            return {str(key): str(value) for key, value in labels.items()}
    return {}


def payload(url: str, attributes: Mapping[str, Any], more: Mapping[str, Any], api_key: Optional[str]) -> Dict[str, Any]:
    """A new worker for a router.  more wins over attributes; labels of both count."""
    made = {**attributes, **more, "url": url}
    labels = {**(attributes.get("labels") or {}), **(more.get("labels") or {})}
    if labels:
        made["labels"] = {str(name): str(value) for name, value in labels.items()}
    if api_key:
        made["api_key"] = api_key
    return made
