# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command-line options: names, types and defaults of the ones that operators use.

The real package has some 450. A missing one belongs here when a configuration needs it.
"""

from __future__ import annotations

import argparse
from typing import Any, List, Optional, Sequence

from sglang.version import since


class Option:
    """One option: its field in ServerArgs and how argparse is to read it."""

    def __init__(self, field: str, default: Any, aliases: Sequence[str] = (), **how: Any) -> None:
        self.field = field
        self.default = default
        self.how = how
        self.flags = ["--" + field.replace("_", "-"), *aliases]

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(*self.flags, dest=self.field, default=self.default, **self.how)


def text(field: str, default: Optional[str] = None, *aliases: str, choices: Optional[Sequence[str]] = None) -> Option:
    return Option(field, default, aliases, type=str, choices=choices)


def integer(field: str, default: Optional[int] = None, *aliases: str) -> Option:
    return Option(field, default, aliases, type=int)


def number(field: str, default: Optional[float] = None, *aliases: str) -> Option:
    return Option(field, default, aliases, type=float)


def flag(field: str, *aliases: str) -> Option:
    return Option(field, False, aliases, action="store_true")


def integers(field: str) -> Option:
    return Option(field, None, type=int, nargs="+")


def _model() -> List[Option]:
    return [
        Option("model_path", None, ["--model"], type=str, required=True),
        text("tokenizer_path"),
        text("tokenizer_mode", "auto", choices=["auto", "slow"]),
        integer("tokenizer_worker_num", 1),
        flag("skip_tokenizer_init"),
        text("load_format", "auto"),
        text("model_loader_extra_config", "{}"),
        flag("trust_remote_code"),
        integer("context_length"),
        flag("is_embedding"),
        Option("enable_multimodal", None, action="store_true"),
        text("revision"),
        text("model_impl", "auto"),
        text("json_model_override_args", "{}"),
        text("dtype", "auto", choices=["auto", "half", "float16", "bfloat16", "float", "float32"]),
        text("quantization"),
        text("kv_cache_dtype", "auto"),
        text("device"),
        text("served_model_name"),
        text("chat_template"),
        text("reasoning_parser"),
        text("tool_call_parser"),
        text("sampling_defaults", "model"),
        text("download_dir"),
    ]


def _scheduling() -> List[Option]:
    return [
        number("mem_fraction_static"),
        integer("max_running_requests"),
        integer("max_queued_requests"),
        integer("max_total_tokens"),
        integer("chunked_prefill_size"),
        integer("max_prefill_tokens", 16384),
        text("schedule_policy", "fcfs"),
        number("schedule_conservativeness", 1.0),
        integer("page_size"),
        flag("disable_radix_cache"),
        flag("disable_overlap_schedule"),
        flag("enable_mixed_chunk"),
        integer("num_continuous_decode_steps", 1),
        integer("stream_interval", 1),
        integer("random_seed"),
        number("watchdog_timeout", 300.0),
        flag("sleep_on_idle"),
    ]


def _placement() -> List[Option]:
    return [
        integer("tp_size", 1, "--tensor-parallel-size"),
        integer("pp_size", 1, "--pipeline-parallel-size"),
        integer("dp_size", 1, "--data-parallel-size"),
        integer("ep_size", 1, "--expert-parallel-size", "--ep"),
        text("load_balance_method", "round_robin"),
        flag("enable_dp_attention"),
        flag("enable_dp_lm_head"),
        integer("base_gpu_id", 0),
        integer("gpu_id_step", 1),
        integer("nccl_port"),
        text("dist_init_addr", None, "--nccl-init-addr"),
        integer("dist_timeout"),
        integer("nnodes", 1),
        integer("node_rank", 0),
        flag("disable_custom_all_reduce"),
        flag("enable_nccl_nvls"),
        flag("enable_symm_mem"),
        text("moe_a2a_backend", "none"),
        text("moe_runner_backend", "auto"),
        flag("enable_hierarchical_cache"),
        number("hicache_ratio", 2.0),
        integer("hicache_size", 0),
        integer("cpu_offload_gb", 0),
        flag("enable_memory_saver"),
        flag("enable_two_batch_overlap"),
    ]


def _serving() -> List[Option]:
    options = [
        text("host", "127.0.0.1"),
        integer("port", 30000),
        flag("skip_server_warmup"),
        text("api_key"),
        text("admin_api_key"),
        text("log_level", "info"),
        text("log_level_http"),
        flag("log_requests"),
        integer("log_requests_level", 2),
        flag("show_time_cost"),
        flag("enable_metrics"),
        flag("enable_cache_report"),
        integer("decode_log_interval", 40),
        Option("enable_lora", None, action="store_true"),
        text("crash_dump_folder"),
        flag("grpc_mode"),
        text("disaggregation_mode", "null", choices=["null", "prefill", "decode"]),
    ]
    if since(10):
        options += [text(name) for name in ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_keyfile_password")]
        options += [flag("enable_ssl_refresh")]
    return options


def _kernels() -> List[Option]:
    return [
        text("attention_backend"),
        text("decode_attention_backend"),
        text("prefill_attention_backend"),
        text("sampling_backend"),
        text("grammar_backend"),
        flag("disable_cuda_graph"),
        integer("cuda_graph_max_bs"),
        integers("cuda_graph_bs"),
        text("cuda_graph_backend_decode"),
        text("cuda_graph_backend_prefill"),
        integers("cuda_graph_bs_decode"),
        flag("disable_cuda_graph_padding"),
        flag("enable_torch_compile"),
        integer("torch_compile_max_bs", 32),
        text("torchao_config", ""),
        text("mm_feature_transport"),
        flag("disable_flashinfer_autotune"),
        flag("enable_deterministic_inference"),
    ]


# Releases before 0.5.11 check the algorithm's spelling while they parse; later ones do it when they resolve.
EARLY_ALGORITHMS = ["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"]


def _speculative() -> List[Option]:
    options = [
        text("speculative_algorithm", None, choices=None if since(11) else EARLY_ALGORITHMS),
        text("speculative_draft_model_path", None, "--speculative-draft-model"),
        text("speculative_draft_model_revision"),
        text("speculative_draft_load_format"),
        text("speculative_draft_model_quantization"),
        integer("speculative_num_steps"),
        integer("speculative_eagle_topk"),
        integer("speculative_num_draft_tokens"),
        number("speculative_accept_threshold_single", 1.0),
        number("speculative_accept_threshold_acc", 1.0),
        text("speculative_token_map"),
        text("speculative_attention_mode", "prefill", choices=["prefill", "decode"]),
        text("speculative_draft_attention_backend"),
        text("speculative_moe_runner_backend", "auto"),
        text("speculative_moe_a2a_backend"),
        integer("speculative_ngram_min_bfs_breadth", 1),
        integer("speculative_ngram_max_bfs_breadth", 10),
        text("speculative_ngram_match_type", "BFS", choices=["BFS", "PROB"]),
        integer("speculative_ngram_capacity", 10000000),
        flag("enable_multi_layer_eagle"),
    ]
    if since(10):
        options += [integer("speculative_ngram_max_trie_depth", 18)]
    else:
        options += [
            integer("speculative_ngram_branch_length", 18),
            integer("speculative_ngram_min_match_window_size", 1),
            integer("speculative_ngram_max_match_window_size", 12),
        ]
    if since(11):
        options += [flag("speculative_adaptive"), text("speculative_adaptive_config")]
        options += [integer("speculative_dflash_block_size")]
    if since(12):
        options += [integer("speculative_draft_window_size")]
    if since(14):
        options += [flag("speculative_use_rejection_sampling")]
    if since(17):
        options += [text("weight_cache_mode", "off", choices=["off", "daemon", "client"])]
    if since(18):
        options += [text("speculative_draft_kv_cache_dtype")]
    if since(19):
        options += [text("speculative_dsa_topk_backend", "sgl-kernel"), integer("gated_launch_port")]
    if since(22):
        options += [flag("speculative_use_block_verification")]
    return options


OPTIONS = [*_model(), *_scheduling(), *_placement(), *_serving(), *_kernels(), *_speculative()]

# Those that take no value, as they stand in a file: without dashes in front.
SWITCHES = [flag.lstrip("-") for option in OPTIONS if option.how.get("action") == "store_true" for flag in option.flags]
