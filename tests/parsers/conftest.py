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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import (
    ProbeResult,
    run_probe,
)

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
    """An installed release, or what stands in for it; socket leads to an interpreter that has it imported."""

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


def unavailable(version: str) -> str:
    """Why a release could not be installed, "" where it was."""
    reason = BUILD / f"{version}.unavailable"
    return reason.read_text() if reason.exists() else ""


@contextmanager
def started(
    releases_of: Mapping[str, str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Ready]:
    """Interpreters that have SGLang imported, all started at once: the argument has a python for each version."""
    with ExitStack() as stack:
        servers = {}
        found = {}
        for version, python in releases_of.items():
            socket = str(folder / version)
            own = {**ENVIRONMENT, **(environment or {}), "STANDIN_VERSION": version}
            command = [python, warm.__file__, "serve", socket]
            server = stack.enter_context(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True))
            stack.callback(server.terminate)
            servers[version] = server
            found[version] = Release(version, python, socket)
        yield Ready(found, servers)


class Ready(Mapping[str, Release]):
    """Those interpreters by version; looking one up waits until it is ready."""

    def __init__(self, found: Mapping[str, Release], servers: Mapping[str, subprocess.Popen[str]]) -> None:
        self._found = found
        self._waiting = dict(servers)

    def __getitem__(self, version: str) -> Release:
        server = self._waiting.pop(version, None)
        assert server is None or server.stdout.readline() == "ready\n"
        return self._found[version]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def pytest_report_header() -> str:
    """Say what is tested, and what cannot be."""
    reasons = {version: unavailable(version) for version in releases.releases()}
    lines = [f"{version} (skipped: {reason})" if reason else version for version, reason in reasons.items()]
    return "sglang: " + ", ".join(lines)


@pytest.fixture(scope="session")
def all_releases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """The releases that some test needs."""
    wanted = {item.callspec.params.get("release") for item in request.session.items if hasattr(item, "callspec")}
    pythons = {
        version: str(releases.interpreter(BUILD / version))
        for version in releases.releases()
        if version in wanted and not unavailable(version)
    }
    with started(pythons, tmp_path_factory.mktemp("warm")) as servers:
        yield servers


@pytest.fixture(scope="session", params=list(releases.releases()))
def release(request: pytest.FixtureRequest, all_releases: Ready) -> Release:
    """Each release in turn."""
    version = request.param
    if reason := unavailable(version):
        pytest.skip(f"sglang {version}: {reason}")
    return all_releases[version]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of tiny models: what the words TARGET and DRAFT of a case stand for."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "TARGET": str(make_model(folder / "target")),
        "DRAFT": str(make_model(folder / "draft", draft=True)),
    }
