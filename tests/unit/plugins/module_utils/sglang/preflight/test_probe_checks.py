# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that could not be proven."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.probe_checks import check_probes


@pytest.mark.parametrize(
    ("fields", "option"),
    [
        ({"grpc_mode": True}, "--grpc-mode"),
        ({"grpc_mode": True, "smg_grpc_mode": True}, "--grpc-mode"),
        ({"smg_grpc_mode": True}, "--smg-grpc-mode"),
        ({"is_embedding": True}, "--is-embedding"),
        ({"disaggregation_mode": "prefill", "disaggregation_transfer_backend": "mooncake"}, "--disaggregation-mode"),
        ({"disaggregation_mode": "decode"}, "--disaggregation-mode"),
    ],
)
def test_it_is_refused_by_name_with_a_remedy(fields, option):
    (found,) = check_probes(fields)
    assert found.status == "failed" and found.message.startswith(option) and "remove it" in found.message


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"grpc_mode": False, "smg_grpc_mode": False, "grpc_port": 40000, "is_embedding": False},
        {"disaggregation_mode": "null"},
        {"disaggregation_mode": "decode", "disaggregation_transfer_backend": "fake"},
    ],
)
def test_what_answers_may_go_on(fields):
    assert check_probes(fields) == []
