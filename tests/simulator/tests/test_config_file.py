# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options in a file: ``--config FILE.yaml``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, List

import pytest
from harness import Host, Server
from make_model import make_model

PROBE = """
import io, json, sys
from contextlib import redirect_stderr
import sglang.srt.server_args as s
for argv in json.loads({!r}):
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            a = s.prepare_server_args(argv)
        out = [a.api_key, a.tp_size, a.mem_fraction_static, a.trust_remote_code]
    except SystemExit as x:
        out = "exit %s %s" % (x.code, said.getvalue().strip().splitlines()[-1])
    except Exception as x:
        out = "%s: %s" % (type(x).__name__, x)
    print(json.dumps(out))
"""


def parse(host: Host, *lines: List[str]) -> List[Any]:
    model = str(make_model(host.folder / "model"))
    argvs = [["--model-path", model, *argv] for argv in lines]
    return [json.loads(line) for line in host.python(PROBE.format(json.dumps(argvs))).splitlines()]


def write(host: Host, name: str, text: str) -> str:
    file = host.folder / name
    file.write_text(text)
    return str(file)


def test_options_of_the_file_count_unless_the_command_line_has_them(host: Host) -> None:
    text = '# a remark\n\napi-key: "a key: with \\"all\\" of it"\ntp-size: 2\nmem-fraction-static: 0.5\n'
    file = write(host, "a.yaml", text + "trust-remote-code: true\n")
    all_of_it, command_line_wins, switched_off = parse(
        host,
        ["--config", file],
        ["--tp-size", "4", "--config", file, "--api-key", "other"],
        ["--config", write(host, "b.yml", "tp: 2\ntrust-remote-code: false\napi-key: null\n")],
    )
    assert all_of_it == ['a key: with "all" of it', 2, 0.5, True]
    assert command_line_wins == ["other", 4, 0.5, True]
    assert switched_off == ["None", 2, 0.88, False]


def test_the_file_is_ignored_unless_named_by_two_words(host: Host) -> None:
    file = write(host, "a.yaml", "tp-size: 2\n")
    assert parse(host, ["--config=" + file]) == [[None, 1, 0.88, False]]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.yaml", "api_key: x1\n", "exit 2 sglang serve: error: unrecognized arguments: --api_key x1"),
        ("a.yaml", "no-such-option: 1\n", "exit 2 sglang serve: error: unrecognized arguments: --no-such-option 1"),
        ("a.json", "tp-size: 2\n", "ValueError: Config file must be YAML format, got: .json"),
        ("a.yaml", "tp-size: [2]\n", "ValueError: The stand-in reads only single values, not '[2]'"),
    ],
)
def test_what_is_refused(host: Host, name: str, text: str, expected: str) -> None:
    assert parse(host, ["--config", write(host, name, text)]) == [expected]


def test_a_file_that_is_not_there(host: Host) -> None:
    missing, unnamed = parse(host, ["--config", "/nowhere.yaml"], ["--config"])
    assert missing == "ValueError: Config file not found: /nowhere.yaml"
    assert unnamed == "ValueError: No config file specified after --config flag!"


def test_a_key_in_the_file_guards_the_server_and_is_in_no_command_line(
    host: Host, launch: Callable[..., Server]
) -> None:
    server = launch("--config", write(host, "secrets.yaml", 'api-key: "from-the-file"\n'))
    server.wait_ready()
    assert server.status("/v1/models") == 401
    assert server.request("/v1/models", key="from-the-file")[0] == 200
    pids = [server.process.pid, *server.children().values()]
    assert not any(b"from-the-file" in Path("/proc/%d/cmdline" % pid).read_bytes() for pid in pids)
