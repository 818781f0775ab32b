# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the tests on every supported version of Python, ansible-core and nvidia-ml-py that this machine can have.

usage: run_matrix.py [--ends | --oldest] [--list] [--only PATTERN]... [--strict] [--no-fetch] [--jobs N]

See README.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Dict, List, Sequence

import cells
import environments
import outcome
import pythons
import uv
from cells import BINDING, NEWEST, PLAY, SCENARIO, TARGET, Cell, Version, text
from environments import Unavailable
from outcome import Outcome
from pythons import Absent, Examined, Interpreter
from running import Commands

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
WORK = BUILD / "matrix"
LOGS = BUILD / "logs"
REPORTS = BUILD / "reports"
LINKS = BUILD / "links"
COPY = BUILD / "tree" / "ansible_collections" / "inferops" / "sglang"
REQUIREMENTS = ROOT / "tests" / "requirements" / "run.txt"
# The end of a failed cell's log that is shown at once. The rest is in the log.
LINES_SHOWN = 60
PYTEST_OPTIONS = ("-q", "-p", "ansible_collections.inferops.sglang.tests.matrix.few_examples")
# The options that choose a few cells.
FEW = {"ends": cells.ends, "oldest": cells.oldest}
# Those that tell Python or a tool of an environment that is not the cell's.
FOREIGN = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "ANSIBLE_CONFIG")


class Matrix:
    """Prepares and runs cells with the interpreters of this machine."""

    def __init__(self, found: Dict[Version, Examined], commands: Commands) -> None:
        self._found = found
        self._commands = commands
        # One at a time makes environments, as several cells may need the same.
        self._making = Lock()
        self._halves: Dict[str, tuple] = {}

    def run(self, cell: Cell) -> Outcome:
        """Run a cell; what cannot be had is told as skipped, and what cannot be prepared as failed."""
        started = time.monotonic()
        try:
            with self._making:
                self._commands.check()
                interpreter = self._interpreter(cell)
                prepare = {TARGET: self._on_a_host, BINDING: self._on_a_host}.get(cell.kind, self._on_a_controller)
                python, paths, description = prepare(cell, interpreter)
        except Unavailable as error:
            return outcome.skipped(cell.name, str(error))
        except Exception as error:
            return Outcome(cell.name, outcome.FAILED, f"not prepared: {error!r}", outcome.Count(failed=1))
        run = self._play if cell.kind == PLAY else self._pytest
        done = run(cell, python, paths, description)
        done.seconds = time.monotonic() - started
        return done

    def _interpreter(self, cell: Cell) -> Interpreter:
        absent = []
        for version in cell.pythons:
            found = self._found[version]
            if isinstance(found, Interpreter):
                return found
            absent.append(found.reason)
        if len(absent) == 1:
            raise Unavailable(absent[0])
        first, last = sorted(cell.pythons)[0], sorted(cell.pythons)[-1]
        raise Unavailable(f"there is no Python from {text(first)} to {text(last)}, which it needs: {'; '.join(absent)}")

    # ---- what a cell needs

    def _binding(self, cell: Cell) -> str:
        return environments.binding_requirement(cell.binding, REQUIREMENTS)

    def _on_a_host(self, cell: Cell, interpreter: Interpreter):
        """The environment of a module: a Python without ansible-core, and what ansible-core sends along."""
        if cell.core not in self._halves:
            self._halves[cell.core] = environments.modules_half(cell.core, WORK / "ansible-core", sys.executable)
        half, core = self._halves[cell.core]
        supported = environments.target_pythons(half)
        if interpreter.version not in supported:
            oldest, newest = text(min(supported)), text(max(supported))
            raise Unavailable(f"ansible-core {core} supports hosts with Python {oldest} to {newest}")
        folder = WORK / f"host-{text(interpreter.version)}-{cell.binding}"
        wanted = [*environments.TEST_TOOLS, self._binding(cell)]
        python = environments.environment(folder, interpreter, wanted)
        (binding,) = environments.installed(python, environments.BINDING)
        return python, [half], f"Python {interpreter.full}, ansible-core {core}, {environments.BINDING} {binding}"

    def _on_a_controller(self, cell: Cell, interpreter: Interpreter):
        """The environment of a controller, and of what plays."""
        folder = WORK / f"controller-{cell.core}"
        # The environment comes first: its own pip knows which release its Python can run.
        python = environments.environment(folder, interpreter, [*environments.TEST_TOOLS, self._binding(cell)])
        requirement = environments.core_requirement(cell.core, python)
        own = {line.name for line in cells.CORE_LINES}
        version = requirement.partition("==")[2]
        line = ".".join(version.split(".")[:2])
        if cell.core == NEWEST and line in own:
            kind = cell.name.partition("-")[0]
            raise Unavailable(
                f"the newest ansible-core for Python {interpreter.full} is {version}: the cell {kind}-{line}"
            )
        tools = ["molecule"] if cell.kind == PLAY else []
        environments.environment(folder, interpreter, [requirement, *tools])
        (core,) = environments.installed(python, environments.CORE)
        return python, [], f"Python {interpreter.full}, ansible-core {core}"

    # ---- running

    def _environment(self, python: pathlib.Path, paths: Sequence[pathlib.Path], temporary: str) -> Dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        environment.update(
            PATH=os.pathsep.join([str(python.parent), os.environ["PATH"]]),
            PYTHONPATH=os.pathsep.join(map(str, [*paths, LINKS])),
            PYTHONPYCACHEPREFIX=str(BUILD / "pycache"),
            PYTEST_DEBUG_TEMPROOT=temporary,
        )
        return environment

    def _pytest(self, cell: Cell, python: pathlib.Path, paths: Sequence[pathlib.Path], description: str) -> Outcome:
        report = REPORTS / f"matrix-{cell.name}.xml"
        report.unlink(missing_ok=True)
        # Not below build/: names of sockets would become too long, and other users may not enter it.
        temporary = tempfile.mkdtemp(prefix="m-", dir="/tmp")
        os.chmod(temporary, 0o755)
        without = {str(ROOT / path) for path in cell.without}
        files = [str(path) for pattern in cell.tests for path in sorted(ROOT.glob(pattern)) if str(path) not in without]
        # Where a whole folder is named.
        files += [f"--ignore={path}" for path in sorted(without)]
        try:
            problem = self._commands.run(
                [str(python), "-m", "pytest", *PYTEST_OPTIONS, f"--junitxml={report}", *files],
                self._environment(python, paths, temporary),
                _log(cell),
            )
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        count = outcome.read_report(report)
        if problem and not count.failed:
            count.failed = 1  # pytest itself failed, or was ended
        if not problem and not count.passed:
            problem, count.failed = "no test passed", 1
        result = outcome.FAILED if problem else outcome.OK
        text = f"{description}: {problem}" if problem else description
        return Outcome(cell.name, result, text, count, reasons=outcome.skip_reasons(report))

    def _play(self, cell: Cell, python: pathlib.Path, paths: Sequence[pathlib.Path], description: str) -> Outcome:
        if os.geteuid() != 0:
            return outcome.skipped(cell.name, "test hosts need root")
        environment = self._environment(python, paths, "/tmp")
        del environment["PYTHONPATH"]  # molecule takes the collection from the copy
        words = [str(ROOT / "tests" / "tooling" / "molecule"), str(COPY), SCENARIO]
        problem = self._commands.run(words, environment, _log(cell))
        if problem:
            return Outcome(cell.name, outcome.FAILED, f"{description}: {problem}", outcome.Count(failed=1))
        return Outcome(cell.name, outcome.OK, description, outcome.Count(passed=1))


def _log(cell: Cell) -> pathlib.Path:
    return LOGS / f"matrix-{cell.name}.log"


