# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A long wait as automation sees it: the events of ansible-runner, and what other outputs make of the progress.

The server loads for ever, so that there is progress to show, and the wait ends in a failure that quotes the log.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

from .conftest import simulated_host, simulated_server
from .server import EAGLE3, behave

# Of tests/requirements/test.txt; what runs these tests on other Pythons has less.
ansible_runner = pytest.importorskip("ansible_runner", reason="ansible-runner is not installed here")

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "kr-51f0c2a9d7e4"
PLAY = """
- name: Wait
  hosts: all
  gather_facts: false
  tasks:
    - name: Wait for the server
      inferops.sglang.sglang_wait_ready:
        manager: process
        state_dir: "{{ folder }}/state_dir"
        run_dir: "{{ folder }}/run_dir"
        log_dir: "{{ folder }}/log_dir"
        api_key: "{{ sglang_api_key }}"
        timeout: 8
        progress_interval: 0.5
      register: sglang_deploy_ready
      ignore_errors: true

    - name: Show what happened
      inferops.sglang.sglang_report:
        hosts: [gpu-a]
        path: "{{ report }}"
"""


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    """A collections path in which this checkout is the collection."""
    folder = tmp_path_factory.mktemp("collections")
    parent = folder / "ansible_collections" / "inferops"
    parent.mkdir(parents=True)
    (parent / "sglang").symlink_to(ROOT)
    return folder


@pytest.fixture(scope="module")
def loading(tmp_path_factory, library, modules):
    """A server that never comes up, for all tests of this file: they only watch it."""
    folder = tmp_path_factory.mktemp("loading")
    with simulated_host(folder, library, modules) as host, simulated_server(host, folder) as server:
        server.go(secret_args={"api-key": KEY}, environment=behave(load_seconds=600), **EAGLE3)
        yield server


@pytest.fixture
def project(loading, tmp_path):
    """A private data folder of ansible-runner: a play that waits for the server."""
    (tmp_path / "project").mkdir()
    (tmp_path / "inventory").mkdir()
    (tmp_path / "project" / "play.yml").write_text(PLAY)
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "folder": str(loading.folder),
        "report": str(tmp_path / "report.json"),
        "sglang_api_key": KEY,
    }
    (tmp_path / "inventory" / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"gpu-a": variables}}}))
    return tmp_path


@pytest.fixture
def environment(collections):
    """What a run needs besides its files."""
    return {
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def test_runner_sees_the_progress_as_events_and_no_secret(project, environment):
    done = ansible_runner.run(
        private_data_dir=str(project), playbook="play.yml", envvars=environment, ident="wait", verbosity=2, quiet=True
    )
    output = done.stdout.read()
    assert (done.status, done.rc) == ("successful", 0), output
    events = sorted(done.events, key=lambda event: event["counter"])
    # None is lost, and none was torn apart by a line in between.
    assert [event["counter"] for event in events] == list(range(1, len(events) + 1))
    kinds = [event["event"] for event in events]
    assert "playbook_on_start" in kinds and kinds[-1] == "playbook_on_stats"
    progress = [
        number for number, event in enumerate(events) if event["event"] == "verbose" and "gpu-a" in event["stdout"]
    ]
    begun = kinds.index("runner_on_start")
    (ended,) = [number for number, kind in enumerate(kinds) if kind == "runner_on_failed"]
    shown = [number for number in progress if begun < number < ended]
    assert shown, kinds
    assert all("\n" not in events[number]["stdout"].strip() for number in shown)
    result = events[ended]["event_data"]["res"]
    assert result["reason"] == "timeout" and result["log_tail"]
    # The table, and then the result of its task.
    assert any("outcome" in event["stdout"] for event in events[ended:] if event["event"] == "verbose")
    artifacts = [path for path in (project / "artifacts").rglob("*") if path.is_file()]
    assert len(artifacts) > len(events)
    assert not [str(path) for path in artifacts if KEY in path.read_text(errors="replace")]
    assert KEY not in output


def test_progress_is_whole_lines_where_there_is_no_terminal(project, environment):
    outputs = {
        "default": {"ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"},
        "minimal": {},
        "oneline": {},
    }
    words = ["ansible-playbook", "-v", "-i", str(project / "inventory"), str(project / "project" / "play.yml")]
    runs = {
        callback: subprocess.Popen(
            words,
            env={**os.environ, **environment, **settings, "ANSIBLE_STDOUT_CALLBACK": callback},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for callback, settings in outputs.items()
    }
    for callback, process in runs.items():
        output, _nothing = process.communicate(timeout=120)
        assert process.returncode == 0, f"{callback}: {output}"
        lines = output.splitlines()
        progress = [line for line in lines if line.startswith("gpu-a main: ")]
        assert progress, f"{callback}: {output}"
        assert "\x1b" not in output and "\r" not in output
        assert any("1 not done" in line for line in lines)
        assert KEY not in output
    assert json.loads((project / "report.json").read_text())["finished"] is True
