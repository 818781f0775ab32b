# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at model folders: what is certain to kill a start, and what is worth a warning.

Only what certainly dies is refused: SGLang knows more kinds of models than these rules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, warning
from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json, regular_file

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?")
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt", "*.pth")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "tekken.json", "vocab.json", "*.tiktoken")
# The largest that are known take a tenth of it (bytes).
_MOST_CONFIG, _MOST_INDEX = 4 * regular_file.MIB, 64 * regular_file.MIB
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class Model:
    """What a model's config.json says; None where it could not be looked at."""

    config: Optional[Mapping[str, Any]]

    def value(self, name: str) -> Any:
        """A value of the language model, which multimodal models keep one level down."""
        if self.config is None:
            return None
        text_config = self.config.get("text_config")
        if name not in self.config and isinstance(text_config, Mapping):
            return text_config.get(name)
        return self.config.get(name)

    def number(self, name: str) -> Optional[int]:
        """A value, if it is a whole number."""
        value = self.value(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def architectures(self) -> List[str]:
        """The classes that the model asks for."""
        value = self.config.get("architectures") if self.config else None
        return [str(item) for item in value] if isinstance(value, list) else []


def inspect_model(option: str, path: str, load_format: str = "", tokenizer: bool = False) -> Tuple[Model, List[Check]]:
    """Look at the model that an option names.

    load_format is SGLang's ("dummy" needs no weights); tokenizer: whether one is needed in there.
    """
    unknown = Model(None)
    if "://" in path:
        return unknown, [warning(option, f"{option}: {path} is not on this host, so it is not checked.")]
    if not path.startswith("/"):
        return unknown, [_check_not_absolute(option, path)]
    folder = Path(path)
    if folder.is_file() and folder.suffix == ".gguf":
        return unknown, [ok(option, f"{option}: {path} is a GGUF file.")]
    try:
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "does not exist"
            return unknown, [failed(option, f"{option}: {path} {what} on this host.")]
        return _inspect_folder(option, folder, load_format, tokenizer)
    except OSError as error:
        return unknown, [failed(option, f"{option}: {path} cannot be read: {error.strerror}.")]


def _check_not_absolute(option: str, path: str) -> Check:
    if _HUB_NAME.fullmatch(path):
        return warning(
            option,
            f"{option}: {path} is the name of a model on a hub, so it is not checked: the server may have to "
            "download it first.",
        )
    return failed(option, f"{option}: {path} is neither an absolute path nor the name of a model on a hub.")


def _inspect_folder(option: str, folder: Path, load_format: str, tokenizer: bool) -> Tuple[Model, List[Check]]:
    config, found = _read_config(option, folder)
    if load_format != "dummy":
        found += _check_weights(option, folder)
    if tokenizer and not _has(folder, _TOKENIZERS):
        found.append(warning(option, f"{option}: {folder} has no tokenizer that these checks know."))
    return Model(config), found or [ok(option, f"{option}: {folder} has a configuration and weights.")]


def _read_config(option: str, folder: Path) -> Tuple[Optional[Dict[str, Any]], List[Check]]:
    path = folder / "config.json"
    if not path.exists():
        if (folder / "params.json").exists():
            return None, [warning(option, f"{option}: {folder} has params.json and no config.json: not checked.")]
        return None, [failed(option, f"{option}: {path} does not exist: this is not the folder of a model.")]
    try:
        config = bounded_json.loads(regular_file.read_text(path, _MOST_CONFIG))
    except OSError as error:
        return None, [failed(option, f"{option}: {path} cannot be read: {error.strerror}.")]
    except ValueError as error:
        return None, [failed(option, f"{option}: {path} is not valid JSON: {error}.")]
    if not isinstance(config, dict):
        return None, [failed(option, f"{option}: {path} is not a JSON object.")]
    return config, []


def _check_weights(option: str, folder: Path) -> List[Check]:
    if not _has(folder, _WEIGHTS):
        return [warning(option, f"{option}: {folder} has no weights that these checks know ({', '.join(_WEIGHTS)}).")]
    for name in _INDEXES:
        missing = _missing_shards(folder, folder / name)
        if missing:
            return [
                failed(
                    option,
                    f"{option}: {len(missing)} of the files that {folder / name} lists are missing, the first is "
                    f"{missing[0]}: complete the download.",
                )
            ]
    return []


def _missing_shards(folder: Path, index: Path) -> List[str]:
    try:
        weight_map = bounded_json.loads(regular_file.read_text(index, _MOST_INDEX))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []  # no index, or none that these checks understand
    return [str(name) for name in names if not (folder / str(name)).exists()]


def _has(folder: Path, patterns: Tuple[str, ...]) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)


_COMPATIBILITY = "draft_fits_model"


def check_draft_fits(algorithm: str, target: Model, draft: Model) -> List[Check]:
    """Compare a draft model with the model that it drafts for, as far as their configurations tell."""
    if target.config is None or draft.config is None:
        return []
    eagle3_draft = any("eagle3" in name.lower() for name in draft.architectures)
    found = _check_architecture(algorithm, draft, eagle3_draft)
    found += _check_vocabulary(algorithm, target, draft)
    if algorithm == "EAGLE3" and eagle3_draft:
        found += _check_hidden_size(target, draft)
    return found or [ok(_COMPATIBILITY, "The draft model fits the model, as far as their configurations tell.")]


def _check_architecture(algorithm: str, draft: Model, eagle3_draft: bool) -> List[Check]:
    names = ", ".join(draft.architectures) or "nothing"
    if algorithm == "EAGLE3" and not eagle3_draft:
        return [
            warning(
                _COMPATIBILITY,
                f"speculative_algorithm is EAGLE3 and the draft model's architecture is {names}: no EAGLE-3 draft.",
            )
        ]
    if algorithm == "EAGLE" and eagle3_draft:
        return [
            warning(
                _COMPATIBILITY,
                f"speculative_algorithm is EAGLE and the draft model's architecture is {names}: set EAGLE3.",
            )
        ]
    return []


def _check_vocabulary(algorithm: str, target: Model, draft: Model) -> List[Check]:
    ours = target.number("vocab_size")
    reduced = draft.number("draft_vocab_size")
    full = draft.number("vocab_size")
    if ours is None:
        return []
    if algorithm == "EAGLE3" and reduced is not None and reduced > ours:
        return [
            failed(
                _COMPATIBILITY,
                f"The draft model's draft_vocab_size {reduced} is larger than the model's vocab_size {ours}: "
                "it was made for another model.",
            )
        ]
    if full is not None and full != ours:
        return [
            warning(
                _COMPATIBILITY,
                f"The draft model's vocab_size is {full} and the model's is {ours}: it may be made for another model.",
            )
        ]
    return []


def _check_hidden_size(target: Model, draft: Model) -> List[Check]:
    # The draft's first layer takes the target's hidden states: another width cannot be multiplied.
    name = "target_hidden_size" if draft.number("target_hidden_size") is not None else "hidden_size"
    theirs, ours = draft.number(name), target.number("hidden_size")
    if theirs is None or ours is None or theirs == ours:
        return []
    return [
        failed(
            _COMPATIBILITY,
            f"The draft model's {name} is {theirs} and the model's hidden_size is {ours}: "
            "it was made for another model, and the server would die in its warm-up.",
        )
    ]
