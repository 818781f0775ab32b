# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test hosts and the collection as a reader installs it, both made when the first story needs them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from .hosts import TestHosts
from .pages import ROOT, all_blocks

# The pages that have more hosts are run on the first of them: molecule's scenarios have two.
HOSTS = 1
_COSTS = pytest.StashKey()


@pytest.fixture(scope="session")
def orderly_end():
    """Let a run that is told to end take down what it started: what a story runs has a session of its own."""

    def end(number, _frame):
        raise KeyboardInterrupt(f"signal {number}")

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def hosts(request, orderly_end):
    """Test hosts, which are taken down whatever happens."""
    if os.geteuid() != 0:
        pytest.fail("the stories of the docs need root: test hosts are namespaces, mounts and network devices")
    made = TestHosts(HOSTS)
    try:
        made.up()
        yield made
        request.config.stash[_COSTS] = made.processor_seconds()
    finally:
        made.down()


@pytest.fixture(scope="session")
def archive():
    """The collection as an archive, built from this tree."""
    made = subprocess.run(
        ["make", "--no-print-directory", "build"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return Path(made.stdout.strip().split(" at ")[-1])


@pytest.fixture(scope="session")
def collections(tmp_path_factory, archive):
    """The folder into which the collection was installed once, for all stories that do not do so themselves."""
    folder = tmp_path_factory.mktemp("collections")
    # The sources on Python's path would pass for a collection that is installed already.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        ["ansible-galaxy", "collection", "install", "--offline", "-p", str(folder), str(archive)],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return folder


def pytest_terminal_summary(terminalreporter, config):
    """Say what was not run and why, and what the stories cost."""
    left = [block for block in all_blocks() if "not-run" in block.notes]
    terminalreporter.write_line(f"blocks that no test runs: {len(left) or 'none'}")
    for block in left:
        terminalreporter.write_line(f"  {block}: {block.notes['not-run']}")
    terminalreporter.write_line(f"processor seconds of all stories: {config.stash.get(_COSTS, 0.0):.0f}")
