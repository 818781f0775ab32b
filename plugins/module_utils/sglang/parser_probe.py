# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the host's own SGLang what it makes of a command line, without starting a server.

The interpreter that would run the server runs `parser_script` on its standard input.  What SGLang
prints is kept apart from the answer, which comes back through a descriptor of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Dict, List, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.parser_script import SCRIPT

ACCEPTED = "accepted"  # fields has the result
REFUSED = "refused"  # SGLang does not take these arguments
NO_SGLANG = "no_sglang"  # the interpreter has no package sglang
NO_PARSER = "no_parser"  # there is one, and its parser cannot be imported
HUNG = "hung"
BROKEN = "broken"  # no answer: the interpreter died or could not be started

_TAIL_BYTES = 16384
_TAIL_LINES = 6


@dataclass(frozen=True)
class ProbeResult:
    """The parser's answer.

    message says why, unless the arguments were accepted; assumed_device: no accelerator was visible
    and the parser was told --device cuda.
    """

    status: str
    version: str = ""
    fields: Dict[str, Any] = field(default_factory=dict)
    message: str = ""
    assumed_device: bool = False


def run_probe(
    python: str, argv: Sequence[str], environment: Mapping[str, str], timeout: float, secret_args: Sequence[str] = ()
) -> ProbeResult:
    """Run the parser with an environment; timeout is in seconds.  Never raises for what the parser does.

    secret_args are names of options that the server will get through --config: so does the parser, with
    a value that is no secret.
    """
    with contextlib.ExitStack() as stack:
        answer = stack.enter_context(tempfile.TemporaryFile())
        output = stack.enter_context(tempfile.TemporaryFile())
        words = list(argv)
        if secret_args:
            config = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".yaml"))
            config.writelines(f'{name}: "no-secret"\n' for name in secret_args)
            config.flush()
            words += ["--config", config.name]
        script = f"{SCRIPT}\nmain({words!a}, {answer.fileno()})\n"
        try:
            status = _run(python, script, environment, timeout, answer, output)
        except subprocess.TimeoutExpired:
            return ProbeResult(
                HUNG, message=f"gave no answer within parser_timeout {timeout:g} s. {_tail(output)}".strip()
            )
        except OSError as error:
            return ProbeResult(BROKEN, message=f"{python} could not be started: {error.strerror}")
        return read_answer(_content(answer), status, _tail(output))


def _run(
    python: str,
    script: str,
    environment: Mapping[str, str],
    timeout: float,
    answer: BinaryIO,
    output: BinaryIO,
) -> int:
    process = subprocess.Popen(
        [python, "-"],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        cwd="/",
        pass_fds=[answer.fileno()],
        start_new_session=True,
    )
    try:
        process.communicate(script.encode(), timeout=timeout)
    except BaseException:
        # Not yet waited for, so the number is still its own; helpers that SGLang started are in the
        # same group and go with it.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode


def _content(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")


def _tail(stream: BinaryIO) -> str:
    stream.seek(0, os.SEEK_END)
    stream.seek(max(0, stream.tell() - _TAIL_BYTES))
    lines = [line.rstrip() for line in stream.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return " | ".join(lines[-_TAIL_LINES:])


def read_answer(text: str, returncode: int, tail: str) -> ProbeResult:
    """Make sense of what the script wrote; pure, for tests."""
    try:
        data = json.loads(text)
    except ValueError:
        return ProbeResult(BROKEN, message=f"ended with status {returncode} and no answer. {tail}".strip())
    message = str(data.get("message", ""))
    if data["status"] == REFUSED and data.get("exited"):
        # argparse has printed the reason and left.
        message = _argparse_error(tail) or tail
    return ProbeResult(
        status=data["status"],
        version=str(data.get("version") or ""),
        fields=data.get("fields") or {},
        message=message,
        assumed_device=bool(data.get("assumed_device")),
    )


def _argparse_error(tail: str) -> str:
    lines: List[str] = [line for line in tail.split(" | ") if "error: " in line]
    return lines[-1].split("error: ", 1)[1] if lines else ""
