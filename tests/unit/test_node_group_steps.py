# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which order the hosts of one server are stopped and started, and that they go back together.

The role is the real one, on modules that only take note. Each two hosts of one run of Ansible are a case.
"""

from __future__ import annotations

import pathlib

import pytest
import yaml

from ansible_collections.inferops.sglang.tests.unit.role_runs import play

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = (
    *("sglang_preflight", "sglang_release", "sglang_process", "sglang_wait_ready"),
    *("sglang_router", "gpu_reclaim", "gpu_wait_free", "note_failure"),
)

# In place of each module: takes note of its call, and fails where the case says so, at the Nth call of the host.
NOTE = """
import fcntl
import os

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        host, group = task_vars["inventory_hostname"], task_vars["sglang_node_group"]
        name = self._task.action.rpartition(".")[2]
        args = self._task.args
        if name == "note_failure":
            with open(os.path.join(task_vars["case_dir"], host + ".failed"), "w") as failed:
                failed.write(args["msg"])
            return {"changed": False}
        word = "%s/%s%s" % (name, args.get("state", ""), "?" if self._task.check_mode else "")
        told = word
        if word == "sglang_release/restored":
            told += "=" + args["release"]
        if word == "sglang_release/proven":
            told += "=" + "+".join(args["proof"]["ranks"])
        if word == "sglang_wait_ready/":
            told += "=" + ",".join([str(args["soak_requests"]), args.get("rank_zero", ""), args["peers"].split()[1]])
        with open(os.path.join(task_vars["case_dir"], group), "a+") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            log.write("%s %s\\n" % (host[-1], told))
            log.seek(0)
            mine = [line[2:].strip().partition("=")[0] for line in log if line[0] == host[-1]]
        fails = task_vars.get("fails", ())
        if word + str(mine.count(word)) in fails:
            return {"failed": True, "msg": word + " failed"}
        if "lost " + word + str(mine.count(word)) in fails:
            raise AnsibleConnectionFailure("it is dark")
        rank = host[-1]
        asked = {"nnodes": 2, "node_rank": int(rank), "dist_init_addr": "old:20000", "host": "0.0.0.0", "port": 31000}
        before = {"id": "old-" + rank, "proven": True, "ranks": ["old-0", "old-1"], "requested": asked}
        return {
            "changed": True,
            "sglang": {
                "instance": "main", "gpus": [], "neighbours": [], "command": ["python3"], "environment": {},
                "container": {}, "files": {}, "patches": [], "requested": {}, "effective": {}, "adjusted": {},
                "version": "0.5.17", "running": {"pid": 5, "user": "root"}, "unmanaged": None, "changes": [],
            },
            "release": {
                "id": "new-" + rank, "manager": "systemd", "restart_needed": rank not in task_vars.get("kept", ""),
                "previous_id": "old-" + rank, "last_good_id": "old-" + rank,
            },
            "releases": [before], "files": [], "processes": [], "blockers": [], "elapsed": 0, "proof": {},
            "record": {"http://router:1": {}}, "worker_url": "http://10.0.0.5:30000",
        }
"""
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - block:
        - ansible.builtin.include_role:
            name: inferops.sglang.sglang_deploy
            tasks_from: rehearse
            rolespec_validate: false
        - ansible.builtin.include_role:
            name: inferops.sglang.sglang_deploy
            tasks_from: replace
            rolespec_validate: false
        - ansible.builtin.include_role:
            name: inferops.sglang.sglang_deploy
            tasks_from: verdict
            rolespec_validate: false
      rescue:
        - inferops.sglang.note_failure:
            msg: "{{ ansible_failed_result.msg }}"
"""
STOP, FREE, WRITE, START, WAIT = (
    *("sglang_process/stopped", "gpu_wait_free/", "sglang_release/present", "sglang_process/started"),
    "sglang_wait_ready/",
)
ROUTERS = {"sglang_router_url": ["http://router:1"]}
# What fails on each rank. Few, as each task of each host costs a tenth of a second of a processor.
CASES = {
    "one-is-not-right": ({"kept": "01", "fails": [WAIT + "1"], **ROUTERS}, {"kept": "01", **ROUTERS}),
    "busy-and-lost": ({"fails": ["lost sglang_release/restored1"]}, {"fails": [FREE + "1"]}),
}


class Told:
    """What became of one case: the calls of both ranks outside of check mode, and why each host failed."""

    def __init__(self, folder, case):
        lines = [line.split() for line in (folder / case).read_text().splitlines()]
        self.calls = [(rank, call) for rank, call in lines if not call.endswith("?")]
        self.failed = []
        for rank in "01":
            failed = folder / ("%s-%s.failed" % (case, rank))
            self.failed.append(failed.read_text() if failed.exists() else "")

    def of(self, *words):
        """The ranks that made one of these calls, in order, with what was called."""
        return [rank + " " + call for rank, call in self.calls if call.partition("=")[0] in words]

    def place(self, *words):
        """Where among all calls these are."""
        return [number for number, (_rank, call) in enumerate(self.calls) if call.partition("=")[0] in words]


