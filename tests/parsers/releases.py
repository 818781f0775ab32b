# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install releases of SGLang so far that their parsers run, on a host without a GPU.

usage: releases.py FOLDER

FOLDER/shared has torch (a CPU build) and what all releases need; FOLDER/VERSION is a virtual environment with the
release and what it pins. What is installed already is left alone. A release that cannot be had is no error: the file
FOLDER/VERSION.unavailable says why, and its tests are skipped with that.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE.parent / "requirements"
SHARED = REQUIREMENTS / "parsers.txt"
# One for all releases: their parsers need no particular one.
TORCH = "2.13.0"
# PyPI's build for x86-64 brings CUDA, some gigabytes. Where the index of pip has no CPU build either, this variable
# names one that has.
CPU_INDEX = "TORCH_CPU_INDEX"


class Unavailable(Exception):
    """Something cannot be installed here; the message is pip's."""


def releases() -> dict[str, Path]:
    """The tested releases, oldest first, with what they need; only the last where $RELEASES is "newest"."""
    found = {file.stem.partition("-")[2]: file for file in REQUIREMENTS.glob("sglang-*.txt")}
    versions = sorted(found, key=numbers)
    if os.environ.get("RELEASES") == "newest":
        versions = versions[-1:]
    return {version: found[version] for version in versions}


def numbers(version: str) -> tuple[int, ...]:
    """A version, for comparing."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def interpreter(folder: Path) -> Path:
    """The interpreter of a virtual environment."""
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    """Where a virtual environment has its packages."""
    return folder / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"


def pip(shared: Path, *words: str, into: Path | None = None) -> None:
    """Run pip of the shared environment. Raises Unavailable."""
    target = ["--python", str(interpreter(into))] if into else []
    command = [str(interpreter(shared)), "-m", "pip", *target, "--disable-pip-version-check", "--no-input", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise Unavailable(errors[-1].partition(" ")[2] if errors else done.stderr.strip()[-300:])


def fresh(folder: Path, with_pip: bool) -> None:
    """An empty virtual environment."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=with_pip, symlinks=True)


def state_of(*sources: Path) -> str:
    """Changes when an environment must be made again."""
    digest = hashlib.sha256(repr((sys.version, TORCH)).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def up_to_date(folder: Path, state: str) -> bool:
    """Whether an environment was finished in this state."""
    stamp = folder / ".installed"
    return stamp.exists() and stamp.read_text() == state


def finish(folder: Path, state: str) -> None:
    """Note that an environment is complete."""
    (folder / ".installed").write_text(state)


def install_shared(folder: Path) -> None:
    """Make the environment with torch and all that the releases have in common. Raises Unavailable."""
    state = state_of(SHARED)
    if up_to_date(folder, state):
        return
    print(f"installing torch {TORCH} (CPU) and what all releases need", flush=True)
    fresh(folder, with_pip=True)
    options = ["install", "--quiet", "--no-compile", "--only-binary", ":all:", f"torch=={TORCH}+cpu"]
    try:
        pip(folder, *options)
    except Unavailable as error:
        index = os.environ.get(CPU_INDEX)
        if not index:
            raise Unavailable(f"{error}; name an index with CPU builds of torch in {CPU_INDEX}") from None
        pip(folder, *options, "--index-url", index, "--retries", "1", "--timeout", "15")
    pip(folder, "install", "--quiet", "--no-compile", "--prefer-binary", "--requirement", str(SHARED))
    finish(folder, state)


def install_release(version: str, requirements: Path, folder: Path, shared: Path) -> None:
    """Make the environment of one release. Raises Unavailable."""
    state = state_of(requirements, SHARED)
    if up_to_date(folder, state):
        return
    print(f"installing sglang {version}", flush=True)
    fresh(folder, with_pip=False)
    pip(
        shared,
        *("install", "--quiet", "--no-compile", "--no-deps", "--only-binary", ":all:"),
        *("--requirement", str(requirements)),
        into=folder,
    )
    # Behind the release's own packages, so that those win.
    # Nothing is written into the sources.
    stand_ins = "import sys; sys.dont_write_bytecode = True; import absent_packages; sys.dont_write_bytecode = False"
    lines = [str(site_packages(shared)), str(HERE / "absent"), stand_ins]
    (site_packages(folder) / "shared.pth").write_text("".join(line + "\n" for line in lines))
    finish(folder, state)


def newest_release(shared: Path) -> str:
    """The newest release that pip finds for this Python, "" where it finds out nothing."""
    command = [str(interpreter(shared)), "-m", "pip", "--disable-pip-version-check", "index", "versions", "sglang"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = re.match(r"sglang \(([\d.a-z]+)\)", done.stdout)
    return found.group(1) if found else ""


def main(folder: Path) -> int:
    """Install all releases; say which cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = folder / "shared"
    problem = ""
    try:
        install_shared(shared)
    except Unavailable as error:
        problem = f"what all releases need cannot be installed: {error}"
    for version, requirements in releases().items():
        reason = folder / f"{version}.unavailable"
        reason.unlink(missing_ok=True)
        try:
            if problem:
                raise Unavailable(problem)
            install_release(version, requirements, folder / version, shared)
        except Unavailable as error:
            print(f"sglang {version} cannot be had on Python {sys.version.split()[0]}: {error}")
            reason.write_text(str(error))
    if not problem:
        (folder / "newest").write_text(newest_release(shared))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