def interpreters(wanted: Sequence[Version], fetch: bool) -> Dict[Version, Examined]:
    """Find the wanted Pythons; those that are missing are fetched, where that is possible."""
    found = pythons.find(wanted, os.environ, sys.executable)
    missing = [version for version, examined in found.items() if isinstance(examined, Absent)]
    if missing and fetch:
        for version, fetched in uv.fetch(missing, WORK, sys.executable).items():
            if isinstance(fetched, Absent):
                fetched = Absent(f"{found[version].reason}; {fetched.reason}")
            found[version] = fetched
    return found


def show(done: Outcome) -> None:
    """Say how a cell ended, at once, with the end of its log where it failed."""
    lines = []
    log = LOGS / f"matrix-{done.cell}.log"
    if done.result == outcome.FAILED and log.exists():
        end = log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        lines = [f"----- {done.cell} failed; the end of {log.relative_to(ROOT)}:", *end, "-----"]
    lines.append(f"{done.cell}: {done.result} ({done.text})")
    lines += [f"    a test was skipped: {reason}" for reason in done.reasons]
    print("\n".join(lines), flush=True)


def run_all(matrix: Matrix, chosen: Sequence[Cell], jobs: int) -> List[Outcome]:
    """Run the cells; plays one after the other, as they share the test hosts."""

    def run(cell: Cell) -> Outcome:
        done = matrix.run(cell)
        show(done)
        return done

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        done = list(pool.map(run, [cell for cell in chosen if cell.kind != PLAY]))
    return done + [run(cell) for cell in chosen if cell.kind == PLAY]


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Run the tests on every supported version that can be had here.")
    few = parser.add_mutually_exclusive_group()
    few.add_argument("--ends", dest="few", action="store_const", const="ends", help="only the oldest and the newest")
    few.add_argument("--oldest", dest="few", action="store_const", const="oldest", help="only the oldest of a host")
    parser.add_argument("--list", action="store_true", help="name the cells and run nothing")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="only cells with such a name")
    parser.add_argument("--strict", action="store_true", help="fail when a cell cannot be had")
    parser.add_argument("--no-fetch", action="store_true", help="do not fetch missing Pythons with uv")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="this many cells at a time (default 1)")
    given = parser.parse_args(words)
    if given.jobs < 1:
        parser.error(f"--jobs {given.jobs}: use a number from 1 on")
    return given


def main(words: Sequence[str]) -> int:
    """Run what the command line asks for; returns the exit status."""
    given = arguments(words)
    if given.list:
        # Which Pythons are here decides what the ends are; they are not fetched for a list.
        found = interpreters(cells.TARGET_PYTHONS, fetch=False) if given.few else {}
        listed = FEW[given.few](_present(found)) if given.few else cells.everything()
        print("\n".join(cell.name for cell in cells.chosen(listed, given.only)))
        return 0

    for folder in (LOGS, REPORTS, WORK):
        folder.mkdir(parents=True, exist_ok=True)
    commands = Commands(ROOT)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, commands.stop)

    if given.few:
        wanted = cells.TARGET_PYTHONS
    else:
        selected = cells.chosen(cells.everything(), given.only)
        wanted = sorted({python for cell in selected for python in cell.pythons})
    found = interpreters(wanted, not given.no_fetch)
    if given.few:
        selected = cells.chosen(FEW[given.few](_present(found)), given.only)
    if not selected:
        print(f"--only {' '.join(given.only)}: no cell has such a name; --list names them", file=sys.stderr)
        return 2
    outcomes = run_all(Matrix(found, commands), selected, given.jobs)

    part = f"matrix-{given.few}" if given.few else "matrix"
    outcome.write_summary(outcomes, REPORTS / f"{part}.xml")
    print("", *outcome.table(outcomes), "", sep="\n")
    count = outcome.total(outcomes)
    print(count)
    missing = given.strict and any(done.result == outcome.SKIPPED for done in outcomes)
    return 1 if count.failed or missing else 0


def _present(found: Dict[Version, Examined]) -> List[Version]:
    return [version for version, examined in found.items() if isinstance(examined, Interpreter)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
