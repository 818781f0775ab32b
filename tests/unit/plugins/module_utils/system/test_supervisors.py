# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who keeps a process alive, how it is stopped, and whether it starts again: against managers by table."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.system.commands import Completed
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisors import Supervisors
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.system.fakes import (
    LATE,
    FakeClock,
    FakeProc,
    FakeRun,
    inspect,
    show,
)

A = "4f2a6d" + "0" * 58
B = "b" * 64
POD = "8f0e7f6c-1d2e-4a5b-9c3d-0123456789ab"
UNIT = "0::/system.slice/sglang-main.service"
DOCKER = "0::/system.slice/docker-%s.scope" % A
USER = "/user.slice/user-1000.slice/user@1000.service"
NOT_THERE = Completed(1, err="Error: No such container: " + A)


@pytest.fixture
def proc(tmp_path):
    return FakeProc(tmp_path)


@pytest.fixture
def make(proc):
    def make(answers=None, **more):
        run = FakeRun(answers)
        clock = FakeClock()
        supervisors = Supervisors(run, str(proc.root), own_uid=0, clock=clock, sleep=clock.sleep, **more)
        return supervisors, run

    return make


# -- systemd


def test_a_service(proc, make):
    supervisors, run = make({"systemctl show": show()})
    first, second = proc.add(100, UNIT), proc.add(101, UNIT)
    found = supervisors.of(first)
    assert (found.kind, found.name, found.restarts) == ("systemd", "sglang-main.service", True)
    assert found.policy == "Restart=always after 5s"
    assert found.stop == ("systemctl", "stop", "sglang-main.service")
    assert found.stoppable
    assert "systemctl stop sglang-main.service" in found.advice
    assert supervisors.of(second) is found
    assert len(run.calls) == 1  # asked once for the unit
    assert run.timeouts[0] <= 10


@pytest.mark.parametrize(
    ("restart", "restarts"),
    [
        ("no", False),
        ("on-watchdog", False),
        ("on-failure", True),
        ("on-abnormal", True),
        ("on-success", True),
        ("", None),
    ],
)
def test_what_a_policy_means_for_a_killed_process(proc, make, restart, restarts):
    supervisors, _run = make({"systemctl show": show(restart=restart)})
    assert supervisors.of(proc.add(100, UNIT)).restarts is restarts


def test_names_are_taken_as_they_stand(proc, make):
    supervisors, run = make({"systemctl show": show()})
    found = supervisors.of(proc.add(100, r"0::/system.slice/system-sgl\x2da.slice/sgl-a@m\x2d1.service"))
    assert found.stop == ("systemctl", "stop", r"sgl-a@m\x2d1.service")
    assert run.calls[0].endswith(r" sgl-a@m\x2d1.service")


@pytest.mark.parametrize(
    "unit",
    [
        *("ssh.service", "sshd@1-10.0.0.1:22.service", "cron.service", "crond.service", "atd.service"),
        *("docker.service", "containerd.service", "crio.service", "podman.service", "kubelet.service"),
        *("slurmd.service", "slurmstepd.scope", "supervisor.service", "supervisord.service"),
        *("user@1000.service", "session-3.scope", "init.scope", "dbus.service", "systemd-logind.service"),
        *("getty@tty1.service", "gdm.service", "display-manager.service", "nvidia-persistenced.service"),
        *("nvidia-dcgm.service", "pve-container@129.service", "-x.service", "a b.service"),
    ],
)
def test_what_runs_other_peoples_processes_is_not_even_asked(proc, make, unit):
    supervisors, run = make({"systemctl show": show()})
    assert supervisors.of(proc.add(100, "0::/system.slice/" + unit)) is None
    assert run.calls == []


def test_a_service_named_after_what_it_uses_is_a_service(proc, make):
    supervisors, _run = make({"systemctl show": show()})
    assert supervisors.of(proc.add(100, "0::/system.slice/docker-sglang.service")) is not None


