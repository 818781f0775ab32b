# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated GPUs in a folder of their own, for benchmarks on hosts that have none."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator

import paths


@dataclass(frozen=True)
class Simulation:
    """The environment in which a process sees the simulated GPUs; state is the simulator's shared folder."""

    state: Path
    environment: Dict[str, str]


@contextlib.contextmanager
def simulated(gpus: int, release_delay: float = 0.15) -> Iterator[Simulation]:
    """A host with that many idle GPUs; release_delay is in seconds, from the end of a process to its memory's.

    Raises OSError where the simulated library cannot be built.
    """
    with tempfile.TemporaryDirectory(prefix="simulated-gpus-") as name, paths.collections() as collections:
        folder = Path(name)
        build = [str(paths.SIMULATOR / "nvml" / "build.sh"), str(folder / "lib")]
        try:
            subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        except subprocess.CalledProcessError as exc:
            raise OSError("the simulated NVML library cannot be built: see above") from exc
        fakegpu = paths.fakegpu()
        fakegpu.setup(gpus, folder / "gpus", release_delay=release_delay)
        fakegpu.make_nodes(folder / "gpus", str(folder / "dev"))
        environment = dict(
            os.environ,
            FAKEGPU_DIR=str(folder / "gpus"),
            FAKEGPU_DEV=str(folder / "dev"),
            LD_LIBRARY_PATH=str(folder / "lib"),
            PYTHONPATH=paths.python_path(collections),
        )
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        yield Simulation(folder / "gpus", environment)


def in_simulation(script: str, environment: Dict[str, str], *arguments: object) -> str:
    """Run a Python file in this environment and return its standard output.

    The library is found through a variable that is read when a process starts, so it takes a new one.
    """
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        env=environment,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout
