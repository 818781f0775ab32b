# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cell is skipped for a reason, fails for a reason, and never passes without a test."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import environments
import pytest
import run_matrix
import running
from cells import CONTROLLER, NEWEST, PLAY, TARGET, Cell
from outcome import FAILED, OK, SKIPPED, Count
from pythons import Absent, Interpreter
from running import Commands

OLD, NEW = (3, 8), (3, 13)
FOUND = {
    OLD: Absent("there is no Python 3.8; pip lacks it"),
    NEW: Interpreter(sys.executable, NEW, "3.13.0"),
}
PASSES = "def test_one():\n    pass\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Sources of their own, whose tests cells run with this interpreter; nothing is installed."""
    for name in ("ROOT", "WORK", "REPORTS", "LINKS"):
        folder = tmp_path / name.lower()
        folder.mkdir()
        monkeypatch.setattr(run_matrix, name, folder)
    monkeypatch.setattr(run_matrix, "LOGS", tmp_path / "root" / "logs")
    (tmp_path / "root" / "logs").mkdir()
    monkeypatch.setattr(run_matrix, "PYTEST_OPTIONS", ("-q",))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # half of the time to start
    half = tmp_path / "half"
    half.mkdir()
    (half / "target-pythons").write_text('["3.9", "3.13"]')
    python = pathlib.Path(sys.executable)
    monkeypatch.setattr(environments, "modules_half", lambda line, folder, python: (half, "2.99.1"))
    monkeypatch.setattr(environments, "environment", lambda folder, interpreter, requirements: python)
    monkeypatch.setattr(environments, "installed", lambda python, *names: ["1.2.3"])
    return tmp_path / "root"


def matrix(found=None):
    return run_matrix.Matrix(FOUND if found is None else found, Commands(run_matrix.ROOT))


def target(*tests, python=NEW):
    return Cell("target", TARGET, (python,), "2.99", tests=tests)


