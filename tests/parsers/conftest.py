# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every test of this folder runs against each release of SGLang that tests/parsers/releases.py could install."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.parser_probe import ProbeResult, run_probe

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "parsers"))
import releases  # noqa: E402
import warm  # noqa: E402

BUILD = TESTS.parent / "build" / "parsers"
# Seconds for one question to a fresh interpreter on a busy machine.
PATIENCE = 300.0
# What SGLang needs to be told nowhere else; in particular no token and no cache of a hub.
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "HF_HUB_OFFLINE": "1"}


def load(path: Path) -> Any:
    """A module of another folder of tests, by its file: several are called conftest."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# To run the real main() of a module.
run_module = load(TESTS / "unit" / "conftest.py").run_module
make_model = load(TESTS / "simulator" / "make_model.py").make_model


@dataclass
class Release:
    """An installed release; socket leads to an interpreter that has it imported."""

    version: str
    python: str
    socket: str

    @property
    def numbers(self) -> tuple[int, ...]:
        return releases.numbers(self.version)

    def wrap(self, words: list[str], environment: Mapping[str, str]) -> list[str]:
        """For run_probe: that interpreter in place of a new one."""
        assert words == [self.python, "-"]
        return [sys.executable, "-I", "-S", warm.__file__, "ask", self.socket, json.dumps(dict(environment))]

    def ask(self, argv: list[str], environment: Mapping[str, str] | None = None, **more: Any) -> ProbeResult:
        """Ask the parser, through the real probe."""
        return run_probe(
            self.python, argv, {**ENVIRONMENT, **(environment or {})}, PATIENCE, **{"wrap": self.wrap, **more}
        )


def pytest_report_header() -> str:
    """Say what is tested, and what cannot be."""
    lines = []
    for version in releases.releases():
        reason = BUILD / f"{version}.unavailable"
        lines.append(f"{version} (skipped: {reason.read_text()})" if reason.exists() else version)
    return "sglang: " + ", ".join(lines)


@pytest.fixture(scope="session", params=list(releases.releases()))
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Each release in turn."""
    version = request.param
    reason = BUILD / f"{version}.unavailable"
    if reason.exists():
        pytest.skip(f"sglang {version}: {reason.read_text()}")
    python = str(releases.interpreter(BUILD / version))
    socket = str(tmp_path_factory.mktemp("warm") / "socket")
    command = [python, warm.__file__, "serve", socket]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout.readline() == "ready\n"
            yield Release(version, python, socket)
        finally:
            server.terminate()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of tiny models: what the words TARGET and DRAFT of a case stand for."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "TARGET": str(make_model(folder / "target")),
        "DRAFT": str(make_model(folder / "draft", draft=True)),
    }
