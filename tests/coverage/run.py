# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run parts of the tests and print how much of plugins/ they run, all processes included.

usage: run.py FOLDER REPORTS PART...
  FOLDER   where the data goes; what lies there is removed
  REPORTS  where the reports go: coverage.txt with each file, coverage.xml, coverage/index.html
  PART     a make target that runs pytest: unit, simulated, deployment

Ends with make's status where a test failed; the reports are written all the same.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import coverage

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MOST_MISSING = 15  # files that are named on the screen

START = "import os; os.getenv('MEASURE_PLUGINS') and exec({0!r})\n"
IMPORT = "import sys; sys.path.append({0!r}); import measure_plugins"


@dataclass
class Count:
    """Statements and branches, and how many of them were run."""

    statements: int = 0
    run: int = 0
    branches: int = 0
    taken: int = 0

    def add(self, summary: dict) -> None:
        """Add those of a file."""
        self.statements += summary["num_statements"]
        self.run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.taken += summary["covered_branches"]

    @property
    def percent(self) -> float:
        """Of statements and branches together."""
        return 100 * (self.run + self.taken) / ((self.statements + self.branches) or 1)

    def row(self, name: str) -> str:
        """A line of the table."""
        missing, partial = self.statements - self.run, self.branches - self.taken
        return f"{name:44} {self.statements:10} {missing:8} {self.branches:8} {partial:9} {self.percent:7.1f} %"


HEAD = f"{'':44} {'statements':>10} {'missing':>8} {'branches':>8} {'not taken':>9} {'covered':>9}"


def run_tests(folder: Path, parts: list[str]) -> int:
    """Run the parts side by side, each process measured."""
    # Inert unless the variable is set, so that it may stay.
    start = Path(sysconfig.get_path("purelib")) / "measure_plugins.pth"
    start.write_text(START.format(IMPORT.format(str(HERE))))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment["MEASURE_PLUGINS"] = str(folder / "data")
    # Measuring takes time: an example that takes longer than usual is no failure.
    environment["PYTEST_ARGS"] = "%s --hypothesis-profile=ci" % environment.get("PYTEST_ARGS", "")
    command = ["make", "--no-print-directory", "--keep-going", "--output-sync=target", f"--jobs={len(parts)}", *parts]
    return subprocess.run(command, check=False, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL).returncode


def combined(folder: Path) -> coverage.Coverage:
    """The data of all processes in one."""
    found = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"), data_file=str(folder / "data"), messages=False)
    found.combine([str(folder)], strict=True)
    found.save()
    return found


def write_reports(found: coverage.Coverage, reports: Path) -> dict:
    """Write the reports; returns the figures."""
    reports.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    found.report(file=text, show_missing=True, skip_covered=False)
    (reports / "coverage.txt").write_text(text.getvalue())
    found.xml_report(outfile=str(reports / "coverage.xml"))
    found.html_report(directory=str(reports / "coverage"))
    figures = reports / "coverage.json"
    found.json_report(outfile=str(figures))
    return json.loads(figures.read_text())


def print_tables(figures: dict) -> None:
    """Print each folder, the files of which most is missing, and the total."""
    folders: dict[str, Count] = defaultdict(Count)
    files: dict[str, Count] = defaultdict(Count)
    total = Count()
    for path, data in figures["files"].items():
        short = path.partition("plugins/")[2]
        for count in (folders[str(Path(short).parent)], files[short], total):
            count.add(data["summary"])
    shown = sorted(name for name, count in folders.items() if count.statements)
    most = sorted(files, key=lambda name: (files[name].run - files[name].statements, name))[:MOST_MISSING]
    print("\n".join(["", HEAD, *(folders[name].row(name) for name in shown), total.row("all of plugins/")]))
    print("\n".join(["", "least covered:", *(files[name].row(name) for name in most)]))


def main(folder: Path, reports: Path, parts: list[str]) -> int:
    """Test, combine, report."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    status = run_tests(folder, parts)
    found = combined(folder)
    print_tables(write_reports(found, reports))
    print(f"\nparts: {', '.join(parts)}; each file: {reports / 'coverage.txt'}, {reports / 'coverage' / 'index.html'}")
    if status:
        print("a part failed (above): what its failed tests would have run is missing")
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]))
