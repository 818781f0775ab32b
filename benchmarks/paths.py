# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the parts of this repository are that the benchmarks use, and how Python finds them."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Iterator

REPOSITORY = Path(__file__).resolve().parents[1]
SIMULATOR = REPOSITORY / "tests" / "simulator"
RUN_MODULE = REPOSITORY / "tests" / "simulated" / "run_module.py"
COLLECTION = "ansible_collections.inferops.sglang"
FQCN = "inferops.sglang."


def fakegpu() -> ModuleType:
    """The Python side of the simulated GPUs."""
    if str(SIMULATOR) not in sys.path:
        sys.path.insert(0, str(SIMULATOR))
    import fakegpu

    return fakegpu


@contextlib.contextmanager
def collections() -> Iterator[Path]:
    """A collections path in which this checkout is the collection, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="collections-") as folder:
        parent = Path(folder) / "ansible_collections" / "inferops"
        parent.mkdir(parents=True)
        (parent / "sglang").symlink_to(REPOSITORY)
        yield Path(folder)


def python_path(folder: Path) -> str:
    """PYTHONPATH with this collections path in front."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
