# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for the environment variables of a server."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, warning

_NAME = "environment"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_LOOPBACK = ("localhost", "127.0.0.1")
_EVERY_ADDRESS = frozenset(["", "0.0.0.0", "::", "[::]", "localhost", "127.0.0.1"])
_OFF = frozenset(["", "-1", "0", "false", "no", "n", "off"])
# Acceptance, expert choice and the like are made up; these two only say how, once that is on.
_SIMULATION = "SGLANG_SIMULATE_"
_HOW_SIMULATED = frozenset(["SGLANG_SIMULATE_ACC_METHOD", "SGLANG_SIMULATE_ACC_TOKEN_MODE"])
_FOR_TESTS = ("SGLANG_TEST_", "SGLANG_IS_IN_CI")


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


def is_off(value: str) -> bool:
    """Whether SGLang takes the value of a switch for off."""
    return value.strip().lower() in _OFF


def check_environment(
    environment: Mapping[str, str],
    version: str,
    host: str = "127.0.0.1",
    inherited: Optional[Mapping[str, str]] = None,
) -> List[Check]:
    """version is SGLang's, "" where it is not known; host is the address that the server listens on.

    inherited is what the server gets from its manager besides.
    """
    found = []
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            found.append(failed(_NAME, f"{name!r} in environment is not a name of a variable."))
        if _CONTROL.search(value):
            # systemd drops such a variable without an error.
            found.append(failed(_NAME, f"The value of {name} in environment contains a control character."))
    everything = dict(inherited or {}, **environment)
    where = {name: "in environment" if name in environment else "by the host" for name in everything}
    for name, value in sorted(everything.items()):
        found += _check_for_tests(name, value, where[name])
    found += _check_spec_v2(environment, version)
    found += _check_proxy(everything, where, host)
    return found or [ok(_NAME, "No variable that would do harm.")]


def _check_for_tests(name: str, value: str, where: str) -> List[Check]:
    if name.startswith(_SIMULATION) and name not in _HOW_SIMULATED and not is_off(value):
        what = "accepts tokens" if name == "SGLANG_SIMULATE_ACC_LEN" else "computes what it makes up"
        return [failed(_NAME, f"{name}, set {where}, makes SGLang pretend that it {what}: remove it.")]
    if name in _HOW_SIMULATED or (name.startswith(_FOR_TESTS) and not is_off(value)):
        return [warning(_NAME, f"{name}, set {where}, is for tests of SGLang itself: remove it.")]
    return []


def _check_spec_v2(environment: Mapping[str, str], version: str) -> List[Check]:
    numbers = version_tuple(version)
    if SPEC_V2 not in environment or numbers < (0, 5, 13):
        return []
    if numbers < (0, 5, 14):
        if not is_off(environment[SPEC_V2]):
            return []
        return [warning(_NAME, f"{SPEC_V2}: SGLang {version} has only the newer worker; this makes it synchronous.")]
    return [warning(_NAME, f"SGLang {version} ignores {SPEC_V2}: remove it from environment.")]


def _check_proxy(environment: Mapping[str, str], where: Mapping[str, str], host: str) -> List[Check]:
    proxies = [name for name in _PROXIES if environment.get(name)]
    if not proxies:
        return []
    # As the libraries do: the lower-case name wins.
    exempt = [item.strip() for item in (environment.get("no_proxy") or environment.get("NO_PROXY") or "").split(",")]
    addresses = _LOOPBACK if host in _EVERY_ADDRESS else (*_LOOPBACK, host)
    missing = [name for name in addresses if name not in exempt]
    if not missing or "*" in exempt:
        return []
    return [
        warning(
            _NAME,
            f"{' and '.join(f'{name} is set {where[name]}' for name in proxies)}, and no_proxy lacks "
            f"{' and '.join(missing)}: the server's warm-up asks itself and may be sent to the proxy. "
            "Set no_proxy in environment.",
        )
    ]