@pytest.mark.parametrize(
    "own", [{"own_unit": "sglang-main.service"}, {"own_cgroup": "/system.slice/sglang-main.service/x"}]
)
def test_our_own_unit_is_never_stopped(proc, make, own):
    supervisors, run = make({"systemctl show": show()}, **own)
    assert supervisors.of(proc.add(100, UNIT)) is None
    assert run.calls == []


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (show("failed", "failed", main=0), "which is failed"),
        (show("inactive", "dead", load="not-found"), "does not know"),
    ],
)
def test_left_over_from_a_unit(proc, make, answer, word):
    supervisors, _run = make({"systemctl show": answer})
    process = proc.add(100, UNIT)
    assert supervisors.of(process) is None
    assert word in supervisors.note(process)


@pytest.mark.parametrize("answer", [None, LATE, Completed(1, err="Failed to connect to bus"), "nonsense"])
def test_a_systemd_that_does_not_answer_is_named_and_cannot_stop(proc, make, answer):
    supervisors, _run = make({} if answer is None else {"systemctl": answer})
    found = supervisors.of(proc.add(100, UNIT))
    assert (found.name, found.restarts, found.stop) == ("sglang-main.service", None, ())
    stopped = supervisors.stop(found, 5)
    assert not stopped.ok
    assert "not stopped from here" in stopped.message
    assert supervisors.revives(found, {100}) == ""


def test_a_users_service(proc, make):
    supervisors, _run = make({"systemctl --user --machine=1000@ show": show()})
    found = supervisors.of(proc.add(100, "0::%s/app.slice/job.service" % USER))
    assert (found.kind, found.name) == ("systemd_user", "job.service of user 1000")
    assert found.stop == ("systemctl", "--user", "--machine=1000@", "stop", "job.service")


def test_a_users_service_where_systemctl_cannot_reach_it(proc, make):
    supervisors, _run = make({"systemctl": Completed(1, err="Host is down"), "setpriv": show()})
    found = supervisors.of(proc.add(100, "0::%s/app.slice/job.service" % USER))
    assert found.stop[:2] == ("setpriv", "--reuid=1000")
    assert found.stop[-3:] == ("--user", "stop", "job.service")


# -- stopping


def test_stopped(proc, make):
    supervisors, run = make({"systemctl show": [show(), show("inactive", "dead", main=0)], "systemctl stop": ""})
    process = proc.add(100, UNIT)
    found = supervisors.of(process)
    proc.remove(100)
    stopped = supervisors.stop(found, 90)
    assert (stopped.ok, stopped.inactive, stopped.left) == (True, True, ())
    assert run.made("stop") == ["systemctl stop sglang-main.service"]
    assert 90 in run.timeouts


def test_a_unit_that_is_inactive_with_a_process_left_is_not_stopped(proc, make):
    supervisors, _run = make({"systemctl show": [show(), show("inactive", "dead", main=0)], "systemctl stop": ""})
    found = supervisors.of(proc.add(100, UNIT, state="D"))
    proc.add(101, "0::/system.slice/sglang-main.service2")
    stopped = supervisors.stop(found, 90)
    assert (stopped.ok, stopped.inactive, stopped.left) == (False, True, (100,))
    assert "100 (python3, uninterruptible)" in stopped.message
    assert "101" not in stopped.message


def test_a_stop_that_takes_too_long_says_what_it_found(proc, make):
    supervisors, _run = make({"systemctl show": [show(), show("deactivating", "stop-sigkill")], "systemctl stop": LATE})
    found = supervisors.of(proc.add(100, UNIT, state="D"))
    stopped = supervisors.stop(found, 5)
    assert not stopped.ok and not stopped.inactive
    for word in ("within 5 s", "deactivating (stop-sigkill)", "100 (python3, uninterruptible)"):
        assert word in stopped.message


def test_a_stop_that_is_refused(proc, make):
    refused = Completed(4, err="Failed to stop sglang-main.service: Access denied")
    supervisors, _run = make({"systemctl show": show(), "systemctl stop": refused})
    stopped = supervisors.stop(supervisors.of(proc.add(100, UNIT)), 5)
    assert not stopped.ok
    assert "Access denied" in stopped.message


