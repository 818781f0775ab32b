# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a server speaks TLS."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import (
    Tls,
    tls_of_arguments,
    tls_of_fields,
    tls_of_release,
)

COMMAND = ["/opt/python", "-m", "sglang.launch_server", "--model-path", "/m"]
OPTIONS = ["--ssl-certfile", "/etc/a.crt", "--ssl-keyfile", "/etc/a.key"]


def release(*words, **more):
    return Release("id", "now", "main", "systemd", [*COMMAND, *words], **more)


def nothing_is_read(path):
    raise AssertionError("%s was read" % path)


@pytest.mark.parametrize(
    ("found", "tls"),
    [
        (release(), None),
        (release(*OPTIONS), Tls()),
        (release("--ssl_certfile=/etc/a.crt"), Tls()),
        (release(secret_args={"ssl-certfile": "/etc/a.crt"}), Tls()),
        # What a parser made of it counts more than what the words look like.
        (release(*OPTIONS, effective={"ssl_certfile": None}), None),
        (release(effective={"ssl_certfile": "/etc/a.crt"}), Tls()),
        # Of a server that was taken over, only some fields are known.
        (release(*OPTIONS, effective={"tp_size": 1}), Tls()),
    ],
)
def test_a_release(found, tls):
    assert tls_of_release(found, read=nothing_is_read) == tls


def test_a_release_whose_file_of_options_says_so():
    found = release("--config", "/etc/server.yaml")
    assert tls_of_release(found, read=lambda _path: "ssl-certfile: /etc/a.crt\n") == Tls()
    assert tls_of_release(found, read=lambda _path: "port: 1\n") is None


def test_a_process():
    assert tls_of_arguments(OPTIONS) == Tls()
    assert tls_of_arguments(["--port", "1"]) is None
    assert tls_of_arguments(["--config", "/c.yaml"], lambda _path: "ssl-certfile: /a.crt") == Tls()


def test_only_a_server_elsewhere_is_checked_and_only_with_authorities_that_are_here(tmp_path):
    authorities = tmp_path / "ca.crt"
    fields = {"ssl_certfile": "/etc/a.crt", "ssl_ca_certs": str(authorities)}
    assert tls_of_fields(fields, elsewhere=True) == Tls()
    authorities.write_text("")
    assert tls_of_fields(fields, elsewhere=True) == Tls(str(authorities))
    assert tls_of_fields(fields) == Tls()
    found = release(*OPTIONS, "--ssl-ca-certs", str(authorities))
    assert tls_of_release(found, elsewhere=True) == Tls(str(authorities))
    assert tls_of_release(found) == Tls()
