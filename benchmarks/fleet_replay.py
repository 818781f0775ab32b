# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller with hosts that are only replayed: what each call answers, and how long it takes, is one host's.

Real hosts have processors of their own.  Hundreds that share two with their controller do not, and the time that a run
takes on them says more about the hosts than about the controller.  Here the controller does all that it does otherwise,
and its calls of ssh wait as long as they did with one host that had the machine for itself.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Sequence

from fleet_cost import Cost, measured
from fleet_hosts import FILES, Hosts
from fleet_ways import OURS, check_report, playbook

# Of shell_restart.yml: seconds between two questions, and its calls before the first one.
POLL_DELAY = 5.0
_BEFORE_POLLS = 3


def build(folder: Path) -> Path:
    """The ssh that replays.  Raises OSError where it cannot be built."""
    made = folder / "replay_ssh"
    source = str(FILES / "replay_ssh.c")
    done = subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(made), source], check=False)
    if done.returncode:
        raise OSError("replay_ssh.c cannot be compiled, see above")
    return made


def inventory(count: int) -> str:
    """The inventory of so many hosts that are not there."""
    lines = ["gpu_hosts:", "  hosts:"]
    for number in range(1, count + 1):
        lines += ["    gpu-%d:" % number, "      ansible_host: replay-%d" % number]
    lines += ["  vars:", "    ansible_user: root", "    ansible_python_interpreter: /usr/bin/python3"]
    return "\n".join(lines) + "\n"


def record(name: str, steps: int, hosts: Hosts, settings: Dict[str, str], work: Path) -> Path:
    """Restart the one host of a set, and keep all calls.  Returns their folder.  Raises OSError."""
    folder = work / ("record-" + name.split(",")[0].replace(" ", "_"))
    folder.mkdir()
    report = work / "report.json"
    report.unlink(missing_ok=True)
    command = playbook(name, steps, 1, hosts.inventory, FILES / "record_ssh", report)
    # One part of the wait, however many hosts there are later.
    command += ["-e", "sglang_progress_interval=0"]
    environment = dict(settings, FLEET_SSH=str(hosts.ssh), FLEET_RECORD=str(folder))
    with open(work / (folder.name + ".log"), "wb") as log:
        done = subprocess.run(command, env=environment, check=False, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    if done.returncode:
        raise OSError("%s ended with %d, see %s" % (name, done.returncode, log.name))
    if name == OURS:
        check_report(report, 1)
    return folder


@dataclass(frozen=True)
class Call:
    """A recorded call: its seconds, its exit status, and the number of the files with its answer."""

    seconds: float
    status: int
    answer: int


def read_calls(text: str) -> List[Call]:
    """The file `calls` of a record."""
    return [Call(float(words[0]), int(words[1]), int(words[2])) for words in map(str.split, text.splitlines())]


def written(calls: Sequence[Call]) -> str:
    """The same as text."""
    return "".join("%.6f %d %d\n" % (call.seconds, call.status, call.answer) for call in calls)


def longer_wait(calls: Sequence[Call], more: float) -> List[Call]:
    """The calls of this collection's playbook, with a server that loads longer: one call waits for it, the longest."""
    longest = max(range(len(calls)), key=lambda number: calls[number].seconds)
    waits = calls[longest]
    return [*calls[:longest], Call(waits.seconds + more, waits.status, waits.answer), *calls[longest + 1 :]]


def more_polls(calls: Sequence[Call], more: float) -> List[Call]:
    """The same of the playbook of shell tasks: it asks again and again.  Raises OSError where it never asked in vain.

    Its calls are the stop, the count, the start, the questions, and the generation.
    """
    if len(calls) < _BEFORE_POLLS + 3:
        raise OSError("the server loads so fast that there was no question in vain")
    in_vain = calls[_BEFORE_POLLS]
    extra = round(more / (POLL_DELAY + in_vain.seconds))
    return [*calls[:_BEFORE_POLLS], *[in_vain] * extra, *calls[_BEFORE_POLLS:]]


def replay(name: str, steps: int, count: int, recorded: Path, ssh: Path, settings: Dict[str, str], work: Path) -> Cost:
    """Run the playbook on so many replayed hosts.  The steps are those of the record.  Raises OSError."""
    label = "replay-%s-%d" % (name.split(",")[0].replace(" ", "_"), count)
    state, report, hosts = work / (label + "-state"), work / "report.json", work / (label + ".yml")
    state.mkdir()
    report.unlink(missing_ok=True)
    hosts.write_text(inventory(count), encoding="ascii")
    command = playbook(name, steps, count, hosts, ssh, report) + ["-e", "sglang_progress_interval=0"]
    environment = dict(settings, FLEET_RECORD=str(recorded), FLEET_STATE=str(state))
    output = work / (label + ".log")
    cost = measured(command, count, Path(settings["FLEET_GROUP"]), environment, work / "calls", output)
    if cost.status:
        raise OSError("%s on %d replayed hosts ended with %d, see %s" % (name, count, cost.status, output))
    if name == OURS:
        check_report(report, count)
    cost.calls = {path.name: int(path.read_text(encoding="ascii")) for path in state.iterdir()}
    return cost
