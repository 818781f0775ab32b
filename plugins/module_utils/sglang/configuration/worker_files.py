# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the worker files of speculative decoding a server loads.

SGLang has had up to two files for one algorithm and chooses by version and configuration: a change of the
other one does nothing at all.  Read in the wheels of 0.5.7, 0.5.8, 0.5.11 to 0.5.14, 0.5.16, 0.5.17 and
0.5.23 (create_worker in speculative/spec_info.py, for 0.5.7 managers/scheduler.py).
"""

from __future__ import annotations

import re
from typing import Any, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    version_tuple,
)

FOLDER = "sglang/srt/speculative/"
# base_spec_worker.py, eagle_worker_common.py and the like are parts of several workers, not workers themselves.
_KINDS = r"eagle|multi_layer_eagle|standalone|ngram|dflash|frozen_kv_mtp|uno|dspark_components/dspark"
_WORKER = re.compile(rf"{re.escape(FOLDER)}(?:{_KINDS})_worker(?:_v2)?\.py")

# From here on the older workers of EAGLE and STANDALONE are gone.
_ONLY_V2 = (0, 5, 13)
# From here on STANDALONE has a second worker.
_STANDALONE_V2 = (0, 5, 8)
# From here on DFLASH and FROZEN_KV_MTP have their second worker, and only that one.
_OTHERS_V2 = (0, 5, 14)
# The last version seen in which the second multi-layer worker takes nothing from the plain one.
_MULTI_LAYER_ALONE = (0, 5, 17)
# Algorithms with one file of their own.
_OWN = {"DSPARK": "dspark_components/dspark_worker_v2", "UNO": "uno_worker_v2", "NGRAM": "ngram_worker"}
_EAGLE = ("EAGLE", "EAGLE3", "NEXTN")


def is_worker(target: str) -> bool:
    """Whether a path below the folder of the package is the file of a worker."""
    return bool(_WORKER.fullmatch(target))


def used_workers(version: str, effective: Mapping[str, Any]) -> Optional[Tuple[str, ...]]:
    """The worker files that a server of this version and configuration loads, the one in charge first.

    Paths are relative to the folder that holds the package.  () where it does not speculate, None where
    version or configuration do not tell.
    """
    numbers = version_tuple(version)
    if not numbers or "speculative_algorithm" not in effective:
        return None
    algorithm = str(effective["speculative_algorithm"] or "").upper()
    if algorithm in ("", "NONE"):
        return ()
    stems = _stems(numbers, algorithm, effective)
    return None if stems is None else tuple(f"{FOLDER}{stem}.py" for stem in stems)


def _stems(numbers: Tuple[int, ...], algorithm: str, effective: Mapping[str, Any]) -> Optional[List[str]]:
    if algorithm in _EAGLE:
        base = "multi_layer_eagle_worker" if effective.get("enable_multi_layer_eagle") else "eagle_worker"
        stems = _by_overlap(numbers, base, effective)
        if stems == ["multi_layer_eagle_worker"]:
            return stems + ["eagle_worker"]
        if stems == ["multi_layer_eagle_worker_v2"] and numbers > _MULTI_LAYER_ALONE:
            return stems + ["eagle_worker_v2"]
        return stems
    if algorithm == "STANDALONE":
        if numbers < _STANDALONE_V2:
            return ["standalone_worker", "eagle_worker"]
        stems = _by_overlap(numbers, "standalone_worker", effective)
        return None if stems is None else stems + [stems[0].replace("standalone", "eagle")]
    if algorithm == "FROZEN_KV_MTP":
        return ["frozen_kv_mtp_worker_v2", "eagle_worker_v2"] if numbers >= _OTHERS_V2 else ["frozen_kv_mtp_worker"]
    if algorithm == "DFLASH":
        return ["dflash_worker_v2"] if numbers >= _OTHERS_V2 else ["dflash_worker"]
    return [_OWN[algorithm]] if algorithm in _OWN else None


def _by_overlap(numbers: Tuple[int, ...], base: str, effective: Mapping[str, Any]) -> Optional[List[str]]:
    """The file of a worker that has two of them: with overlapped scheduling the second one runs."""
    if numbers >= _ONLY_V2:
        return [f"{base}_v2"]
    overlap_off = effective.get("disable_overlap_schedule")
    if overlap_off is None:
        return None
    return [base] if overlap_off else [f"{base}_v2"]