def test_a_stop_whose_result_cannot_be_read(proc, make):
    supervisors, _run = make({"systemctl show": [show(), LATE], "systemctl stop": ""})
    stopped = supervisors.stop(supervisors.of(proc.add(100, UNIT)), 5)
    assert (stopped.ok, stopped.inactive) == (False, False)
    assert "unknown" in stopped.message


def test_what_may_start_it_again_is_passed_on(proc, make):
    warning = Completed(0, err="Warning: Stopping a.service, but it can still be activated by:\n  a.socket\n")
    supervisors, _run = make({"systemctl show": [show(), show("inactive", "dead")], "systemctl stop": warning})
    found = supervisors.of(proc.add(100, UNIT))
    proc.remove(100)
    assert "a.socket" in supervisors.stop(found, 5).message


def test_a_container_that_cannot_be_stopped_with_a_zombie_in_it(proc, make):
    supervisors, _run = make({"docker inspect": inspect(), "docker stop": LATE})
    found = supervisors.of(proc.add(100, DOCKER, state="D"))
    proc.add(101, DOCKER, state="Z")
    stopped = supervisors.stop(found, 30)
    assert not stopped.ok
    for word in ("sglang", "within 30 s", "running", "100 (python3, uninterruptible)", "101 (python3, zombie)"):
        assert word in stopped.message
    assert stopped.left == (100,)


def test_a_container_that_removes_itself_is_stopped(proc, make):
    supervisors, _run = make({"docker inspect": [inspect(), NOT_THERE], "docker stop": A})
    found = supervisors.of(proc.add(100, DOCKER))
    proc.remove(100)
    stopped = supervisors.stop(found, 30)
    assert stopped.ok
    assert "removed" in stopped.message


# -- containers


def test_a_container(proc, make):
    supervisors, _run = make({"docker inspect": inspect()}, grace=7.2)
    found = supervisors.of(proc.add(100, DOCKER))
    assert (found.kind, found.name, found.restarts) == ("docker", "sglang", True)
    assert found.policy == "restart policy unless-stopped"
    assert found.stop == ("docker", "stop", "-t", "8", A)
    assert "secret" not in repr(found)


@pytest.mark.parametrize(("policy", "restarts"), [("no", False), ("", False), ("always", True), ("on-failure", True)])
def test_the_policy_of_a_container(proc, make, policy, restarts):
    supervisors, _run = make({"docker inspect": inspect(policy=policy)})
    assert supervisors.of(proc.add(100, DOCKER)).restarts is restarts


def test_the_orphan_of_a_removed_container(proc, make):
    supervisors, _run = make({"docker inspect": NOT_THERE})
    process = proc.add(100, DOCKER)
    assert supervisors.of(process) is None
    assert supervisors.note(process) == "orphan of container docker:4f2a6d000000, which docker no longer knows"


def test_left_over_from_a_container_that_exited(proc, make):
    supervisors, _run = make({"docker inspect": inspect(status="exited", pid=0)})
    process = proc.add(100, DOCKER)
    assert supervisors.of(process) is None
    assert "which is exited" in supervisors.note(process)


@pytest.mark.parametrize("answer", [None, LATE, Completed(1, err="Cannot connect to the Docker daemon"), "[]", "{"])
def test_an_engine_that_does_not_answer_is_no_proof_of_an_orphan(proc, make, answer):
    supervisors, _run = make({} if answer is None else {"docker": answer})
    found = supervisors.of(proc.add(100, DOCKER))
    assert (found.kind, found.stop) == ("docker", ())
    assert "stop it where it is managed" in found.advice


def test_a_group_with_the_name_of_somebody_elses_container(proc, make):
    supervisors, _run = make({"docker": inspect(pid=50)})
    proc.add(50, DOCKER)
    process = proc.add(100, "0::%s/docker-%s.scope" % (USER, A))
    assert supervisors.of(process) is None
    assert "not in container" in supervisors.note(process)


