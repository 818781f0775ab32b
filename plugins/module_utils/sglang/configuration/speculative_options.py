# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Speculative settings without an option of their own: any that the installed SGLang knows, by its own name.

The name is SGLang's without `speculative_`, so ngram_max_bfs_breadth becomes
--speculative-ngram-max-bfs-breadth.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Tuple

PREFIX = "speculative_"
ADAPTIVE = "adaptive"
ADAPTIVE_CONFIG = "adaptive_config"
# The file of a release that holds an adaptive configuration given as data.
ADAPTIVE_FILE = "adaptive.json"

# Settings with an option of their own, without `speculative_`.
OWN_OPTIONS = ("algorithm", "draft_model_path", "num_steps", "eagle_topk", "num_draft_tokens")
# SGLang's other spellings of these.
_OWN_ALIASES = {"draft_model": "draft_model_path"}
# What versions from 0.5.7 on know besides; for suggestions only, since each version has a list of its own.
KNOWN_OPTIONS = (
    "accept_threshold_acc",
    "accept_threshold_single",
    ADAPTIVE,
    ADAPTIVE_CONFIG,
    "attention_mode",
    "dflash_block_size",
    "draft_attention_backend",
    "draft_kv_cache_dtype",
    "draft_load_format",
    "draft_model_quantization",
    "draft_model_revision",
    "draft_sink_size",
    "draft_window_size",
    "dsa_topk_backend",
    "moe_a2a_backend",
    "moe_runner_backend",
    "ngram_branch_length",
    "ngram_capacity",
    "ngram_match_type",
    "ngram_max_bfs_breadth",
    "ngram_max_match_window_size",
    "ngram_max_trie_depth",
    "ngram_min_bfs_breadth",
    "ngram_min_match_window_size",
    "token_map",
    "uno_lora_path",
    "use_block_verification",
    "use_rejection_sampling",
)

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def typed(text: str) -> Any:
    """A word as a number where it looks like one, else as it is."""
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def is_number(word: str) -> bool:
    """Whether argparse takes a word for a number, also where it begins with a dash."""
    return bool(_NUMBER.fullmatch(word))


def settled(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The options that count, in a stable order; false, null and empty values mean "not given".

    The words true and false are what `-e name=true` makes of a flag.
    """
    return {str(name): _settled_value(value) for name, value in sorted(options.items()) if _is_given(value)}


def _is_given(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() not in ("", "false")
    return value is not None and value is not False and value != [] and value != {}


def _settled_value(value: Any) -> Any:
    if isinstance(value, str):
        return True if value.strip().lower() == "true" else value
    return list(value) if isinstance(value, tuple) else value


def words_of(name: str, value: Any) -> List[str]:
    """One option as it stands in a command line."""
    option = "--" + (PREFIX + name).replace("_", "-")
    if value is True:
        return [option]
    return [option, *map(str, value if isinstance(value, list) else [value])]


def requested_value(value: Any) -> Any:
    """A value as SGLang is likely to read it."""
    if isinstance(value, list):
        return [typed(str(item)) for item in value]
    return typed(value) if isinstance(value, str) else value


def problems(options: Mapping[str, Any]) -> List[str]:
    """What is wrong with names and values, one sentence each."""
    found = []
    for name, value in options.items():
        problem = _name_problem(name) or _value_problem(name, value)
        if problem:
            found.append(problem)
    return found


def _name_problem(name: str) -> str:
    own = _OWN_ALIASES.get(name, name)
    if own in OWN_OPTIONS:
        return f"{name} in speculative_options has an option of its own: give it as {PREFIX}{own}."
    if name.startswith(PREFIX):
        return f"{name!r} in speculative_options: write {name[len(PREFIX) :]} without {PREFIX!r}."
    if not _NAME.fullmatch(name):
        return (
            f"{name!r} in speculative_options is no name of an option: write SGLang's own name without "
            f"{PREFIX!r}, in lower-case letters, digits and '_', such as ngram_max_bfs_breadth."
        )
    return ""


def _value_problem(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        # An adaptive configuration has been made a file by now, see arguments.settings_from.
        return f"{name} in speculative_options is a dictionary: only {ADAPTIVE_CONFIG} can be one."
    for word in value if isinstance(value, list) else [value]:
        if isinstance(word, (bool, Mapping, list)) and word is not value:
            return f"{name} in speculative_options: an element of its list is {word!r}: give words and numbers."
        if word is True or isinstance(word, (int, float)):
            continue
        if not isinstance(word, str) or not word.strip():
            return f"{name} in speculative_options: {word!r} is neither a word nor a number."
        if re.search(r"[\x00-\x1f\x7f]", word):
            return f"{name} in speculative_options: {word!r} has a control character, which no command line carries."
        if word.startswith("-") and not is_number(word):
            return f"{name} in speculative_options: {word!r} begins with '-', and SGLang would take it for an option."
    return ""


def adaptive_text(config: Mapping[str, Any]) -> str:
    """An adaptive configuration as the text of its file: the same data always gives the same text."""
    ordered = {str(name): config[name] for name in sorted(config, key=_by_size)}
    return json.dumps(ordered, indent=2, sort_keys=False) + "\n"


def _by_size(name: Any) -> Tuple[int, int, str]:
    text = str(name)
    return (1, int(text), text) if text.isdigit() and text.isascii() else (0, 0, text)