class TestACell:
    def test_passes(self, root):
        (root / "test_it.py").write_text(PASSES)
        done = matrix().run(target("test_*.py"))
        assert (done.result, done.tests) == (OK, Count(passed=1)), (root / "logs/matrix-target.log").read_text()
        assert done.text == "Python 3.13.0, ansible-core 2.99.1, nvidia-ml-py 1.2.3"

    def test_fails(self, root):
        (root / "test_it.py").write_text(PASSES + "def test_two():\n    raise ValueError\n")
        done = matrix().run(target("test_it.py"))
        assert (done.result, done.tests) == (FAILED, Count(passed=1, failed=1))
        assert done.text.endswith(": exit status 1")

    @pytest.mark.parametrize("tests", ["some/test_*.py", "some"])
    def test_leaves_out_what_it_is_told_to(self, root, tests):
        (root / "some").mkdir()
        (root / "some/test_it.py").write_text(PASSES)
        (root / "some/test_slow.py").write_text("def test_one():\n    raise ValueError\n")
        done = matrix().run(replace(target(tests), without=("some/test_slow.py",)))
        assert (done.result, done.tests) == (OK, Count(passed=1))

    def test_without_a_test_that_passed_is_no_success(self, root):
        (root / "test_it.py").write_text("import pytest\n\ndef test_one():\n    pytest.skip('no GPU')\n")
        done = matrix().run(target("test_it.py"))
        assert (done.result, done.tests) == (FAILED, Count(failed=1, skipped=1))
        assert done.text.endswith("no test passed")
        assert done.reasons == ["no GPU"]

    def test_whose_pytest_does_not_start(self, root):
        (root / "test_it.py").write_text("import\n")
        assert matrix().run(target("test_it.py")).result == FAILED

    def test_without_its_python(self, root):
        done = matrix().run(target("test_it.py", python=OLD))
        assert (done.result, done.text) == (SKIPPED, "there is no Python 3.8; pip lacks it")

    def test_without_any_of_its_pythons(self, root):
        cell = Cell("c", CONTROLLER, (NEW, OLD), "2.20")
        done = matrix({OLD: FOUND[OLD], NEW: Absent("nor 3.13")}).run(cell)
        assert done.text == (
            "there is no Python from 3.8 to 3.13, which it needs: nor 3.13; there is no Python 3.8; pip lacks it"
        )

    def test_whose_ansible_core_does_not_support_the_python(self, root):
        found = {(3, 14): Interpreter(sys.executable, (3, 14), "3.14.0")}
        done = matrix(found).run(target("test_it.py", python=(3, 14)))
        assert (done.result, done.text) == (SKIPPED, "ansible-core 2.99.1 supports hosts with Python 3.9 to 3.13")

    def test_that_pip_cannot_install(self, root, monkeypatch):
        def environment(*_arguments):
            raise environments.Unavailable("No matching distribution found")

        monkeypatch.setattr(environments, "environment", environment)
        done = matrix().run(target("test_it.py"))
        assert (done.result, done.text) == (SKIPPED, "No matching distribution found")

    def test_that_cannot_be_prepared_fails(self, root, monkeypatch):
        monkeypatch.setattr(environments, "installed", lambda python, *names: [])
        done = matrix().run(target("test_it.py"))
        assert done.result == FAILED
        assert done.text.startswith("not prepared: ValueError")

    def test_newest_that_has_a_cell_of_its_own(self, root, monkeypatch):
        monkeypatch.setattr(environments, "core_requirement", lambda line, python: "ansible-core==2.19.4")
        done = matrix().run(Cell("controller-newest", CONTROLLER, (NEW,), NEWEST))
        assert done.result == SKIPPED
        assert done.text == "the newest ansible-core for Python 3.13.0 is 2.19.4: the cell controller-2.19"

    def test_a_play_without_root(self, root, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        done = matrix().run(Cell("restart-2.20", PLAY, (NEW,), "2.20"))
        assert (done.result, done.text) == (SKIPPED, "test hosts need root")


class TestCommands:
    def run(self, tmp_path, *words, limit=20.0):
        return Commands(tmp_path).run(words, os.environ, tmp_path / "log", limit)

    def stop_when_it_is_up(self, commands, log):
        deadline = time.monotonic() + 10
        while not (log.exists() and log.read_text()):
            assert time.monotonic() < deadline, "it did not start"
            time.sleep(0.01)
        with pytest.raises(SystemExit):
            commands.stop(signal.SIGTERM)

    def test_success_and_its_log(self, tmp_path):
        assert self.run(tmp_path, "sh", "-c", "echo out; echo err >&2; pwd") == ""
        assert (tmp_path / "log").read_text().split() == ["out", "err", str(tmp_path)]

    def test_failure(self, tmp_path):
        assert self.run(tmp_path, "sh", "-c", "exit 3") == "exit status 3"

    def test_time_limit_ends_what_it_started(self, tmp_path):
        assert self.run(tmp_path, "sh", "-c", "sleep 600 & echo $!; wait", limit=0.3) == "did not end within 0.3 s"
        child = int((tmp_path / "log").read_text())
        deadline = time.monotonic() + 5
        while pathlib.Path(f"/proc/{child}").exists():
            assert time.monotonic() < deadline, "the child lives on"
            time.sleep(0.01)

    def test_what_is_stopped_may_clean_up(self, tmp_path):
        commands, log = Commands(tmp_path), tmp_path / "log"
        words = ["sh", "-c", "trap 'echo cleaned; exit 1' INT; echo up; while :; do sleep 0.02; done"]
        with ThreadPoolExecutor() as pool:
            done = pool.submit(commands.run, words, os.environ, log)
            self.stop_when_it_is_up(commands, log)
            assert done.result() == "exit status 1"
        assert log.read_text().split() == ["up", "cleaned"]

    def test_what_is_just_being_started_is_stopped_too(self, tmp_path, monkeypatch):
        commands, log = Commands(tmp_path), tmp_path / "log"
        start = subprocess.Popen

        def start_and_be_late(*words, **options):
            process = start(*words, **options)
            time.sleep(0.5)
            return process

        monkeypatch.setattr(running.subprocess, "Popen", start_and_be_late)
        with ThreadPoolExecutor() as pool:
            done = pool.submit(commands.run, ["sh", "-c", "echo up; exec sleep 600"], os.environ, log, 10)
            self.stop_when_it_is_up(commands, log)
            assert done.result() == f"exit status {-signal.SIGINT}"

    def test_nothing_starts_after_it_was_told_to_stop(self, tmp_path):
        commands = Commands(tmp_path)
        with pytest.raises(SystemExit):
            commands.stop(signal.SIGTERM)
        with pytest.raises(SystemExit):
            commands.run(["true"], os.environ, tmp_path / "log")


class TestCommandLine:
    def test_list(self, capsys):
        assert run_matrix.main(["--list", "--only", "target-3.8"]) == 0
        assert capsys.readouterr().out.split() == ["target-3.8-core-2.18", "target-3.8-core-2.19"]

    def test_no_jobs(self, capsys):
        with pytest.raises(SystemExit):
            run_matrix.arguments(["--jobs", "0"])
        assert "--jobs 0: use a number from 1 on" in capsys.readouterr().err

    @pytest.mark.parametrize(("strict", "status"), [([], 0), (["--strict"], 1)])
    def test_what_is_missing_fails_only_where_that_is_asked(self, root, monkeypatch, capsys, strict, status):
        absent = Absent("there is no Python 3.8")
        monkeypatch.setattr(run_matrix, "interpreters", lambda wanted, fetch: dict.fromkeys(wanted, absent))
        monkeypatch.setattr(signal, "signal", lambda number, handler: None)
        assert run_matrix.main(["--only", "target-3.8-core-2.19", *strict]) == status
        out = capsys.readouterr().out
        assert "target-3.8-core-2.19: skipped (there is no Python 3.8)" in out
        assert out.splitlines()[-1] == "0 passed, 0 failed, 1 skipped"

    def test_a_name_that_no_cell_has(self, root, monkeypatch, capsys):
        monkeypatch.setattr(run_matrix, "interpreters", lambda wanted, fetch: {})
        monkeypatch.setattr(signal, "signal", lambda number, handler: None)
        assert run_matrix.main(["--only", "windows"]) == 2
        assert "--only windows: no cell has such a name" in capsys.readouterr().err
