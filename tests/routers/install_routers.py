# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install the real routers, each into a folder of its own.

usage: install_routers.py FOLDER

FOLDER/KIND is for PYTHONPATH of this interpreter. What is installed already is left alone. A router that cannot be had
is no error: the file FOLDER/KIND.unavailable says why, and its tests are skipped with that.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
KINDS = ("sglang-router", "smg")


class Unavailable(Exception):
    """Something cannot be installed here; the message is pip's."""


def requirements_of(kind: str) -> Path:
    """The file that pins a router."""
    return REQUIREMENTS / f"router-{kind}.txt"


def pip_install(folder: Path, requirements: Path) -> None:
    """Install into a folder, beside no other package. Raises Unavailable."""
    options = ("--quiet", "--no-compile", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder)]
    done = subprocess.run(
        # What else the packages want nobody uses here.
        [*command, "--no-deps", "--requirement", str(requirements)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise Unavailable(errors[-1].partition(" ")[2] if errors else done.stderr.strip()[-300:])


def install(kind: str, folder: Path) -> None:
    """Make the folder of one router. Raises Unavailable."""
    requirements = requirements_of(kind)
    state = hashlib.sha256(repr(sys.version).encode() + requirements.read_bytes()).hexdigest()
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text() == state:
        return
    print(f"installing {kind}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    pip_install(folder, requirements)
    stamp.write_text(state)


def main(folder: Path) -> int:
    """Install all routers; say which cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        reason = folder / f"{kind}.unavailable"
        reason.unlink(missing_ok=True)
        try:
            install(kind, folder / kind)
        except Unavailable as error:
            print(f"{kind} cannot be had on Python {sys.version.split()[0]}: {error}")
            reason.write_text(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
