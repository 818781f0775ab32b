# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the parts of the tests, five at a time, and say at the end what failed and where the time went.

usage: run_checks.py [PART...]      default: all parts

Each part is a make target. Its output goes to build/logs/PART.log and is shown when it fails. The last line counts
tests: those of pytest one by one, every other part as one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "logs"
REPORTS = ROOT / "build" / "reports"
# Those that start servers and hosts wait more than they compute, so that two cores are busy with five.
AT_A_TIME = 5

# What several parts need, made first: two runs of make must not make the same thing at the same time.  And what takes
# one core only, while there is nothing else to do for the other one.
PREPARATION = ("venv", "hosts-root")
SHARED = ("links", "tree", "simulator")
# The longest come first, with those that mostly wait; then what computes, so that nothing is left alone at the end.
PARTS = (
    *("deployment", "simulated", "molecule-host", "molecule-long", "molecule-fleet", "unit-brief", "routers"),
    *("matrix-oldest", "docs-brief", "browser", "sanity-brief", "lint"),
)


@dataclass
class Count:
    """How many tests passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text


@dataclass
class Result:
    """How a make target ended."""

    target: str
    status: int
    seconds: float
    # Of the processor; what outlives the part, as test hosts do, is not in it.
    processor_seconds: float = 0.0
    count: Count = field(default_factory=Count)

    @property
    def log(self) -> Path:
        return LOGS / f"{self.target}.log"


class Runner:
    """Runs make targets and remembers those that run, to end them when it is itself told to end."""

    def __init__(self) -> None:
        # Stopping may come in the thread that has it.
        self._lock = RLock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopping = False
        # The parts start make themselves; what this make was called with is not for them.
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        self._environment.pop("MFLAGS", None)

    def run(self, target: str) -> Result:
        """Run one target, its output in a log."""
        report = REPORTS / f"{target}.xml"
        report.unlink(missing_ok=True)
        started = time.monotonic()
        with (LOGS / f"{target}.log").open("wb") as log, self._started(target, log) as process:
            status, processor_seconds = wait(process)
        with self._lock:
            self._running.discard(process)
        result = Result(target, status, time.monotonic() - started, processor_seconds)
        result.count = count_of(result, report)
        return result

    def _started(self, target: str, log) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopping:
                raise SystemExit(1)
            process = subprocess.Popen(
                ["make", "--no-print-directory", target],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
            return process

    def stop(self, *_signal) -> None:
        """End what runs, and its children; each part cleans up after itself."""
        # One that is being started is known when its thread gives the lock back, and not before.
        with self._lock:
            self._stopping = True
            running = tuple(self._running)
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        sys.exit(1)


def wait(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Return the exit status of a process, and the seconds of a processor that it and its children took."""
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def count_of(result: Result, report: Path) -> Count:
    """Return the count of pytest's report, or one for a part that has none."""
    if not report.exists():
        return Count(passed=int(result.status == 0), failed=int(result.status != 0))
    count = Count()
    for suite in ElementTree.parse(report).iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        count.failed += failed
        count.skipped += skipped
        count.passed += int(suite.get("tests", 0)) - failed - skipped
    if result.status != 0 and count.failed == 0:
        count.failed = 1  # pytest itself failed
    return count


def run_all(runner: Runner, targets: tuple[str, ...], show_all: bool = True) -> list[Result]:
    """Run the targets, at most five at a time; say of each how it ended."""
    results = []

    def run(target: str) -> Result:
        result = runner.run(target)
        if show_all or result.status:
            show(result)
        return result

    with ThreadPoolExecutor(max_workers=AT_A_TIME) as pool:
        results.extend(pool.map(run, targets))
    return results


def show(result: Result) -> None:
    """Print one line about a target, preceded by its log when it failed."""
    failed = result.status != 0
    text = ""
    if failed:
        output = result.log.read_text(errors="replace")
        text = f"\n----- {result.target} failed; its output ({result.log.relative_to(ROOT)}):\n{output}-----\n"
    ended = "FAILED" if failed else "ok"
    took = f"{result.seconds:6.1f} s ({result.processor_seconds:5.1f} of a processor)"
    text += f"{result.target:12} {ended:7} {took}   {result.count}\n"
    sys.stdout.write(text)
    sys.stdout.flush()


def main(parts: tuple[str, ...]) -> int:
    """Prepare, run the parts, sum up."""
    LOGS.mkdir(parents=True, exist_ok=True)
    REPORTS.mkdir(parents=True, exist_ok=True)
    runner = Runner()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, runner.stop)

    started = time.monotonic()
    prepared = run_all(runner, PREPARATION)
    # One after the other, and not worth a line unless they fail.
    prepared += [result for target in SHARED for result in run_all(runner, (target,), show_all=False)]
    broken = [result.target for result in prepared if result.status]
    results = [] if broken else run_all(runner, parts)

    failed = broken + [result.target for result in results if result.status]
    total = Count(failed=len(broken))
    for result in results:
        total.passed += result.count.passed
        total.failed += result.count.failed
        total.skipped += result.count.skipped
    print(f"\n{time.monotonic() - started:.0f} s in all" + (f"; failed: {', '.join(failed)}" if failed else ""))
    print(total)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or PARTS))
