# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How this server is to behave: how long things take, and what goes wrong.

Taken from ``standin.json`` in the model's folder, then from the one in the draft's folder when there is
speculation, then from environment variables ``STANDIN_<KEY>``; later ones win.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Dict, Optional

from sglang.srt.server_args import ServerArgs


@dataclasses.dataclass
class Behaviour:
    """All settings with their defaults. Times are in seconds, sizes in MiB per GPU."""

    # How long things take. The real server needs minutes for the first three and a second or more for each probe.
    import_seconds: float = 0.0
    load_seconds: float = 0.2
    warmup_seconds: float = 0.2
    health_seconds: float = 0.05
    drain_poll_seconds: float = 0.1
    graph_seconds: float = 0.0
    compile_seconds: float = 0.0
    shards: int = 4

    # How big and fast the model is.
    weights_mib: int = 8000
    draft_weights_mib: int = 500
    tokens_per_second: float = 1000.0
    saturation: float = 32.0
    draft_cost: float = 0.15

    # Speculation: the chance that a draft token is accepted, or the acceptance length itself.
    accept_probability: float = 0.8
    accept: Optional[float] = None

    # Faults while starting. The phases that crash_at and hang_at may name are in faults.py.
    crash_at: str = ""
    crash_message: str = "RuntimeError: CUDA error: an illegal memory access was encountered"
    hang_at: str = ""
    die_at_load: bool = False
    hang_at_load: bool = False
    graph_capture_failure: bool = False
    die_in_warmup: bool = False
    never_ready: bool = False
    warmup_polls: int = 3
    refuse_stale_segments: bool = False
    outlive_parent: bool = False
    orphan_seconds: float = 600.0

    # Faults while serving.
    unhealthy: bool = False
    fail_every: Optional[int] = None
    hang_after_requests: Optional[int] = None
    die_after_requests: Optional[int] = None
    ignore_term: bool = False
    slow_drain: float = 0.0
    unpin_seconds: float = 0.0
    diagnosis_seconds: float = 0.0

    # The running server differs from what was asked for.
    report_adaptive_false: bool = False
    adaptive_disabled_by: str = ""
    effective_override: Dict[str, Any] = dataclasses.field(default_factory=dict)


def load_behaviour(server_args: ServerArgs) -> Behaviour:
    """Collect the settings for a server. :raises ValueError: for a key that does not exist."""
    settings = _from_folder(server_args.model_path)
    if server_args.speculative_algorithm and server_args.speculative_draft_model_path:
        draft = _from_folder(server_args.speculative_draft_model_path)
        if "weights_mib" in draft:
            draft["draft_weights_mib"] = draft.pop("weights_mib")
        settings.update(draft)
    known = [field.name for field in dataclasses.fields(Behaviour)]
    for key in known:
        value = os.environ.get("STANDIN_" + key.upper())
        if value is not None:
            settings[key] = _parse(value)
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise ValueError("standin.json has unknown keys: {}; known are {}".format(unknown, known))
    return Behaviour(**settings)


def _from_folder(path: str) -> Dict[str, Any]:
    file = os.path.join(path, "standin.json")
    if not os.path.isfile(file):
        return {}
    with open(file) as handle:
        return dict(json.load(handle))


def _parse(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
