# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a real process of the stand-in, in every state that it goes through."""

from __future__ import annotations

import json
import os
import signal

from make_certificate import make_certificate

from .server import EAGLE3, behave, succeeded
from .waiting import wait_until

KEY = "kq-info-3f9a77d1"


def test_a_server_from_its_start_to_its_end(host, server, tmp_path):
    server.scheme = "https"
    pair = make_certificate(tmp_path / "tls", "llm.example.org")
    results = []

    def look(**options):
        folders = {name: str(server.folder / name) for name in ("state_dir", "run_dir", "log_dir")}
        result = succeeded(host.module("sglang_info", **{"timeout": 5, **folders, **options}))
        results.append(result)
        assert result["changed"] is False
        return result["servers"]

    def state(**options):
        (found,) = look(**options)
        return found["state"], found["reason"]

    assert look() == []
    before = server.files()
    slow = behave(load_seconds=1.5, slow_drain=2.0)
    started = server.go({"api-key": KEY}, environment=slow, extra_args=pair.options, **EAGLE3)
    assert state()[0] == "starting"
    server.prove()
    files = server.files()

    (found,) = look()
    assert (found["state"], found["pid"], found["version"]) == ("serving", started["process"]["pid"], "0.5.17")
    assert found["release"] == found["current"] == found["last_good"] != ""
    assert {name: found["effective"][name] for name in EAGLE3} == EAGLE3
    assert found["effective"]["speculative_draft_model_path"] == server.draft
    assert found["accept_length"] > 2 and found["https"] and found["generation"] is None
    assert found["load"] == {"running": 0, "waiting": 0, "source": "/v1/loads"} and found["problems"] == []
    (found,) = look(generate=True)
    assert found["generation"]["tokens"] == 16 and found["generation"]["spec_verify_ct"] > 0

    # One that hangs is unknown, and nobody waits for it longer than that.
    os.kill(found["pid"], signal.SIGSTOP)
    try:
        assert state(timeout=0.3) == ("unknown", "health_timeout")
    finally:
        os.kill(found["pid"], signal.SIGCONT)
    assert state() == ("serving", "")

    os.kill(found["pid"], signal.SIGTERM)
    wait_until(lambda: "SIGTERM received" in server.log())
    assert state() == ("draining", "")
    wait_until(lambda: server.identity() is None)
    assert state()[0] == "failed"
    server.stop()
    assert state() == ("stopped", "")
    assert before == {} and server.files() == files
    assert KEY not in json.dumps(results)
