# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that hold GPU memory: their processes, control groups and managers are real enough to be stopped."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import uuid

from .control_groups import join
from .waiting import is_alive, wait_until

FAKEGPU = str(pathlib.Path(__file__).resolve().parents[1] / "simulator" / "fakegpu.py")
MANAGER = pathlib.Path(__file__).with_name("service_manager.py")
COMMANDS = ("systemctl", "docker", "supervisorctl")


class Service:
    """A running service."""

    def __init__(self, folder, loop, spec):
        self.folder = folder
        self.loop = loop
        self.spec = spec

    @property
    def state(self):
        """What its manager says about it."""
        try:
            return json.loads((self.folder / "state.json").read_text())
        except FileNotFoundError:
            return {"active": "activating", "pid": 0, "restarts": 0}

    @property
    def pid(self):
        """Its main process, or 0."""
        return self.state["pid"]

    @property
    def starts(self):
        """How often its process has got its GPU memory so far."""
        return (self.folder / "output").read_text().count("ready") if (self.folder / "output").exists() else 0

    def wait_running(self):
        """Wait until its process holds."""
        wait_until(lambda: self.starts > self.state["restarts"] and self.pid)
        return self


class ServiceHost:
    """The service managers of one simulated host, and its services."""

    def __init__(self, host, folder, groups):
        self.host = host
        self.root = folder / "services"
        self.groups = groups
        self.services = []
        self.root.mkdir()
        (self.root / "calls").touch()
        binaries = self.root / "bin"
        binaries.mkdir()
        for name in COMMANDS:
            self._command(binaries / name, name)
        (binaries / "supervisord").write_text(MANAGER.read_text())
        host.environment["PATH"] = "%s:%s" % (binaries, os.environ["PATH"])

    def _command(self, file, name):
        words = [sys.executable, "-S", "-E", str(MANAGER), str(self.root), name]
        file.write_text('#!/bin/sh\nexec %s "$@"\n' % " ".join(words))
        file.chmod(0o755)

    @property
    def calls(self):
        """The command lines that were run, in order."""
        return (self.root / "calls").read_text().splitlines()

    def hang(self, *commands):
        """From now on commands that begin like these ("docker stop") never return."""
        (self.root / "hang").write_text("\n".join(commands))

    def systemd(self, unit, *holds, **options):
        """A unit of systemd."""
        return self._start("systemd", unit, "/%s/%s" % (self.groups.slice, unit), holds, options)

    def docker(self, name, *holds, **options):
        """A container."""
        identifier = uuid.uuid4().hex * 2
        return self._start("docker", name, "/docker/" + identifier, holds, options, identifier)

    def supervisord(self, name, *holds, **options):
        """A program of supervisord, which is a service of systemd itself."""
        return self._start("supervisord", name, "/%s/supervisor.service" % self.groups.slice, holds, options)

    def _start(self, manager, name, path, holds, options, identifier=""):
        folder = self.root / name
        folder.mkdir()
        group = self.groups.systemd(path)
        spec = {
            "manager": manager,
            "id": identifier,
            "path": path,
            # supervisord knows its programs only by their PIDs.
            "cgroups": [str(group)] if manager != "supervisord" else [],
            "command": [sys.executable, FAKEGPU, "hold", *map(str, holds)],
            "environment": {},
            "restart": False,
            "restart_delay": 0.05,
            "stop_timeout": 1.0,
            **options,
        }
        script = str(MANAGER)
        if manager == "supervisord":
            script = str(self.root / "bin" / "supervisord")
            spec["environment"] = {
                "SUPERVISOR_ENABLED": "1",
                "SUPERVISOR_SERVER_URL": "unix://%s" % self.socket(),
                "SUPERVISOR_PROCESS_NAME": name,
                "SUPERVISOR_GROUP_NAME": name,
            }
        (folder / "spec.json").write_text(json.dumps(spec))
        loop = subprocess.Popen(
            [sys.executable, script, str(self.root), "loop", name],
            env=self.host.environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        if manager == "supervisord":
            join(group, loop.pid)
        service = Service(folder, loop, spec)
        self.services.append(service)
        return service.wait_running()

    def socket(self):
        """Where supervisord would listen."""
        path = self.root / "supervisor.sock"
        if not path.exists():
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        return path

    def remove(self, service):
        """Let the manager forget a service whose processes live on."""
        service.loop.kill()
        service.loop.wait()
        (service.folder / "spec.json").unlink()

    def clean_up(self):
        """End the loops first, so that nothing is started again, then what they started."""
        for service in self.services:
            service.loop.kill()
            service.loop.wait()
            if service.pid and is_alive(service.pid):
                os.kill(service.pid, signal.SIGKILL)
