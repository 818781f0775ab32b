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
from unittest import mock

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "simulator"))

import fakegpu

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

from .control_groups import ControlGroups
from .module_server import ModuleServer
from .server import EAGLE3, Server
from .services import ServiceHost
from .users import as_user
from .waiting import wait_until

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SIMULATOR = REPOSITORY / "tests" / "simulator"
FAKEGPU = str(SIMULATOR / "fakegpu.py")
RUNNER = str(pathlib.Path(__file__).with_name("run_module.py"))


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """Folder of the fake libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run([str(SIMULATOR / "nvml" / "build.sh"), str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def modules(tmp_path_factory, library):
    """What runs the modules."""
    server = ModuleServer(tmp_path_factory.mktemp("modules"), module_environment(library))
    yield server
    server.close()


def module_environment(library):
    """The environment of the tests, with the fake library."""
    environment = dict(os.environ, LD_LIBRARY_PATH=str(library))
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    # Hundreds of modules are run: they are compiled once.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.setdefault("PYTHONPYCACHEPREFIX", str(library / "pycache"))
    # Where the tests run alone, that is the whole host.
    environment["HOST_PID_NAMESPACE"] = str(os.stat("/proc/self/ns/pid").st_ino)
    return environment


class Host:
    """One simulated host: GPUs in a folder of their own, and the processes that a test started on it."""

    def __init__(self, folder, library, modules):
        self.folder = folder
        self.library = library
        self.modules = modules
        self.simulator = pathlib.Path(FAKEGPU)
        self.environment = dict(module_environment(library), FAKEGPU_DIR=str(folder))
        self.processes = []
        self.others = []

    def fakegpu(self, *words):
        """The simulator's command line, without the time that a process of its own would take."""
        variables = {key: self.environment[key] for key in ("FAKEGPU_DIR", "FAKEGPU_DEV") if key in self.environment}
        with mock.patch.dict(os.environ, variables):
            fakegpu.main([str(word) for word in words])

    def hold(self, gpu, mib, *options, user=None, group=None, executable=sys.executable, **popen):
        """Start a process that holds memory; returns its `pid`, that of its `child`, and its Popen as `process`.

        gpu None: it holds nothing but what its options say.
        """
        script, become = FAKEGPU, None
        held = [] if gpu is None else ["--gpu", str(gpu), "--mib", str(mib)]
        if user is not None:
            # What another user may run and read: the system's Python, and a copy of the simulator.
            executable, script = "/usr/bin/python3", shutil.copy(FAKEGPU, self.folder)
            become = as_user(user, group)
        process = subprocess.Popen(
            [str(executable), "-S", script, "hold", *held, *map(str, options)],
            env={**self.environment, **popen.pop("env", {})},
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=become,
            **popen,
        )
        self.processes.append(process)
        word, *pids = process.stdout.readline().split()
        assert word == "ready", "the holder did not start"
        self.others.extend(int(pid) for pid in pids)
        return {"process": process, "pid": int(pids[0]), "child": int(pids[-1])}

    def module(self, name, check=False, variables=None, launcher=(), interpreter=sys.executable, **arguments):
        """Run a module as Ansible does, in a session with these variables as well: its result.

        launcher: the command that runs it, as setpriv does under another user.
        """
        arguments.update(_ansible_check_mode=check, _ansible_diff=True, _ansible_remote_tmp=str(self.folder))
        environment = dict(self.environment, **(variables or {}))
        if launcher or str(interpreter) != sys.executable:
            done = subprocess.run(
                [*launcher, str(interpreter), RUNNER, name],
                env=environment,
                check=False,
                input=json.dumps(arguments),
                capture_output=True,
                text=True,
                timeout=120,
            )
            output, errors = done.stdout, done.stderr
        else:
            output, errors = self.modules.run(name, environment, arguments)
        assert output, errors
        result = json.loads(output.strip().splitlines()[-1])
        # For ansible-core 2.22 itself: what to hide.  The controller takes it out before anybody sees the result.
        result.pop("_ansible_new_secrets", None)
        # A server's log may well have one; a module's own result may not.
        points = [dict(point, log_tail=[]) for point in result.get("points") or ()]
        assert "Traceback" not in errors + json.dumps({**result, "log_tail": [], "msg": "", "points": points}), result
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
def simulated_host(folder, library, modules):
    """A host with four idle GPUs of 143771 MiB."""
    state = folder / "fakegpu"
    state.mkdir()
    for parent in (folder, *list(folder.parents)[:2]):  # pytest's own folders are closed to other users
        parent.chmod(0o755)
    host = Host(state, library, modules)
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
def host(tmp_path, library, modules):
    """A simulated host for one test."""
    with simulated_host(tmp_path, library, modules) as host:
        yield host


@pytest.fixture
def gpu_host(host):
    """A simulated host whose GPUs have device nodes, which the processes that use them have open."""
    host.environment["FAKEGPU_DEV"] = str(host.folder / "dev")
    host.fakegpu("nodes")
    return host


@pytest.fixture
def groups():
    """Control groups for the test's processes."""
    groups = ControlGroups()
    try:
        yield groups
    finally:
        groups.clean_up()


@pytest.fixture
def services(gpu_host, tmp_path, groups):
    """systemd, docker and supervisord of the simulated host."""
    services = ServiceHost(gpu_host, tmp_path, groups)
    try:
        yield services
    finally:
        services.clean_up()


@pytest.fixture
def server(host, tmp_path):
    """The instance main of the host, not deployed."""
    with simulated_server(host, tmp_path) as server:
        yield server


@pytest.fixture
def by_hand(server):
    """Starts a server as from a shell: in the session and process group of somebody else."""
    shells, procfs = [], ProcFs()
    folder = server.folder / "work"
    folder.mkdir()

    def start(*words, **environment):
        code = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); time.sleep(600)"
        command = [sys.executable, "-m", "sglang.launch_server", "--model-path", server.target]
        shell = subprocess.Popen(
            [sys.executable, "-c", code, *command, "--port", str(server.port), *words],
            env={
                **server.host.environment,
                **server.environment,
                "SSH_TTY": "/dev/pts/7",
                "NCCL_DEBUG": "WARN",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            cwd=str(folder),
        )
        shells.append(shell)
        pid = int(shell.stdout.readline())
        # A new program has no arguments yet in the moment in which its parent is told that it runs.
        wait_until(lambda: "sglang.launch_server" in procfs.read(pid).argv)
        return shell, pid

    yield start
    for shell in shells:
        for member in procfs.session_members(shell.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
        shell.communicate()


@pytest.fixture(scope="module")
def standing(tmp_path_factory, library, modules):
    """A proven server, EAGLE-3 on two GPUs of a host of its own, for all tests of a file that leave it alone."""
    folder = tmp_path_factory.mktemp("standing")
    with simulated_host(folder, library, modules) as host, simulated_server(host, folder) as server:
        server.go(tp_size=2, **EAGLE3)
        server.prove()
        yield server


def pytest_configure(config):
    """Which rows of the tables of cases a test covers."""
    config.addinivalue_line("markers", "case(number, ...): rows of the table in test_cases_covered.py")
    config.addinivalue_line("markers", "sglang_case(row, ...): rows of the table in test_sglang_cases_covered.py")


def unused_port():
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
