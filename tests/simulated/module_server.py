# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules in forks of a process that has imported them already.

The tests run thousands of modules, and importing one takes longer than what it does.  A fork is a process
of its own like any other, with its own environment and output.
"""

from __future__ import annotations

import array
import json
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback

MODULES = pathlib.Path(__file__).resolve().parents[2] / "plugins" / "modules"
_FDS = 2


class ModuleServer:
    """The side of the tests.  environment is that of the server's own start, such as where libraries are found."""

    def __init__(self, folder, environment):
        self._path = str(folder / "modules.socket")
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._path], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self._process.stdout.readline() == b"ready\n", "the server did not start"

    def run(self, name, environment, arguments, timeout=120.0):
        """Run a module: its standard output and standard error."""
        pipes = [os.pipe() for _number in range(_FDS)]
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            # socket.send_fds and recv_fds would do the same, from Python 3.9 on.
            descriptors = array.array("i", [write for _read, write in pipes])
            connection.sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            for _read, write in pipes:
                os.close(write)
            connection.sendall(json.dumps([name, environment, arguments]).encode())
        try:
            return [output.decode() for output in _read_all([read for read, _write in pipes], timeout)]
        finally:
            for read, _write in pipes:
                os.close(read)

    def close(self):
        """End it."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def _read_all(descriptors, timeout):
    """What comes out of all of them until their ends."""
    found = dict.fromkeys(descriptors, b"")
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the module did not end within %g s: %r" % (timeout, found))
            for key, _events in selector.select(left):
                chunk = os.read(key.fd, 1 << 16)
                found[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
    return list(found.values())


def serve(path):
    """The side of the server: a fork for each connection."""
    import run_module

    for module in sorted(MODULES.glob("*.py")):
        run_module.importlib.import_module(run_module.COLLECTION + "modules." + module.stem)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
        while True:
            connection, _address = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                _answer(connection, run_module.run)
            connection.close()


def _answer(connection, run):
    """Become the module, and end."""
    descriptors = array.array("i")
    _word, ancillary, _flags, _address = connection.recvmsg(1, socket.CMSG_SPACE(_FDS * descriptors.itemsize))
    descriptors.frombytes(ancillary[0][2])
    with connection, connection.makefile("rb") as stream:
        name, environment, arguments = json.load(stream)
    for target, descriptor in zip((1, 2), descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    status = 1
    try:
        run(name, arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
