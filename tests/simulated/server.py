# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in SGLang server that the modules check, start, prove and stop, with all its files in one folder."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import ssl
import sys
import threading
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "simulator"))

from make_model import make_model

from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

from .waiting import is_alive, wait_until

STANDIN = pathlib.Path(__file__).resolve().parents[1] / "simulator" / "sglang_standin"
EAGLE3 = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
QUICK = {
    "load_seconds": 0.05,
    "warmup_seconds": 0.05,
    "health_seconds": 0.0,
    "drain_poll_seconds": 0.02,
    "tokens_per_second": 10000,
}
# For a server that serves https, whatever its certificate says.
UNCHECKED = ssl.create_default_context()
UNCHECKED.check_hostname = False
UNCHECKED.verify_mode = ssl.CERT_NONE
# What the modules must be told, because nothing of the host's own folders is used.
FOLDERS = {
    "sglang_preflight": ("state_dir", "run_dir", "etc_dir", "unit_dir"),
    "sglang_release": ("state_dir", "etc_dir", "unit_dir"),
    "sglang_process": ("state_dir", "run_dir", "log_dir"),
    "sglang_wait_ready": ("state_dir", "run_dir", "log_dir"),
}


class Server:
    """The instance `main` of a host; every result of a module is kept in `results`."""

    def __init__(self, host, folder, port):
        self.host = host
        self.folder = folder
        self.port = port
        self.scheme = "http"
        self.target = str(make_model(folder / "target", standin=QUICK))
        self.draft = str(make_model(folder / "draft", draft=True, standin={"accept_probability": 0.8}))
        self.environment = {
            "FAKEGPU_DIR": host.environment["FAKEGPU_DIR"],
            "PYTHONPATH": str(STANDIN),
            "PYTHONPYCACHEPREFIX": host.environment["PYTHONPYCACHEPREFIX"],
        }
        self.pid_file = folder / "run_dir" / "main.json"
        self.log_file = folder / "log_dir" / "main.log"
        self.instance_dir = folder / "state_dir" / "main"
        self.results = []
        self._started = []

    # -- one module each

    def module(self, name, **arguments):
        """Run a module on this instance."""
        folders = {option: str(self.folder / option) for option in FOLDERS[name]}
        if name != "sglang_process":
            folders["manager"] = "process"
        result = self.host.module(name, **dict(folders, **arguments))
        self.results.append(result)
        return result

    def preflight(self, environment=None, **options):
        """Check a configuration; without options, one GPU and no speculation.  Draft models are this server's."""
        if options.get("speculative_algorithm"):
            options.setdefault("speculative_draft_model_path", self.draft)
        return self.module(
            "sglang_preflight",
            **{
                "python": sys.executable,
                "model_path": self.target,
                "port": self.port,
                "environment": dict(self.environment, **(environment or {})),
                **options,
            },
        )

    def present(self, checked, environment=None, **options):
        """Make a checked configuration the current release."""
        found = checked["sglang"]
        stored = ("command", "requested", "effective", "adjusted", "gpus", "container", "files", "patches")
        return self.module(
            "sglang_release",
            state="present",
            port=self.port,
            sglang_version=found["version"],
            environment=dict(found["environment"], **(environment or {})),
            **dict({name: found[name] for name in stored if found.get(name)}, **options),
        )

    def start(self, **options):
        """Start the current release; it is ended with this object, whatever becomes of it."""
        result = self.module("sglang_process", state="started", **options)
        if result.get("process", {}).get("pid"):
            self._started.append(result["process"]["pid"])
        return result

    def wait(self, **options):
        """Wait until it is ready and prove it, without many requests unless they are asked for."""
        quick = {"timeout": 30, "interval": 0.05, "request_timeout": 5, "soak_requests": 0}
        return self.module("sglang_wait_ready", **{**quick, **options})

    def stop(self, **options):
        """Stop it, and wait until the GPUs are free for the next one."""
        result = succeeded(self.module("sglang_process", **{"state": "stopped", "grace": 10, **options}))
        succeeded(self.host.module("gpu_wait_free", timeout=10, stable_for=0.1, interval=0.02))
        return result

    # -- several

    def go(self, secret_args=None, environment=None, **options):
        """Check a configuration, write it and start it; the result of the start."""
        secret = {"secret_args": secret_args} if secret_args else {}
        checked = succeeded(self.preflight(environment, **options, **secret))
        succeeded(self.present(checked, environment, **secret))
        return succeeded(self.start())

    def try_start(self, environment=None, **options):
        """Start a configuration that SGLang's own parser is not asked about; the failure of the start or the wait."""
        checked = succeeded(self.preflight(environment, parser="skip", **options))
        succeeded(self.present(checked, environment))
        started = self.start()
        return started if started.get("failed") else self.wait()

    def generate(self, tokens=16):
        """One generation: its status, 0 where nobody answers."""
        return self.request("/generate", {"text": "x", "sampling_params": {"max_new_tokens": tokens}})

    @contextlib.contextmanager
    def requests(self, *tokens):
        """Generations of so many tokens, all under way; their statuses are in the list when they are over."""
        statuses = []
        threads = [threading.Thread(target=lambda n=n: statuses.append(self.generate(n))) for n in tokens]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: self.running_requests() == len(tokens))
            yield statuses
        finally:
            for thread in threads:
                thread.join()

    def prove(self, **options):
        """Wait until it is ready, and remember its release as proven; the result of the waiting."""
        ready = succeeded(self.wait(**options))
        succeeded(self.module("sglang_release", state="proven"))
        return ready

    # -- what is so

    def request(self, path, body=None, key=None):
        """Ask the server: the status, 0 where nobody listens."""
        request = urllib.request.Request(self._url(path), None if body is None else json.dumps(body).encode())
        if key is not None:
            request.add_header("Authorization", "Bearer " + key)
        try:
            with urllib.request.urlopen(request, timeout=10, context=UNCHECKED) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def _url(self, path):
        return "%s://127.0.0.1:%d%s" % (self.scheme, self.port, path)

    def running_requests(self):
        """How many requests run or wait now, as far as this release of the server tells."""
        for path in ("/v1/loads", "/get_load"):
            try:
                with urllib.request.urlopen(self._url(path), timeout=10, context=UNCHECKED) as answer:
                    found = json.load(answer)
            except urllib.error.HTTPError:
                continue
            rows = found["loads"] if isinstance(found, dict) else found
            return sum(row.get("num_reqs", row.get("num_running_reqs", 0)) for row in rows)
        return 0

    def log(self):
        """What the server has written so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def family(self):
        """The live processes of all its starts, PIDs by title; those without one by what they run."""
        found = {}
        for pid in self._started:
            for member in ProcFs().session_members(pid):
                if not member.dead:
                    title = member.argv[0] if member.argv and member.argv[0].startswith("sglang::") else ""
                    found[title or (" ".join(member.argv[:3]))] = member.pid
        return found

    def kill(self, title=None):
        """Kill one of its processes, by default the main one, as the kernel would for want of memory."""
        pid = self._started[-1] if title is None else self.family()[title]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
        return pid

    def identity(self):
        """PID and start time of the process that was started last, None where it is gone."""
        found = ProcFs().identity(self._started[-1])
        return found if found and ProcFs().alive(found) else None

    def files(self):
        """Every file and link of the instance's state, with its content."""
        return {
            str(path): os.readlink(path) if path.is_symlink() else path.read_bytes()
            for path in sorted(self.instance_dir.rglob("*"))
            if path.is_symlink() or path.is_file()
        }

    def end(self):
        """End it by the module, and what that left by PID."""
        if self._started and self.identity():
            self.module("sglang_process", state="stopped", grace=0, kill_timeout=5)
        for pid in self._started:
            for member in ProcFs().session_members(pid):
                try:
                    os.kill(member.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


def behave(**keys):
    """Variables that make a stand-in server behave so (see tests/simulator/README.md)."""
    return {
        "STANDIN_" + key.upper(): value if isinstance(value, str) else json.dumps(value) for key, value in keys.items()
    }


def succeeded(result):
    """A module's result, which must be none of a failure."""
    assert not result.get("failed"), result
    return result
