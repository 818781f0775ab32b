# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a look at every process's descriptors and mappings takes on a crowded host, and whom it finds.

The crowd is made by the benchmark and ended with it, by PID.  Four of its processes hold a device node: in the
ordinary way, by a mapping alone, in a second thread with a table of descriptors of its own, and in a thread that
outlives the first one.  The tools that operators use look for the same nodes in the same crowd.
"""

from __future__ import annotations

import functools
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Set

import measure
import paths
from population import DESCRIPTORS, Population

SCAN = "this collection's scan"
THOROUGH = "the same, private mappings too"
ALONE = "the same in one process"
FUSER = "fuser -v NODES"
LSOF = "lsof NODES"
LS = "ls -l /proc/[0-9]*/fd | grep"
# Keeps the headings and the lines that name a node.
LISTING = 'ls -l /proc/[0-9]*/fd 2>/dev/null | grep -e ^/proc/ -e "$1/nvidia"'
GOAL_SECONDS = 0.5
GOAL_MB = 100.0

PARTS = {
    "_descriptors": "of that: descriptors",
    "_mappings": "of that: mappings",
    "_other_threads": "of that: finding threads with a table of their own",
}


# ------------------------------------------------------------------------------------------ in a process of its own


def scan_here(dev: str) -> None:
    """Scan once for each line of standard input, which is the name of the row, and answer with a line of JSON."""
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu import device_nodes, device_scan
    from ansible_collections.inferops.sglang.plugins.module_utils.gpu.device_inspector import DeviceInspector
    from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

    device_nodes.DEV = dev
    procfs = ProcFs()
    for line in sys.stdin:
        name = line.rstrip("\n")
        inspector = DeviceInspector(procfs, device_nodes.read_nodes(), thorough=name == THOROUGH)
        pids: List[int] = []
        spent: Dict[str, float] = {}
        for part in PARTS if name == ALONE else ():
            _watch(inspector, part, spent)
        with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
            stream.write("5")  # the peak starts again at what is in use now
        before = _memory("VmRSS")
        began, cpu = time.perf_counter(), measure.processor_seconds()
        if name == ALONE:
            pids = [pid for pid in procfs.pids() if inspector.nodes_of(pid)]
        else:
            pids = [identity.pid for identity in device_scan.scan(inspector, procfs.pids()).found]
        seconds = time.perf_counter() - began
        answer = {
            "cpu": measure.processor_seconds() - cpu,
            "seconds": seconds,
            "peak_mb": _memory("VmHWM") * 1024 / 1e6,
            "growth_mb": (_memory("VmHWM") - before) * 1024 / 1e6,
            "child_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6,
            "pids": pids,
            "parts": spent,
        }
        print(json.dumps(answer), flush=True)


def _memory(key: str) -> int:
    """A value of /proc/self/status in KiB."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
        found = re.search(r"^%s:\s+(\d+) kB" % key, stream.read(), re.MULTILINE)
    return int(found.group(1)) if found else 0


