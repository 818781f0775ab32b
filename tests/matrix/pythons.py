# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the Pythons of this machine, and proves of each that it runs, is what its name says, and can make environments.

A name on PATH proves nothing: a version manager puts a wrapper there for every version that it knows, also for those
that are not active.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Tuple, Union

from cells import Version, text

# Interpreters of one's own: paths with colons between them.
VARIABLE = "MATRIX_PYTHONS"
# What an environment for tests takes. Some distributions pack parts of the standard library separately, and a Python
# that was compiled without a library's headers lacks the module.
NEEDED = ("ctypes", "ensurepip", "ssl", "venv", "zlib")
PROBE_SECONDS = 20

_PROBE = """
import importlib, json, platform, sys
def broken(name):
    try:
        importlib.import_module(name)
    except ImportError:
        return True
print(json.dumps({
    "implementation": platform.python_implementation(),
    "full": platform.python_version(),
    "version": sys.version_info[:2],
    "missing": [name for name in sys.argv[1:] if broken(name)],
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that works: its path, (3, 11), and "3.11.7"."""

    path: str
    version: Version
    full: str


@dataclass(frozen=True)
class Absent:
    """Why there is no Python of a version."""

    reason: str


Examined = Union[Interpreter, Absent]


def examine(path: str) -> Examined:
    """Run an interpreter: what it is, or what is wrong with it."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", _PROBE, *NEEDED],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
        found = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return Absent(f"{path} does not run: {error}")
    if found is None:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return Absent(f"{path} does not run: {said[0]}")
    if found["implementation"] != "CPython":
        return Absent(f"{path} is {found['implementation']}, not CPython")
    if found["missing"]:
        return Absent(f"{path} (Python {found['full']}) has no module {', '.join(found['missing'])}")
    return Interpreter(path, tuple(found["version"]), found["full"])


def find(
    wanted: Iterable[Version],
    environment: Mapping[str, str],
    own: str,
    examine: Callable[[str], Examined] = examine,
) -> Dict[Version, Examined]:
    """Find an interpreter of each wanted version: the first that works, or why none does.

    environment is that of the process; own is the interpreter that runs the matrix.
    """
    named = [path for path in environment.get(VARIABLE, "").split(os.pathsep) if path]
    # Of these, only running them tells the version.
    unnamed = [(path, examine(path)) for path in (*named, own)]
    return {version: _first(version, unnamed, environment, examine) for version in wanted}


def _first(
    version: Version,
    unnamed: List[Tuple[str, Examined]],
    environment: Mapping[str, str],
    examine: Callable[[str], Examined],
) -> Examined:
    problems = []
    for _path, found in unnamed:
        if isinstance(found, Interpreter) and found.version == version:
            return found
    for path in candidates(version, environment):
        found = examine(path)
        if isinstance(found, Interpreter) and found.version == version:
            return found
        problems.append(found.reason if isinstance(found, Absent) else f"{path} is Python {found.full}")
    # An interpreter that was named and does not work may be the one that was meant.
    problems.extend(found.reason for path, found in unnamed if isinstance(found, Absent))
    return Absent("; ".join([f"there is no Python {text(version)}", *problems]))


def candidates(version: Version, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths where a Python of this version may be, those of the user's own choice first."""
    name = f"python{text(version)}"
    home = pathlib.Path(environment.get("HOME", "/"))
    pyenv = pathlib.Path(environment.get("PYENV_ROOT") or home / ".pyenv")
    uv = pathlib.Path(environment.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    places = [pathlib.Path(folder) / name for folder in environment.get("PATH", "").split(os.pathsep) if folder]
    places += _newest_first((pyenv / "versions").glob(f"{text(version)}.*/bin/{name}"))
    places += managed_by_uv(uv, version)
    places += [pathlib.Path("/usr/local/bin") / name, pathlib.Path("/usr/bin") / name]
    seen = set()
    for place in places:
        if place not in seen and os.access(place, os.X_OK):
            seen.add(place)
            yield str(place)


def managed_by_uv(folder: pathlib.Path, version: Version) -> List[pathlib.Path]:
    """List the interpreters of this version that uv has put into a folder, the newest first."""
    return _newest_first(folder.glob(f"cpython-{text(version)}.*/bin/python{text(version)}"))


def _newest_first(paths: Iterable[pathlib.Path]) -> List[pathlib.Path]:
    def numbers(path: pathlib.Path) -> List[int]:
        return [int(part) if part.isdigit() else -1 for part in path.parts[-3].replace("-", ".").split(".")]

    return sorted(paths, key=numbers, reverse=True)
