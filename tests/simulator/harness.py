# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""For tests: simulated hosts, the processes on them, and stand-in servers.

Everything that a Host starts is in a session of its own, and ends with the Host.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import fakegpu
from make_model import make_model

SIMULATOR = Path(__file__).resolve().parent

# Runs pieces of code, one JSON string a line, and answers each with a line of JSON.
READER = """
import json, sys, traceback
import pynvml as n
for line in sys.stdin:
    try:
        n.nvmlInit()
        scope = {"n": n, "h": [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]}
        exec(json.loads(line), scope)
        answer = {"result": scope["result"]}
    except Exception:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
"""


def wait_for(condition: Callable[[], Any], timeout: float = 8.0) -> Any:
    """The condition's first true value. :raises AssertionError: when it stays false for that many seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition stayed false"
        time.sleep(0.02)


class Host:
    """A folder of simulated GPUs, and the processes that a test runs on them."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "gpus"
        self.environment = dict(
            os.environ,
            FAKEGPU_DIR=str(self.state),
            FAKEGPU_DEV=str(folder / "dev"),
            LD_LIBRARY_PATH=str(library),
            PYTHONPATH=str(SIMULATOR / "sglang_standin"),
        )
        self._started: List[subprocess.Popen] = []
        self._servers = 0
        self._reader: Optional[subprocess.Popen] = None
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environment.setdefault("PYTHONPYCACHEPREFIX", str(library / "pycache"))
        fakegpu.setup(2, self.state, release_delay=0.0)
        fakegpu.make_nodes(self.state, str(folder / "dev"))

    def start(
        self, command: List[str], environment: Optional[Dict[str, str]] = None, **options: Any
    ) -> subprocess.Popen:
        """Start a process that ends with this host; ``environment`` comes on top of the host's own."""
        variables = {**self.environment, **(environment or {})}
        process = subprocess.Popen(command, env=variables, start_new_session=True, **options)
        self._started.append(process)
        return process

    def hold(self, *arguments: object) -> List[int]:
        """Start a holder, by default of 1000 MiB on GPU 0; returns the PIDs that it prints when it holds."""
        command = [sys.executable, str(SIMULATOR / "fakegpu.py"), "hold", "--lifetime", "60", *map(str, arguments)]
        if "--gpu" not in arguments:
            command += ["--gpu", "0", "--mib", "1000"]
        process = self.start(command, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline().split()
        assert line[:1] == ["ready"]
        return [int(pid) for pid in line[1:]]

    def nvml(self, code: str, timeout: float = 10.0) -> Any:
        """Run code that has nvidia-ml-py as n, initialised, and its devices as h; returns what it leaves in result.

        All of it runs in one process of the host's, which uses the unmodified package.
        """
        if self._reader is None:
            self._reader = self.start(
                [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
        self._reader.stdin.write(json.dumps(code) + "\n")
        readable, _writable, _failed = select.select([self._reader.stdout], [], [], timeout)
        assert readable, "NVML did not answer within {:g} s".format(timeout)
        answer = json.loads(self._reader.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def python(self, program: str, timeout: float = 10.0) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=str(self.folder),
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def used(self, gpu: int = 0) -> int:
        """MiB that NVML reports as used (v2)."""
        return self.nvml("result = n.nvmlDeviceGetMemoryInfo(h[{}], version=n.nvmlMemory_v2).used >> 20".format(gpu))

    def listed(self, gpu: int = 0) -> List[List[int]]:
        """PID and MiB of each compute process in NVML's list."""
        return self.nvml(
            "result = sorted([p.pid, p.usedGpuMemory and p.usedGpuMemory >> 20] "
            "for p in n.nvmlDeviceGetComputeRunningProcesses(h[{}]))".format(gpu)
        )

    def launch(
        self,
        *arguments: str,
        version: str = "0.5.17",
        eagle: bool = False,
        standin: Optional[Dict[str, Any]] = None,
        draft: Optional[Dict[str, Any]] = None,
        environment: Optional[Dict[str, str]] = None,
        port: Optional[int] = None,
    ) -> Server:
        """Start a stand-in server, with EAGLE-3 3/1/4 if asked; ``standin`` and ``draft`` say how it behaves."""
        self._servers += 1
        quick = {"load_seconds": 0.05, "warmup_seconds": 0.05, "health_seconds": 0.0, "drain_poll_seconds": 0.02}
        model = make_model(self.folder / "model{}".format(self._servers), standin={**quick, **(standin or {})})
        port = port or free_port()
        command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model), "--port", str(port)]
        if eagle:
            path = make_model(self.folder / "draft{}".format(self._servers), draft=True, standin=draft)
            command += ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(path)]
            command += ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
            command += ["--speculative-num-draft-tokens", "4"]
        log = self.folder / "server{}.log".format(self._servers)
        with open(str(log), "wb") as output:
            process = self.start(
                [*command, *arguments],
                {"STANDIN_VERSION": version, **(environment or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return Server(process, port, log)

    def end_everything(self) -> None:
        """End every process that was started here, and what it started in its session."""
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()


class Server:
    """A stand-in SGLang server of a test."""

    def __init__(self, process: subprocess.Popen, port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def request(
        self, path: str, body: Optional[Dict[str, Any]] = None, key: Optional[str] = None, timeout: float = 10.0
    ) -> tuple[int, Any]:
        """Status and parsed body; status 0 when the connection is refused."""
        request = urllib.request.Request(
            "http://127.0.0.1:{}{}".format(self.port, path), None if body is None else json.dumps(body).encode()
        )
        if key:
            request.add_header("Authorization", "Bearer " + key)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError):
            return 0, None
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def status(self, path: str = "/health") -> int:
        return self.request(path)[0]

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.log
            return self.status() == 200

        wait_for(ready)

    def generate(self, tokens: int = 64) -> Dict[str, Any]:
        body = {"text": "x", "sampling_params": {"max_new_tokens": tokens}}
        return self.request("/generate", body)[1]["meta_info"]

    def children(self) -> Dict[str, int]:
        """Command lines of the processes below the main one, with their PIDs."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid:
                    command = (folder / "cmdline").read_text().rstrip("\0").replace("\0", " ")
                    found[command] = int(folder.name)
            except OSError:
                continue
        return found

    def wait(self) -> int:
        return self.process.wait(10)


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
