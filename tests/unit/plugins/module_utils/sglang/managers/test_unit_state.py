# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `systemctl show` says, as text."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import (
    UnitError,
    journal_of,
    last_invocation,
    parse_show,
    read_unit,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed

RUNNING = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "MainPID": "4711",
    "Result": "success",
    "ExecMainCode": "0",
    "ExecMainStatus": "0",
    "NRestarts": "0",
    "InvocationID": "abc",
    "ControlGroup": "/system.slice/sglang-main.service",
    "StandardOutput": "journal",
}


def show(**changes):
    return "".join("%s=%s\n" % item for item in {**RUNNING, **changes}.items() if item[1] is not None)


def state(**changes):
    return parse_show("sglang-main.service", show(**changes))


def test_a_running_unit():
    unit = state()
    assert unit.exists and not unit.dead and not unit.killed and unit.exit_status is None
    assert (unit.main_pid, unit.restarts, unit.invocation) == (4711, 0, "abc")
    assert unit.describe() == "the unit sglang-main.service is active (running)"


@pytest.mark.parametrize(
    ("changes", "dead", "killed", "exit_status", "words"),
    [
        ({"ActiveState": "activating", "SubState": "start", "MainPID": "0"}, False, False, None, "activating (start)"),
        (
            {
                "ActiveState": "failed",
                "SubState": "failed",
                "MainPID": "0",
                "Result": "exit-code",
                "ExecMainCode": "1",
                "ExecMainStatus": "1",
            },
            True,
            False,
            1,
            "result exit-code, its main process ended with status 1",
        ),
        (
            {
                "ActiveState": "failed",
                "SubState": "failed",
                "MainPID": "0",
                "Result": "signal",
                "ExecMainCode": "2",
                "ExecMainStatus": "9",
            },
            True,
            True,
            137,
            "ended by signal 9",
        ),
        (
            {
                "ActiveState": "failed",
                "SubState": "failed",
                "Result": "oom-kill",
                "ExecMainCode": "2",
                "ExecMainStatus": "9",
            },
            True,
            True,
            137,
            "result oom-kill",
        ),
        (
            {"ActiveState": "failed", "SubState": "failed", "ExecMainCode": "3", "ExecMainStatus": "6"},
            True,
            False,
            134,
            "signal 6",
        ),
        ({"ActiveState": "inactive", "SubState": "dead", "MainPID": "0"}, True, False, None, "inactive (dead)"),
        ({"ActiveState": "activating", "SubState": "auto-restart", "MainPID": "0"}, True, False, None, "auto-restart"),
        ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, False, False, None, "deactivating"),
        ({"ActiveState": "deactivating", "SubState": "stop-post", "MainPID": "0"}, True, False, None, "deactivating"),
    ],
)
def test_states(changes, dead, killed, exit_status, words):
    unit = state(**changes)
    assert (unit.dead, unit.killed, unit.exit_status) == (dead, killed, exit_status)
    assert words in unit.describe()


def test_a_unit_that_is_not_there():
    assert not state(LoadState="not-found", ActiveState="inactive", SubState="dead", MainPID="0").exists


def test_an_old_systemd_counts_no_restarts():
    assert state(NRestarts=None).restarts == 0


@pytest.mark.parametrize("changes", [{"MainPID": "many"}, {"ActiveState": None}, {"MainPID": None}, {"NRestarts": ""}])
def test_what_cannot_be_read_is_an_error(changes):
    with pytest.raises(UnitError):
        state(**changes)


def test_systemctl_that_fails():
    with pytest.raises(UnitError, match="Failed to connect to bus"):
        read_unit(
            "sglang-main.service", lambda argv, timeout: Completed(1, err="Failed to connect to bus: No such file\n")
        )


@pytest.mark.parametrize(
    ("done", "message"),
    [
        (Completed(127, missing=True), "no such program"),
        (Completed(None, timed_out=True), "did not answer in time"),
    ],
)
def test_systemctl_that_gives_no_answer(done, message):
    with pytest.raises(UnitError, match=message):
        read_unit("sglang-main.service", lambda argv, timeout: done)


def test_whether_it_starts_at_boot_and_how_long_it_may_take_to_stop():
    unit = state(UnitFileState="enabled", TimeoutStopUSec="2min")
    assert (unit.file_state, unit.stop_timeout, unit.idle) == ("enabled", "2min", False)
    assert state(ActiveState="failed", SubState="failed").idle


def test_how_systemctl_is_asked():
    asked = []

    def run(argv, timeout):
        asked.append(argv)
        assert 0 < timeout <= 60
        return Completed(0, show())

    assert read_unit("sglang-main.service", run).main_pid == 4711
    assert asked[0][:2] == ["systemctl", "show"] and asked[0][-1] == "sglang-main.service"
    assert "MainPID" in asked[0][-2].split(",") and "NRestarts" in asked[0][-2].split(",")


def test_the_journal_is_of_this_start_only():
    asked = []

    def run(argv, timeout):
        asked.append(argv)
        return Completed(0, "a line\n")

    assert journal_of("abc", run) == "a line\n"
    assert "_SYSTEMD_INVOCATION_ID=abc" in asked[0] and "INVOCATION_ID=abc" in asked[0]
    assert journal_of("", run) == "" and len(asked) == 1
    assert journal_of("abc", lambda argv, timeout: Completed(1, "nonsense", "No journal files")) == ""


@pytest.mark.parametrize(
    ("answer", "invocation"),
    [
        ((0, '{"INVOCATION_ID": "abc", "_SYSTEMD_INVOCATION_ID": "of systemd itself"}\n', ""), "abc"),
        ((0, '{"_SYSTEMD_INVOCATION_ID": "abc"}\n', ""), "abc"),
        ((0, '{"MESSAGE": "x"}\n', ""), ""),
        ((0, "", ""), ""),
        ((0, "[]", ""), ""),
        ((1, '{"INVOCATION_ID": "abc"}', "No journal files"), ""),
    ],
)
def test_the_journal_remembers_a_unit_that_systemd_has_forgotten(answer, invocation):
    assert last_invocation("sglang-main.service", lambda argv, timeout: Completed(*answer)) == invocation