def test_rootless_engines_are_asked_as_their_user(proc, make):
    supervisors, run = make({"docker": inspect()})
    supervisors.of(proc.add(100, "0::%s/user.slice/docker-%s.scope" % (USER, A)))
    assert run.calls[0].startswith("docker -H unix:///run/user/1000/docker.sock inspect")


def test_podman_and_its_unit(proc, make):
    path = "0::/machine.slice/libpod-%s.scope/container" % A
    labels = {"PODMAN_SYSTEMD_UNIT": "sglang.service"}
    supervisors, _run = make({"podman inspect": inspect(labels=labels), "systemctl show": show()})
    assert supervisors.of(proc.add(100, path)).stop == ("systemctl", "stop", "sglang.service")
    supervisors, _run = make({"podman inspect": inspect(name="sglang", labels=labels)})  # a label without a unit
    assert supervisors.of(proc.procfs.read(100)).stop == ("podman", "stop", "-t", "10", A)


def test_a_container_below_a_service_belongs_to_the_service(proc, make):
    path = "0::/system.slice/sglang.service/libpod-payload-" + A
    supervisors, run = make({"systemctl show": show(), "podman": inspect()})
    assert supervisors.of(proc.add(100, path)).stop == ("systemctl", "stop", "sglang.service")
    assert run.made("podman") == []


def test_a_task_of_a_swarm_is_not_stopped(proc, make):
    supervisors, _run = make({"docker inspect": inspect(labels={"com.docker.swarm.service.name": "llm"})})
    found = supervisors.of(proc.add(100, DOCKER))
    assert (found.restarts, found.stop) == (True, ())
    assert "docker service scale llm=0" in found.advice


def test_a_bare_group_is_whosever_engine_knows_it(proc, make):
    supervisors, _run = make({"docker": NOT_THERE, "podman inspect": inspect()})
    assert supervisors.of(proc.add(100, "0::/mine/" + A)).kind == "podman"
    supervisors, _run = make({"docker": NOT_THERE, "podman": NOT_THERE})
    assert supervisors.of(proc.procfs.read(100)) is None
    assert supervisors.note(proc.procfs.read(100)) == ""  # some other engine's, for all we know


def test_pods_are_named_and_not_stopped(proc, make):
    supervisors, run = make()
    path = "0::/kubepods.slice/kubepods-pod%s.slice/cri-containerd-%s.scope" % (POD.replace("-", "_"), "%s")
    found = supervisors.of(proc.add(100, path % A))
    proc.add(101, path % ("c" * 64), state="Z")  # a second container of the pod, there from the start
    supervisors, run = make()
    found = supervisors.of(proc.procfs.read(100))
    assert (found.kind, found.restarts, found.stop) == ("kubernetes", True, ())
    assert POD in found.name
    assert "drain" in found.advice
    assert run.calls == []
    assert supervisors.revives(found, {100}) == ""
    proc.add(102, path % B)
    assert "process 102" in supervisors.revives(found, {100})


# -- guests


GUEST = "0::/lxc/129/ns/system.slice/sglang.service"


def test_a_unit_in_a_guest_is_not_the_hosts(proc, make):
    supervisors, run = make({"pct exec 129 -- systemctl show": show(), "systemctl show": show()})
    found = supervisors.of(proc.add(100, GUEST))
    assert (found.kind, found.name) == ("lxc", "129: sglang.service")
    assert found.stop == ("pct", "exec", "129", "--", "systemctl", "stop", "sglang.service")
    assert not [call for call in run.calls if call.startswith("systemctl")]


def test_a_guest_without_proxmox(proc, make):
    supervisors, _run = make({"lxc-attach -n 129 -- systemctl show": show()})
    found = supervisors.of(proc.add(100, GUEST))
    assert found.stop == ("lxc-attach", "-n", "129", "--", "systemctl", "stop", "sglang.service")


