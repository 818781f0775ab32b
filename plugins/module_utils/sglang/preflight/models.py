# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The models of a configuration: each by itself, and the two together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.models_dir import (
    Model,
    check_draft_fits,
    inspect_model,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.speculative_options import PREFIX
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.mounts import host_path
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerSettings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.draft_checks import (
    check_aux_layers,
    check_quantization,
)

_DRAFT = "speculative_draft_model_path"
# Where a path of the server lies on the host, None where it is not of the host.
Locate = Callable[[str], Optional[str]]


@dataclass(frozen=True)
class Models:
    """The two models of a server, the draft None where there is no folder of one.

    folders are those of this host that hold them; paths are the same as the server names them.
    """

    target: Model
    draft: Optional[Model]
    folders: Tuple[str, ...]
    checks: List[Check]


def locate_with(container: Optional[ContainerSettings]) -> Locate:
    """How paths of the server become paths of the host; the container's settings are settled."""

    def locate(path: str) -> Optional[str]:
        if container is None or not path.startswith("/"):
            return path
        return host_path(container, path)

    return locate


def model_paths(settings: Settings) -> List[str]:
    """The folders of models as the server names them; names on a hub are none."""
    paths = [settings.model_path, settings.speculative_draft_model_path or ""]
    paths.append(str(settings.extra_value("--tokenizer-path") or ""))
    return [path for path in dict.fromkeys(paths) if path.startswith("/")]


def look_at_models(settings: Settings, locate: Locate) -> Models:
    """Look at the folders and compare what their configurations say."""
    load_format = settings.extra_value("--load-format")
    own_tokenizer = settings.extra_value("--tokenizer-path", "--skip-tokenizer-init") is None
    target, checks = _inspect("model_path", settings.model_path, locate, str(load_format or ""), own_tokenizer)
    located = [locate(path) for path in model_paths(settings)]
    folders = tuple(path for path in located if path is not None and os.path.isdir(path))
    algorithm, path = settings.speculative_algorithm, settings.speculative_draft_model_path
    if algorithm is None:
        return Models(target, None, folders, checks)
    if path is None:
        checks += _check_own_draft(algorithm, target.value("num_nextn_predict_layers"), target.config)
        return Models(target, None, folders, checks)
    draft_format = draft_option(settings, "draft_load_format") or load_format
    draft, found = _inspect(_DRAFT, path, locate, str(draft_format or ""))
    checks += found
    fits = check_draft_fits(algorithm, target, draft)
    layers = check_aux_layers(algorithm, target, draft)
    # One sentence that all is well would be wrong beside what is wrong with the layers.
    checks += layers if layers and all(check.status == "ok" for check in fits) else fits + layers
    return Models(target, draft, folders, checks)


def _inspect(
    option: str, path: str, locate: Locate, load_format: str, tokenizer: bool = False
) -> Tuple[Model, List[Check]]:
    found = locate(path)
    if found is None:
        text = f"{option}: {path} is not of this host, so it is not checked: it has to be in the image or in a volume."
        return Model(None), [warning(option, text)]
    return inspect_model(option, found, load_format, tokenizer)


def draft_option(settings: Settings, name: str) -> Any:
    """A further speculative setting, wherever it was given; None where it was not."""
    value = settings.speculative_options.get(name)
    return value if value is not None else settings.extra_value("--" + (PREFIX + name).replace("_", "-"))


def check_inheritance(settings: Settings, models: Models, effective: Mapping[str, Any]) -> List[Check]:
    """What the draft model takes over, as far as SGLang's parser tells: effective is its result."""
    if models.draft is None:
        return []
    return check_quantization(
        models.target,
        models.draft,
        settings.extra_value("--quantization"),
        draft_option(settings, "draft_model_quantization"),
        effective,
    )


def _check_own_draft(algorithm: str, draft_layers: Any, config: Optional[Mapping[str, Any]]) -> List[Check]:
    """EAGLE without a draft model is for models that carry one, such as the DeepSeek family."""
    if algorithm not in ("EAGLE", "NEXTN") or config is None or draft_layers:
        return []
    return [
        warning(
            _DRAFT,
            f"speculative_algorithm {algorithm} without speculative_draft_model_path works only for a model that has "
            "draft layers of its own, and config.json of this one names none.",
        )
    ]
