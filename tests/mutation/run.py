# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mutation testing: change the code in small ways, and see whether a unit test notices.

usage: run.py FOLDER [--again] [FILE...]
  FOLDER   where to work
  --again  only the mutants that survived last time, or were not reached: for who has written a test against them
  FILE     relative to plugins/module_utils: gpu/plan.py

Each file is tested by its own unit test alone: what decides whether a process is ended or a GPU is free is to be
pinned down where it is decided.  Prints each mutant that no test noticed, as a diff.  Those that explained.yml gives a
reason for are only counted.  Ends with 1 where any other is left.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
UTILS = Path("plugins/module_utils")
COLLECTION = Path("ansible_collections/inferops/sglang")

# On these hangs who is ended, what counts as free, and what counts as proven.
FILES = (
    "gpu/plan.py",
    "gpu/verdict.py",
    "gpu/protection.py",
    "gpu/matching.py",
    "gpu/selection.py",
    "gpu/waiting.py",
    "system/termination.py",
    "sglang/processes/ownership.py",
    "sglang/readiness/proof.py",
    "sglang/readiness/soak.py",
)

# A mutant may signal whomever its tests name: in a PID namespace of its own it finds nobody but the tests.  The shell
# is the first process there, which inherits what a mutant leaves behind: mutmut would take that for its own.
ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh")
NOTICED = ("killed", "timeout", "segfault")

SETTINGS = """\
[tool.mutmut]
source_paths = ["ansible_collections"]
only_mutate = ["{source}"]
also_copy = ["conftest.py"]
pytest_add_cli_args = ["-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = ["{test}"]
timeout_multiplier = 8.0
use_git_change_detection = false

[tool.pytest.ini_options]
addopts = "--import-mode=importlib"
"""

# The same few examples each time, and the first that fails is enough; a busy machine is no failure.
CONFTEST = """\
from hypothesis import Phase, settings

settings.register_profile(
    "mutation", phases=[Phase.explicit, Phase.generate], max_examples=30, deadline=None, derandomize=True, database=None
)
settings.load_profile("mutation")
"""


def test_of(name: str) -> Path:
    """The unit test of a file."""
    path = Path(name)
    test = Path("tests/unit") / UTILS / path.parent / f"test_{path.name}"
    for needed in (ROOT / UTILS / path, ROOT / test):
        if not needed.is_file():
            sys.exit(f"FILE={name}: there is no {needed.relative_to(ROOT)}; name a file below {UTILS} that has one")
    return test


def prepare(folder: Path, name: str) -> None:
    """Lay out what mutmut needs: it wants the path of a file to be its name to `import`."""
    for part in ("plugins/module_utils", "tests/unit"):
        target = folder / COLLECTION / part
        shutil.copytree(ROOT / part, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    text = SETTINGS.format(source=COLLECTION / UTILS / name, test=COLLECTION / test_of(name))
    (folder / "pyproject.toml").write_text(text)
    (folder / "conftest.py").write_text(CONFTEST)


def mutants_of(folder: Path, name: str, again: bool) -> list[dict]:
    """Make and test the mutants of one file."""
    if not again:
        shutil.rmtree(folder, ignore_errors=True)
    elif not (folder / "mutants").is_dir():
        sys.exit(f"{name}: it has no mutants yet; run this without --again first")
    prepare(folder, name)
    found, log = folder / "results.json", folder / "log"
    found.unlink(missing_ok=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with log.open("wb") as output:
        status = subprocess.run(
            [*ALONE, sys.executable, str(HERE / "mutate.py"), str(found), *(["again"] if again else [])],
            check=False,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ).returncode
    if status or not found.exists():
        sys.exit(f"{log.read_text(errors='replace')[-4000:]}\n{name}: mutmut ended with status {status} (above)")
    return json.loads(found.read_text())


def changed_lines(diff: str, sign: str) -> str:
    """The lines that a diff takes out ("-") or puts in ("+"), without their indentation."""
    lines = [line[1:].strip() for line in diff.splitlines() if line.startswith(sign) and not line.startswith(sign * 3)]
    return "\n".join(lines)


class Explanations:
    """The survivors that are no gap in the tests, by what they change."""

    def __init__(self, path: Path) -> None:
        self._of: dict[tuple[str, str, str, str], str] = {}
        for entry in yaml.safe_load(path.read_text()):
            for new in entry["to"]:
                self._of[entry["file"], entry["function"], entry["from"].strip(), new.strip()] = entry["why"]

    def reason(self, name: str, mutant: dict) -> str:
        """Why a mutant may survive, "" where nobody has said."""
        removed, added = (changed_lines(mutant["diff"], sign) for sign in "-+")
        return self._of.get((name, mutant["function"], removed, added), "")


def report(name: str, mutants: list[dict], explanations: Explanations, seconds: float) -> int:
    """Print the survivors of one file and the count; returns how many are unexplained."""
    left = [mutant for mutant in mutants if mutant["status"] not in NOTICED]
    open_ones = [mutant for mutant in left if not explanations.reason(name, mutant)]
    for mutant in open_ones:
        print(f"\n{name}: {mutant['function']}: {mutant['status']}")
        print("\n".join(mutant["diff"].splitlines()[2:]))
    count = Counter(mutant["status"] for mutant in mutants)
    noticed = sum(count[status] for status in NOTICED)
    print(
        f"{name:34} {len(mutants):4} mutants, {noticed:4} noticed, {len(left) - len(open_ones):3} explained, "
        f"{len(open_ones):3} open   {seconds:5.0f} s",
        flush=True,
    )
    return len(open_ones)


def main(folder: Path, names: list[str], again: bool) -> int:
    """Test the files one after the other."""
    if os.geteuid() != 0:
        sys.exit("mutants run in a PID namespace of their own, which takes root: run this as root")
    for name in names:
        test_of(name)
    explanations = Explanations(HERE / "explained.yml")
    total = 0
    for name in names:
        started = time.monotonic()
        mutants = mutants_of(folder / name.replace("/", "-"), name, again)
        total += report(name, mutants, explanations, time.monotonic() - started)
    print(f"{total} survivors without an explanation")
    return 1 if total else 0


if __name__ == "__main__":
    words = [word for word in sys.argv[2:] if word != "--again"]
    sys.exit(main(Path(sys.argv[1]).resolve(), words or list(FILES), "--again" in sys.argv[2:]))