# On hosts: the scenario multi_node.
pytestmark = pytest.mark.also_on_hosts


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """All cases, told by one run."""
    folder = tmp_path_factory.mktemp("cases")
    hosts = {
        "%s-%d" % (case, rank): {"sglang_node_group": case, **variables}
        for case, ranks in CASES.items()
        for rank, variables in enumerate(ranks)
    }
    shared = {"sglang_host": "0.0.0.0"}
    done = play(folder, PLAY, hosts, shared, dict.fromkeys(MODULES, NOTE), real=["sglang_nodes", "sglang_deploy"])
    # One host gets lost.
    assert done.returncode == 4, done.stdout[-3000:] + done.stderr[-3000:]
    return {case: Told(folder, case) for case in CASES}


def test_one_that_is_not_right_has_all_restarted_rank_zero_first(told):
    case = told["one-is-not-right"]
    assert case.of(STOP) == ["0 " + STOP, "1 " + STOP]
    # Nobody starts before the GPUs of all are free, and nobody's release is written before.
    assert max(case.place(FREE)) < min(case.place(WRITE)) < max(case.place(WRITE)) < min(case.place(START))
    # Nobody counts as proven before all are.
    assert max(case.place(WAIT)) < min(case.place("sglang_release/proven"))
    assert sorted(case.of("sglang_release/proven")) == ["%s sglang_release/proven=new-0+new-1" % rank for rank in "01"]


def test_only_rank_zero_is_known_to_routers(told):
    case = told["one-is-not-right"]
    out, back = "sglang_router/absent", "sglang_router/present"
    assert case.of(out, back) == ["0 " + out, "0 " + back]
    assert case.place(out)[0] < min(case.place(STOP)) and max(case.place("sglang_release/proven")) < case.place(back)[0]


def test_only_rank_zero_is_put_under_load_and_the_others_ask_it(told):
    waits = sorted(told["one-is-not-right"].of(WAIT))
    there = "one-is-not-right-0:30000"
    assert waits == [
        *("0 %s=128,,kept" % WAIT, "0 %s=128,,new" % WAIT),
        *("1 %s=0,%s,kept" % (WAIT, there), "1 %s=0,%s,new" % (WAIT, there)),
    ]


def test_one_whose_gpus_stay_busy_keeps_all_from_starting_and_all_go_back(told):
    case = told["busy-and-lost"]
    assert case.of(WRITE) == []
    assert [call[0] for call in case.of(STOP)] == ["0", "1", "0", "1"]
    assert sorted(case.of("sglang_release/restored")) == [
        "%s sglang_release/restored=old-%s" % (rank, rank) for rank in "01"
    ]
    story = case.failed[1]
    assert '"Prove that the GPUs are free" failed: gpu_wait_free/ failed' in story


def test_one_that_is_lost_keeps_the_others_from_starting_a_part_of_a_server(told):
    case = told["busy-and-lost"]
    assert case.of(START) == []
    story = case.failed[1]
    assert "busy-and-lost-0 cannot be reached" in story and "Nothing that is proven serves now" in story
    # Who leaves it out has to leave out all of its server.
    (other,) = set(told["one-is-not-right"].failed)
    assert "--limit 'all:!busy-and-lost-0:!busy-and-lost-1'" in other


def test_the_name_of_the_barrier_is_the_one_that_is_looked_for():
    """By it a rank that failed because of others is told from one that failed itself."""
    known = yaml.safe_load((ROOT / "roles/sglang_deploy/vars/main.yml").read_text())["__sglang_deploy_barrier"]
    tasks = yaml.safe_load((ROOT / "roles/sglang_deploy/tasks/together.yml").read_text())
    assert [task["name"] for task in tasks if "ansible.builtin.fail" in task] == [known]


@pytest.mark.parametrize(
    ("file", "included", "when"),
    [
        ("rehearse_change.yml", "keep_together.yml", "sglang_deploy_node_group != ''"),
        (
            *("replace_by_tasks.yml", "replace_together.yml"),
            "sglang_deploy_node_group != '' and not sglang_deploy_unchanged",
        ),
    ],
)
def test_what_is_skipped_for_other_servers_does_not_replace_what_ranks_have_found(file, included, when):
    """A task that is skipped registers so: the tasks for servers of one host must be over by then."""
    tasks = yaml.safe_load((ROOT / "roles/sglang_deploy/tasks" / file).read_text())
    conditions = [str(task.get("when", "")) for task in tasks]
    (place,) = [number for number, task in enumerate(tasks) if task.get("ansible.builtin.include_tasks") == included]
    (other,) = [number for number, text in enumerate(conditions) if "sglang_deploy_node_group == ''" in text]
    assert other < place and conditions[place] == when
