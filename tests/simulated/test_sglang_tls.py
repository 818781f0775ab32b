# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that serve https, from the check of their certificates to their stop."""

from __future__ import annotations

import json

import pytest
from make_certificate import make_certificate

from .server import EAGLE3, behave, succeeded
from .waiting import is_alive, wait_until

KEY, SECRET = "kq-tls-3f9a77d1", "open-sesame-44"


@pytest.fixture
def https(server):
    """The server, of which all requests of the tests are https."""
    server.scheme = "https"
    return server


@pytest.fixture
def pair(tmp_path):
    """A certificate for the name that clients use, which the probes do not."""
    return make_certificate(tmp_path / "tls", "llm.example.org")


def test_a_server_of_https_is_started_proven_drained_and_stopped(https, tmp_path):
    # For the name that clients use, which the probes do not.
    pair = make_certificate(tmp_path / "tls", "llm.example.org", password=SECRET)
    refused = https.preflight(extra_args=pair.options)
    assert refused["failed"] and "give ssl-keyfile-password in secret_args" in refused["msg"]
    secret_args = {"api-key": KEY, "ssl-keyfile-password": SECRET}
    https.go(secret_args, extra_args=pair.options, **EAGLE3)
    ready = https.prove(soak_requests=5)["sglang"]
    assert ready["effective"]["speculative_algorithm"] == "EAGLE3" and ready["accept_length"] > 2
    assert (ready["soak"]["requests"], ready["soak"]["failed"]) == (5, 0)
    assert [https.request("/v1/models", key=key) for key in (KEY, None)] == [200, 401]
    https.scheme = "http"
    assert https.request("/v1/models", key=KEY) == 0
    https.scheme = "https"
    # Nothing is restarted for a configuration that runs already.
    assert https.start()["changed"] is False
    stopped = https.stop(drain_timeout=5, port=https.port)
    assert stopped["drain"]["source"] and stopped["drain"]["in_flight"] == 0 and stopped["port"]["free"]
    assert not any(secret in json.dumps(https.results) for secret in (KEY, SECRET))


def test_options_in_a_file_count_too(https, pair, tmp_path):
    file = tmp_path / "server.yaml"
    file.write_text("ssl-certfile: %s\nssl-keyfile: %s\n" % (pair.certificate, tmp_path / "gone.key"))
    refused = https.preflight(extra_args=["--config", str(file)], parser="skip")
    assert refused["failed"] and "gone.key is no file" in refused["msg"]
    file.write_text("ssl-certfile: %s\nssl-keyfile: %s\n" % (pair.certificate, pair.key))
    parsed = succeeded(https.preflight(extra_args=["--config", str(file)], parser="required"))
    assert parsed["sglang"]["effective"]["ssl_certfile"] == str(pair.certificate)
    # Without the parser nothing but the file itself says it.
    checked = succeeded(https.preflight(extra_args=["--config", str(file)], parser="skip"))
    assert "ssl_certfile" not in checked["sglang"]["effective"]
    succeeded(https.present(checked))
    succeeded(https.start())
    assert https.prove()["sglang"]["pid"]


def test_a_server_that_does_not_trust_itself_is_refused_and_would_have_died(https, tmp_path):
    authority = make_certificate(tmp_path / "tls", stem="authority")
    pair = make_certificate(tmp_path / "tls", "llm.example.org", issuer=authority)
    options = {
        "extra_args": [*pair.options, "--ssl-ca-certs", str(authority.certificate)],
        "environment": behave(warmup_polls=3),
    }
    refused = https.preflight(**options)
    assert refused["failed"] and "also names 127.0.0.1" in refused["msg"]
    make_certificate(tmp_path / "tls", "llm.example.org", "127.0.0.1", issuer=authority)
    checked = succeeded(https.preflight(**options))
    succeeded(https.present(checked))
    succeeded(https.start())
    https.prove()
    https.stop()
    # The check was right: with the first certificate the server ends when it asks itself.
    make_certificate(tmp_path / "tls", "llm.example.org", issuer=authority)
    succeeded(https.start())
    failed = https.wait()
    assert failed["failed"] and failed["reason"] != "timeout" and "CERTIFICATE_VERIFY_FAILED" in https.log()


def test_a_server_of_https_that_was_started_by_hand_is_taken_over(https, by_hand, pair):
    _shell, pid = by_hand(*pair.options)
    wait_until(lambda: https.request("/health") == 200, 30)
    result = succeeded(
        https.host.module(
            "sglang_process",
            state="stopped",
            manager="process",
            port=https.port,
            unmanaged="take_over",
            drain_timeout=5,
            kill_timeout=5,
            **{name: str(https.folder / name) for name in ("state_dir", "run_dir", "log_dir", "etc_dir")},
        )
    )
    assert result["adopted"] and not is_alive(pid) and result["drain"]["in_flight"] == 0
    release = json.loads((https.instance_dir / "last_good" / "release.json").read_text())
    assert release["sglang_version"] == "0.5.17"
    succeeded(https.module("sglang_release", state="restored"))
    succeeded(https.start())
    assert https.prove()["sglang"]["pid"]
