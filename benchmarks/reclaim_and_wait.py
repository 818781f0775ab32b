# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long it takes to free a GPU and to know that it is free: the practice, a polling script, and the modules.

A holder of memory is started for each trial and ended in it.  Only PIDs that the benchmark started are signalled, and
it refuses to begin on a GPU that somebody uses.  A process of its own looks every millisecond when the driver gives
the memory back; every other time is compared with that one.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import measure
import paths
from simulation import simulated

HERE = Path(__file__).resolve().parent
SLACK_MIB = 256  # over the idle figure, and still free: gpu_wait_free's own default
PEER_MIB = 1024
GOAL_RECLAIM = 0.05
GOAL_WAIT = 0.025

# $1 PID, $2 seconds; the rest: the command that lists the PIDs on the GPU.
PRACTICE = 'kill -9 "$1"; pid=$1; sleep "$2"; shift 2; if "$@" | grep -qw "$pid"; then echo busy; else echo free; fi'
# $1 PID, $2 MiB; the rest: the command that prints the used MiB.
PEER = 'kill -9 "$1"; most=$2; shift 2; while [ "$("$@")" -ge "$most" ]; do sleep 1; done; echo free'

CUDA_HOLDER = """
import sys, time, torch
held = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda").fill_(1)
torch.cuda.synchronize()
print("ready", flush=True)
time.sleep(600)
"""


class CannotMeasure(Exception):
    """Why there is nothing to be measured here."""


