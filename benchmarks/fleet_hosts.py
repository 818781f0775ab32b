# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for the benchmark of a fleet: namespaces with an sshd, simulated GPUs and the stand-in SGLang.

They are made by tests/testhosts, as root, and share the processors with the controller.  What they use of those is
told by their control groups.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List

import paths

TESTHOSTS = paths.REPOSITORY / "tests" / "testhosts" / "testhosts"
FILES = paths.REPOSITORY / "benchmarks" / "fleet"
NAME = os.environ.get("TH_NAME") or "fleet-bench"
NET = os.environ.get("TH_NET") or "10.213.60"
GPUS = 2
# The hosts give way to the controller, which is what is measured.
NICENESS = "10"


@dataclass(frozen=True)
class Hosts:
    """A running set.  state: its folder."""

    state: Path

    @property
    def inventory(self) -> Path:
        """The folder of its inventory."""
        return self.state / "inventory"

    @property
    def ssh(self) -> Path:
        """The ssh that reaches the hosts."""
        return self.state / "bin" / "ssh"

    @property
    def group(self) -> Path:
        """The folder of the control group that has one group for each host."""
        return self.state / "cgroup" / ("testhosts-" + NAME)

    def ssh_options(self) -> List[str]:
        """What a plain ssh needs to log in, as the inventory tells it to Ansible."""
        options = [
            "UserKnownHostsFile=%s/known_hosts" % self.state,
            "StrictHostKeyChecking=yes",
            "IdentitiesOnly=yes",
            "IdentityFile=%s/id_ed25519" % self.state,
        ]
        return [word for option in options for word in ("-o", option)]

    def addresses(self, count: int) -> List[str]:
        """Where the first so many hosts are."""
        return ["%s.%d" % (NET, 10 + number) for number in range(1, count + 1)]

    def run(self, number: int, *command: str) -> None:
        """A command inside a host, past ssh.  Raises OSError."""
        _testhosts({}, "exec", str(number), *command)


def _testhosts(settings: Dict[str, str], *words: str, nice: bool = False) -> None:
    environment = dict(os.environ, TH_NAME=NAME, TH_NET=NET, TH_INIT="sshd", TH_GPUS=str(GPUS), **settings)
    environment.setdefault("TH_PYTHON", sys.executable)
    command = [*(("nice", "-n", NICENESS) if nice else ()), str(TESTHOSTS), *words]
    done = subprocess.run(command, env=environment, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if done.returncode:
        raise OSError("testhosts %s ended with %d, see above" % (words[0], done.returncode))


@contextlib.contextmanager
def running(count: int, load_seconds: float) -> Iterator[Hosts]:
    """That many hosts, each with a server that takes so long to load.  Raises OSError where they do not come up."""
    with tempfile.TemporaryDirectory(prefix="fleet-files-") as name:
        extra = Path(name)
        binaries = extra / "usr" / "local" / "bin"
        binaries.mkdir(parents=True)
        for tool in ("curl", "nvidia-smi"):
            shutil.copy(FILES / "host" / tool, binaries / tool)
        model = extra / "models" / "target"
        model.mkdir(parents=True)
        (model / "standin.json").write_text('{"load_seconds": %g}\n' % load_seconds, encoding="ascii")
        try:
            _testhosts({"TH_EXTRA": name}, "up", str(count), nice=True)
            yield Hosts(Path(os.environ.get("TH_RUN") or "/run/inferops-testhosts") / NAME)
        finally:
            _testhosts({}, "down")
