# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command line says, and the file that it names."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.command_line import configured_value, option_value

OPTION = "--ssl-certfile"


def test_the_last_occurrence_of_an_option_counts_however_it_is_spelt():
    assert option_value(["--api_key", "x"], "--api-key") == "x"
    assert option_value(["--port", "1", "--port=2"], "--port") == "2"
    assert option_value(["--port"], "--port") is None


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("ssl-certfile: /etc/a b.pem", "/etc/a b.pem"),
        ("ssl-certfile: '/etc/a.pem' # ours", "/etc/a.pem"),
        ('ssl-certfile: "/etc/a.pem"', "/etc/a.pem"),
        ("ssl-certfile: /etc/a.pem # ours", "/etc/a.pem"),
        ("ssl-certfile:", None),
        ("# ssl-certfile: /etc/a.pem", None),
        ("ssl-certfile-other: /etc/a.pem", None),
        ("nested:\n  ssl-certfile: /etc/a.pem", None),
    ],
)
def test_what_the_file_says(line, value):
    arguments = ["--model-path", "/m", "--config", "/etc/server.yaml"]
    files = {"/etc/server.yaml": "port: 30000\n%s\n" % line}
    assert configured_value(arguments, OPTION, lambda path: files[str(path)]) == value


def test_the_command_line_wins():
    arguments = ["--config", "/etc/server.yaml", OPTION, "/etc/given.pem"]
    assert configured_value(arguments, OPTION, lambda _path: "ssl-certfile: /etc/file.pem") == "/etc/given.pem"


def test_a_file_named_with_an_equals_sign_is_not_read_as_sglang_does_not_read_it_either():
    assert configured_value(["--config=/etc/server.yaml"], OPTION, lambda _path: "ssl-certfile: /a") is None


def test_a_file_that_is_not_there_or_may_not_be_read_says_nothing(tmp_path):
    assert configured_value(["--config", str(tmp_path / "none.yaml")], OPTION) is None
    assert configured_value(["--config", str(tmp_path)], OPTION) is None
