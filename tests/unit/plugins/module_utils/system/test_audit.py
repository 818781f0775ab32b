# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import re
from types import SimpleNamespace

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system import audit, audit_file, audit_writer
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import (
    NO_AUDIT,
    RESET,
    SIGNAL,
    STOP,
    AuditLog,
    audit_path_problem,
)
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeJournal, recorded


class Stop(Exception):
    pass


class Module:
    """What is asked of an AnsibleModule."""

    check_mode = False
    _name = "inferops.sglang.gpu_reclaim"
    _target_log_info = "job 42"

    def __init__(self, **params):
        self.params = params
        self.no_log_values = set()

    def fail_json(self, msg):
        raise Stop(msg)


@pytest.fixture
def journal(tmp_path):
    with FakeJournal(tmp_path / "socket") as journal:
        yield journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "inferops" / "audit.jsonl"


def rows(path):
    return [(row["outcome"], row["detail"]) for row in recorded(path)]


def test_an_event_is_recorded_as_begun_and_with_its_outcome(path):
    log = AuditLog(str(path), "gpu_reset", journal="/none", now=lambda: 1796065231.5)
    with log.event(STOP, {"unit": "llm.service"}, {"gpus": ["GPU-1"]}) as event:
        assert rows(path) == [("begun", "")]
        event.outcome, event.detail = "stopped", "in time"
        event.evidence["pids"] = [7]
    assert rows(path) == [("begun", ""), ("stopped", "in time")]
    first, last = recorded(path)
    assert first["id"] == last["id"]
    assert first["time"] == "2026-11-30T19:00:31.500Z"
    assert last["evidence"] == {"gpus": ["GPU-1"], "pids": [7]}
    assert (last["format"], last["module"], last["action"], last["pid"]) == (1, "gpu_reset", "stop", os.getpid())
    assert last["host"] == os.uname().nodename
    assert re.fullmatch(r"[0-9a-f-]{36}", last["boot"])
    assert 0 < first["uptime"] <= last["uptime"]
    assert last["who"]["uid"] == os.geteuid()
    assert log.problems == []


def test_an_exception_is_the_outcome_and_goes_on(path):
    log = AuditLog(str(path), journal="/none")
    with pytest.raises(OSError, match="disk"):
        with log.event(STOP, {}, {}) as event:
            event.outcome = "stopped"
            raise OSError("the disk is gone")
    with pytest.raises(KeyboardInterrupt):
        with log.event(STOP, {}, {}):
            raise KeyboardInterrupt
    with pytest.raises(SystemExit):  # a module ends so, whatever it did
        with log.event(STOP, {}, {}) as event:
            event.outcome = "stopped"
            raise SystemExit(1)
    assert [row for row in rows(path) if row[0] != "begun"] == [
        ("failed", "the disk is gone"),
        ("failed", "KeyboardInterrupt"),
        ("stopped", ""),
    ]


def test_an_event_without_a_word_is_done_and_one_step_is_one_line(path):
    log = AuditLog(str(path), journal="/none")
    with log.event(STOP, {}, {}):
        pass
    log.record(SIGNAL, {"pid": 7}, {"why": "listed"}, "terminated", "SIGTERM")
    assert rows(path) == [("begun", ""), ("done", ""), ("terminated", "SIGTERM")]


def test_only_the_beginning_of_a_reset_is_brought_to_the_disk(path, monkeypatch):
    synced = []
    monkeypatch.setattr(audit_file.os, "fdatasync", synced.append)
    log = AuditLog(str(path), journal="/none")
    for action in (STOP, RESET):
        with log.event(action, {}, {}):
            pass
    assert len(synced) == 1


# -- of a module


def test_a_module_gives_its_name_its_run_and_its_secrets(path):
    module = Module(audit_path=str(path))
    log = AuditLog.of_module(module)
    module.no_log_values.add("sk-12345")  # found out later, as the secrets of a release are
    log.hide(["ab-67890"])
    log.record(STOP, {}, {}, "failed", "the key sk-12345 is refused")
    (row,) = recorded(path)
    assert (row["module"], row["who"]["run"]) == ("gpu_reclaim", "job 42")
    assert row["detail"] == "the key ******** is refused"
    log.record(STOP, {}, {"ab-67890": ["sk-12345"]}, "failed")
    assert recorded(path)[1]["evidence"] == {"********": ["********"]}


def test_check_mode_writes_nothing(path):
    module = Module(audit_path=str(path))
    module.check_mode = True
    log = AuditLog.of_module(module)
    log.record(STOP, {}, {}, "stopped")
    with log.event(STOP, {}, {}):
        pass
    assert not path.parent.exists() and not log.enabled


@pytest.mark.parametrize("given", ["audit.jsonl", "/var/log/", "/x\0y", "~"])
def test_a_path_that_is_none_fails_the_module(given):
    with pytest.raises(Stop, match=r"audit_path: .* is not an absolute path"):
        AuditLog.of_module(Module(audit_path=given))


@pytest.mark.parametrize("given", ["", "/var/log/inferops/audit.jsonl"])
def test_a_path(given):
    assert audit_path_problem(given) == ""


def test_the_default_is_the_documented_one():
    # The tests have another one, see conftest.py.
    source = pathlib.Path(audit.__file__).read_text(encoding="utf-8")
    assert 'DEFAULT_PATH = "/var/log/inferops/audit.jsonl"' in source
    assert 'JOURNAL_SOCKET = "/run/systemd/journal/socket"' in source


