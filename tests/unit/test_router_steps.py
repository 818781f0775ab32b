# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a restart leaves its routers and comes back, whatever becomes of it.

The role is the real one, on modules that only take note. Each host of one run of Ansible is a case.
"""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.tests.unit.role_runs import play

pytestmark = pytest.mark.long

MODULES = (
    *("sglang_preflight", "sglang_release", "sglang_process", "sglang_wait_ready", "sglang_router"),
    *("gpu_reclaim", "gpu_wait_free", "sglang_deploy", "note_failure"),
)

# In place of each module: takes note of its call, and fails where the case says so, at the Nth call or at each one.
NOTE = """
import json
import os

from ansible.plugins.action import ActionBase

CHECKED = {
    "sglang": {
        "instance": "main", "gpus": [], "neighbours": [], "command": ["python3"], "environment": {},
        "container": {}, "files": {}, "patches": [], "requested": {}, "effective": {}, "adjusted": {},
        "version": "0.5.17", "running": {"pid": 5, "user": "root"}, "unmanaged": None, "changes": [],
    },
}


def released(kept):
    release = {
        "id": "r2", "manager": "systemd", "restart_needed": not kept, "previous_id": "r1", "last_good_id": "r2"
    }
    return {"sglang_deploy_release": {"release": release, "files": []}}


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        case, folder = task_vars["inventory_hostname"], task_vars["case_dir"]
        name = self._task.action.rpartition(".")[2]
        kept = task_vars.get("kept", False)
        if name == "sglang_deploy":
            # As the real one: it leaves to tasks what routers have a say in.
            facts = {"sglang_deploy_unchanged": kept, "sglang_deploy_checked": CHECKED, **released(kept)}
            if not kept:
                facts["gpu_free_plan"] = {"processes": [], "blockers": []}
            return {"changed": False, "further": True, "token": "1", "of": "1", "facts": json.dumps(facts)}
        if name == "note_failure":
            with open(os.path.join(folder, case + ".failed"), "w") as failed:
                failed.write(self._task.args["msg"])
            return {"changed": False}
        word = "%s/%s%s" % (name, self._task.args.get("state", ""), "?" if self._task.check_mode else "")
        path = os.path.join(folder, case + ".calls")
        with open(path, "a+") as log:
            log.write(word + "\\n")
            log.seek(0)
            number = log.read().split().count(word)
        fails = task_vars.get("fails", ())
        if word in fails or word + str(number) in fails:
            return {"failed": True, "msg": word + " failed"}
        return {
            "changed": True,
            **CHECKED,
            **released(kept)["sglang_deploy_release"],
            "processes": [], "blockers": [], "elapsed": 0, "proof": {},
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
OUT, BACK, STOP, READY = (
    *("sglang_router/absent", "sglang_router/present"),
    *("sglang_process/stopped", "sglang_wait_ready/"),
)
ROUTERS = {"sglang_router_url": ["http://router:1"]}
# Few, as each task of each host costs a tenth of a second of a processor.
CASES = {
    "kept": {"kept": True},
    "router-fails-out": {"fails": [OUT]},
    "new-and-router-fail": {"fails": [READY + "1", BACK]},
    "router-fails-in": {"fails": [BACK], "sglang_router_delegate_to": "kept"},
}


class Told:
    """What became of one case: its calls outside of check mode, those of the rehearsal, and why it failed."""

    def __init__(self, folder, case):
        calls = (folder / (case + ".calls")).read_text().split()
        self.calls = [call for call in calls if not call.endswith("?")]
        self.rehearsed = [call for call in calls if call.endswith("?")]
        failed = folder / (case + ".failed")
        self.failed = failed.read_text() if failed.exists() else ""

    def order(self, *words):
        """Of these calls, those that were made, in order."""
        return [call for call in self.calls if call in words]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """All cases, told by one run."""
    folder = tmp_path_factory.mktemp("cases")
    hosts = {case: {**ROUTERS, **variables} for case, variables in CASES.items()}
    done = play(folder, PLAY, hosts, {}, dict.fromkeys(MODULES, NOTE))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return {case: Told(folder, case) for case in CASES}


def test_one_that_is_kept_is_only_put_back(told):
    assert told["kept"].order(OUT, STOP, READY, BACK) == [READY, BACK]
    assert OUT + "?" not in told["kept"].rehearsed and BACK + "?" in told["kept"].rehearsed


def test_a_router_that_fails_at_the_last_moment_stops_nothing(told):
    case = told["router-fails-out"]
    # What has left one of several comes back.
    assert case.calls == [OUT, BACK]
    assert "Nothing was stopped" in case.failed and OUT + " failed" in case.failed


def test_one_whose_configuration_fails_comes_back_with_the_old_one(told):
    case = told["new-and-router-fail"]
    assert case.order(OUT, STOP, READY, "sglang_release/restored", BACK) == [
        *(OUT, STOP, READY, STOP, "sglang_release/restored", READY, BACK),
    ]
    assert "serves again" in case.failed and "It gets no requests: " + BACK + " failed" in case.failed


def test_a_server_that_is_proven_is_not_stopped_because_of_a_router(told):
    case = told["router-fails-in"]
    # Another host asks the routers, so what they had is kept first, and not forgotten as it did not come back.
    calls = [call for call in case.calls if "router" in call or call in (STOP, READY, "sglang_release/proven")]
    assert calls == [
        *("sglang_router/", "sglang_router/remembered", OUT, STOP, READY, "sglang_release/proven"),
        *("sglang_router/remembered", BACK),
    ]
    assert case.rehearsed.count(OUT + "?") == 1
    assert "is live and proven, but not every router gives it requests." in case.failed
    assert BACK + " failed" in case.failed
