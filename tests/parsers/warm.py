# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps an interpreter with SGLang already imported, so that hundreds of questions take seconds.

    warm.py serve SOCKET               run by a release's own interpreter
    warm.py ask SOCKET ENVIRONMENT     stands in for "python -" with that environment (JSON)

The one that asks hands its standard input, output and error over; the other one forks a process that goes on with
them just as a new interpreter would.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys

# What reading a command line imports, wherever a release has it.
MODULES = (
    "sglang.srt.server_args",
    "sglang.srt.server_args_config_parser",
    "sglang.srt.utils.server_args_config_parser",
    "sglang.srt.arg_groups.pipeline",
    "sglang.srt.configs.model_config",
    "sglang.srt.speculative.adaptive_spec_params",
    "sglang.srt.speculative.spec_info",
)


def serve(path: str) -> None:
    """Answer one question after the other, until somebody ends this process."""
    # As it does for "python -": this folder is none of its business.
    sys.path[0] = ""
    os.chdir("/")
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        while True:
            connection, _peer = server.accept()
            with connection:
                environment, streams, _flags, _from = socket.recv_fds(connection, 1 << 20, 3)
                child = os.fork()
                if not child:
                    server.close()
                    become(json.loads(environment), streams)
                for stream in streams:
                    os.close(stream)
                _pid, status = os.waitpid(child, 0)
                connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))


def become(environment: dict[str, str], streams: list[int]) -> None:
    """Run the program on the standard input, and end."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    with os.fdopen(0, closefd=False) as source:
        program = compile(source.read(), "<stdin>", "exec")
    try:
        exec(program, {"__name__": "__main__"})
    finally:
        os._exit(1)  # the program ends by itself


def ask(path: str, environment: str) -> None:
    """Be that process, as far as the caller can tell."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [environment.encode()], [0, 1, 2])
        sys.exit(int(server.recv(16) or b"1"))


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])
