# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Service managers for tests: each service is a loop that starts its process, and again when that ends.

    service_manager.py FOLDER loop NAME        run the service NAME until it is stopped
    service_manager.py FOLDER COMMAND WORD...  be systemctl, docker or supervisorctl

`services.py` makes the folder, writes NAME/spec.json, and puts the commands on the PATH.  A loop says in
NAME/state.json how its service stands; the commands read that, and ask for its end with the file NAME/stop.
Every call is noted in the file `calls`.  A command line that begins like a line of the file `hang` never
returns, and ignores SIGTERM.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL = 0.01
SUPERVISED = {"RUNNING": "active", "STOPPED": "inactive", "BACKOFF": "activating"}


# ---- a service's loop


class Loop:
    """Starts the process of a service, and again when it ends by itself and the service wants that."""

    def __init__(self, folder):
        self.folder = folder
        self.spec = json.loads((folder / "spec.json").read_text())
        self.restarts = 0

    def run(self):
        while True:
            process = self.start()
            self.tell("active", "running", process.pid)
            while process.poll() is None and not self.stopping:
                time.sleep(POLL)
            if self.stopping:
                self.stop(process)
                return self.tell("inactive", "dead", 0)
            if not self.spec["restart"]:
                return self.tell("inactive", "dead", 0)
            self.tell("activating", "auto-restart", 0)
            deadline = time.monotonic() + self.spec["restart_delay"]
            while time.monotonic() < deadline:
                if self.stopping:
                    return self.tell("inactive", "dead", 0)
                time.sleep(POLL)
            self.restarts += 1

    def start(self):
        def join():
            for path in self.spec["cgroups"]:
                with open(path + "/cgroup.procs", "w", encoding="ascii") as stream:
                    stream.write(str(os.getpid()))

        with open(self.folder / "output", "ab") as output:
            return subprocess.Popen(
                self.spec["command"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=join,
                start_new_session=True,
                env={**os.environ, **self.spec["environment"]},
            )

    def stop(self, process):
        self.tell("deactivating", "stop-sigterm", process.pid)
        for number, seconds in ((signal.SIGTERM, self.spec["stop_timeout"]), (signal.SIGKILL, 0.5)):
            for pid in self.members() or [process.pid]:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if process.poll() is not None and not self.members():
                    return
                time.sleep(POLL)

    def members(self):
        found = []
        for path in self.spec["cgroups"]:
            with open(path + "/cgroup.procs", encoding="ascii") as stream:
                found += [int(line) for line in stream]
        return found

    @property
    def stopping(self):
        return (self.folder / "stop").exists()

    def tell(self, active, sub, pid):
        state = {"active": active, "sub": sub, "pid": pid, "restarts": self.restarts}
        new = self.folder / ".state"
        new.write_text(json.dumps(state))
        new.rename(self.folder / "state.json")


# ---- what the commands have in common


class Services:
    """The services of one manager."""

    def __init__(self, root, manager):
        self.root = root
        self.all = {}
        for file in sorted(root.glob("*/spec.json")):
            spec = json.loads(file.read_text())
            if spec["manager"] == manager and (file.parent / "state.json").exists():
                self.all[file.parent.name] = spec

    def state(self, name):
        return json.loads((self.root / name / "state.json").read_text())

    def stop(self, name):
        (self.root / name / "stop").touch()
        while self.state(name)["active"] != "inactive":
            time.sleep(POLL)


def options_and_words(words, with_value):
    """Split a command line. with_value: the options whose value is a word of its own."""
    options, rest, words = {}, [], list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            rest.append(word)
        elif word.startswith("--") and "=" in word:
            name, _equals, value = word.partition("=")
            options.setdefault(name, []).append(value)
        else:
            options.setdefault(word, []).append(words.pop(0) if word in with_value and words else "")
    return options, rest


# ---- systemctl


def systemctl(root, words):
    services = Services(root, "systemd")
    options, (verb, *units) = options_and_words(
        words, {"-p", "--property", "-t", "--type", "-o", "--output", "--state"}
    )
    if verb == "show":
        wanted = ",".join(options.get("--property", []) + options.get("-p", [])).split(",")
        for number, unit in enumerate(units):
            print("\n" if number else "", end="")
            properties = unit_properties(services, unit)
            for key in [name for name in wanted if name] or properties:
                value = properties.get(key, "")
                print(value if "--value" in options else "%s=%s" % (key, value))
        return 0
    if verb == "stop":
        for unit in units:
            if unit not in services.all:
                print("Failed to stop %s: Unit %s not loaded." % (unit, unit), file=sys.stderr)
                return 5
            if "--no-block" not in options:
                services.stop(unit)
            else:
                (root / unit / "stop").touch()
        return 0
    if verb in ("is-active", "is-failed"):
        states = [services.state(unit)["active"] if unit in services.all else "inactive" for unit in units]
        print("\n".join(states))
        return 0 if all(state == verb[3:] for state in states) else 3
    if verb == "is-system-running":
        print("running")
        return 0
    print("Unknown command verb '%s'." % verb, file=sys.stderr)
    return 1


def unit_properties(services, unit):
    if unit not in services.all:
        return {"Id": unit, "Names": unit, "LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}
    spec, state = services.all[unit], services.state(unit)
    return {
        "Id": unit,
        "Names": unit,
        "Type": "simple",
        "LoadState": "loaded",
        "ActiveState": state["active"],
        "SubState": state["sub"],
        "UnitFileState": "enabled",
        "MainPID": state["pid"],
        "ExecMainPID": state["pid"],
        "ControlPID": 0,
        "ControlGroup": spec["path"] if state["active"] != "inactive" else "",
        "Restart": "always" if spec["restart"] else "no",
        "NRestarts": state["restarts"],
        "Result": "success",
        "ExecMainCode": 0,
        "ExecMainStatus": 0,
        "StandardOutput": "append:%s" % (services.root / unit / "output"),
        "CanStop": "yes",
        "RefuseManualStop": "no",
        "KillMode": "control-group",
        "TriggeredBy": "",
    }


# ---- docker


def docker(root, words):
    services = Services(root, "docker")
    valued = {"-f", "--format", "--filter", "-t", "--time", "--timeout", "--type", "-n", "--host", "-H"}
    options, rest = options_and_words(words, valued)
    missing = "Error: No such object"
    if rest[:1] == ["container"]:
        rest, missing = rest[1:], "Error response from daemon: No such container"
    verb, names = rest[0], rest[1:]
    template = (options.get("--format") or options.get("-f") or [""])[0]
    if verb in ("ps", "ls"):
        for name in services.all:
            row = container(services, name)
            if "-a" in options or "--all" in options or row["State"]["Running"]:
                listed = {"ID": row["Id"], "Names": name, "State": row["State"]["Status"], "Image": "sglang"}
                print(filled(template, listed) if template else row["Id"])
        return 0
    found = [found_container(services, name) for name in names]
    status = 0
    inspected = []
    for wanted, name in zip(names, found):
        if name is None:
            print("%s: %s" % (missing, wanted), file=sys.stderr)
            status = 1
        elif verb == "inspect":
            inspected.append(container(services, name))
        elif verb == "stop":
            services.stop(name)
            print(wanted)
        elif verb == "top":
            print("PID\n%d" % services.state(name)["pid"])
        else:
            print("docker: '%s' is not a docker command." % verb, file=sys.stderr)
            return 1
    if verb == "inspect":
        print("\n".join(filled(template, row) for row in inspected) if template else json.dumps(inspected))
    return status


def found_container(services, wanted):
    """By name, id, or the start of an id."""
    for name, spec in services.all.items():
        if wanted.lstrip("/") == name or spec["id"].startswith(wanted):
            return name
    return None


def container(services, name):
    spec, state = services.all[name], services.state(name)
    running, restarting = state["active"] in ("active", "deactivating"), state["active"] == "activating"
    return {
        "Id": spec["id"],
        "Name": "/" + name,
        "RestartCount": state["restarts"],
        "State": {
            "Status": "running" if running else "restarting" if restarting else "exited",
            "Running": running or restarting,
            "Restarting": restarting,
            "Paused": False,
            "Pid": state["pid"],
        },
        "Config": {"Image": "sglang", "Env": ["API_KEY=not-for-anybody"], "Labels": {}},
        "HostConfig": {"RestartPolicy": {"Name": "unless-stopped" if spec["restart"] else "no"}, "PidMode": ""},
    }


def filled(template, row):
    """A Go template of fields alone."""

    def field(found):
        value = row
        for key in [key for key in found.group(2).split(".") if key]:
            value = value[key]
        if found.group(1):
            return json.dumps(value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    return re.sub(r"\{\{\s*(json\s+)?(\.[\w.]*)\s*\}\}", field, template).replace("\\t", "\t")


# ---- supervisorctl


def supervisorctl(root, words):
    services = Services(root, "supervisord")
    _options, (verb, *names) = options_and_words(words, {"-c", "-s", "-u", "-p"})
    if names == ["all"] or not names:
        names = list(services.all)
    for name in [name.rpartition(":")[2] for name in names]:  # a program alone is in a group of its own name
        if name not in services.all:
            print("%s: ERROR (no such process)" % name)
            return 4 if verb == "status" else 1
        if verb == "stop":
            services.stop(name)
            print("%s: stopped" % name)
        elif verb == "pid":
            print(services.state(name)["pid"])
        elif verb == "status":
            state = services.state(name)
            word = next(word for word, active in SUPERVISED.items() if active in (state["active"], "activating"))
            detail = "pid %d, uptime 0:00:10" % state["pid"] if word == "RUNNING" else "Exited too quickly"
            print("%-32s %-9s %s" % (name, word, detail))
        else:
            print("*** Unknown syntax: %s" % verb)
            return 2
    return 0


def command(root, name, words):
    with open(root / "calls", "a", encoding="utf-8") as calls:
        calls.write(" ".join([name, *words]) + "\n")
    hanging = (root / "hang").read_text().splitlines() if (root / "hang").exists() else []
    if any([name, *words][: len(line.split())] == line.split() for line in hanging):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    return {"systemctl": systemctl, "docker": docker, "supervisorctl": supervisorctl}[name](root, words)


if __name__ == "__main__":
    if sys.argv[2] == "loop":
        Loop(Path(sys.argv[1]) / sys.argv[3]).run()
    else:
        sys.exit(command(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
