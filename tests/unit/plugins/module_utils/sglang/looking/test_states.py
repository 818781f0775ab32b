# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which state a server is: `serving` needs a 200 of this very process, everything else is less."""

from __future__ import annotations

import pathlib
import re

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import (
    Answer,
    Broken,
    Refused,
    TimedOut,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking import states
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.states import (
    state_of_process,
    state_of_rank,
    state_without_process,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import UnitState
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import PortOwner
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import Running
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import Found, PidRecord
from ansible_collections.inferops.sglang.plugins.modules import sglang_info
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import process

RECORD = PidRecord(100, 1000, "boot", "r1", "x")
OURS = PortOwner(True)
BEGIN, UP, TERM = "server_args=ServerArgs(...)", "The server is fired up and ready to roll!", "SIGTERM received."


def unit(active="active", sub="running", load="loaded", **changes):
    values = {"main_pid": 0, "result": "success", "exec_code": 0, "exec_status": 0, "restarts": 0, "invocation": ""}
    values.update(changes)
    return UnitState("sglang-main.service", load, active, sub, control_group="", output="journal", **values)


@pytest.mark.parametrize(
    ("running", "deployed", "expected"),
    [
        (Running("process", found=Found(None)), False, ("stopped", "not_deployed")),
        (Running("process", found=Found(None)), True, ("stopped", "")),
        (Running("process", found=Found(RECORD, stale="the host was booted since")), True, ("stopped", "booted")),
        (Running("process", found=Found(RECORD, stale="the process 100 has ended")), True, ("failed", "died")),
        (
            Running("process", found=Found(RECORD, stale="the process 100 has ended", leftovers=(process(101),))),
            True,
            ("failed", "died"),
        ),
        (Running("systemd", state=unit(load="not-found")), False, ("stopped", "not_deployed")),
        (Running("systemd", state=unit(load="not-found")), True, ("stopped", "no_unit")),
        (Running("systemd", state=unit(load="bad-setting")), True, ("failed", "no_unit")),
        (Running("systemd", state=unit("activating", "auto-restart", restarts=7)), True, ("failed", "restarts")),
        (Running("systemd", state=unit("failed", "failed", result="exit-code")), True, ("failed", "died")),
        (Running("systemd", state=unit("inactive", "dead")), True, ("stopped", "")),
        (Running("systemd", state=unit("deactivating", "stop-sigterm")), True, ("draining", "")),
        (Running("systemd", state=unit("activating", "start-pre")), True, ("starting", "")),
        (Running("systemd", state=unit("active", "running"), launcher=process(9)), True, ("starting", "")),
        (Running("systemd", state=unit("maintenance", "x")), True, ("unknown", "unknown_unit_state")),
    ],
)
def test_a_main_process_that_does_not_run(running, deployed, expected):
    found = state_without_process(running, deployed)
    assert (found.state, found.reason) == expected
    assert found.message.endswith(".")


def test_workers_that_are_left_are_named():
    found = Found(RECORD, stale="the process 100 has ended", leftovers=(process(101), process(102)))
    assert "PID 101, 102" in state_without_process(Running("process", found=found), True).message


def judge(health, log=(), owner=OURS, alive=True, remote=False, manager=None):
    running = Running("systemd" if manager else "process", process(100), state=manager)
    found = state_of_process(running, health, owner, alive, lambda: list(log), remote)
    return found.state, found.reason


def status(number):
    return Answer("/health", number, b"", 0.1)


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        (("serving", ""), {"health": status(200)}),
        (("serving", ""), {"health": status(200), "remote": True, "owner": PortOwner(False)}),
        (("unknown", "unknown_listener"), {"health": status(200), "owner": PortOwner(False)}),
        (("starting", "port_taken"), {"health": status(200), "owner": PortOwner(True, "PID 7 listens on port 30000")}),
        (("failed", "died"), {"health": status(200), "alive": False}),
        (("draining", ""), {"health": status(200), "manager": unit("deactivating", "stop-sigterm")}),
        (("unknown", "health_timeout"), {"health": TimedOut("late")}),
        (("unknown", "unexpected_answer"), {"health": Broken("no HTTP")}),
        (("unknown", "unexpected_answer"), {"health": status(404)}),
        (("unknown", "rank_zero_not_ready"), {"health": status(503), "remote": True}),
        (("unknown", "rank_zero_not_ready"), {"health": Refused("no"), "remote": True}),
        # Nobody listens while the model is loaded.
        (("starting", "starting"), {"health": Refused("no")}),
        (("starting", "loading_weights"), {"health": Refused("no"), "log": [BEGIN, "Load weight begin. avail mem=1"]}),
        # Of an earlier start in the same log nothing counts.
        (("starting", "starting"), {"health": Refused("no"), "log": [BEGIN, UP, TERM, BEGIN]}),
        (("draining", ""), {"health": Refused("no"), "log": [BEGIN, UP, TERM]}),
        (("unknown", "not_listening"), {"health": Refused("no"), "log": [BEGIN, UP]}),
        (("starting", "warming_up"), {"health": status(503), "log": [BEGIN, "Uvicorn running on http://x"]}),
        (("failed", "unhealthy"), {"health": status(503), "log": [BEGIN, UP, "Decode batch"]}),
        (("draining", ""), {"health": status(503), "log": [BEGIN, UP, TERM, "Decode batch"]}),
        (("unknown", "not_healthy"), {"health": status(503), "log": ["Decode batch"]}),
        (("unknown", "not_healthy"), {"health": status(503)}),
    ],
)
def test_a_main_process_that_runs(expected, arguments):
    assert judge(**arguments) == expected


def test_the_log_is_read_only_where_the_answer_does_not_tell():
    def log():
        raise AssertionError("it was read")

    running = Running("process", process(100))
    for health in (status(200), TimedOut("late"), status(404)):
        state_of_process(running, health, OURS, True, log)


def test_a_node_of_a_higher_rank_proves_nothing_by_itself():
    found = state_of_rank(1)
    assert (found.state, found.reason) == ("unknown", "rank_unprovable") and "rank_zero" in found.message


def test_every_reason_is_documented():
    sources = [pathlib.Path(states.__file__).with_name(name) for name in ("states.py", "look.py")]
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    codes = set(re.findall(r"State\(\s*[A-Z][^,]*,\s*\"([a-z_]+)\"", text))
    codes |= set(re.findall(r"(?:reason = |str\(error\), )\"([a-z_]+)\"", text))
    assert {"unhealthy", "unreadable_release", "unknown_manager_state"} <= codes
    # The phases of a start are those of another module.
    undocumented = sorted(code for code in codes if "V(%s)" % code not in sglang_info.RETURN)
    assert undocumented == ["warming_up"]
