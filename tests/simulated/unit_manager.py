# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A systemd for tests that runs the unit files which the modules write.

    unit_manager.py FOLDER systemctl|journalctl WORD...
    unit_manager.py FOLDER loop UNIT

FOLDER/config.json has the folder of the unit files and the control group of each unit's processes.  A loop
runs one start of a unit, signals as KillMode=mixed says, and tells in FOLDER/UNIT.json how the unit stands.
Every call is noted in the file `calls`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL = 0.01
IDLE = {"active": "inactive", "sub": "dead", "pid": 0, "code": 0, "status": 0, "result": "success"}


class Units:
    """The units of one host."""

    def __init__(self, root):
        self.root = root
        self.config = json.loads((root / "config.json").read_text())

    def file(self, unit):
        return Path(self.config["unit_dir"]) / unit

    def settings(self, unit):
        """The settings of a unit's file, each with its values in order."""
        found = {}
        for line in self.file(unit).read_text().splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                found.setdefault(name, []).append(value)
        return found

    def state(self, unit):
        try:
            return json.loads((self.root / (unit + ".json")).read_text())
        except FileNotFoundError:
            return IDLE

    def tell(self, unit, **changes):
        new = self.root / (".%s" % unit)
        new.write_text(json.dumps({**self.state(unit), **changes}))
        new.rename(self.root / (unit + ".json"))

    def group(self, unit):
        return Path(self.config["groups"][unit])

    def members(self, unit):
        return [int(line) for line in (self.group(unit) / "cgroup.procs").read_text().split()]


def words_of(value):
    """A command line as systemd reads it, for what the collection writes."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(value)]


def environment_of(settings):
    """What a unit's processes get."""
    found = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for value in settings.get("Environment", []):
        found.update(word.partition("=")[::2] for word in words_of(value))
    for path in settings.get("EnvironmentFile", []):
        for line in Path(path.replace("%%", "%")).read_text().splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                found[name] = re.sub(r"\\(.)", r"\1", value[1:-1])
    return found


class Loop:
    """One start of a unit."""

    def __init__(self, units, unit):
        self.units = units
        self.unit = unit
        self.settings = units.settings(unit)

    def run(self):
        def join():
            (self.units.group(self.unit) / "cgroup.procs").write_text(str(os.getpid()))

        with (self.units.root / (self.unit + ".log")).open("ab") as output:
            process = subprocess.Popen(
                words_of(self.settings["ExecStart"][0]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=join,
                start_new_session=True,
                env=environment_of(self.settings),
                cwd="/",
            )
        self.units.tell(self.unit, **dict(IDLE, active="active", sub="running", pid=process.pid))
        stop = self.units.root / (self.unit + ".stop")
        result = ""
        while process.poll() is None and not stop.exists():
            time.sleep(POLL)
        if process.poll() is None:
            self.units.tell(self.unit, active="deactivating", sub="stop-sigterm")
            process.send_signal(signal.SIGTERM)
            limit = float(self.settings["TimeoutStopSec"][0][:-2]) / 1000
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                result = "timeout"
                process.kill()
                process.wait()
        for pid in self.units.members(self.unit):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self.units.members(self.unit):
            time.sleep(POLL)
        stop.unlink(missing_ok=True)
        self.bury(process.returncode, result)

    def bury(self, returncode, result):
        accepted = [0, -signal.SIGTERM]
        if "137 SIGKILL" in self.settings.get("SuccessExitStatus", []):
            accepted += [137, -signal.SIGKILL]
        fine = returncode in accepted and not result
        self.units.tell(
            self.unit,
            active="inactive" if fine else "failed",
            sub="dead" if fine else "failed",
            pid=0,
            code=1 if returncode >= 0 else 2,
            status=abs(returncode),
            result=result or ("success" if fine else "exit-code" if returncode > 0 else "signal"),
        )


def systemctl(units, words):
    verb, *rest = [word for word in words if not word.startswith("-")]
    options = [word for word in words if word.startswith("-")]
    if verb == "daemon-reload":
        return 0
    unit = rest[-1]
    if verb == "show":
        for name, value in properties(units, unit).items():
            print("%s=%s" % (name, value))
        return 0
    if not units.file(unit).exists():
        print("Failed to %s %s: Unit %s not loaded." % (verb, unit, unit), file=sys.stderr)
        return 5
    if verb == "enable":
        units.tell(unit, enabled=True)
    elif verb == "start":
        if units.state(unit)["active"] != "active":
            units.tell(unit, **dict(IDLE, active="activating"))
            script = [sys.executable, "-S", "-E", __file__, str(units.root), "loop", unit]
            subprocess.Popen(script, start_new_session=True, stdin=subprocess.DEVNULL, stdout=2, stderr=2)
            while units.state(unit)["active"] == "activating":
                time.sleep(POLL)
    elif verb == "stop":
        if units.state(unit)["active"] == "active":
            (units.root / (unit + ".stop")).touch()
        while "--no-block" not in options and units.state(unit)["active"] not in ("inactive", "failed"):
            time.sleep(POLL)
    elif verb == "kill":
        for pid in units.members(unit):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return 0


def properties(units, unit):
    state = units.state(unit)
    there = units.file(unit).exists()
    return {
        "LoadState": "loaded" if there else "not-found",
        "ActiveState": state["active"],
        "SubState": state["sub"],
        "MainPID": state["pid"],
        "Result": state["result"],
        "ExecMainCode": state["code"],
        "ExecMainStatus": state["status"],
        "NRestarts": 0,
        "InvocationID": "first",
        "ControlGroup": units.config["paths"].get(unit, ""),
        "StandardOutput": "journal",
        "UnitFileState": ("enabled" if state.get("enabled") else "disabled") if there else "",
        "TimeoutStopUSec": "10s",
    }


def journalctl(units, words):
    if any(word.startswith("_SYSTEMD_INVOCATION_ID=") for word in words):
        for log in units.root.glob("*.log"):
            print(log.read_text(errors="replace"), end="")
    return 0


if __name__ == "__main__":
    known = Units(Path(sys.argv[1]))
    if sys.argv[2] == "loop":
        Loop(known, sys.argv[3]).run()
    else:
        with (known.root / "calls").open("a", encoding="utf-8") as calls:
            calls.write(" ".join(sys.argv[2:]) + "\n")
        sys.exit({"systemctl": systemctl, "journalctl": journalctl}[sys.argv[2]](known, sys.argv[3:]))
