# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What could be started and never proven: servers that do not answer POST /generate over HTTP."""

from __future__ import annotations

from typing import Any, List, Mapping

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed

_NAME = "probes"
_ONLY_GRPC = (
    "the server would speak gRPC in place of HTTP: remove it. Newer versions serve gRPC beside HTTP: --grpc-port."
)
# SGLang takes the first name for the second one.
_GRPC = ("grpc_mode", "smg_grpc_mode")


def check_probes(fields: Mapping[str, Any]) -> List[Check]:
    """Refuse a configuration whose server could not show that it works; fields are what SGLang makes of the request."""
    found = [failed(_NAME, "--%s: %s" % (name.replace("_", "-"), _ONLY_GRPC)) for name in _GRPC if fields.get(name)][:1]
    if fields.get("is_embedding"):
        found.append(failed(_NAME, "--is-embedding: the server would not generate, and speculate neither: remove it."))
    mode = fields.get("disaggregation_mode")
    if mode in ("prefill", "decode") and fields.get("disaggregation_transfer_backend") != "fake":
        found.append(
            failed(
                _NAME,
                "--disaggregation-mode %s: such a server answers only requests that a router has paired, so it cannot "
                "be proven by itself: remove it." % mode,
            )
        )
    return found
