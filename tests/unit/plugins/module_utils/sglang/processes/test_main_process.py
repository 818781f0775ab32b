# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main process of a server while it is watched."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.current_since import Since
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.main_process import (
    PidFileProcess,
    UnitProcess,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import port_owner
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import (
    PidFileError,
    PidRecord,
    launch_of,
    write_pid_file,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release
from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import Listener
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import Kernel, process

UNIT = "sglang-main.service"
RELEASE = Release("r1", "2026-01-02T03:04:05Z", "main", "process", ["python3", "-m", "x"])


# -- a PID file


@pytest.fixture
def files(tmp_path):
    return tmp_path / "main.json", tmp_path / "main.log"


def record(**changes):
    values = {"pid": 100, "start_ticks": 1000, "boot_id": "boot", "release": "r1"}
    return PidRecord(**{**values, "command_sha256": launch_of(RELEASE).digest(), **changes})


def test_a_process_lives_and_dies(files):
    write_pid_file(files[0], record())
    kernel = Kernel(process(100))
    server = PidFileProcess(*files, kernel)
    assert server.look().pid == 100 and not server.look().dead
    kernel.set(process(100, start_time=2000))  # the same number, another process
    status = server.look()
    assert status.dead and "its main process 100 has ended" in status.detail


@pytest.mark.parametrize(
    ("content", "detail"), [(None, "there is no PID file"), (record(boot_id="x"), "the host was booted since")]
)
def test_a_process_that_was_never_there(files, content, detail):
    if content:
        write_pid_file(files[0], content)
    status = PidFileProcess(*files, Kernel(process(100))).look()
    assert status.dead and detail in status.detail


def test_a_pid_file_that_changes_hands(files):
    write_pid_file(files[0], record())
    kernel = Kernel(process(100))
    server = PidFileProcess(*files, kernel)
    write_pid_file(files[0], record(pid=200))
    kernel.set(process(200))
    status = server.look()
    assert status.replaced and not status.dead
    files[0].unlink()
    assert server.look().dead


def test_a_broken_pid_file(files):
    files[0].write_text("{")
    with pytest.raises(PidFileError):
        PidFileProcess(*files, Kernel())


def test_the_process_of_another_release_is_stale(files):
    write_pid_file(files[0], record())
    assert PidFileProcess(*files, Kernel(process(100))).stale(RELEASE, None) == ""
    write_pid_file(files[0], record(command_sha256="other", release="r0"))
    assert PidFileProcess(*files, Kernel(process(100))).stale(RELEASE, None) == "it was started from the release r0"


def test_its_log(files):
    files[1].write_text("api_key='sk-123456'\n\x1b[1mbold\x1b[0m\n")
    server = PidFileProcess(*files, Kernel())
    assert server.log([]) == server.log_start([]) == ["api_key='********'", "bold"]


# -- a unit


class Systemd:
    """systemctl and journalctl, as the test wants them."""

    def __init__(self, **state):
        self.asked = []
        self.journal = ""
        self.last_entry = ""
        self.last_journal = []
        self.state = {
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "MainPID": 100,
            "Result": "success",
            "ExecMainCode": 0,
            "ExecMainStatus": 0,
            "NRestarts": 0,
            "InvocationID": "first",
            "ControlGroup": "/system.slice/" + UNIT,
            "StandardOutput": "journal",
            **state,
        }

    def run(self, argv, timeout):
        self.asked.append(argv[0])
        if argv[0] == "journalctl":
            if "--output=json" in argv:
                return Completed(0, self.last_entry)
            self.last_journal = argv
            return Completed(0, self.journal)
        return Completed(0, "".join("%s=%s\n" % item for item in self.state.items()))

    def fails(self, **changes):
        self.state.update(
            ActiveState="failed", SubState="failed", MainPID=0, Result="exit-code", ExecMainCode=1, ExecMainStatus=1
        )
        self.state.update(changes)


def test_a_unit_lives_and_dies():
    systemd, kernel = Systemd(), Kernel(process(100))
    server = UnitProcess(UNIT, systemd.run, kernel)
    assert [server.look().pid for _look in range(3)] == [100, 100, 100]
    assert systemd.asked == ["systemctl"]  # while its process lives, nobody needs to be asked
    kernel.set()
    systemd.fails()
    status = server.look()
    assert status.dead and status.exit_status == 1 and not status.killed
    assert "result exit-code, its main process ended with status 1" in status.detail


def test_a_unit_whose_process_systemd_has_not_buried_yet():
    systemd, kernel = Systemd(), Kernel(process(100))
    server = UnitProcess(UNIT, systemd.run, kernel)
    server.look()
    kernel.set()
    assert not server.look().dead
    systemd.fails(Result="oom-kill", ExecMainCode=2, ExecMainStatus=9)
    status = server.look()
    assert status.dead and status.killed and status.exit_status == 137


@pytest.mark.parametrize(
    "changes",
    [
        {"NRestarts": 1, "ActiveState": "activating", "SubState": "auto-restart", "MainPID": 0},
        {"NRestarts": 1, "MainPID": 101, "InvocationID": "second"},
        {"MainPID": 101, "InvocationID": "second"},
        {"MainPID": 101, "InvocationID": ""},
    ],
)
def test_a_unit_that_is_started_again(changes):
    systemd, kernel = Systemd(), Kernel(process(100))
    server = UnitProcess(UNIT, systemd.run, kernel)
    server.look()
    kernel.set(process(101))
    systemd.state.update(changes)
    status = server.look()
    assert status.replaced and "before, its main process was 100" in status.detail


def test_a_unit_whose_main_process_comes_late():
    systemd, kernel = Systemd(ActiveState="activating", SubState="start-pre", MainPID=0), Kernel(process(100))
    server = UnitProcess(UNIT, systemd.run, kernel)
    status = server.look()
    assert status.pid is None and not status.dead and server.identity is None
    systemd.state.update(ActiveState="active", SubState="running", MainPID=100)
    assert server.look().pid == 100 and server.identity.pid == 100


def test_a_unit_that_does_not_exist():
    systemd = Systemd(LoadState="not-found", ActiveState="inactive", SubState="dead", MainPID=0)
    status = UnitProcess(UNIT, systemd.run, Kernel()).look()
    assert status.dead and "no unit" in status.detail


def test_a_unit_that_runs_since_before_its_release():
    kernel = Kernel(process(100, started_at=5000.0))
    server = UnitProcess(UNIT, Systemd().run, kernel)
    server.look()
    assert server.stale(RELEASE, Since(4999.0)) == "" and server.stale(RELEASE, Since(5001.0)) == ""
    assert "before this release" in server.stale(RELEASE, Since(5003.0))
    assert server.stale(RELEASE, None) == ""


def test_ticks_count_more_than_the_clock():
    kernel = Kernel(process(100, started_at=5000.0))
    server = UnitProcess(UNIT, Systemd().run, kernel)
    server.look()
    ticks = kernel.read(100).start_time
    assert server.stale(RELEASE, Since(9999.0, ticks)) == ""
    assert "before this release" in server.stale(RELEASE, Since(0.0, ticks + 1))


def test_the_log_of_a_unit_that_systemd_has_forgotten():
    # It ended as it is allowed to (SIGKILL), so systemd unloaded it: no identifier of its run is left there.
    systemd, kernel = Systemd(), Kernel(process(100))
    systemd.journal = "the reason\n"
    seen = UnitProcess(UNIT, systemd.run, kernel)
    seen.look()
    kernel.set()
    systemd.state.update(ActiveState="inactive", SubState="dead", MainPID=0, InvocationID="")
    assert seen.look().dead
    assert seen.log([]) == ["the reason"] and systemd.last_journal[-1].endswith("=first")
    # And where it was over before the first look.
    late = UnitProcess(UNIT, systemd.run, kernel)
    assert late.look().dead
    systemd.last_entry = '{"INVOCATION_ID": "second"}'
    assert late.log([]) == ["the reason"] and systemd.last_journal[-1].endswith("=second")


def test_where_a_unit_logs(tmp_path):
    systemd = Systemd()
    systemd.journal = "one\n\x1b[1mtwo\x1b[0m\n"
    server = UnitProcess(UNIT, systemd.run, Kernel(process(100)))
    assert server.log([]) == []
    server.look()
    assert server.log([]) == ["one", "two"]
    (tmp_path / "x.log").write_text("in a file\n")
    systemd.state["StandardOutput"] = "append:%s" % (tmp_path / "x.log")
    other = UnitProcess(UNIT, systemd.run, Kernel(process(100)))
    other.look()
    assert other.log([]) == ["in a file"]


# -- who owns the port


def listening(*sockets):
    kernel = Kernel(
        process(100, unit=UNIT),
        process(101, session=100),
        process(102, session=102),
        process(103, session=103, unit="other.service"),
        process(104, session=104, cgroup="/system.slice/%s/worker" % UNIT),
    )
    kernel.parents[102] = [100, 1]
    kernel.sockets = [Listener(address, 30000, pid) for address, pid in sockets]
    server = UnitProcess(UNIT, Systemd().run, kernel)
    server.look()
    return server, kernel


@pytest.mark.parametrize(
    ("sockets", "known", "foreign"),
    [
        ([("127.0.0.1", 100)], True, ""),
        ([("0.0.0.0", 101)], True, ""),
        ([("::", 102)], True, ""),
        ([("127.0.0.1", 104)], True, ""),
        ([("127.0.0.1", 103)], True, "PID 103 (python3 of root in other.service) listens on port 30000"),
        ([("0.0.0.0", 103)], True, "PID 103 (python3 of root in other.service) listens on port 30000"),
        ([("127.0.0.2", 103), ("127.0.0.1", 100)], True, ""),
        ([("127.0.0.2", 103)], False, ""),
        # Connections go to the nearer one.
        (
            [("0.0.0.0", 100), ("127.0.0.1", 103)],
            True,
            "PID 103 (python3 of root in other.service) listens on port 30000",
        ),
        ([("0.0.0.0", 103), ("127.0.0.1", 100)], True, ""),
        # IPv4 through a socket of IPv6.
        ([("::ffff:127.0.0.1", 100)], True, ""),
        ([("::ffff:127.0.0.2", 103)], False, ""),
        ([("0.0.0.0", 100), ("127.0.0.1", None)], False, ""),
        ([("127.0.0.1", None)], False, ""),
        ([("127.0.0.1", 999)], False, ""),
        ([], False, ""),
    ],
)
def test_who_listens(sockets, known, foreign):
    server, kernel = listening(*sockets)
    owner = port_owner(server.owns, "127.0.0.1", 30000, kernel)
    assert (owner.known, owner.foreign) == (known, foreign)


def test_a_name_may_mean_any_address():
    server, kernel = listening(("10.0.0.7", 100))
    assert port_owner(server.owns, "localhost", 30000, kernel).known


def test_nothing_is_owned_before_a_process_was_seen():
    kernel = Kernel(process(103))
    kernel.sockets = [Listener("127.0.0.1", 30000, 103)]
    server = UnitProcess(UNIT, Systemd(MainPID=0).run, kernel)
    assert "PID 103" in port_owner(server.owns, "127.0.0.1", 30000, kernel).foreign


def test_what_the_engine_runs_for_the_unit_is_its_own():
    inside = process(105, cgroup="/system.slice/docker-%s.scope" % ("a1" * 32))
    kernel = Kernel(process(100), inside)
    kernel.sockets = [Listener("127.0.0.1", 30000, 105)]
    for identifier, foreign in (("a1" * 32, False), ("b2" * 32, True), ("", True)):
        server = UnitProcess(UNIT, Systemd().run, kernel, lambda identifier=identifier: identifier)
        server.look()
        assert bool(port_owner(server.owns, "127.0.0.1", 30000, kernel).foreign) == foreign


def test_the_engine_is_asked_once_for_the_container():
    inside = process(105, cgroup="/system.slice/docker-%s.scope" % ("a1" * 32))
    kernel = Kernel(process(100), inside)
    answers = ["", "a1" * 32]
    server = UnitProcess(UNIT, Systemd().run, kernel, lambda: answers.pop(0))
    server.look()
    assert [server.owns(inside) for _look in range(4)] == [False, True, True, True]


@pytest.mark.parametrize(
    "cgroup",
    ["/lxc.payload.129/system.slice/" + UNIT, "/user.slice/user-7.slice/user@7.service/app.slice/" + UNIT],
)
def test_a_unit_of_the_same_name_elsewhere_is_another_one(cgroup):
    kernel = Kernel(process(100), process(106, cgroup=cgroup, unit=UNIT))
    server = UnitProcess(UNIT, Systemd().run, kernel)
    server.look()
    assert not server.owns(kernel.read(106))
