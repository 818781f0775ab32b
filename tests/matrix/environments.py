# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the environments of the cells: virtual environments, and what ansible-core sends to a host.

A host has only the half of ansible-core that modules import. So that nothing else is imported by mistake, and because
pip refuses ansible-core on a host's Python, that half is taken out of the wheel.
"""

from __future__ import annotations

import ast
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import zipfile
from typing import Iterable, List, Sequence, Tuple

from cells import NEWEST, OLDEST, Version
from pythons import Interpreter

BINDING = "nvidia-ml-py"
CORE = "ansible-core"
# What every cell's tests import. pip takes the last release that knows the Python.
TEST_TOOLS = ("hypothesis", "pytest", "PyYAML")
PIP_SECONDS = 600


class Unavailable(Exception):
    """Something cannot be had on this machine; the message says why."""


def pip(python: str, *words: str) -> str:
    """Run pip of an interpreter: its standard output. Raises Unavailable, with pip's own word."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"pip {words[0]} did not end within {PIP_SECONDS} s") from None
    if done.returncode:
        raise Unavailable(pips_reason(done.stderr))
    return done.stdout


def pips_reason(errors: str) -> str:
    """The line of pip's errors that names the cause, without the list of all versions that exist."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    causes = [line.partition("ERROR: ")[2] for line in lines if line.startswith("ERROR: ")]
    cause = causes[0] if causes else (lines[-1] if lines else "pip failed and says nothing")
    return re.sub(r" \(from versions: [^)]{80,}\)", "", cause)


def binding_requirement(end: str, requirements: pathlib.Path) -> str:
    """What pip is asked for: the bounds of nvidia-ml-py stand in the file of requirements."""
    for line in requirements.read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(rf"{BINDING} >=\s*([\d.]+), (<\s*[\d.]+)", line.strip())
        if found:
            return f"{BINDING}=={found[1]}" if end == OLDEST else f"{BINDING}>={found[1]},{found[2]}"
    raise ValueError(f"{requirements} has no line '{BINDING} >=VERSION, <VERSION'; write it so, or change {__file__}")


# ---- virtual environments -------------------------------------------------------------------------------------------


def environment(folder: pathlib.Path, interpreter: Interpreter, requirements: Iterable[str]) -> pathlib.Path:
    """Make a virtual environment with these, or complete one that is there: its python. Raises Unavailable."""
    python = folder / "bin" / "python"
    wanted = sorted(requirements)
    stamp = folder / f".installed-{_digest(interpreter, wanted)}"
    if stamp.exists() and python.exists():
        return python
    if not (python.exists() and _full_version(python) == interpreter.full):
        shutil.rmtree(folder, ignore_errors=True)
        _make(folder, interpreter)
    # Nothing is compiled at once: the tests keep what Python compiles in a folder of their own.
    pip(str(python), "install", "--quiet", "--prefer-binary", "--no-compile", *wanted)
    stamp.touch()
    return python


def _digest(interpreter: Interpreter, requirements: Sequence[str]) -> str:
    return hashlib.sha256(repr((interpreter.full, requirements)).encode()).hexdigest()[:12]


def _full_version(python: pathlib.Path) -> str:
    code = "import platform; print(platform.python_version())"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _make(folder: pathlib.Path, interpreter: Interpreter) -> None:
    done = subprocess.run(
        [interpreter.path, "-m", "venv", str(folder)], capture_output=True, text=True, timeout=PIP_SECONDS, check=False
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1]
        raise Unavailable(f"{interpreter.path} -m venv failed: {said}")


def installed(python: pathlib.Path, *names: str) -> List[str]:
    """The installed versions of these distributions, "" for one that is not there."""
    code = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
def of(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
print(json.dumps([of(name) for name in sys.argv[1:]]))"""
    done = subprocess.run([str(python), "-c", code, *names], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


# ---- ansible-core ---------------------------------------------------------------------------------------------------


def core_requirement(line: str, python: pathlib.Path) -> str:
    """What pip is asked for to run a controller of this line on this Python. Raises Unavailable."""
    if line != NEWEST:
        return f"{CORE}=={line}.*"
    # Candidates for a release count, but not those of what ansible-core needs, so the version is asked for first.
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--pre", "--no-deps", "--only-binary=:all:", "--dest", folder]
        pip(str(python), "download", *options, CORE)
        return f"{CORE}=={_version(_only_file(folder))}"


def modules_half(line: str, folder: pathlib.Path, python: str) -> Tuple[pathlib.Path, str]:
    """Unpack what a release of this line sends to hosts: the folder for sys.path, and the version.

    Of the newest line the newest release is taken, candidates too, whatever Python the controller needs; python is any
    interpreter with pip. Raises Unavailable.
    """
    unpacked = folder / line
    version = unpacked / "version"
    if line != NEWEST and version.exists():
        return unpacked, version.read_text(encoding="utf-8")
    words = ["--pre", CORE] if line == NEWEST else [f"{CORE}=={line}.*"]
    with tempfile.TemporaryDirectory() as downloads:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--dest", downloads]
        pip(python, "download", *options, *words)
        wheel = _only_file(downloads)
        if not version.exists() or version.read_text(encoding="utf-8") != _version(wheel):
            shutil.rmtree(unpacked, ignore_errors=True)
            _unpack(wheel, unpacked)
            version.write_text(_version(wheel), encoding="utf-8")
    return unpacked, version.read_text(encoding="utf-8")


def _only_file(folder: str) -> pathlib.Path:
    (file,) = pathlib.Path(folder).iterdir()
    return file


def _version(wheel: pathlib.Path) -> str:
    return wheel.name.split("-")[1]


def _unpack(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("ansible/module_utils/")]
        archive.extractall(folder, names)
        constants = archive.read("ansible_test/_util/target/common/constants.py").decode()
    # ansible-core sends an empty package along as well: the real one imports what hosts do not have.
    (folder / "ansible" / "__init__.py").touch()
    (folder / "target-pythons").write_text(json.dumps(supported(constants)), encoding="utf-8")


def supported(constants: str) -> List[str]:
    """The Pythons that a release supports on hosts, from the constants of its own tests."""
    names = ("REMOTE_ONLY_PYTHON_VERSIONS", "CONTROLLER_PYTHON_VERSIONS")
    found: List[str] = []
    for node in ast.parse(constants).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names:
            found.extend(ast.literal_eval(node.value))
    if not found:
        raise ValueError(f"ansible-core's constants have none of {', '.join(names)}; see where it keeps them now")
    return found


def target_pythons(unpacked: pathlib.Path) -> List[Version]:
    """The Pythons on which the modules' half of this release runs."""
    names = json.loads((unpacked / "target-pythons").read_text(encoding="utf-8"))
    return [tuple(map(int, name.split("."))) for name in names]