@pytest.mark.parametrize(("uid", "written"), [(0, True), (1000, False)])
def test_only_root_writes_the_default_file_and_others_are_not_told_at_each_task(monkeypatch, path, uid, written):
    monkeypatch.setattr(audit, "DEFAULT_PATH", str(path))
    path.parent.mkdir(mode=0o700)
    own = os.geteuid()
    monkeypatch.setattr(audit, "os", SimpleNamespace(geteuid=lambda: uid, urandom=os.urandom))
    log = AuditLog.of_module(Module())
    log.record(STOP, {}, {}, "stopped")
    assert (path.exists(), log.problems) == (written, [])
    assert own == os.geteuid()


def test_nobody_is_written_for():
    with NO_AUDIT.event(STOP, {}, {}) as event:
        event.outcome = "stopped"
    assert NO_AUDIT.problems == []


# -- what cannot be written


def test_a_file_that_is_refused_is_told_once_and_the_journal_has_the_events(path, journal):
    path.parent.mkdir()
    path.parent.chmod(0o777)
    log = AuditLog(str(path), journal=journal.path)
    for _number in range(3):
        log.record(STOP, {}, {}, "stopped")
    (problem,) = log.problems
    assert "the journal alone has it" in problem and "chmod go-w" in problem and str(path) in problem
    assert len([journal.entry() for _number in range(3)]) == 3


def test_an_absent_journal_is_no_problem_beside_the_file_and_one_without_it(path):
    log = AuditLog(str(path), journal="/none")
    log.record(STOP, {}, {}, "stopped")
    assert log.problems == []
    alone = AuditLog("", journal="/none")
    for _number in range(2):
        alone.record(STOP, {}, {}, "stopped")
    assert alone.problems == [
        "What is done is not recorded: the journal cannot be reached (No such file or directory)."
    ]


def test_neither_of_both_is_told(tmp_path):
    log = AuditLog(str(tmp_path / "a" / "b" / "audit.jsonl"), journal="/none")
    log.record(STOP, {}, {}, "stopped")
    (problem,) = log.problems
    assert "it is recorded nowhere" in problem and "make it" in problem


def test_an_error_of_the_system_is_told_with_the_remedy(path, monkeypatch):
    def full(self, line, durable):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit_writer.LineFile, "append", full)
    log = AuditLog(str(path), journal="/none")
    log.record(STOP, {}, {}, "stopped")
    assert "No space left on device: " in log.problems[0]


def test_an_error_of_its_own_keeps_nobody_from_working(path, monkeypatch):
    monkeypatch.setattr(audit_writer, "encode", lambda *values: 1 // 0)
    log = AuditLog(str(path), journal="/none")
    with log.event(STOP, {}, {}) as event:
        event.outcome = "stopped"
    assert log.problems == ["What is done could not be recorded: ZeroDivisionError: integer division or modulo by zero"]


# -- the journal


def test_the_journal_has_the_same_record_and_says_it_in_words(path, journal):
    target = {"pid": 602, "start_ticks": 9, "name": "sglang::scheduler_TP0", "user": "llm", "unit": None}
    target["container"] = {"runtime": "docker", "id": "ab12", "name": ""}
    log = AuditLog(str(path), "gpu_reclaim", journal=journal.path)
    target.update(gpus=["GPU-1", "GPU-2"], exe="/opt/python", kernel_module="nvidia_drm")
    log.record(SIGNAL, target, {}, "survived", "SIGKILL; state D")
    fields = dict(journal.entry())
    assert json.loads(fields["INFEROPS_RECORD"]) == recorded(path)[0]
    assert fields["MESSAGE"].startswith(
        "gpu_reclaim: signal survived: pid 602, name sglang::scheduler_TP0, user llm, container docker ab12, "
        "gpus GPU-1 GPU-2, kernel_module nvidia_drm; SIGKILL; state D; by "
    )
    assert {name: fields[name] for name in fields if name not in ("MESSAGE", "INFEROPS_RECORD", "INFEROPS_ID")} == {
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "inferops",
        "INFEROPS_MODULE": "gpu_reclaim",
        "INFEROPS_ACTION": "signal",
        "INFEROPS_OUTCOME": "survived",
    }


def test_a_hostile_name_forges_no_field_and_no_line(path, journal):
    name = "x\nINFEROPS_OUTCOME=stopped\nMESSAGE=\x1b[2Jall is well\udcff" + "y" * 100_000
    log = AuditLog(str(path), journal=journal.path)
    log.record(SIGNAL, {"pid": 602, "name": name}, {}, "survived", name)
    fields = journal.entry()
    assert len(fields) == len(dict(fields)) == 8
    message = dict(fields)["MESSAGE"]
    assert message.isprintable() and len(message) < 500
    (row,) = recorded(path)
    assert row["target"]["name"].startswith("x\nINFEROPS_OUTCOME=stopped\n")
    assert path.read_bytes().count(b"\n") == 1


def test_a_journal_that_hangs_holds_nobody_up(path, journal):
    log = AuditLog(str(path), journal=journal.path)
    for _number in range(400):  # which nobody reads: the socket takes a few of them
        log.record(STOP, {}, {}, "stopped")
    assert len(recorded(path)) == 400
    assert log.problems == []
