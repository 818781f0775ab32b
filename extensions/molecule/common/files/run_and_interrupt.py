# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a playbook, do something to it or to a host at a certain moment, and tell how it ended, as one JSON object.

usage: run_and_interrupt.py --testhosts PROGRAM [--said REGEX | --host HOST --when SHELL] [--do VERB]... -- COMMAND...

The moment is when the run has said something, or when a shell condition is true on a host, which is looked at past ssh.
Each --do is then done in turn: a command of testhosts ("cut gpu-1", "exec gpu-1 poweroff"), "wait SECONDS", or "end":
SIGKILL for the whole run. Without a moment the run is left alone.

rc          the run's exit code, negative where a signal ended it
seconds     from the first --do to the end of the run
began, interrupted, ended    when that was, by the machine's clock
output      what the run said
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import Callable

# The moment comes after the checks, and a run ends after the retries of a lost connection.
MOMENT_SECONDS = 400
END_SECONDS = 400


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--testhosts", required=True)
    parser.add_argument("--said", type=re.compile)
    parser.add_argument("--host")
    parser.add_argument("--when")
    parser.add_argument("--do", action="append", default=[])
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


class Run:
    """A command in a session of its own, and what it has said so far."""

    def __init__(self, command: list[str], output: int) -> None:
        self._output = output
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )

    def said(self) -> str:
        """Return the output until now.  Its descriptor is shared with the run, so it is read by position."""
        return os.pread(self._output, os.fstat(self._output).st_size, 0).decode(errors="replace")

    def end(self) -> None:
        """End it with all that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait_for_moment(is_now: Callable[[], bool], run: Run) -> None:
    """Return when it is.  Raises SystemExit when the run ends before, or when the moment does not come."""
    deadline = time.monotonic() + MOMENT_SECONDS
    while not is_now():
        if run.process.poll() is not None:
            raise SystemExit("the run ended (%d) before the moment to interrupt it" % run.process.returncode)
        if time.monotonic() > deadline:
            raise SystemExit("the moment to interrupt the run did not come in %d s" % MOMENT_SECONDS)
        time.sleep(0.1)


def wait_for_host(options: argparse.Namespace, run: Run) -> None:
    """Wait for a condition on a host, with one process there for all looks."""
    loop = "until %s; do sleep 0.2; done" % options.when
    watch = subprocess.Popen([options.testhosts, "exec", options.host, "sh", "-c", loop], stdin=subprocess.DEVNULL)
    try:
        wait_for_moment(lambda: watch.poll() is not None, run)
    finally:
        if watch.poll() is None:
            watch.kill()
    if watch.returncode:
        raise SystemExit("%s could not be looked at: %d" % (options.host, watch.returncode))


def interrupt(action: str, options: argparse.Namespace, run: Run) -> None:
    """Do one of the things that were asked for."""
    verb, _space, argument = action.partition(" ")
    if verb == "wait":
        time.sleep(float(argument))
    elif verb == "end":
        run.end()
    else:
        subprocess.run([options.testhosts, *action.split()], check=True, stdin=subprocess.DEVNULL)


def interrupted(options: argparse.Namespace, run: Run) -> dict[str, object]:
    """Wait for the moment, interrupt, wait for the end."""
    began = time.time()
    if options.said:
        wait_for_moment(lambda: options.said.search(run.said()) is not None, run)
    elif options.host:
        wait_for_host(options, run)
    moment = time.time()
    for action in options.do:
        interrupt(action, options, run)
    status = run.process.wait(END_SECONDS)
    ended = time.time()
    return {
        "rc": status,
        "seconds": round(ended - moment, 1),
        "began": began,
        "interrupted": moment,
        "ended": ended,
        "output": run.said(),
    }


def main() -> None:
    """Start, interrupt, tell."""
    options = parse()
    with tempfile.TemporaryFile() as output:
        run = Run(options.command, output.fileno())
        try:
            json.dump(interrupted(options, run), sys.stdout)
        except BaseException:
            sys.stderr.write(run.said())
            raise
        finally:
            run.end()


if __name__ == "__main__":
    main()
