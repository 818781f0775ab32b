# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a GPU is to be reset."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import Failure
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.reset_needs import need_of
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import reading

RESET_REQUIRED = Failure("reset_required", "It needs a reset", "Reset it")
HUNG = Failure("hung", "No answer", "Reset it")
LOST = Failure("lost", "Gone", "Reboot")


@pytest.mark.parametrize(
    ("action", "failure", "held", "needed", "always"),
    [
        ("none", None, False, "leave", "reset"),
        ("none", None, True, "leave", "reset"),
        ("reset", None, True, "reset", "reset"),
        ("bus_reset", None, False, "bus_reset", "bus_reset"),
        ("node_reboot", None, False, "reboot", "reboot"),
        ("system_reboot", None, False, "reboot", "reboot"),
        ("drain_p2p", None, False, "drain", "reset"),
        ("drain_and_reset", None, True, "drain", "drain"),
        ("drain_and_reset", None, False, "reset", "reset"),
        ("recover_imex_domain", None, False, "imex", "imex"),
        # What is not known is never nothing.
        ("unknown", None, False, "undecided", "reset"),
        ("not_supported", None, False, "undecided", "reset"),
        ("not_supported", RESET_REQUIRED, False, "reset", "reset"),
        ("none", RESET_REQUIRED, False, "reset", "reset"),
        ("none", HUNG, False, "undecided", "reset"),
        ("reset", HUNG, False, "reset", "reset"),
        ("unknown", LOST, False, "reboot", "reboot"),
        ("node_reboot", RESET_REQUIRED, False, "reboot", "reboot"),
    ],
)
def test_need(action, failure, held, needed, always):
    one = reading(recovery_action=action, failure=failure)
    found = {when: need_of(one, held, when) for when in ("needed", "always")}
    assert (found["needed"].action, found["always"].action) == (needed, always)
    assert all(need.why for need in found.values())
