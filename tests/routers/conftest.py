# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real routers in front of stand-in servers, and clients that never stop asking."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import urllib.parse
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "simulator"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import fakegpu
import install_routers
import waiting
from clients import Load
from make_model import make_model

from ansible_collections.inferops.sglang.plugins.modules import sglang_process, sglang_router

TESTS = pathlib.Path(__file__).resolve().parents[1]
BUILD = TESTS.parent / "build"
MODEL = "small"
# So slow that a long answer outlives the removal of its worker, and costs little.
STANDIN = {
    "load_seconds": 0.05,
    "warmup_seconds": 0.05,
    "health_seconds": 0.0,
    "drain_poll_seconds": 0.05,
    "tokens_per_second": 25,
    "weights_mib": 100,
}


def _load(path):
    """A module of another folder of tests, by its file: several are called conftest."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# To run the real main() of a module.
run_module = _load(TESTS / "unit" / "conftest.py").run_module


def unavailable(kind):
    """Why a router could not be installed, "" where it was."""
    reason = BUILD / "routers" / f"{kind}.unavailable"
    return reason.read_text() if reason.exists() else ""


def pytest_report_header():
    """Say what cannot be tested."""
    reasons = {kind: unavailable(kind) for kind in install_routers.KINDS}
    return "routers: " + ", ".join(f"{kind} (skipped: {why})" if why else kind for kind, why in reasons.items())


def get(url, timeout=10):
    """The answer to a GET, as JSON where it is that."""
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        text = answer.read().decode()
    try:
        return json.loads(text)
    except ValueError:
        return text


class Worker:
    """A stand-in server that the modules start and stop, with all its files in one folder."""

    def __init__(self, folder, environment, run, name, *options):
        self.name = name
        self.port = waiting.unused_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._run = run
        self._environment = environment
        self.model = make_model(folder / "model", standin=STANDIN)
        self._command = [
            *(sys.executable, "-m", "sglang.launch_server", "--model-path", str(self.model)),
            *("--served-model-name", MODEL, "--port", str(self.port), *options),
        ]
        self._pid = None

    def _module(self, module, check, **options):
        folders = {"state_dir": str(self._folder / "lib")}
        status, result = self._run(module, {"instance": self.name, **folders, **options}, check=check)
        assert bool(status) == bool(result.get("failed")), result
        return result

    def router(self, routers, state, check=False, **options):
        """sglang_router on this worker."""
        return self._module(
            sglang_router,
            check,
            **{"url": [router.url for router in routers], "worker_url": self.url, "state": state, **options},
        )

    def process(self, state, **options):
        """sglang_process on this worker."""
        folders = {"run_dir": str(self._folder / "run"), "log_dir": str(self._folder / "log")}
        # Of this machine's shared memory nothing is this server's.
        return self._module(
            sglang_process, False, state=state, manager="process", remove_leftovers=False, **folders, **options
        )

    def start(self):
        """Start it; its PID."""
        result = self.process("started", command=self._command, environment=self._environment)
        assert not result.get("failed"), result
        self._pid = result["process"]["pid"]
        return self._pid

    def wait(self):
        """Until it serves."""
        waiting.until(lambda: self._status() == 200)

    def _status(self):
        with contextlib.suppress(OSError), urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
            return answer.status
        return 0

    def stop(self, **options):
        """Stop it when its requests are done."""
        return self.process("stopped", host="127.0.0.1", port=self.port, drain_timeout=60, grace=10, **options)

    def running(self):
        """How many requests it has."""
        return sum(row["num_running_reqs"] + row["num_waiting_reqs"] for row in get(self.url + "/v1/loads")["loads"])

    def answered(self):
        """How many generations it has answered since its start."""
        log = self._folder / "log" / f"{self.name}.log"
        return log.read_text(errors="replace").count('"POST /generate HTTP/1.1" 200')

    def end(self):
        """End it without ado."""
        if self._pid is not None:
            self.process("stopped", grace=0, kill_timeout=5)


class Router:
    """A real router."""

    def __init__(self, kind, folder, workers, *options):
        self.kind = kind
        self.port = waiting.unused_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / f"{kind}.log"
        places = ["--host", "127.0.0.1", "--port", str(self.port)]
        places += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(waiting.unused_port())]
        urls = ["--worker-urls", *(worker.url for worker in workers)] if workers else []
        environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(TESTS / "routers" / "launch.py"), kind, *places, "--policy", "round_robin"]
                + [*urls, *options],
                env={**environment, "PYTHONPATH": str(BUILD / "routers" / kind)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def workers(self):
        """Its workers by URL."""
        return {row["url"]: row for row in get(self.url + "/workers")["workers"]}

    def wait(self, entries):
        """Until it has so many healthy entries."""

        def ready():
            assert self._process.poll() is None, self._log.read_text(errors="replace")[-3000:]
            with contextlib.suppress(OSError, http.client.HTTPException):
                rows = self.workers().values()
                return len(rows) == entries and all(row["is_healthy"] for row in rows)
            return False

        waiting.until(ready)

    def end(self):
        """End it."""
        self._process.kill()
        self._process.wait()


@pytest.fixture
def scene(tmp_path, run_module):
    """Makes workers and routers, which end with the test."""
    state = tmp_path / "gpus"
    state.mkdir()
    fakegpu.setup(8, str(state), release_delay=0.0)
    environment = {
        "FAKEGPU_DIR": str(state),
        "LD_LIBRARY_PATH": str(BUILD / "simulator"),
        "PYTHONPATH": str(TESTS / "simulator" / "sglang_standin"),
        "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", str(BUILD / "pycache")),
    }
    with Scene(tmp_path, environment, run_module) as made:
        yield made


class Scene(contextlib.ExitStack):
    """What makes workers, routers and clients, and ends them."""

    def __init__(self, folder, environment, run):
        super().__init__()
        self._folder = folder
        self._environment = environment
        self._run = run
        self._workers = 0

    def worker(self, *options):
        """A worker that serves soon: wait() for it."""
        name = f"w{self._workers}"
        folder = self._folder / name
        folder.mkdir()
        environment = {**self._environment, "CUDA_VISIBLE_DEVICES": f"{2 * self._workers},{2 * self._workers + 1}"}
        self._workers += 1
        worker = Worker(folder, environment, self._run, name, *options)
        self.callback(worker.end)
        worker.start()
        return worker

    def router(self, kind, workers, *options):
        """A router that serves soon: wait() for it."""
        if why := unavailable(kind):
            pytest.skip(f"{kind}: {why}")
        router = Router(kind, self._folder, workers, *options)
        self.callback(router.end)
        return router

    def load(self, *urls):
        """Clients of these routers."""
        return self.enter_context(Load(urls))
