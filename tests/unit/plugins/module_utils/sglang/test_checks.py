# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import (
    failed,
    ok,
    problem_summary,
    skipped,
    warning,
)


def test_problems_are_told_together():
    checks = [ok("a", "A."), failed("b", "B."), warning("c", "C."), skipped("d", "D."), failed("e", "E.")]
    assert problem_summary(checks) == "2 problems, nothing was touched: (1) B. (2) E."
    assert problem_summary(checks[:2]) == "1 problem, nothing was touched: B."
    assert problem_summary([checks[0], checks[2]]) == ""