@dataclass(frozen=True)
class Host:
    """A host with GPUs, real or simulated."""

    environment: Dict[str, str]
    gpu: int
    mib: int
    cuda_python: str = ""  # "" on simulated GPUs
    token: str = ""  # stands in the command line of every holder, and of nothing else

    def ask(self, question: str) -> List[str]:
        """The command that prints the used MiB ("used") or the PIDs ("pids") on the GPU."""
        if self.cuda_python and shutil.which("nvidia-smi"):
            query = {"used": "--query-gpu=memory.used", "pids": "--query-compute-apps=pid"}[question]
            return ["nvidia-smi", query, "--format=csv,noheader,nounits", "-i", str(self.gpu)]
        return [sys.executable, str(HERE / "nvml_question.py"), question, str(self.gpu)]

    def answer(self, question: str) -> List[str]:
        """What that command prints, word by word.  Raises CannotMeasure."""
        done = subprocess.run(
            self.ask(question), env=self.environment, check=False, capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            raise CannotMeasure("the GPU cannot be asked: %s" % (done.stderr.strip() or done.stdout.strip()))
        return done.stdout.split()

    def holder_command(self) -> List[str]:
        """A process that holds the memory and prints a line when it does."""
        if self.cuda_python:
            return [self.cuda_python, "-W", "ignore", "-c", CUDA_HOLDER, str(self.mib), self.token]
        fakegpu = str(paths.SIMULATOR / "fakegpu.py")
        return [
            *(sys.executable, fakegpu, "--state", self.token),
            *("hold", "--gpu", str(self.gpu), "--mib", str(self.mib), "--lifetime", "600"),
        ]


class Trial:
    """One holder and one sampler.  released() is when the driver gave the memory back."""

    def __init__(self, host: Host, limit: int) -> None:
        self._host = host
        environment = dict(host.environment)
        if host.cuda_python:
            environment.update(CUDA_VISIBLE_DEVICES=str(host.gpu), CUDA_DEVICE_ORDER="PCI_BUS_ID")
        sampler = [sys.executable, str(HERE / "release_sampler.py"), str(host.gpu), "--limit", str(limit)]
        self._sampler = subprocess.Popen(sampler, env=host.environment, stdout=subprocess.PIPE, text=True)
        self._holder = subprocess.Popen(
            host.holder_command(), env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid = self._holder.pid
        try:
            for name, process, word in (("holder", self._holder, "ready"), ("sampler", self._sampler, "busy")):
                assert process.stdout is not None
                if not process.stdout.readline().startswith(word):
                    raise CannotMeasure("the %s did not start" % name)
        except BaseException:
            self.close()
            raise
        # Somebody must wait for it, or it stays a zombie, which a supervisor would not allow.
        self._reaper = threading.Thread(target=self._holder.wait, daemon=True)
        self._reaper.start()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def kill(self) -> float:
        """SIGKILL to the holder; returns the time."""
        at = time.monotonic()
        self._holder.kill()
        return at

    def released(self) -> float:
        """When the memory was back (monotonic).  Raises CannotMeasure if that takes over a minute."""
        assert self._sampler.stdout is not None
        timer = threading.Timer(60, self._sampler.kill)
        timer.start()
        line = self._sampler.stdout.readline()
        timer.cancel()
        if not line:
            raise CannotMeasure("the memory was not released within 60 s")
        return float(line)

    def close(self) -> None:
        """End both, by PID, and wait for the memory's end, so that the next trial starts on an idle GPU."""
        for process in (self._holder, self._sampler):
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@dataclass(frozen=True)
class Answer:
    """When somebody said that the GPU is free or busy, and how that compares with the truth."""

    seconds: float  # from the start of the command to its answer
    after_release: float  # from the release to the answer; negative where it came before
    says_free: bool

    @property
    def right(self) -> bool:
        """Whether what it says was so at that moment."""
        return self.says_free == (self.after_release >= 0)


@dataclass(frozen=True)
class Run:
    """One run of a module: when its result was there, when its process had ended (monotonic), and the result."""

    printed: float
    ended: float
    result: Dict[str, Any]


class Bench:
    """The trials on one host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        if host.answer("pids"):
            raise CannotMeasure("GPU %d is in use by the PIDs %s" % (host.gpu, ", ".join(host.answer("pids"))))
        idle = int(host.answer("used")[0])
        if idle > SLACK_MIB:
            raise CannotMeasure("GPU %d is in use: %d MiB" % (host.gpu, idle))
        self.limit = idle + SLACK_MIB

    def trial(self) -> Trial:
        """A holder and a sampler that have started."""
        return Trial(self.host, self.limit)

    def release(self) -> float:
        """Seconds from SIGKILL to the driver's release, with nobody else asking."""
        with self.trial() as trial:
            at = trial.kill()
            return trial.released() - at

    def script(self, text: str, argument: object, question: str) -> Answer:
        """A shell script that kills the holder and says at its end what it thinks of the GPU."""
        with self.trial() as trial:
            command = ["bash", "-c", text, "bash", str(trial.pid), str(argument), *self.host.ask(question)]
            began = time.monotonic()
            done = subprocess.run(
                command, env=self.host.environment, check=False, capture_output=True, text=True, timeout=300
            )
            ended = time.monotonic()
            return Answer(ended - began, ended - trial.released(), done.stdout.split()[-1:] == ["free"])

    def module(self, name: str, arguments: Dict[str, Any]) -> Run:
        """Run a module's main() in a process of its own.  Raises CannotMeasure where it fails."""
        given = dict(arguments, gpus=[str(self.host.gpu)], _ansible_remote_tmp=tempfile.gettempdir())
        with subprocess.Popen(
            [sys.executable, str(paths.RUN_MODULE), name],
            env=self.host.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            process.stdin.write(json.dumps(given))
            process.stdin.close()
            printed, text = 0.0, ""
            for line in process.stdout:
                if line.strip():
                    printed, text = time.monotonic(), line
            errors = process.stderr.read()
        ended = time.monotonic()
        try:
            result: Dict[str, Any] = json.loads(text)
        except ValueError:
            raise CannotMeasure("%s printed no result: %s" % (name, errors)) from None
        if result.get("failed"):
            raise CannotMeasure("%s failed: %s" % (name, result.get("msg")))
        return Run(printed, ended, result)

    def reclaim(self, window: float, wait: Dict[str, Any]) -> Tuple[Answer, float]:
        """gpu_reclaim by SIGKILL, then gpu_wait_free with this window: the answer of the first, and all seconds."""
        with self.trial() as trial:
            began = time.monotonic()
            narrowed = {"command_pattern": re.escape(self.host.token)} if _has_option("command_pattern") else {}
            run = self.module("gpu_reclaim", dict(narrowed, grace=0))
            ends = [row["pid"] for row in run.result["processes"] if row["action"] in ("killed", "terminated")]
            if ends != [trial.pid]:
                raise CannotMeasure("gpu_reclaim ended %s and not %d" % (ends, trial.pid))
            answer = Answer(run.ended - began, run.ended - trial.released(), True)
            return answer, self.module("gpu_wait_free", dict(wait, stable_for=window)).ended - began

    def wait(self, window: float, wait: Dict[str, Any]) -> Tuple[float, float]:
        """Of a gpu_wait_free that was waiting for it: seconds from the release to its seeing that, and to its end.

        The window that it then waits is subtracted from both.
        """
        with self.trial() as trial:
            # At any moment between two looks, or the trials would all hit the same one.
            killer = threading.Timer(1.5 + random.random() / 2, trial.kill)
            killer.start()
            try:
                run = self.module("gpu_wait_free", dict(wait, stable_for=window))
            finally:
                killer.cancel()
            waited = run.result["elapsed"] - run.result["free_after"]
            released = trial.released()
            return run.printed - waited - released, run.ended - window - released


def _has_option(option: str) -> bool:
    """Whether this version of gpu_reclaim has an option."""
    text = (paths.REPOSITORY / "plugins" / "modules" / "gpu_reclaim.py").read_text(encoding="utf-8")
    return re.search(r"^  %s:$" % option, text, re.MULTILINE) is not None


def measure_all(bench: Bench, report: measure.Report, repeats: int, wait: Dict[str, Any]) -> None:
    """All trials, in turn."""
    release: List[float] = []
    answers: Dict[str, List[Answer]] = {}
    waits: List[Tuple[float, float]] = []
    totals: Dict[float, List[float]] = {0.5: [], 2.0: []}
    for _round in range(repeats):
        release.append(bench.release())
        for seconds in (2, 5):
            name = "kill -9; sleep %d; nvidia-smi | grep" % seconds
            answers.setdefault(name, []).append(bench.script(PRACTICE, seconds, "pids"))
        name = "kill -9; nvidia-smi every 1 s until < %d MiB" % PEER_MIB
        answers.setdefault(name, []).append(bench.script(PEER, PEER_MIB, "used"))
        for window, seconds_in_all in totals.items():
            answer, total = bench.reclaim(window, wait)
            answers.setdefault("gpu_reclaim", []).append(answer)
            seconds_in_all.append(total)
        waits.append(bench.wait(0.5, wait))
    write(report, release, answers, waits, totals)


def write(
    report: measure.Report,
    release: List[float],
    answers: Dict[str, List[Answer]],
    waits: List[Tuple[float, float]],
    totals: Dict[float, List[float]],
) -> None:
    """The rows of the report: first how late each answer is, then how long it all takes."""
    report.add("SIGKILL to the driver's release", release)
    practice = next(iter(answers))
    late = "%s: answer after the release"
    for name, given in answers.items():
        own = name == "gpu_reclaim"
        report.add(
            late % name,
            [answer.after_release for answer in given],
            practice=late % practice if name != practice else "",
            goal=GOAL_RECLAIM if own else None,
            note="" if own else verdict(given),
        )
    report.add(
        "gpu_wait_free, already waiting: sees it after the release",
        [sees for sees, _ends in waits],
        practice=late % practice,
        goal=GOAL_WAIT,
    )
    report.add(
        "gpu_wait_free, already waiting: answer after the release, less its window",
        [ends for _sees, ends in waits],
        practice=late % practice,
    )
    for name, given in answers.items():
        report.add(
            "%s: whole command" % name,
            [answer.seconds for answer in given],
            practice="%s: whole command" % practice if name != practice else "",
        )
    for window, seconds in totals.items():
        report.add(
            "gpu_reclaim, then gpu_wait_free with stable_for %g: both commands" % window,
            seconds,
            practice="%s: whole command" % practice,
        )


def verdict(answers: List[Answer]) -> str:
    """How often an answer was free, and how often it was right."""
    return "says free %d of %d times, right %d" % (
        sum(answer.says_free for answer in answers),
        len(answers),
        sum(answer.right for answer in answers),
    )


@contextlib.contextmanager
def host_of(options: Any) -> Iterator[Host]:
    """The host that was asked for."""
    if options.simulated:
        with simulated(max(1, options.gpu + 1), options.release_delay) as simulation:
            yield Host(simulation.environment, options.gpu, options.mib, token=str(simulation.state))
    else:
        with paths.collections() as folder:
            environment = dict(os.environ, PYTHONPATH=paths.python_path(folder))
            token = "reclaim-and-wait-%d" % os.getpid()
            yield Host(environment, options.gpu, options.mib, options.cuda_python, token)


def main() -> int:
    """Measure, and print the report; exit status 2 where nothing can be measured."""
    parser = measure.parser(__doc__, repeats=5)
    parser.add_argument("--simulated", action="store_true", help="on simulated GPUs")
    parser.add_argument(
        "--release-delay",
        type=float,
        default=0.15,
        metavar="SECONDS",
        help="of a simulated GPU's memory after its process (default: %(default)s, as measured on an H200)",
    )
    parser.add_argument("--gpu", type=int, default=0, help="NVML index; default: %(default)s")
    parser.add_argument("--mib", type=int, default=20480, help="that the holder holds; default: %(default)s")
    parser.add_argument("--interval", type=float, default=0.02, help="of gpu_wait_free; default: %(default)s")
    parser.add_argument("--cuda-python", default="python3", metavar="PYTHON", help="one with torch; default: python3")
    options = parser.parse_args()
    where = "simulated" if options.simulated else "real"
    report = measure.Report("Freeing a %s GPU that one process uses, %d MiB" % (where, options.mib))
    if options.simulated:
        report.remarks.append("Simulated memory is released %g s after the process's end." % options.release_delay)
    wait = {"timeout": 60, "interval": options.interval}
    try:
        with host_of(options) as host:
            measure_all(Bench(host), report, options.repeats, wait)
    except (CannotMeasure, OSError) as exc:
        print("reclaim_and_wait.py: %s" % exc, file=sys.stderr)
        return 2
    report.show(options.json)
    return 0


if __name__ == "__main__":
    measure.command(main)
