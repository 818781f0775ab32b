# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How SGLang changes what it was asked for, release by release.

The outcomes were taken from running the real releases 0.5.7, 0.5.12 and 0.5.23; only what bears on speculative
decoding and on memory is modelled.
"""

from __future__ import annotations

import json
import logging
import os
import random
from typing import Any, List, Tuple

from sglang.srt.gpu_memory import visible_gpus
from sglang.srt.model_config import ModelConfig
from sglang.srt.options import EARLY_ALGORITHMS
from sglang.srt.tls import refuse_odd_options
from sglang.version import since

logger = logging.getLogger(__name__)

SPECULATION_CONCURRENCY = 48

_ALGORITHMS = {*EARLY_ALGORITHMS, "DFLASH"}
if since(16):
    _ALGORITHMS.add("DSPARK")

# Models for which the release picks these values itself when it is given none: steps, topk, draft tokens.
_WIDE_TREE = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")

# Families whose checkpoint carries the draft.
_BUNDLED_DRAFT = ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "Glm4MoeForCausalLM")


def resolve(args: Any) -> ModelConfig:
    """Adjust the arguments in place.

    :raises OSError: when a model folder is not there.
    :raises RuntimeError: when no device was named and none is found.
    :raises ValueError, TypeError, AssertionError: as the release does it for combinations that it refuses.
    """
    model = ModelConfig(args.model_path)
    refuse_odd_options(args)
    args.tokenizer_path = args.tokenizer_path or args.model_path
    args.served_model_name = args.served_model_name or args.model_path
    if args.device is None:
        if not visible_gpus():
            raise RuntimeError("No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available.")
        args.device = "cuda"
    if args.random_seed is None:
        args.random_seed = random.randint(0, 1 << 30)
    if args.mem_fraction_static is None:
        args.mem_fraction_static = 0.88
    args.chunked_prefill_size = args.chunked_prefill_size or 8192
    args.page_size = args.page_size or 1
    args.attention_backend = args.attention_backend or "fa3"
    args.sampling_backend = args.sampling_backend or "flashinfer"
    args.grammar_backend = args.grammar_backend or "xgrammar"
    _resolve_speculation(args, model)
    return model


def check(args: Any) -> None:
    """The refusals that come last. :raises AssertionError: for each of them."""
    assert (args.tp_size * args.pp_size) % args.nnodes == 0, "tp_size must be divisible by number of nodes"
    assert not (args.dp_size > 1 and args.nnodes != 1 and not args.enable_dp_attention), (
        "multi-node data parallel is not supported unless dp attention!"
    )
    assert args.nnodes == 1 or args.dist_init_addr, "dist_init_addr must be set for several nodes"
    assert 0 <= args.node_rank < args.nnodes, "node_rank must be less than nnodes"
    assert args.tokenizer_worker_num == 1 or not args.api_key, "api_key does not go with tokenizer_worker_num > 1"
    assert args.base_gpu_id >= 0, "base_gpu_id must be non-negative"
    assert args.gpu_id_step >= 1, "gpu_id_step must be positive"
    assert ":" not in args.served_model_name, "served_model_name cannot contain a colon (':') character."
    if args.pp_size > 1:
        assert args.disable_overlap_schedule and args.speculative_algorithm is None, (
            "Pipeline parallelism is not compatible with overlap schedule, speculative decoding"
        )
    if args.chunked_prefill_size > 0:
        assert args.chunked_prefill_size % args.page_size == 0, "chunked_prefill_size must be divisible by page_size"


def _resolve_speculation(args: Any, model: ModelConfig) -> None:
    if args.speculative_draft_model_quantization is None:
        args.speculative_draft_model_quantization = args.quantization
    if args.speculative_draft_model_path is not None and args.speculative_draft_model_revision is None:
        args.speculative_draft_model_revision = "main"
    if since(14) and not since(21) and "SGLANG_ENABLE_SPEC_V2" in os.environ:
        logger.warning("SGLANG_ENABLE_SPEC_V2 has been removed: speculative decoding always runs the V2 worker.")
    if args.speculative_algorithm is None:
        # A draft path or a number of steps alone is accepted without a word, and there is no speculation.
        if since(11):
            args.speculative_adaptive = _adaptive_allowed(args)
        return
    algorithm = args.speculative_algorithm.upper()
    if algorithm not in _ALGORITHMS:
        raise ValueError("Unknown speculative algorithm name: " + algorithm)
    args.speculative_algorithm = "EAGLE" if algorithm == "NEXTN" else algorithm
    if getattr(args, "weight_cache_mode", "off") != "off":
        raise ValueError("--weight-cache-mode is not supported with speculative decoding.")
    if args.speculative_draft_model_path is not None:
        ModelConfig(args.speculative_draft_model_path)
    if args.enable_dp_attention and args.speculative_algorithm in ("STANDALONE", "NGRAM"):
        raise ValueError("Currently {} speculative decoding does not support dp attention.".format(algorithm.lower()))
    if args.max_running_requests is None:
        args.max_running_requests = SPECULATION_CONCURRENCY
        logger.warning(
            "Max running requests is reset to 48 for speculative decoding. "
            "You can override this by explicitly setting --max-running-requests."
        )
    if args.speculative_algorithm == "NGRAM":
        _resolve_ngram(args)
    elif args.speculative_algorithm in ("DFLASH", "DSPARK"):
        _resolve_block(args)
    else:
        _resolve_eagle(args, model)


def _resolve_eagle(args: Any, model: ModelConfig) -> None:
    _choose_worker(args)
    architecture = model.architectures[0]
    if architecture in _BUNDLED_DRAFT and args.speculative_draft_model_path is None:
        args.speculative_draft_model_path = args.model_path
    if since(14) and args.speculative_adaptive:
        _resolve_adaptive(args)
    if args.speculative_num_steps is None:
        assert args.speculative_eagle_topk is None and args.speculative_num_draft_tokens is None
        chosen = _chosen_by_release(args.speculative_algorithm, architecture)
        args.speculative_num_steps, args.speculative_eagle_topk, args.speculative_num_draft_tokens = chosen
    if since(11) and not since(14) and args.speculative_adaptive:
        args.speculative_adaptive = _adaptive_allowed(args)
    if args.speculative_eagle_topk == 1 and args.speculative_num_draft_tokens != args.speculative_num_steps + 1:
        logger.warning(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
        )
        args.speculative_num_draft_tokens = args.speculative_num_steps + 1
    # With steps alone the topk is still None here: every release fails with this very TypeError.
    branching = args.speculative_eagle_topk > 1
    if branching and args.page_size > 1 and args.attention_backend not in ("flashinfer", "fa3", "triton"):
        raise ValueError(
            "speculative_eagle_topk > 1 with page_size > 1 is only supported on "
            "('flashinfer', 'fa3', 'triton'); got attention_backend={!r}.".format(args.attention_backend)
        )
    if args.attention_backend == "trtllm_mha" and branching:
        raise ValueError("trtllm_mha backend only supports topk = 1 for speculative decoding.")


def _choose_worker(args: Any) -> None:
    """Which of the two worker implementations runs: up to 0.5.12 disable_overlap_schedule says so."""
    if since(13):
        if args.disable_overlap_schedule:
            logger.warning(
                "Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone speculative decoding."
            )
        return
    asked = os.environ.get("SGLANG_ENABLE_SPEC_V2")
    wanted = asked.lower() in ("1", "true", "yes") if asked is not None else since(11)
    branching = args.speculative_eagle_topk is not None and args.speculative_eagle_topk > 1
    if not since(11):
        if wanted and branching:
            raise ValueError("Spec v2 currently only supports topk = 1 for speculative decoding.")
        args.disable_overlap_schedule = not wanted
        if wanted:
            logger.warning(
                "Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap schedule is turned on."
            )
        else:
            logger.warning(
                "Overlap scheduler is disabled when spec v2 is off or using unsupported speculative algorithm."
            )
    elif args.disable_overlap_schedule or branching or not wanted:
        args.disable_overlap_schedule = True
        logger.warning(
            "Spec v1 is used for eagle/eagle3/standalone speculative decoding because %s.",
            "topk > 1" if branching else "the overlap schedule is disabled",
        )
    else:
        logger.warning("Spec v2 is enabled by default for eagle/eagle3/standalone speculative decoding.")


def _chosen_by_release(algorithm: str, architecture: str) -> Tuple[int, int, int]:
    return (5, 4, 8) if algorithm != "STANDALONE" and architecture in _WIDE_TREE else (3, 1, 4)


def _resolve_ngram(args: Any) -> None:
    args.speculative_eagle_topk = args.speculative_ngram_max_bfs_breadth
    if args.speculative_num_draft_tokens is None:
        args.speculative_num_draft_tokens = 12
    if since(13):
        if args.speculative_num_steps is None:
            args.speculative_num_steps = args.speculative_num_draft_tokens // args.speculative_eagle_topk
    else:
        args.disable_overlap_schedule = True
    if since(11):
        args.speculative_adaptive = _adaptive_allowed(args)


def _resolve_block(args: Any) -> None:
    if args.speculative_draft_model_path is None:
        raise ValueError(
            "{} speculative decoding requires setting --speculative-draft-model-path.".format(
                args.speculative_algorithm
            )
        )
    args.speculative_num_steps = args.speculative_eagle_topk = 1
    of_the_draft = 8 if args.speculative_algorithm == "DSPARK" else 16
    args.speculative_num_draft_tokens = args.speculative_num_draft_tokens or of_the_draft
    if not since(13):
        args.disable_overlap_schedule = True
    args.speculative_adaptive = _adaptive_allowed(args)


def _adaptive_allowed(args: Any) -> bool:
    """Whether adaptive speculation stays on; says why not, in a warning only."""
    if not args.speculative_adaptive:
        return False
    if args.speculative_algorithm not in ("EAGLE", "EAGLE3"):
        reason = "it needs EAGLE or EAGLE3"
    elif args.speculative_eagle_topk not in (None, 1):
        reason = "it needs speculative_eagle_topk=1"
    elif args.enable_dp_attention:
        reason = "it does not go with DP attention"
    elif args.enable_multi_layer_eagle or args.enable_two_batch_overlap:
        reason = "it does not go with multi-layer EAGLE or two-batch overlap"
    else:
        return True
    disable_adaptive(args, reason)
    return False


def disable_adaptive(args: Any, reason: str) -> None:
    """Turn it off, with nothing but a warning."""
    args.speculative_adaptive = False
    logger.warning("speculative_adaptive disabled: %s. Falling back to static speculative params.", reason)


def _resolve_adaptive(args: Any) -> None:
    args.speculative_adaptive = _adaptive_allowed(args)
    if not args.speculative_adaptive:
        return
    candidates = candidate_steps(args.speculative_adaptive_config)
    args.speculative_eagle_topk = 1
    if args.speculative_num_steps is None:
        args.speculative_num_steps = candidates[len(candidates) // 2]
    if args.speculative_num_steps not in candidates:
        raise ValueError(
            "--speculative-num-steps={} is not in the adaptive config candidate_steps {}. "
            "Pass one of those values.".format(args.speculative_num_steps, candidates)
        )
    args.speculative_num_draft_tokens = args.speculative_num_steps + 1


def adaptive_tiers(path: Any) -> dict[int, List[int]]:
    """Batch size from which a tier holds → the numbers of steps that it chooses from."""
    if path is None:
        first = [1, 3, 5, 7] if since(20) else [1, 3, 7]
        return {1: first, 8: [0, 1, 3], 32: [0, 1], 64: [0]}
    with open(path) as handle:
        config = json.load(handle)
    return {int(size): [int(steps) for steps in tier["candidate_steps"]] for size, tier in config.items()}


def candidate_steps(path: Any) -> List[int]:
    """All numbers of steps of an adaptive configuration."""
    return sorted({steps for tier in adaptive_tiers(path).values() for steps in tier})
