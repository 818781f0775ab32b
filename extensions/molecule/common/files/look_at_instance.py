# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what an instance of a host is and has, as one JSON object. Runs on the host, through standard input.

usage: look_at_instance.py INSTANCE

pid         its main process, 0 where none runs
restarts    how often systemd has started it again by itself
current     the release that is to run, last_good the one that was proven last ("" where there is none)
files       path -> digest, mode and time of every file that belongs to it
broken      what a write that was cut off would leave: JSON that is none, links to nothing, files of another name
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

instance = sys.argv[1]
state = Path("/var/lib/sglang") / instance
unit = "sglang-%s.service" % instance
owned = [state, Path("/etc/sglang") / instance, Path("/run/sglang"), *Path("/etc/systemd/system").glob("*%s*" % unit)]

files, broken = {}, []
for folder in owned:
    for path in sorted([folder, *folder.rglob("*")]):
        if path.is_symlink():
            files[str(path)] = os.readlink(path)
            if not path.exists():
                broken.append("%s leads nowhere" % path)
        elif path.is_file():
            status = path.stat()
            content = path.read_bytes()
            files[str(path)] = "%s %o %d" % (hashlib.sha256(content).hexdigest(), status.st_mode, status.st_mtime_ns)
            # What is written aside, to be renamed when it is whole.
            if path.name.startswith(".") and path.name != ".lock":
                broken.append("%s is left of a write" % path)
            if path.suffix == ".json":
                try:
                    json.loads(content)
                except ValueError as error:
                    broken.append("%s: %s" % (path, error))


def properties() -> dict[str, str]:
    """Of the unit, as systemd tells them."""
    asked = ["systemctl", "show", "--property=MainPID,NRestarts", unit]
    lines = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def main_process() -> int:
    """The one of the unit, or of a process of its own."""
    pid_file = Path("/run/sglang") / ("%s.json" % instance)
    if shown["MainPID"] == "0" and pid_file.exists():
        pid = int(json.loads(pid_file.read_text())["pid"])
        return pid if Path("/proc", str(pid)).exists() else 0
    return int(shown["MainPID"])


def release(link: str) -> str:
    """The release that a link names."""
    path = state / link
    return path.resolve().name if path.exists() else ""


shown = properties()
answer = {
    "pid": main_process(),
    "restarts": int(shown.get("NRestarts") or 0),
    "current": release("current"),
    "last_good": release("last_good"),
    "files": files,
    "broken": broken,
}
print(json.dumps(answer, sort_keys=True))
