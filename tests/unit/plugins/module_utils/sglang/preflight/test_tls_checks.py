# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would end a server of https after it has loaded: real keys and certificates, good and bad."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import failures
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.effective import (
    effective_without_parser,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.tls_checks import check_tls, files_of
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.sglang.certificates import make_certificate


def check(*extra, secret=None, fields=None, user="", host="127.0.0.1", **options):
    settings = Settings("/m", host=host, extra_args=tuple(map(str, extra)))
    options.setdefault("locate", lambda path: path)
    options.setdefault("readable", lambda _path, _account: True)
    found = effective_without_parser(settings) if fields is None else fields
    return check_tls(settings, secret or {}, found, user, **options)


def problem(*extra, **options):
    """The one thing that is wrong."""
    (found,) = failures(check(*extra, **options))
    assert found.name == "tls"
    return found.message


@pytest.fixture
def pair(tmp_path):
    return make_certificate(tmp_path, "llm.example.org")


def test_plain_http_needs_nothing():
    assert check("--port", "1") == []


def test_a_key_and_its_certificate(pair):
    (found,) = check(*pair.options)
    assert (found.status, found.message) == ("ok", "The server will serve https with %s." % pair.certificate)


def test_one_without_the_other(pair):
    assert "--ssl-certfile %s without --ssl-keyfile" % pair.certificate in problem("--ssl-certfile", pair.certificate)
    assert "--ssl-keyfile %s without --ssl-certfile" % pair.key in problem("--ssl-keyfile", pair.key)
    assert "without --ssl-certfile" in problem("--ssl-ca-certs", pair.certificate)


def test_a_file_that_is_missing_or_named_from_somewhere(pair, tmp_path):
    gone = tmp_path / "gone.key"
    assert problem("--ssl-certfile", pair.certificate, "--ssl-keyfile", gone) == (
        "--ssl-keyfile %s is no file on this host: create it, or correct the option." % gone
    )
    assert "no absolute path" in problem("--ssl-certfile", pair.certificate, "--ssl-keyfile", "server.key")
    assert "is no file" in problem("--ssl-certfile", pair.certificate, "--ssl-keyfile", tmp_path)


def test_files_that_do_not_belong_together(pair, tmp_path):
    other = make_certificate(tmp_path, stem="other")
    assert "cannot be used together" in problem("--ssl-certfile", pair.certificate, "--ssl-keyfile", other.key)
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("no PEM")
    assert "cannot be used together" in problem("--ssl-certfile", rubbish, "--ssl-keyfile", pair.key)


def test_a_key_with_a_password(tmp_path):
    pair = make_certificate(tmp_path, "llm.example.org", password="open-sesame")
    assert "give ssl-keyfile-password in secret_args" in problem(*pair.options)
    assert not failures(check(*pair.options, secret={"ssl-keyfile-password": "open-sesame"}))
    wrong = problem(*pair.options, secret={"ssl-keyfile-password": "open-barley"})
    assert "with the ssl-keyfile-password that is given" in wrong and "barley" not in wrong
    refresh = check(*pair.options, "--enable-ssl-refresh", secret={"ssl-keyfile-password": "open-sesame"})
    assert [found.status for found in refresh] == ["warning"]


def test_options_out_of_a_file(pair, tmp_path):
    lines = "ssl-certfile: %s\nssl-keyfile: %s\n" % (pair.certificate, tmp_path / "gone.key")
    assert "gone.key is no file" in problem("--config", "/etc/server.yaml", read=lambda _path: lines)


def test_what_sglang_made_of_the_request_counts(pair):
    made = {"ssl_certfile": str(pair.certificate), "ssl_keyfile": "/gone.key", "ssl_ca_certs": None}
    assert "/gone.key is no file" in problem(fields=made)
    assert check(*pair.options, fields=dict.fromkeys(made)) == []


def test_the_servers_user_must_be_able_to_read_them(pair):
    asked = []

    def readable(path, account):
        asked.append((path, account.pw_name))
        return path != str(pair.key)

    message = problem(*pair.options, user="nobody", readable=readable)
    assert message.startswith("--ssl-keyfile %s may not be read by nobody, as whom the server runs" % pair.key)
    assert asked == [(str(pair.certificate), "nobody"), (str(pair.key), "nobody")]


def test_that_it_cannot_be_told_is_a_failure(pair):
    found = failures(check(*pair.options, user="nobody", readable=lambda _path, _account: None))
    assert len(found) == 2 and "cannot be told whether nobody may read it" in found[0].message


def test_files_of_an_image_are_not_looked_at(pair):
    found = check(*pair.options, locate=lambda _path: None)
    assert [check.status for check in found] == ["skipped", "skipped"]


def test_a_container_sees_its_files_elsewhere(pair):
    words = ["--ssl-certfile", "/etc/tls/server.crt", "--ssl-keyfile", "/etc/tls/server.key"]
    found = check(*words, locate=lambda path: path.replace("/etc/tls", str(pair.key.parent)))
    assert not failures(found)
    assert files_of(Settings("/m", extra_args=tuple(words)), {}) == ["/etc/tls/server.crt", "/etc/tls/server.key"]


# -- the server's own first request


@pytest.fixture
def authority(tmp_path):
    return make_certificate(tmp_path, stem="authority")


@pytest.mark.parametrize(
    ("names", "host", "refused"),
    [
        (("127.0.0.1",), "127.0.0.1", ""),
        (("127.0.0.1",), "0.0.0.0", ""),
        (("::1",), "::", ""),
        (("llm.example.org",), "0.0.0.0", "127.0.0.1"),
        (("127.0.0.1",), "10.0.0.7", "10.0.0.7"),
        (("localhost",), "localhost", ""),
        ((), "localhost", "localhost"),
    ],
)
def test_its_certificate_must_hold_where_it_asks_itself(tmp_path, authority, names, host, refused):
    pair = make_certificate(tmp_path, *names, issuer=authority)
    words = [*pair.options, "--ssl-ca-certs", authority.certificate]
    if not refused:
        assert not failures(check(*words, host=host))
        return
    message = problem(*words, host=host)
    assert "https://%s:30000" % refused in message and "also names %s" % refused in message
    assert not failures(check(*words, "--skip-server-warmup", host=host))
    assert not failures(check(*words, "--nnodes", "2", "--node-rank", "1", host=host))
    assert not failures(check(*pair.options, host=host))


def test_it_must_be_of_that_authority_and_not_have_expired(tmp_path, authority):
    stranger = make_certificate(tmp_path, "127.0.0.1", stem="stranger")
    assert "would end after loading" in problem(*stranger.options, "--ssl-ca-certs", authority.certificate)
    old = make_certificate(tmp_path, "127.0.0.1", stem="old", issuer=authority, days=-1)
    assert "expired" in problem(*old.options, "--ssl-ca-certs", authority.certificate)
    assert "it cannot be read" in problem(*old.options, "--ssl-ca-certs", old.key)
