# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures for the tests on real GPUs: holders of memory, modules, playbooks, and the log."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CUDA_PYTHON = os.environ.get("GPU_TEST_CUDA_PYTHON", "python3")
LOG = pathlib.Path(os.environ.get("GPU_TEST_LOG", REPOSITORY / "build" / "gpu-test.log"))


def gpu_count():
    """GPUs that the driver reports, 0 without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return pynvml.nvmlDeviceGetCount()
        finally:
            pynvml.nvmlShutdown()  # or this process would be one that has the GPUs open
    except Exception:  # no library, no driver, no permission: all mean that there is nothing to test on
        return 0


GPUS = gpu_count()


def pytest_collection_modifyitems(items):
    for item in items:
        if not GPUS:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this host"))
        elif item.get_closest_marker("two_gpus") and GPUS < 2:
            item.add_marker(pytest.mark.skip(reason="needs two GPUs, this host has %d" % GPUS))
        elif item.get_closest_marker("mps") and not shutil.which("nvidia-cuda-mps-control"):
            item.add_marker(pytest.mark.skip(reason="nvidia-cuda-mps-control is not installed"))


def pytest_configure(config):
    config.addinivalue_line("markers", "two_gpus: needs two GPUs")
    config.addinivalue_line("markers", "mps: needs the CUDA Multi-Process Service")


@pytest.fixture(scope="session")
def note():
    """Append a line to the log of what was measured."""
    LOG.parent.mkdir(parents=True, exist_ok=True)

    def write(text, **values):
        stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = "%s %s" % (stamp, text)
        if values:
            line += " " + json.dumps(values, sort_keys=True, default=str)
        with LOG.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        print(line, flush=True)

    return write


@pytest.fixture(scope="session")
def collections(tmp_path_factory):
    """A collections path in which this checkout is the collection."""
    root = tmp_path_factory.mktemp("collections")
    parent = root / "ansible_collections" / "inferops"
    parent.mkdir(parents=True)
    (parent / "sglang").symlink_to(REPOSITORY)
    return root


@pytest.fixture(scope="session")
def module(collections):
    """Run a module's real main() in a process of its own, as Ansible does; returns its result."""

    def run(name, check=False, prefix=(), **arguments):
        internal = {"_ansible_check_mode": check, "_ansible_diff": True, "_ansible_remote_tmp": "/tmp"}
        path = os.pathsep.join(filter(None, [str(collections), os.environ.get("PYTHONPATH", "")]))
        done = subprocess.run(
            [*prefix, sys.executable, str(REPOSITORY / "tests" / "simulated" / "run_module.py"), name],
            env=dict(os.environ, PYTHONPATH=path),
            input=json.dumps({**arguments, **internal}),
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run


class Holder:
    """A real CUDA process that holds memory until it is ended."""

    def __init__(self, gib, gpus=(0,), visible=None, code="", ready=1, environment=None):
        script = (
            "import os, signal, sys, time, torch\n"
            "held = [torch.empty(%d << 30, dtype=torch.uint8, device='cuda:%%d' %% g).fill_(1) for g in %r]\n"
            "torch.cuda.synchronize()\n"
            "%s\n"
            "print('held', os.getpid(), flush=True)\n"
            "time.sleep(600)\n"
        ) % (gib, list(gpus), code)
        environment = dict(os.environ, **(environment or {}))
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        self.process = subprocess.Popen(
            [CUDA_PYTHON, "-W", "ignore", "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.pid = self.process.pid
        self.pids = []
        for _line in range(ready):
            words = self.process.stdout.readline().split()
            assert words[:1] == ["held"], "the holder did not start"
            self.pids.append(int(words[1]))

    def end(self):
        for pid in {self.pid, *self.pids}:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def hold():
    """Start holders; each is ended with the test, by its PID."""
    holders = []

    def start(gib, **kwargs):
        holders.append(Holder(gib, **kwargs))
        return holders[-1]

    yield start
    for holder in holders:
        holder.end()
    time.sleep(0.5)


@pytest.fixture
def start(tmp_path):
    """Start a program in a session of its own; each process that says `held PID` is ended with the test.

    Returns the PID of the program, or the `count` that it said.  own: the program's and the first it said.
    """
    processes, pids = [], []

    def run(code, count=0, own=False):
        script = tmp_path / ("program%d.py" % len(processes))  # spawned children import it again
        script.write_text(code)
        process = subprocess.Popen(
            [CUDA_PYTHON, "-W", "ignore", str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        said = []
        for _line in range(max(1, count)):
            words = process.stdout.readline().split()
            assert words[:1] == ["held"], "the program did not start"
            said.extend(int(word) for word in words[1:])
        pids.extend(said)
        # What it starts later is said on later lines, and ended too.
        threading.Thread(target=listen, args=(process, pids), daemon=True).start()
        if count:
            return said
        return (process.pid, said[0]) if own else process.pid

    def listen(process, pids):
        for line in process.stdout:
            pids.extend(int(word) for word in line.split()[1:] if word.isdigit())

    yield run
    for process in processes:
        process.kill()
        process.wait()
    for pid in pids:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    time.sleep(0.5)


class Mps:
    """A control daemon of our own, with folders of its own."""

    def __init__(self, folder):
        self.environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipes"),
            "CUDA_MPS_LOG_DIRECTORY": str(folder / "logs"),
        }
        for path in self.environment.values():
            os.makedirs(path)

    def control(self, *arguments, said=""):
        return subprocess.run(
            ["nvidia-cuda-mps-control", *arguments],
            input=said,
            env=dict(os.environ, CUDA_VISIBLE_DEVICES="0", **self.environment),
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )


@pytest.fixture
def mps(tmp_path_factory):
    """The Multi-Process Service on GPU 0, for one test."""
    # The path of its socket must be short.
    service = Mps(tmp_path_factory.mktemp("mps"))
    assert service.control("-d").returncode == 0
    yield service
    service.control(said="quit -t 1\n")


@pytest.fixture(scope="session")
def idle(module, note):
    """The host before anything was started; every test needs its GPUs to be nobody's."""
    result = module("gpu_info")
    assert not result.get("failed"), result
    note(
        "host",
        driver=result["driver_version"],
        nvml=result["nvml_version"],
        gpus=["%s %d MiB" % (gpu["name"], gpu["memory_total_mib"]) for gpu in result["gpus"]],
        used_mib=[gpu["memory_used_mib"] for gpu in result["gpus"]],
        reserved_mib=[gpu["memory_reserved_mib"] for gpu in result["gpus"]],
        kernel=os.uname().release,
        python=sys.version.split()[0],
    )
    busy = [gpu["message"] for gpu in result["gpus"] if gpu["verdict"] != "free"]
    if busy:
        pytest.exit("The GPUs are in use: %s. These tests need them idle." % "; ".join(busy), returncode=3)
    return result
