# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated host that has nvidia-smi, units of systemd by table, kernel modules, and a CUDA driver."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

from .conftest import RUNNER, SIMULATOR

# systemctl: a unit is a file in the folder `units`, its text its state; each call is a line of `calls`.
SYSTEMCTL = """#!/bin/sh
folder={folder}
echo "$*" >>$folder/calls
verb=$1
unit=
for word; do unit=$word; done
case $verb in
    list-units)
        cd $folder/units && for file in *; do
            [ -e "$file" ] && echo "$file loaded $(cat "$file") running described"
        done ;;
    show) echo "ActiveState=$(cat "$folder/units/$unit" 2>/dev/null || echo inactive)" ;;
    stop | start)
        grep -qx "$verb $unit" $folder/refused 2>/dev/null && {{ echo "Job for $unit failed." >&2; exit 1; }}
        [ $verb = stop ] && state=inactive || state=active
        echo $state >"$folder/units/$unit" ;;
esac
exit 0
"""


class ResetHost:
    """Wraps a simulated host."""

    def __init__(self, host, folder):
        self.host = host
        self.folder = folder / "systemd"
        (self.folder / "units").mkdir(parents=True)
        (self.folder / "calls").touch()
        binaries = folder / "bin"
        binaries.mkdir()
        self._program(binaries / "systemctl", SYSTEMCTL.format(folder=self.folder))
        words = shlex.quote(sys.executable), shlex.quote(str(SIMULATOR / "fake_nvidia_smi.py"))
        self._program(binaries / "nvidia-smi", '#!/bin/sh\nexec %s %s "$@"\n' % words)
        for name in ("rmmod", "modprobe"):
            self._program(binaries / name, "#!/bin/sh\necho %s $1 >>%s/calls\n" % (name, self.folder))
        host.environment["PATH"] = "%s:/usr/bin:/bin" % binaries
        self.uuids = [row["uuid"] for row in host.module("gpu_info")["gpus"]]
        for index in range(4):
            host.fakegpu("set", "gpu", index, "persistence=0")

    @staticmethod
    def _program(file, text):
        file.write_text(text)
        file.chmod(0o755)

    def unit(self, name, state="active"):
        """Let systemd have a unit."""
        (self.folder / "units" / name).write_text(state + "\n")

    def state(self, name):
        """What systemd says of a unit."""
        return (self.folder / "units" / name).read_text().strip()

    def refuse(self, *commands):
        """Let systemctl fail at these ("start nvidia-dcgm.service")."""
        (self.folder / "refused").write_text("\n".join(commands) + "\n")

    @property
    def changes(self):
        """What was done to units and kernel modules, in order."""
        done = ("stop", "start", "rmmod", "modprobe")
        return [line for line in (self.folder / "calls").read_text().splitlines() if line.split()[0] in done]

    @property
    def smi_changes(self):
        """The runs of nvidia-smi that change anything, in order, with a GPU's index for its UUID."""
        file = self.host.folder / "smi_calls"
        text = file.read_text() if file.exists() else ""
        for index, uuid in enumerate(self.uuids):
            text = text.replace(uuid, "<%d>" % index)
        return text.splitlines()

    def rule(self, *words):
        """Add a line for the stand-in nvidia-smi, as in its documentation."""
        path = self.host.folder / "config"
        path.write_text(path.read_text() + "smi " + " ".join(map(str, words)) + "\n")

    def set(self, index, *changes):
        """Change properties of a GPU."""
        self.host.fakegpu("set", "gpu", index, *changes)

    def drm(self, uses=0, users="-", modeset="Y"):
        """Load nvidia_drm."""
        kernel = self.host.folder / "kernel"
        parameters = kernel / "sys" / "module" / "nvidia_drm" / "parameters"
        parameters.mkdir(parents=True, exist_ok=True)
        (parameters / "modeset").write_text(modeset + "\n")
        (kernel / "proc").mkdir(exist_ok=True)
        (kernel / "proc" / "modules").write_text("nvidia_drm 81920 %d %s Live 0x0\n" % (uses, users))

    def reset(self, **arguments):
        """Run the module."""
        arguments.setdefault("allocation_test", "never")
        arguments.setdefault("settle_timeout", 0.5)
        return self.host.module("gpu_reset", **arguments)

    def start_reset(self, **arguments):
        """Start the module in a process of its own: its Popen."""
        arguments.update(_ansible_remote_tmp=str(self.host.folder), allocation_test="never", settle_timeout=0.5)
        process = subprocess.Popen(
            [sys.executable, RUNNER, "gpu_reset"],
            env=self.host.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        process.stdin.write(json.dumps(arguments))
        process.stdin.close()
        self.host.processes.append(process)
        return process

    def audited(self):
        """The events in the host's audit log: action, target and outcome."""
        file = self.host.folder / "audit" / "audit.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if line.get("outcome") != "begun"]
