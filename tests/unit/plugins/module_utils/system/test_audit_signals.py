# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import AuditLog
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit_signals import SignalAudit, process_target
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity
from ansible_collections.inferops.sglang.plugins.module_utils.system.termination import end_processes
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import FakeClock, recorded


def described(identity):
    return {"pid": identity.pid}, {"why": "listed"}


class Procfs:
    """Processes that end at their second signal, or never; PID 6 is gone from the start."""

    def __init__(self):
        self.sent = {}
        self.seen = []

    def alive(self, identity):
        return identity.pid != 6 and (identity.pid == 7 or len(self.sent.get(identity.pid, [])) < 2)

    def state(self, identity):
        return "D"

    # -- as a signaller, whose handles it is, too

    def open(self, identity):
        return Handle(self, identity) if self.alive(identity) else None


class Handle:
    descriptor = None

    def __init__(self, procfs, identity):
        self.procfs, self.identity = procfs, identity

    def send(self, number):
        self.procfs.seen.append(len(self.procfs.rows()))
        if self.identity.pid == 8:
            raise PermissionError(1, "Operation not permitted")
        self.procfs.sent.setdefault(self.identity.pid, []).append(number)
        return True

    def close(self):
        pass


def end(path, *pids, grace=1.0, describe=described, **log):
    procfs, clock = Procfs(), FakeClock()
    procfs.rows = lambda: recorded(path)
    witness = SignalAudit(AuditLog(str(path), journal="/none", **log), describe)
    targets = [ProcessIdentity(pid, 1) for pid in pids]
    end_processes(targets, grace, 1.0, procfs, procfs, clock, clock.sleep, witness)
    return procfs


def test_each_signal_is_recorded_before_it_is_sent(tmp_path):
    path = tmp_path / "audit.jsonl"
    procfs = end(path, 5)
    rows = recorded(path)
    assert procfs.seen == [1, 2]  # so many lines were there when each was sent
    assert [(row["outcome"], row["detail"]) for row in rows] == [
        ("begun", "SIGTERM"),
        ("begun", "SIGKILL"),
        ("killed", "SIGTERM, SIGKILL; 1.000 s"),
    ]
    assert len({row["id"] for row in rows}) == 1
    assert all(
        (row["action"], row["target"], row["evidence"]) == ("signal", {"pid": 5}, {"why": "listed"}) for row in rows
    )


def test_one_that_was_gone_got_no_signal_and_is_no_event(tmp_path):
    end(tmp_path / "audit.jsonl", 6)
    assert recorded(tmp_path / "audit.jsonl") == []


def test_a_survivor_is_recorded_with_its_state_and_another_with_its_error(tmp_path):
    end(tmp_path / "audit.jsonl", 7, 8, grace=0)
    ends = {row["target"]["pid"]: row for row in recorded(tmp_path / "audit.jsonl") if row["outcome"] != "begun"}
    assert (ends[7]["outcome"], ends[7]["detail"]) == ("survived", "SIGKILL; 1.000 s; state D")
    assert ends[8]["detail"].endswith("SIGKILL: Operation not permitted")
    assert ends[8]["detail"].startswith("no signal reached it")


def test_nothing_is_asked_where_nothing_is_recorded(tmp_path):
    procfs = end(tmp_path / "audit.jsonl", 5, describe=None, enabled=False)
    assert len(procfs.sent[5]) == 2
    assert not (tmp_path / "audit.jsonl").exists()


def test_of_a_process_that_is_gone_its_identity_is_left():
    assert process_target(None, ProcessIdentity(5, 99)) == {"pid": 5, "start_ticks": 99}
    assert process_target(None) == {}
