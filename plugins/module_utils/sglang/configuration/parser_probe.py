# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the host's own SGLang what it makes of a command line, without starting a server.

The interpreter that would run the server runs `parser_script` on its standard input, in a container where
the server would run in one.  The answer is one marked line of its standard output; what SGLang prints
comes by the other one.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_script import SCRIPT
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed, run

ACCEPTED = "accepted"  # fields has the result
REFUSED = "refused"  # SGLang does not take these arguments
NO_SGLANG = "no_sglang"  # the interpreter has no package sglang
NO_PARSER = "no_parser"  # there is one, and its parser cannot be imported
HUNG = "hung"
BROKEN = "broken"  # no answer: the interpreter died or could not be started

_TAIL_CHARACTERS = 16384
_TAIL_LINES = 6
_LATER = 5.0  # seconds
_CONFIG = "config.yaml"  # SGLang goes by the ending

# Makes of [python, "-"], and of the environment it is to run with, the command that runs it elsewhere.  The
# values of the environment are those of the command too, so that it need not repeat them in its words.
Wrap = Callable[[List[str], Mapping[str, str]], List[str]]


@dataclass(frozen=True)
class FoundFile:
    """A file of the installed package.

    path is absolute, as the interpreter sees it; sha256 is "" where there is no such file, or where problem
    says why it was not read.
    """

    path: str
    sha256: str
    problem: str = ""


@dataclass(frozen=True)
class ProbeResult:
    """The parser's answer.

    message says why, unless the arguments were accepted; assumed_device: no accelerator was visible
    and the parser was told --device cuda.  options: everything that the parser knows ("--model-path"), ()
    where that is unknown.  package: the folder of the package sglang, "" for none.  files: by asked target.
    """

    status: str
    version: str = ""
    fields: Dict[str, Any] = field(default_factory=dict)
    message: str = ""
    assumed_device: bool = False
    options: Tuple[str, ...] = ()
    package: str = ""
    files: Dict[str, FoundFile] = field(default_factory=dict)


def run_probe(
    python: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
    secret_args: Sequence[str] = (),
    targets: Sequence[str] = (),
    wrap: Optional[Wrap] = None,
    files: Optional[Mapping[str, str]] = None,
    working_directory: str = "",
) -> ProbeResult:
    """Run the parser with an environment; timeout is in seconds.  Never raises for what the parser does.

    secret_args are names of options that the server will get through --config: so does the parser, with
    a value that is no secret.  targets are files of SGLang to look at, relative to the folder that holds the
    package ("sglang/srt/server_args.py").  files are texts by the path that argv has for them: they need not
    be there yet.  Raises ValueError for a target that is absolute or leads out of that folder.
    """
    for target in targets:
        check_target(target)
    marker = "inferops-sglang-%s:" % secrets.token_hex(16)
    # The script makes the folder itself where it does not see this one; this one is certain to be removed.
    with tempfile.TemporaryDirectory(prefix="inferops-sglang-") as folder:
        exchange = _Files(folder, secret_args, files or {})
        task = {
            "marker": marker,
            "argv": exchange.words(argv),
            "folder": folder,
            "files": exchange.texts,
            "targets": list(targets),
            # Only for a parser that no signal reaches: it would otherwise talk over what it said last.
            "limit": timeout + _LATER,
            "working_directory": working_directory,
        }
        done = run(
            wrap([python, "-"], environment) if wrap is not None else [python, "-"],
            timeout,
            input="%s\nmain(json.loads(%a))\n" % (SCRIPT, json.dumps(task)),
            # What wraps it has needs of its own, such as the address of a daemon.
            env=dict(os.environ, **environment) if wrap is not None else environment,
            inherit=False,
        )
    return read_answer(done, timeout, marker, exchange.original)


def check_target(target: str) -> None:
    """Raise ValueError unless a path is relative and stays below where it starts."""
    plain = target == os.path.normpath(target) and not target.startswith("/") and target.split("/")[0] != ".."
    if not plain or "\0" in target:
        raise ValueError("%r is no plain path relative to the folder that holds the package sglang." % target)


class _Files:
    """The files that the parser is to read, under names of the time of the check."""

    def __init__(self, folder: str, secret_args: Sequence[str], files: Mapping[str, str]) -> None:
        self.texts: Dict[str, str] = {}
        self._config = os.path.join(folder, _CONFIG) if secret_args else ""
        self._names: Dict[str, str] = {}
        if secret_args:
            self.texts[_CONFIG] = "".join('%s: "no-secret"\n' % name for name in secret_args)
        for number, (path, text) in enumerate(files.items()):
            # The ending stays: it may decide how the file is read.
            name = "%d-%s" % (number, os.path.basename(path))
            self.texts[name] = text
            self._names[path] = os.path.join(folder, name)

    def words(self, argv: Sequence[str]) -> List[str]:
        """The command line that names these files."""
        words = []
        for word in argv:
            option, equals, value = word.partition("=")
            inline = word.startswith("--") and equals and value in self._names
            words.append(option + "=" + self._names[value] if inline else self._names.get(word, word))
        return words + ["--config", self._config] if self._config else words

    def original(self, value: Any) -> Any:
        """A value of the answer, with the names that the caller knows."""
        if isinstance(value, str):
            for path, name in self._names.items():
                value = value.replace(name, path)
            return value.replace(self._config, "the file of secret_args") if self._config else value
        if isinstance(value, list):
            return [self.original(item) for item in value]
        if isinstance(value, dict):
            return {name: self.original(item) for name, item in value.items()}
        return value


def read_answer(
    done: Completed, timeout: float, marker: str, original: Callable[[Any], Any] = lambda value: value
) -> ProbeResult:
    """Make sense of how the script ended; pure, for tests.

    timeout is in seconds, for the message; original gives values of the answer their proper names.
    """
    tail = _tail(done.err)
    if done.timed_out:
        return ProbeResult(HUNG, message=f"gave no answer within parser_timeout {timeout:g} s. {tail}".strip())
    if done.missing:
        return ProbeResult(BROKEN, message=f"could not be started: {done.err}.")
    line = next((line for line in reversed(done.out.splitlines()) if line.startswith(marker)), "")
    try:
        data = json.loads(line[len(marker) :])
    except ValueError:
        return ProbeResult(BROKEN, message=f"ended with status {done.rc} and no answer. {tail}".strip())
    message = str(data.get("message", ""))
    if "exited" in data and not message:
        message = f"it ended with status {data['exited']}. {tail}".strip()
    return ProbeResult(
        status=data["status"],
        version=str(data.get("version") or ""),
        fields=original(data.get("fields") or {}),
        message=original(message),
        assumed_device=bool(data.get("assumed_device")),
        options=tuple(data.get("options") or ()),
        package=str(data.get("package") or ""),
        files={target: FoundFile(**found) for target, found in (data.get("files") or {}).items()},
    )


def _tail(text: str) -> str:
    lines = [line.rstrip() for line in text[-_TAIL_CHARACTERS:].splitlines() if line.strip()]
    return " | ".join(lines[-_TAIL_LINES:])
