# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways to restart a fleet that are compared: this collection's playbook, a playbook of shell tasks, parallel ssh.

All of them restart the same server with other settings on all hosts at a time, and with as many forks as there are
hosts.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence

from fleet_cost import Cost, measured
from fleet_hosts import FILES, NET, Hosts

OURS = "restart_eagle3, all at a time"
RAMP = "restart_eagle3, default waves"
SHELL = "playbook of shell tasks"
LOOP = "parallel ssh"
ALL = (LOOP, SHELL, RAMP, OURS)

# For each call of ssh by xargs.  The options of ssh are words.
_LOOP_CALL = 'exec "$FLEET_COUNT" $FLEET_OPTIONS -l root "$1" "steps=$FLEET_STEPS bash -s" <"$FLEET_SCRIPT"'


def playbook(name: str, steps: int, forks: int, inventory: Path, ssh: Path, report: Path) -> List[str]:
    """The command of one of the playbooks.  ssh: what Ansible is to call for it."""
    command = ["ansible-playbook", "-f", str(forks), "-i", str(inventory)]
    if name == SHELL:
        command += [str(FILES / "shell_restart.yml"), "-e", "steps=%d" % steps]
    else:
        command += ["-i", str(FILES / "servers.yml"), "inferops.sglang.restart_eagle3"]
        command += ["-e", "sglang_spec_num_steps=%d" % steps, "-e", "sglang_spec_num_draft_tokens=%d" % (steps + 1)]
        # The first time, the server is one that was started by hand.
        command += ["-e", "sglang_unmanaged=take_over", "-e", "sglang_report_path=%s" % report]
        if name == OURS:
            command += ["-e", "sglang_ramp=100%", "-e", "sglang_min_serving=0"]
    return [*command, "-e", "ansible_ssh_executable=%s" % ssh]


def environment(collections: Path, work: Path) -> Dict[str, str]:
    """What all commands are started with: nothing of the caller's settings of Ansible."""
    made = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    made.update(
        PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        ANSIBLE_CONFIG=str(FILES / "ansible.cfg"),
        ANSIBLE_COLLECTIONS_PATH=str(collections),
        ANSIBLE_HOME=str(work / "ansible"),
        COLUMNS="180",
    )
    made.pop("PYTHONPATH", None)
    return made


def check_report(path: Path, hosts: int) -> None:
    """Raise OSError unless the report says that so many hosts were restarted, and all of them."""
    report = json.loads(path.read_text(encoding="utf-8"))
    outcomes = [item["outcome"] for item in report["hosts"]]
    if not report["finished"] or outcomes != ["restarted"] * hosts:
        raise OSError("not all of %d hosts were restarted: %s" % (hosts, sorted(set(outcomes))))


@dataclass
class Bench:
    """Runs the ways on running hosts.  work: a folder for logs; each run has other settings than the one before."""

    hosts: Hosts
    group: Path
    environment: Dict[str, str]
    work: Path

    def __post_init__(self) -> None:
        self._steps: Iterator[int] = itertools.cycle((2, 3))
        self._number = 0

    def run(self, name: str, count: int) -> Cost:
        """Restart the servers of all hosts of the set, which are so many.  Raises OSError where one was not."""
        steps = next(self._steps)
        self._number += 1
        output = self.work / ("%03d-%d-%s.log" % (self._number, count, name.split(",")[0].replace(" ", "_")))
        report, calls = self.work / "report.json", self.work / "calls"
        report.unlink(missing_ok=True)
        settings = dict(self.environment, FLEET_SSH=str(self.hosts.ssh), FLEET_CALLS=str(calls), FLEET_NET=NET)
        command = self._loop(settings, steps, count) if name == LOOP else self._playbook(name, steps, count, report)
        cost = measured(command, count, self.group, settings, calls, output, self.hosts.group)
        if cost.status:
            raise OSError("%s on %d hosts ended with %d, see %s" % (name, count, cost.status, output))
        if name in (OURS, RAMP):
            check_report(report, count)
        return cost

    def _playbook(self, name: str, steps: int, count: int, report: Path) -> List[str]:
        return playbook(name, steps, count, self.hosts.inventory, FILES / "count_ssh", report)

    def _loop(self, settings: Dict[str, str], steps: int, count: int) -> List[str]:
        addresses = self.work / "addresses"
        addresses.write_text("".join(line + "\n" for line in self.hosts.addresses(count)), encoding="ascii")
        settings.update(
            FLEET_COUNT=str(FILES / "count_ssh"),
            FLEET_OPTIONS=shlex.join(self.hosts.ssh_options()),
            FLEET_STEPS=str(steps),
            FLEET_SCRIPT=str(FILES / "shell_restart.sh"),
        )
        return ["xargs", "-a", str(addresses), "-P", str(count), "-n", "1", "sh", "-c", _LOOP_CALL, "sh"]


def in_order(run: Callable[[str], Cost], names: Sequence[str], repeats: int) -> Dict[str, List[Cost]]:
    """All runs of one size.  The ways that work by hand come first, as this collection takes their server over."""
    found: Dict[str, List[Cost]] = {}
    run(LOOP)  # there is no server yet
    for name in ALL:
        if name in names:
            found[name] = [run(name) for _repeat in range(repeats)]
    return found