def _watch(inspector: Any, name: str, spent: Dict[str, float]) -> None:
    """Add up the seconds that one of the inspector's methods takes."""
    method = getattr(inspector, name)

    def watched(*arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - began

    setattr(inspector, name, watched)


class Scanner:
    """The scan in a process of its own, so that its memory is its own, too."""

    def __init__(self, dev: str, collections: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--scan-here", dev],
            env=dict(os.environ, PYTHONPATH=collections),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answers: Dict[str, List[Dict[str, Any]]] = {}

    def scan(self, name: str) -> None:
        """One scan of the row's kind; its answer is kept.  Raises OSError where it fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise OSError("the scan failed, see above")
        self.answers.setdefault(name, []).append(json.loads(line))

    def values(self, name: str, key: str) -> List[float]:
        """One figure of all scans of a kind."""
        return [answer[key] for answer in self.answers[name]]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


# ------------------------------------------------------------------------------------------------- what is replaced


def _output(command: List[str]) -> str:
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return done.stdout


def pids_in(text: str) -> Set[int]:
    """All numbers that stand alone: what fuser and lsof -t print on their standard output."""
    return {int(word) for word in re.findall(r"(?<![\w/.])\d+(?![\w/.])", text)}


def pids_in_listing(text: str) -> Set[int]:
    """The processes whose heading has a node below it, in what is left of the output of ls."""
    return {int(pid) for pid in re.findall(r"^/proc/(\d+)/fd:\n(?!/proc/)(?=.)", text, re.MULTILINE)}


def practice(nodes: List[str], dev: str) -> Dict[str, Callable[[], Set[int]]]:
    """The tools that are installed; each call returns the PIDs it finds."""
    found: Dict[str, Callable[[], Set[int]]] = {}
    if shutil.which("fuser"):
        found[FUSER] = lambda: pids_in(_output(["fuser", "-v", *nodes]))
    if shutil.which("lsof"):
        found[LSOF] = lambda: pids_in(_output(["lsof", "-t", *nodes]))
    found[LS] = lambda: pids_in_listing(_output(["sh", "-c", LISTING, "sh", dev]))
    return found


# ---------------------------------------------------------------------------------------------------------- report


def main() -> int:
    """Measure, and print the report."""
    parser = measure.parser(__doc__, repeats=7)
    parser.add_argument("--processes", type=int, default=5000, help="default: %(default)s")
    parser.add_argument("--descriptors", type=int, default=DESCRIPTORS, help="of each process; default: %(default)s")
    parser.add_argument("--scan-here", metavar="DEV", help="(for the benchmark itself) be the scanning process")
    options = parser.parse_args()
    if options.scan_here:
        scan_here(options.scan_here)
        return 0
    report = measure.Report(
        "Finding who holds a device among %d processes with %d descriptors"
        % (options.processes, options.processes * options.descriptors)
    )
    try:
        with paths.collections() as folder, Population(options.processes, options.descriptors) as crowd:
            fill(report, crowd, paths.python_path(folder), options.repeats)
    except OSError as exc:
        print("holder_scan.py: %s" % exc, file=sys.stderr)
        return 2
    report.show(options.json)
    return 0


def fill(report: measure.Report, crowd: Population, collections: str, repeats: int) -> None:
    """Run the scans and the tools in turn."""
    tools = practice([str(node) for node in crowd.nodes], str(crowd.dev))
    found: Dict[str, Set[int]] = {}
    cpu: Dict[str, List[float]] = {}
    scanner = Scanner(str(crowd.dev), collections)

    def run(name: str) -> None:
        if name in tools:
            before = measure.processor_seconds()
            found[name] = tools[name]()
            cpu.setdefault(name, []).append(measure.processor_seconds() - before)
        else:
            scanner.scan(name)

    try:
        # The first look also fills the kernel's caches, for all that follow.
        run(SCAN)
        scanner.answers.clear()
        names = [SCAN, THOROUGH, ALONE, *tools]
        seconds = measure.in_turn({name: functools.partial(run, name) for name in names}, repeats)
    finally:
        scanner.close()
    baseline = FUSER if FUSER in tools else LS
    for name in (SCAN, THOROUGH, ALONE):
        found[name] = set(scanner.answers[name][-1]["pids"])
        cpu[name] = scanner.values(name, "cpu")
        goal = GOAL_SECONDS if name == SCAN else None
        note = _note(found[name], crowd, cpu[name])
        report.add(name, scanner.values(name, "seconds"), practice=baseline, goal=goal, note=note)
    for method, name in PARTS.items():
        report.add(name, [answer["parts"].get(method, 0.0) for answer in scanner.answers[ALONE]])
    for name in tools:
        other = baseline if name != baseline else ""
        report.add(name, seconds[name], practice=other, note=_note(found[name], crowd, cpu[name]))
    report.add("peak memory of the scanning process", scanner.values(SCAN, "peak_mb"), unit="MB", goal=GOAL_MB)
    report.add("its growth during a scan", scanner.values(SCAN, "growth_mb"), unit="MB")
    if max(scanner.values(SCAN, "child_mb")):
        report.add("peak memory of its largest child, most of it shared", scanner.values(SCAN, "child_mb"), unit="MB")
    report.remarks.append("The holders have it open by: %s." % ", ".join(crowd.holders))
    for name, pids in found.items():
        missing = [kind for kind, pid in crowd.holders.items() if pid not in pids]
        if missing:
            report.remarks.append("%s does not find: %s." % (name, ", ".join(missing)))


def _note(pids: Set[int], crowd: Population, cpu: List[float]) -> str:
    found = len(pids & set(crowd.holders.values()))
    busy = measure.number(measure.Summary(cpu).median)
    return "finds %d of %d holders; %s s of processor time" % (found, len(crowd.holders), busy)


if __name__ == "__main__":
    measure.command(main)
