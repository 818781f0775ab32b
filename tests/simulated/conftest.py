# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated GPU host for each test: the modules run in processes of their own, on real processes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from .server import EAGLE3, Server

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SIMULATOR = REPOSITORY / "tests" / "simulator"
FAKEGPU = str(SIMULATOR / "fakegpu.py")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """Folder of the fake libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run([str(SIMULATOR / "nvml" / "build.sh"), str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder


class Host:
    """One simulated host: GPUs in a folder of their own, and the processes that a test started on it."""

    def __init__(self, folder, library):
        self.folder = folder
        self.library = library
        self.environment = dict(os.environ, FAKEGPU_DIR=str(folder), LD_LIBRARY_PATH=str(library))
        self.environment.pop("CUDA_VISIBLE_DEVICES", None)
        self.processes = []
        self.others = []

    def fakegpu(self, *words):
        """The simulator's command line."""
        return subprocess.run(
            [sys.executable, FAKEGPU, *map(str, words)],
            env=self.environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=30,
        ).stdout

    def hold(self, gpu, mib, *options, user=None, executable=sys.executable):
        """Start a process that holds memory; returns its `pid`, that of its `child`, and its Popen as `process`."""
        script = FAKEGPU
        if user is not None:
            # What another user may run and read: the system's Python, and a copy of the simulator.
            executable, script = "/usr/bin/python3", shutil.copy(FAKEGPU, self.folder)
        process = subprocess.Popen(
            [str(executable), script, "hold", "--gpu", str(gpu), "--mib", str(mib), *options],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            user=user,
        )
        self.processes.append(process)
        word, *pids = process.stdout.readline().split()
        assert word == "ready", "the holder did not start"
        self.others.extend(int(pid) for pid in pids)
        return {"process": process, "pid": int(pids[0]), "child": int(pids[-1])}

    def module(self, name, check=False, variables=None, **arguments):
        """Run a module as Ansible does, in a session with these variables as well: its result."""
        arguments.update(_ansible_check_mode=check, _ansible_diff=True, _ansible_remote_tmp=str(self.folder))
        done = subprocess.run(
            [sys.executable, str(pathlib.Path(__file__).with_name("run_module.py")), name],
            env=dict(self.environment, **(variables or {})),
            check=False,
            input=json.dumps(arguments),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stdout, done.stderr
        result = json.loads(done.stdout.strip().splitlines()[-1])
        # A server's log may well have one; a module's own result may not.
        assert "Traceback" not in done.stderr + json.dumps({**result, "log_tail": [], "msg": ""}), result
        return result

    def clean_up(self):
        """End what the test started, by PID."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        for pid in self.others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@contextlib.contextmanager
def simulated_host(folder, library):
    """A host with four idle GPUs of 143771 MiB."""
    state = folder / "fakegpu"
    state.mkdir()
    for parent in (folder, *folder.parents[:2]):  # pytest's own folders are closed to other users
        parent.chmod(0o755)
    host = Host(state, library)
    host.fakegpu("setup", "--gpus", 4, "--release-delay", 0.1)
    try:
        yield host
    finally:
        host.clean_up()


@contextlib.contextmanager
def simulated_server(host, folder):
    """A server that is not deployed, and ends with the test."""
    server = Server(host, folder, unused_port())
    try:
        yield server
    finally:
        server.end()


@pytest.fixture
def host(tmp_path, library):
    """A simulated host for one test."""
    with simulated_host(tmp_path, library) as host:
        yield host


@pytest.fixture
def server(host, tmp_path):
    """The instance main of the host, not deployed."""
    with simulated_server(host, tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def standing(tmp_path_factory, library):
    """A proven server, EAGLE-3 on two GPUs of a host of its own, for all tests of a file that leave it alone."""
    folder = tmp_path_factory.mktemp("standing")
    with simulated_host(folder, library) as host, simulated_server(host, folder) as server:
        server.go(tp_size=2, **EAGLE3)
        server.prove()
        yield server


def unused_port():
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_alive(pid):
    """Whether a process runs (a zombie does not)."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as stream:
            return stream.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, seconds=10.0):
    """Wait for something that is about to happen; fails after that many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in %s s" % seconds
        time.sleep(0.02)
