# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the releases call the settings that decide whether a server can be asked, and how."""

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.effective import (
    effective_from_parser,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import ACCEPTED, REFUSED
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.probe_checks import check_probes
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import Tls, tls_of_fields


def has_tls(release):
    return release.numbers >= (0, 5, 10)


def made_of(result):
    """The fields as a release keeps them."""
    assert result.status == ACCEPTED, result
    return effective_from_parser(result.fields, {}, result.assumed_device)


def test_https(release, models, tmp_path):
    file = tmp_path / "pair.pem"
    file.touch()
    words = [word for name in ("certfile", "keyfile", "ca-certs") for word in ("--ssl-" + name, str(file))]
    result = release.ask(["--model-path", models["TARGET"], *words])
    if not has_tls(release):
        assert result.status == REFUSED and "unrecognized arguments: --ssl-certfile" in result.message
        return
    assert tls_of_fields(made_of(result)) == Tls()
    assert tls_of_fields(made_of(result), elsewhere=True) == Tls(str(file))


def test_what_cannot_be_proven(release, models):
    words = ["--grpc-mode", "--is-embedding", "--disaggregation-mode"]
    result = release.ask(["--model-path", models["TARGET"], *words, "prefill"])
    assert [found.message.split(":")[0].split(" ")[0] for found in check_probes(made_of(result))] == words
