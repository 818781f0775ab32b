# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers from bug reports that say they are well: what the proof finds out."""

from __future__ import annotations

import json
import os
import signal

import pytest

from .server import EAGLE3, behave, succeeded
from .waiting import wait_until

# ---- serving, for a while


@pytest.mark.sglang_case(1)
@pytest.mark.parametrize(("answered", "reason"), [(20, "hangs_under_load"), (100, "hangs_under_load"), (2, None)])
def test_a_server_that_hangs_after_some_requests_is_not_proven(server, answered, reason):
    server.go(environment=behave(hang_after_requests=answered), **EAGLE3)
    result = server.wait(soak_requests=120, soak_concurrency=8, request_timeout=0.5)
    assert result["failed"] and result["reason"] == (reason or "generation_timeout")
    assert server.request("/health") == 200
    if reason:
        assert "under load" in result["msg"] and "hangs" in result["msg"]


@pytest.mark.sglang_case(1)
def test_a_server_that_answers_many_requests_is_proven(server):
    server.go(**EAGLE3)
    result = succeeded(server.wait(soak_requests=120, soak_concurrency=8))
    assert "soaking" in [phase["name"] for phase in result["sglang"]["phases"]]
    assert result["sglang"]["accept_length"] == pytest.approx(2.95, abs=0.1)


@pytest.mark.sglang_case("single refusals under load")
@pytest.mark.parametrize(("every", "fails"), [(40, False), (25, False), (4, True), (1, True)])
def test_single_refusals_are_tolerated_and_many_are_not(server, every, fails):
    server.go(environment=behave(fail_every=every), **EAGLE3)
    result = server.wait(soak_requests=100, soak_concurrency=4)
    assert bool(result.get("failed")) == fails
    if fails:
        assert result["reason"] == "generation_failed" and "503" in result["msg"]


# ---- speculating


@pytest.mark.sglang_case(8)
@pytest.mark.parametrize("version", ["0.5.7", "0.5.12", "0.5.23"])
@pytest.mark.parametrize(("accepted", "wanted", "fails"), [(1.0, 1.2, True), (1.15, 1.2, True), (1.0, 1.0, False)])
def test_a_draft_of_which_nothing_is_accepted_is_not_proven(server, version, accepted, wanted, fails):
    server.go(environment=behave(version=version, accept=accepted), **EAGLE3)
    result = server.wait(min_accept_length=wanted)
    assert bool(result.get("failed")) == fails
    assert result["sglang"]["accept_length"] == pytest.approx(accepted, abs=0.02)
    if fails:
        assert result["reason"] == "low_acceptance" and "min_accept_length" in result["msg"]


@pytest.mark.sglang_case(10, 12, 14, "no speculation and no word of it")
@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"speculative_options": {"draft_model_quantization": "unquant"}}, {"draft_model_quantization": "fp8"}),
        ({"speculative_options": {"adaptive": True}}, {"adaptive": False}),
        ({}, {"algorithm": None}),
        ({}, {"num_draft_tokens": 2}),
        ({"max_running_requests": 250}, {"max_running_requests": 48}),
    ],
    ids=["quantization", "adaptive", "algorithm", "tokens", "limit"],
)
def test_a_server_that_differs_from_its_configuration_is_not_proven(server, options, reported):
    reported = {name if name.startswith("max") else "speculative_" + name: value for name, value in reported.items()}
    server.go(environment=behave(effective_override=reported), **EAGLE3, **options)
    result = server.wait()
    assert result["failed"]
    (field,) = reported
    if field == "speculative_algorithm":
        assert result["reason"] in ("config_mismatch", "no_speculation")
        return
    assert result["reason"] == "config_mismatch" and field in result["msg"]
    assert [row["field"] for row in result["sglang"]["mismatches"]] == [field]


# ---- keys


@pytest.mark.sglang_case(32, "wants another key")
@pytest.mark.parametrize("version", ["0.5.7", "0.5.12", "0.5.23"])
def test_keys_that_the_server_shows_are_in_no_result(server, version):
    keys = {"api-key": "kq-user-5d1c9a40", "admin-api-key": "kq-admin-7be2f093"}
    server.go(secret_args=keys, environment=behave(version=version), **EAGLE3)
    succeeded(server.wait(soak_requests=4, soak_concurrency=2))
    wrong = server.wait(api_key="kq-wrong-11aa22bb")
    assert wrong["failed"] and wrong["reason"] == "unauthorized"
    failed = server.wait(expected={"speculative_num_steps": 7})
    assert failed["reason"] == "config_mismatch"
    server.prove()
    server.preflight(secret_args=keys, **EAGLE3)
    server.module("sglang_process", state="inspected")
    server.stop()
    text = json.dumps(server.results)
    assert not [key for key in (*keys.values(), "kq-wrong-11aa22bb") if key in text]
    shown = [
        path for path, content in server.files().items() if any(k.encode() in _bytes(content) for k in keys.values())
    ]
    assert all(os.stat(path).st_mode & 0o077 == 0 for path in shown)


def _bytes(content):
    return content.encode() if isinstance(content, str) else content


# ---- data parallel


@pytest.mark.sglang_case(30)
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGQUIT], ids=["killed", "told-by-a-scheduler"])
def test_a_dead_data_parallel_controller_is_noticed(server, signal_number):
    server.go(dp_size=2)
    succeeded(server.wait())
    main = server.identity()
    os.kill(server.family()["sglang::data_parallel_controller"], signal_number)
    wait_until(lambda: server.request("/health") == 503)
    result = server.wait(timeout=20)
    assert result["failed"] and server.identity() == main
    assert result["reason"] in ("worker_died", "timeout")
    server.stop()
    assert server.family() == {}


@pytest.mark.sglang_case(30)
def test_a_controller_that_dies_while_it_is_waited_for_is_noticed_before_the_timeout(server):
    server.go(dp_size=2, environment=behave(hang_at="warm_up"))
    wait_until(lambda: server.request("/health") == 503)
    server.kill("sglang::data_parallel_controller")
    result = server.wait(timeout=60)
    assert result["failed"] and result["waited"] < 20
