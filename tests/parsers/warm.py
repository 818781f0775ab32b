# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps an interpreter with SGLang already imported, so that hundreds of questions take seconds.

    warm.py serve SOCKET               run by a release's own interpreter
    warm.py ask SOCKET ENVIRONMENT     stands in for "python -" with that environment (JSON)

The one that asks hands its standard input, output and error over; the other one forks a process that goes on with
them just as a new interpreter would. What such a process has to import, the other one imports too, for the next.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress

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
    """Answer one question after the other, until somebody ends this process, or the one that started it is gone."""
    parent = os.getppid()
    # As it does for "python -": this folder is none of its business.
    sys.path[0] = ""
    os.chdir("/")
    import_all(MODULES)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        server.settimeout(10)
        print("ready", flush=True)
        while os.getppid() == parent:
            try:
                connection, _peer = server.accept()
            except TimeoutError:
                continue
            with connection:
                environment, streams, _flags, _from = socket.recv_fds(connection, 1 << 20, 3)
                reading, writing = os.pipe()
                child = os.fork()
                if not child:
                    server.close()
                    become(json.loads(environment), streams, writing)
                for stream in (writing, *streams):
                    os.close(stream)
                with os.fdopen(reading) as names:
                    imported = names.read().split("\n")
                _pid, status = os.waitpid(child, 0)
                connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))
            import_all(imported)


def import_all(names: Iterable[str]) -> None:
    """Import what can be imported, and let no child copy the memory of it."""
    for name in filter(None, names):
        with suppress(Exception):
            importlib.import_module(name)
    gc.freeze()


def become(environment: dict[str, str], streams: list[int], imported: int) -> None:
    """Run the program on the standard input, and end; tell what it has imported."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    before, leave = set(sys.modules), os._exit

    def tell_and_leave(status: int) -> None:
        with os.fdopen(imported, "w") as stream:
            stream.write("\n".join(name for name in sys.modules if name not in before))
        leave(status)

    os._exit = tell_and_leave
    with os.fdopen(0, closefd=False) as source:
        program = compile(source.read(), "<stdin>", "exec")
    try:
        exec(program, {"__name__": "__main__"})
    finally:
        leave(1)  # the program ends by itself


def ask(path: str, environment: str) -> None:
    """Be that process, as far as the caller can tell."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [environment.encode()], [0, 1, 2])
        sys.exit(int(server.recv(16) or b"1"))


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])
