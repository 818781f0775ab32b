# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what a sweep has measured says anything about this server: pure, no I/O.

Where speculation wins depends on the model, its draft and the version.
"""

from __future__ import annotations

from typing import Any, List, Mapping

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible

_NAME = "measured"
_REMEDY = "Measure this one, or define the profile yourself (sglang_spec_profiles)."


def check_measured(measured: Mapping[str, Any], settings: Settings, version: str) -> List[Check]:
    """What the measurements do not fit: another model or draft is refused, another version told.

    measured: as the option of that name has it, {} where the settings come from no sweep.  version: of the host's
    SGLang, "" where it is not known.
    """
    if not measured:
        return []
    whose = "The profile comes from the sweep %s" % visible(str(measured.get("sweep") or "without a name"))
    found = []
    model = _path(measured.get("model_path"))
    if model and model != _path(settings.model_path):
        found.append(
            failed(
                _NAME,
                "%s, which measured the model %s, and model_path is %s. %s"
                % (whose, model, settings.model_path, _REMEDY),
            )
        )
    if not model:
        found.append(warning(_NAME, "%s, which does not say what model it measured." % whose))
    draft = settings.speculative_draft_model_path
    drafts = [_path(path) for path in _list(measured.get("draft_model_paths"))]
    if settings.speculative_algorithm is not None and draft and drafts and _path(draft) not in drafts:
        found.append(
            failed(
                _NAME,
                "%s, which measured the draft model %s, and speculative_draft_model_path is %s. %s"
                % (whose, ", ".join(drafts), draft, _REMEDY),
            )
        )
    versions = [visible(str(one)) for one in _list(measured.get("versions"))]
    if version and versions and version not in versions:
        found.append(
            warning(
                _NAME,
                "%s, which measured SGLang %s, and this host has %s: measure again when you can."
                % (whose, ", ".join(versions), version),
            )
        )
    return found


def _path(value: Any) -> str:
    text = visible(str(value or ""), 4096)
    return text.rstrip("/") or text


def _list(value: Any) -> List[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
