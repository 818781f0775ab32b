# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated host for each test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import SIMULATOR, Host, Server


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the library, built from source."""
    folder = tmp_path_factory.mktemp("library")
    subprocess.run([str(SIMULATOR / "nvml" / "build.sh"), str(folder)], check=True)
    return folder


@pytest.fixture
def host(library: Path, tmp_path: Path) -> Iterator[Host]:
    """Two idle GPUs, and a tidy end."""
    simulated = Host(library, tmp_path)
    try:
        yield simulated
    finally:
        simulated.end_everything()


@pytest.fixture
def launch(host: Host) -> Callable[..., Server]:
    """Start a stand-in server on the host."""
    return host.launch
