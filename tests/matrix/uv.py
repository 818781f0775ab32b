# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetches Pythons that the machine lacks, with uv, which gets them from the internet; pip gets uv."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
from typing import Dict, Sequence

from cells import Version, text
from environments import Unavailable, pip
from pythons import Absent, Examined, examine, managed_by_uv

# For all of them together. Each is some 30 MB.
SECONDS = 120
# To begin a download: a machine without a way out is to be told soon.
CONNECT_SECONDS = 10


def fetch(versions: Sequence[Version], folder: pathlib.Path, python: str) -> Dict[Version, Examined]:
    """Fetch these versions into a folder: each as an interpreter, or why it cannot be had.

    python is an interpreter whose pip installs uv, where the machine has none.
    """
    try:
        said = _install([text(version) for version in versions], folder, python)
    except Unavailable as error:
        return {version: Absent(f"uv cannot be had: {error}") for version in versions}
    found: Dict[Version, Examined] = {}
    for version in versions:
        managed = managed_by_uv(folder / "pythons", version)
        if managed:
            found[version] = examine(str(managed[0]))
        else:
            found[version] = Absent(f"uv cannot fetch it: {complaint(said, text(version))}")
    return found


def _install(versions: Sequence[str], folder: pathlib.Path, python: str) -> str:
    """Run uv; returns what it says. What it has fetched before, it leaves alone."""
    environment = dict(
        os.environ,
        UV_PYTHON_INSTALL_DIR=str(folder / "pythons"),
        UV_CACHE_DIR=str(folder / "uv-cache"),
        UV_HTTP_TIMEOUT=str(CONNECT_SECONDS),
        UV_HTTP_CONNECT_TIMEOUT=str(CONNECT_SECONDS),
        UV_HTTP_RETRIES="1",
        UV_NO_CONFIG="1",
        NO_COLOR="1",
    )
    command = [_uv(folder, python), "python", "install", "--no-bin", *versions]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"error: no answer within {SECONDS} s"
    except OSError as error:
        raise Unavailable(str(error)) from None
    return done.stderr


def complaint(output: str, version: str) -> str:
    """Shorten what uv says of a version, a chain of causes, to the first and the last."""
    blocks = [block for block in output.split("error: ") if f"-{version}." in block.partition("\n")[0]]
    lines = [line.strip() for line in (blocks[0] if blocks else output).splitlines() if line.strip()]
    causes = [re.sub(r"^(error|cause|caused by): ", "", line, flags=re.IGNORECASE) for line in lines]
    return ": ".join(dict.fromkeys([causes[0], causes[-1]])) if causes else "it says nothing"


def _uv(folder: pathlib.Path, python: str) -> str:
    present = shutil.which("uv")
    if present:
        return present
    own = folder / "uv"
    if not (own / "bin" / "uv").exists():
        pip(python, "install", "--quiet", "--no-compile", "--only-binary=:all:", "--target", str(own), "uv")
    return str(own / "bin" / "uv")