def test_a_guest_that_this_host_cannot_enter(proc, make):
    supervisors, _run = make({})
    found = supervisors.of(proc.add(100, GUEST))
    assert (found.kind, found.stop) == ("lxc", ())


@pytest.mark.parametrize(
    "path", ["0::/lxc/129", "0::/lxc/129/ns/user.slice/session-1.scope", "0::/lxc/129/ns/ssh.service"]
)
def test_a_process_of_a_guest_without_a_service(proc, make, path):
    supervisors, _run = make({"pct": show()})
    assert supervisors.of(proc.add(100, path)) is None


def test_a_container_in_a_guest(proc, make):
    supervisors, _run = make({"pct exec 129 -- docker inspect": inspect()})
    found = supervisors.of(proc.add(100, "0::/lxc/129/ns/system.slice/docker-%s.scope" % A))
    assert (found.kind, found.name) == ("lxc", "129: sglang")
    assert found.stop == ("pct", "exec", "129", "--", "docker", "stop", "-t", "10", A)


def test_a_machine(proc, make):
    supervisors, _run = make({"systemctl --machine=web show": show()})
    path = "0::/machine.slice/systemd-nspawn@web.service/payload/system.slice/sglang.service"
    assert supervisors.of(proc.add(100, path)).stop == ("systemctl", "--machine=web", "stop", "sglang.service")


def test_a_virtual_machine(proc, make):
    supervisors, _run = make()
    found = supervisors.of(proc.add(100, "0::/qemu.slice/101.scope"))
    assert (found.kind, found.stop) == ("qemu", ())


def test_from_inside_a_container_its_own_units_count(proc, make):
    """Without a namespace for control groups, the paths inside begin with the container itself."""
    own = "/docker/%s/system.slice/ssh.service" % A
    supervisors, _run = make({"systemctl show": show(), "docker": inspect()}, own_cgroup=own)
    found = supervisors.of(proc.add(100, "0::/docker/%s/system.slice/sglang.service" % A))
    assert found.stop == ("systemctl", "stop", "sglang.service")
    assert supervisors.of(proc.add(101, "0::/docker/%s" % A)) is None


# -- supervisord

ENVIRON = "\0".join(
    (
        "HF_TOKEN=hf_verysecret",
        "SUPERVISOR_ENABLED=1",
        "SUPERVISOR_GROUP_NAME=llm",
        "SUPERVISOR_PROCESS_NAME=sglang",
        "SUPERVISOR_SERVER_URL=http://127.0.0.1:9001",
        "",
    )
)
STATUS = Completed(0, out="llm:sglang    RUNNING   pid 100, uptime 0:01:00\n")
SESSION = "0::/system.slice/supervisor.service"


def supervisord_program(proc, uid=0, environ=ENVIRON):
    proc.add(1, "0::/init.scope", ppid=0, argv=("init",))
    proc.add(90, SESSION, argv=("/usr/bin/python3", "/usr/bin/supervisord", "-n"), uid=uid)
    return proc.add(100, SESSION, ppid=90, environ=environ)


def test_a_program_of_supervisord(proc, make):
    supervisors, run = make({"supervisorctl": STATUS})
    found = supervisors.of(supervisord_program(proc))
    assert (found.kind, found.name, found.restarts) == ("supervisord", "llm:sglang", None)
    assert found.stop == ("supervisorctl", "-s", "http://127.0.0.1:9001", "stop", "llm:sglang")
    assert "secret" not in repr((found, run.calls, run.environments))


def test_a_program_is_asked_for_once(proc, make):
    supervisors, run = make({"supervisorctl": STATUS})
    found = supervisors.of(supervisord_program(proc))
    assert supervisors.of(proc.add(101, SESSION, ppid=100, environ=ENVIRON)) is found
    assert len(run.calls) == 1


