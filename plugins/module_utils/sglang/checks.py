# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of one check of a configuration, and of many together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible_lines

OK = "ok"
FAILED = "failed"
WARNING = "warning"
SKIPPED = "skipped"

# What SGLang's own parser says, with its usage, is the longest (characters).
_LONGEST = 20_000


@dataclass(frozen=True)
class Check:
    """What one check found: name is stable, message is for people and has the remedy where one is needed.

    A message may quote names of files and contents of models, so that it is made visible in any case.
    """

    name: str
    status: str
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", visible_lines(self.message, _LONGEST))

    def to_dict(self) -> Dict[str, str]:
        """As it is returned by the module."""
        return {"name": self.name, "status": self.status, "message": self.message}


def ok(name: str, message: str) -> Check:
    """Nothing to complain of."""
    return Check(name, OK, message)


def failed(name: str, message: str) -> Check:
    """The server would not start, or would not be what was asked for."""
    return Check(name, FAILED, message)


def warning(name: str, message: str) -> Check:
    """It starts, and somebody should know this."""
    return Check(name, WARNING, message)


def skipped(name: str, message: str) -> Check:
    """It was not checked; the message says why."""
    return Check(name, SKIPPED, message)


def failures(checks: Sequence[Check]) -> List[Check]:
    """Those that failed, in order."""
    return [check for check in checks if check.status == FAILED]


def problem_summary(checks: Sequence[Check]) -> str:
    """One message for everything that failed; "" where nothing did."""
    problems = failures(checks)
    if not problems:
        return ""
    if len(problems) == 1:
        return f"1 problem, nothing was touched: {problems[0].message}"
    listed = " ".join(f"({number}) {check.message}" for number, check in enumerate(problems, 1))
    return f"{len(problems)} problems, nothing was touched: {listed}"
