# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for the environment variables of a server."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, warning

_NAME = "environment"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_LOOPBACK = ("localhost", "127.0.0.1")


def environment_from(values: Mapping[str, Any]) -> Dict[str, str]:
    """An environment as strings.  A YAML true becomes "true", as an operator means it."""
    return {str(name): _text(value) for name, value in sorted(values.items())}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def version_tuple(version: str) -> Tuple[int, ...]:
    """The numbers that a version begins with: (0, 5, 17) for 0.5.17.post1; () where there are none."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group(0).split(".")[:3]) if found else ()


def check_environment(environment: Mapping[str, str], version: str) -> List[Check]:
    """version is SGLang's, "" where it is not known."""
    found = []
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            found.append(failed(_NAME, f"{name!r} in environment is not a name of a variable."))
        if _CONTROL.search(value):
            # systemd drops such a variable without an error.
            found.append(failed(_NAME, f"The value of {name} in environment contains a control character."))
    if environment.get("SGLANG_SIMULATE_ACC_LEN", "").strip() not in ("", "-1"):
        found.append(
            failed(
                _NAME,
                "SGLANG_SIMULATE_ACC_LEN in environment makes SGLang pretend that it accepts tokens: remove it.",
            )
        )
    found += _check_spec_v2(environment, version)
    found += _check_proxy(environment)
    return found or [ok(_NAME, "No variable that would do harm.")]


def _check_spec_v2(environment: Mapping[str, str], version: str) -> List[Check]:
    numbers = version_tuple(version)
    if _SPEC_V2 not in environment or numbers < (0, 5, 13):
        return []
    if numbers < (0, 5, 14):
        off = environment[_SPEC_V2].strip().lower() in ("false", "0", "no", "off")
        if not off:
            return []
        return [warning(_NAME, f"{_SPEC_V2}: SGLang {version} has only the newer worker; this makes it synchronous.")]
    return [warning(_NAME, f"SGLang {version} ignores {_SPEC_V2}: remove it from environment.")]


def _check_proxy(environment: Mapping[str, str]) -> List[Check]:
    proxies = [name for name in _PROXIES if environment.get(name)]
    if not proxies:
        return []
    exempt = [item.strip() for item in (environment.get("no_proxy") or environment.get("NO_PROXY") or "").split(",")]
    missing = [name for name in _LOOPBACK if name not in exempt]
    if not missing or "*" in exempt:
        return []
    return [
        warning(
            _NAME,
            f"{proxies[0]} is set in environment and no_proxy lacks {' and '.join(missing)}: "
            "the server's warm-up asks itself and may be sent to the proxy.",
        )
    ]