def test_stopping_it(proc, make):
    over = Completed(3, out="llm:sglang    STOPPED   Nov 30 09:00 AM\n")
    supervisors, _run = make({"supervisorctl": STATUS})
    found = supervisors.of(supervisord_program(proc))
    supervisors, _run = make({"supervisorctl -s http://127.0.0.1:9001 stop": "", "supervisorctl": over})
    assert supervisors.stop(found, 10).ok


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ("llm:sglang    BACKOFF   Exited too quickly\n", "about to start it again"),
        ("llm:sglang    RUNNING   pid 200, uptime 0:00:01\n", "main process 200"),
        ("llm:sglang    FATAL     x\n", ""),
    ],
)
def test_whether_it_starts_it_again(proc, make, answer, word):
    supervisors, run = make({"supervisorctl": STATUS})
    found = supervisors.of(supervisord_program(proc))
    run.answers["supervisorctl"] = Completed(3, out=answer)
    sentence = supervisors.revives(found, {100})
    assert (word in sentence) and bool(word) is bool(sentence)


def test_an_orphan_of_supervisord(proc, make):
    supervisors, run = make({"supervisorctl": STATUS})
    proc.add(1, ppid=0, argv=("init",))
    process = proc.add(100, SESSION, environ=ENVIRON)
    assert supervisors.of(process) is None
    assert "llm:sglang" in supervisors.note(process)
    assert run.calls == []


def test_somebody_elses_supervisord_is_not_spoken_to(proc, make):
    supervisors, run = make({"supervisorctl": STATUS})
    assert supervisors.of(supervisord_program(proc, uid=1000)) is None
    assert run.calls == []


@pytest.mark.parametrize("url", ["http://evil.example:9001", "unix:///no/such.sock", "unix://[", ""])
def test_a_server_that_must_not_be_asked(proc, make, url):
    environ = ENVIRON.replace("http://127.0.0.1:9001", url)
    supervisors, run = make({"supervisorctl": STATUS})
    found = supervisors.of(supervisord_program(proc, environ=environ))
    assert found.stop == ()
    assert run.calls == []


# -- noticing


@pytest.mark.parametrize(
    ("now", "word"),
    [
        (show("activating", "auto-restart", main=0), "about to start it again: it is activating (auto-restart)"),
        (show(main=200), "has started it again (main process 200)"),
        (show(main=100, starts=1), "has started it again"),
        (show("inactive", "dead", main=0), ""),
        (show("failed", "failed", main=0), ""),
    ],
)
def test_a_unit_that_starts_it_again(proc, make, now, word):
    supervisors, _run = make({"systemctl show": [show(), now]})
    found = supervisors.of(proc.add(100, UNIT))
    sentence = supervisors.revives(found, {100})
    assert word in sentence and bool(word) is bool(sentence)
    if word:
        assert "sglang-main.service" in sentence and "systemctl stop" in sentence


def test_a_unit_whose_main_process_was_not_ended(proc, make):
    """A worker was ended, its main process lives on and is no other than before."""
    supervisors, run = make({"systemctl show": show(main=100)})
    found = supervisors.of(proc.add(101, UNIT))
    assert supervisors.revives(found, {101}) == ""
    assert len(run.calls) == 2


def test_a_manager_that_learns_it_late(proc, make):
    supervisors, _run = make(
        {"docker inspect": [inspect(), inspect(), inspect(status="restarting", restarting=True, pid=0)]}
    )
    found = supervisors.of(proc.add(100, DOCKER))
    sentence = supervisors.revives(found, {100})
    assert "about to start it again" in sentence
    assert "restart policy unless-stopped" in sentence


def test_a_manager_that_never_learns_it_is_not_waited_for_long(proc, make):
    supervisors, run = make({"systemctl show": show(main=100)})
    found = supervisors.of(proc.add(100, UNIT))
    assert supervisors.revives(found, {100}) == ""
    assert 10 < len(run.calls) < 30


def test_a_container_with_a_new_main_process(proc, make):
    supervisors, _run = make({"docker inspect": [inspect(), inspect(pid=300, restarts=1)]})
    found = supervisors.of(proc.add(100, DOCKER))
    assert "the container sglang has started it again (main process 300)" in supervisors.revives(found, {100})
