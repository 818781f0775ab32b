# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a deployment, from the variables of its host: pure, no I/O.

A host that is deployed in two calls has it in the two results; setting each as a variable of its own would cost the
controller a process per host.  One that is deployed by the tasks of the role has it in variables.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional, Sequence

REHEARSED = "sglang_deploy_rehearsed"
REPLACED = "sglang_deploy_replaced"
_TOUCHED = "sglang_deploy_touched"


def deploy_facts(variables: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """The facts out of the results of the two calls; None where the variables have them one by one."""
    rehearsed = _mapping(variables.get(REHEARSED))
    if not rehearsed or rehearsed.get("skipped"):
        return None
    facts = read_facts(rehearsed)
    replaced = _mapping(variables.get(REPLACED))
    if rehearsed.get("token") and replaced.get("of") == rehearsed["token"]:
        facts.update(read_facts(replaced))
    return facts


def read_facts(result: Mapping[str, Any]) -> Dict[str, Any]:
    """The facts of one call; none where it brought no answer, or none that could be one."""
    text = result.get("facts")
    try:
        return dict(_mapping(json.loads(text))) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}


def known_facts(variables: Mapping[str, Any], names: Sequence[str]) -> Dict[str, Any]:
    """Those of these facts that are there."""
    facts = deploy_facts(variables)
    source = variables if facts is None else facts
    return {name: source[name] for name in names if name in source}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
