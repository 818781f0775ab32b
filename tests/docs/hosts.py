# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test hosts on which the stories are told: one set for all of them, cleared between two."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import yaml

from .pages import ROOT

TESTHOSTS = ROOT / "tests" / "testhosts" / "testhosts"
# What a host's root has as its environment; nothing of the caller's.
_ENVIRONMENT = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "LANG=C.UTF-8"]

# Everything that a story may have left on a host.  Servers are killed: nobody waits for their requests any more.
_CLEAR = """
for unit in $(systemctl list-units --all --plain --no-legend 'sglang-*' 'story-*' | cut -d' ' -f1); do
    systemctl kill --signal=KILL "$unit" 2>/dev/null
    systemctl stop "$unit" 2>/dev/null
done
pkill -KILL -f '^sglang::|[s]glang.launch_server|[f]akegpu.py hold'  # not this shell
rm -rf /etc/systemd/system/sglang-* /etc/systemd/system/*/sglang-* /etc/sglang /var/lib/sglang /run/sglang \
    /var/log/sglang /var/log/inferops /etc/sudoers.d/*
systemctl daemon-reload
systemctl reset-failed
exit 0
"""


class TestHosts:
    """A set of test hosts, by number from 1."""

    __test__ = False  # no test, whatever its name

    def __init__(self, count: int) -> None:
        self.count = count
        self._environment = dict(os.environ, TH_NAME=os.environ.get("TH_NAME", "docs"))
        self._environment.setdefault("TH_NET", "10.213.9")
        self._folder = Path()

    def up(self) -> None:
        """Start the hosts."""
        self._testhosts("up", str(self.count))
        inventory = self._testhosts("inventory").stdout.strip()
        self._folder = Path(inventory).parent

    def down(self) -> None:
        """Remove every trace of them."""
        self._testhosts("down")

    def command(self, number: int, text: str) -> List[str]:
        """Return the command line that runs a shell command as root of a host."""
        return [str(TESTHOSTS), "exec", str(number), *_ENVIRONMENT, "bash", "-c", f"cd /root; {text}"]

    def run(self, number: int, text: str) -> str:
        """Run a shell command as root of a host, past ssh, and return what it prints."""
        done = subprocess.run(
            self.command(number, text),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"on test host {number}: {text!r} failed ({done.returncode}):\n{done.stdout}")
        return done.stdout

    def clear(self) -> None:
        """Make the hosts as they were at first."""
        for number in range(1, self.count + 1):
            self.run(number, _CLEAR)

    @property
    def environment(self) -> Dict[str, str]:
        """The environment in which the hosts are found."""
        return self._environment

    def variables(self, number: int) -> Dict[str, Any]:
        """Return what Ansible has to know to reach a host."""
        inventory = self._folder / "inventory"
        hosts = yaml.safe_load((inventory / "hosts.yml").read_text(encoding="utf-8"))["gpu_hosts"]
        # What a plugin returns is no template to Ansible.
        connection = (inventory / "group_vars" / "gpu_hosts.yml").read_text(encoding="utf-8")
        connection = connection.replace("{{ testhosts_state }}", str(self._folder))
        return {**yaml.safe_load(connection), **hosts["hosts"][f"gpu-{number}"]}

    @property
    def ssh(self) -> Path:
        """The ssh that reaches them."""
        return self._folder / "bin" / "ssh"

    @property
    def key(self) -> Path:
        """The key with which root of each host lets one in."""
        return self._folder / "id_ed25519"

    def processor_seconds(self) -> float:
        """Return what the hosts have used since they started, and the commands that this process has run."""
        statistics = (self._folder / "cgroup" / f"testhosts-{self._environment['TH_NAME']}" / "cpu.stat").read_text()
        ours = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (
            int(dict(line.split() for line in statistics.splitlines())["usage_usec"]) / 1e6
            + ours.ru_utime
            + ours.ru_stime
        )

    def _testhosts(self, *words: str) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [str(TESTHOSTS), *words], env=self._environment, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            raise RuntimeError(f"testhosts {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done
