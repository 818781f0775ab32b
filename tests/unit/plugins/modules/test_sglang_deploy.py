# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A deployment through the module's real main, with steps that answer by a script."""

from __future__ import annotations

import copy
import fcntl
import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from ansible_collections.inferops.sglang.plugins.module_utils.deploying import settings as known_settings
from ansible_collections.inferops.sglang.plugins.module_utils.deploying import steps
from ansible_collections.inferops.sglang.plugins.module_utils.modules import sglang_release
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.modules import sglang_deploy

# What each module returns, by its name and by whether it was called in check mode.
RELEASED = {"id": "r2", "manager": "systemd", "previous_id": "r1", "last_good_id": "r1", "restart_needed": True}
CHECKED = {
    **{name: [] for name in ("gpus", "neighbours", "patches")},
    **{name: {} for name in ("container", "files", "requested", "effective", "adjusted")},
    "instance": "main",
    "command": ["python3", "-m", "sglang.launch_server"],
    "environment": {"HF_TOKEN": "********"},
    "version": "0.5.17",
    "running": {"pid": 5, "user": "root"},
    "unmanaged": None,
}
ANSWERS = {
    "sglang_preflight": {"changed": False, "sglang": CHECKED, "diff": [{"before": "a", "after": "b"}]},
    "sglang_release": {"changed": True, "files": ["/etc/a"], "release": RELEASED, "diff": {"before": "", "after": "c"}},
    "sglang_process": {"changed": True, "processes": []},
    "sglang_wait_ready": {"changed": False, "proof": {"ready_after": 5.0}, "sglang": {"pid": 7}},
    "gpu_reclaim": {"changed": False, "processes": [], "blockers": []},
    "gpu_wait_free": {"changed": False, "free": True},
}
# As the role has them where nothing is set, for what the steps are put together of; the rest is for their modules.
SETTINGS = {
    **dict.fromkeys(known_settings.NAMES, ""),
    **{name: [] for name in known_settings._LISTS},
    **{name: {} for name in known_settings._DICTS},
    "instance": "main",
    "state_dir": "/var/lib/sglang",
    "audit_path": "/var/log/inferops/audit.jsonl",
    "manager": "systemd",
    "host": "127.0.0.1",
    "port": 30000,
    "stop_timeout": 120,
    "keep": 10,
    "rollback_to": "previous",
    "force_restart": False,
    "gpu_free_reclaim": True,
}
FAILED = {"failed": True, "msg": "It died.", "reason": "out_of_memory", "log_tail": ["CUDA out of memory"]}
WAITS = {"changed": False, "waiting": True, "progress": {"phase": "loading_weights"}, "resume": {"format": 1}}
REHEARSAL = ["sglang_preflight?", "sglang_release?", "sglang_wait_ready?", "gpu_reclaim?", "gpu_wait_free?"]
STOP_TO_START = ["sglang_process", "gpu_reclaim", "gpu_wait_free", "sglang_release", "sglang_process"]


class Deploy:
    """The module, whose steps answer by a script; what each of them was given."""

    def __init__(self, run_module, monkeypatch, tmp_path):
        self._run_module = run_module
        self.run_dir = tmp_path / "run"
        self.answers = copy.deepcopy(ANSWERS)
        self.given = []
        monkeypatch.setattr(steps, "run_module", self.step)
        monkeypatch.setattr(sglang_deploy, "somebody_listens", lambda: True)

    def step(self, name, main, arguments, check_mode):
        assert callable(main)
        self.given.append((name + "?" if check_mode else name, copy.deepcopy(arguments)))
        return copy.deepcopy(self.answers[name])

    @property
    def taken(self):
        return [name for name, _arguments in self.given]

    def settings(self, **changes):
        return {**SETTINGS, **changes}

    def run(self, phase="rehearse", settings=None, check=False, diff=False, **options):
        args = {"phase": phase, "run_dir": str(self.run_dir), "settings": self.settings(**(settings or {})), **options}
        return self._run_module(sglang_deploy, args, check=check, diff=diff)

    def replace(self, settings=None, known=None, **options):
        if known is None:
            known = {
                "sglang_deploy_checked": {"sglang": CHECKED},
                "sglang_deploy_release": {"release": RELEASED, "files": []},
                "sglang_deploy_rollback": False,
            }
        return self.run("replace", settings, known=known, **options)


@pytest.fixture
def deploy(run_module, monkeypatch, tmp_path):
    return Deploy(run_module, monkeypatch, tmp_path)


def facts_of(result):
    return json.loads(result["facts"])


# -- settings


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"phase": "stop"}, "phase"),
        ({"settings": {}}, "missing required arguments"),
        ({"settings": {"colour": "red"}}, "colour"),
    ],
)
def test_wrong_options_are_named(deploy, run_module, options, part):
    args = {"phase": "rehearse", "run_dir": str(deploy.run_dir), "settings": deploy.settings(), **options}
    code, result = run_module(sglang_deploy, args)
    assert code == 1 and part in result["msg"] and deploy.given == []


@pytest.mark.parametrize(("name", "value"), [("force_restart", "perhaps"), ("gpus", {"a": 1}), ("environment", [1])])
def test_a_setting_that_is_none_is_named_and_no_step_is_taken(deploy, name, value):
    for phase in ("rehearse", "replace"):
        code, result = deploy.run(phase, {name: value})
        assert code == 1 and name in result["msg"] and "sglang_deploy_*" in result["msg"]
        assert facts_of(result) == {"sglang_deploy_touched": False} and result["further"] is False
    assert deploy.given == []


# -- the two phases


def test_a_rehearsal(deploy):
    code, result = deploy.run(diff=True)
    assert (code, result["changed"], result["further"]) == (0, False, False)
    assert deploy.taken == [*REHEARSAL, "sglang_process?"]
    assert set(facts_of(result)) == {
        *("sglang_deploy_checked", "sglang_deploy_release", "gpu_free_plan", "gpu_free_proof"),
        *("sglang_deploy_rollback", "sglang_deploy_unchanged", "sglang_deploy_touched"),
    }
    assert facts_of(result)["sglang_deploy_checked"]["sglang"]["command"] == CHECKED["command"]
    assert result["diff"] == [{"before": "a", "after": "b"}]
    # It keeps nobody out.
    assert not deploy.run_dir.exists()
    assert "diff" not in deploy.run()[1]


def test_a_rehearsal_of_going_back(deploy):
    _code, result = deploy.run(rollback=True)
    assert deploy.given[0][1]["release"] == "previous" and deploy.given[1][1]["state"] == "restored"
    assert facts_of(result)["sglang_deploy_rollback"] is True


def test_a_replacement(deploy):
    code, result = deploy.replace(diff=True)
    assert (code, result["changed"], result["further"]) == (0, True, False)
    assert deploy.taken == [*STOP_TO_START, "sglang_wait_ready", "sglang_release"]
    assert [given.get("state") for _name, given in deploy.given if "state" in given] == [
        *("stopped", "present", "started", "proven"),
    ]
    assert facts_of(result)["sglang_deploy_touched"] is True
    assert result["diff"] == [{"before": "", "after": "c"}] * 2
    assert (deploy.run_dir / "main.deploying").exists()


def test_what_is_put_live_is_what_the_rehearsal_said(deploy):
    known = {
        "sglang_deploy_checked": {"sglang": {**CHECKED, "release": "r7"}},
        "sglang_deploy_rollback": True,
    }
    # The option of this name is one of the rehearsal.
    deploy.replace(known=known, rollback=False)
    (back,) = [given for _name, given in deploy.given if given.get("state") == "restored"]
    assert back["release"] == "r7"


def test_check_mode_touches_nothing_and_keeps_nobody_out(deploy):
    code, result = deploy.replace(check=True)
    assert code == 0 and all(name.endswith("?") for name in deploy.taken) and len(deploy.taken) == 7
    assert facts_of(result)["sglang_deploy_touched"] is False and not deploy.run_dir.exists()


def test_a_wait_in_parts(deploy):
    deploy.answers["sglang_wait_ready"] = WAITS
    code, first = deploy.replace(return_after=2)
    assert (code, first["waiting"], first["progress"]) == (0, True, {"phase": "loading_weights"})
    assert deploy.given[-1][1]["return_after"] == 2.0 and first["changed"] is True
    deploy.answers = copy.deepcopy(ANSWERS)
    deploy.given.clear()
    code, last = deploy.replace(return_after=2, resume=first["resume"])
    assert code == 0 and "waiting" not in last and deploy.taken == ["sglang_wait_ready", "sglang_release"]
    assert deploy.given[0][1]["resume"] == {"format": 1}


# -- failures


def test_a_step_that_fails(deploy):
    deploy.answers["sglang_wait_ready"] = FAILED
    code, result = deploy.replace()
    assert (code, result["msg"], result["step"]) == (1, "It died.", steps.WAIT.name)
    assert (result["reason"], result["log_tail"]) == ("out_of_memory", ["CUDA out of memory"])
    assert facts_of(result)["sglang_deploy_touched"] is True and "sglang_deploy_started" in facts_of(result)
    assert "sglang_deploy_proven" not in facts_of(result) and result["changed"] is True


def test_a_step_that_fails_without_reason_or_log(deploy):
    deploy.answers["sglang_preflight"] = {"failed": True, "msg": "No."}
    code, result = deploy.run()
    assert (code, result["reason"], result["log_tail"], result["step"]) == (1, "", [], steps.CHECK.name)


def test_the_traceback_of_a_step_is_handed_to_ansible(deploy, monkeypatch):
    """Which shows it where it is set to."""
    told = []
    fail = sglang_deploy.AnsibleModule.fail_json

    def fail_json(self, msg, **more):
        told.append(more.get("exception"))
        fail(self, msg, **more)

    monkeypatch.setattr(sglang_deploy.AnsibleModule, "fail_json", fail_json)
    deploy.answers["sglang_preflight"] = {"failed": True, "msg": "No.", "exception": "Traceback: s3cr3t-3"}
    assert deploy.run(settings=SECRETS)[0] == 1
    assert told == ["Traceback: ********"]


def test_where_nobody_listens_nothing_is_begun(deploy, monkeypatch):
    monkeypatch.setattr(sglang_deploy, "somebody_listens", lambda: len(deploy.given) < 2)
    code, result = deploy.replace()
    assert code == 1 and "Nobody waits" in result["msg"] and deploy.taken == STOP_TO_START[:2]
    assert result["step"] == steps.PROVE_FREE.name


HOLDER = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"


def test_a_second_call_is_refused_while_the_first_one_is_at_work(deploy):
    deploy.run_dir.mkdir()
    path = str(deploy.run_dir / "main.deploying")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        holder.stdout.readline()
        code, result = deploy.replace()
        assert code == 1 and path in result["msg"] and "wait for it to end" in result["msg"]
        # Nothing was touched by this one.
        assert facts_of(result) == {"sglang_deploy_touched": False} and deploy.given == []
        assert (result["changed"], result["further"]) == (False, False)
        # Looking, and waiting for what is started, disturb nobody, and neither does another instance.
        assert deploy.run()[0] == deploy.replace(check=True)[0] == 0
        assert deploy.replace(resume={"wait": {}, "facts": {}})[0] == 0
        assert deploy.replace({"instance": "second"})[0] == 0
        holder.stdin.close()
    assert deploy.replace()[0] == 0


def test_the_host_is_free_again_while_it_is_waited_for(deploy, monkeypatch):
    held = []

    def step(name, main, arguments, check_mode):
        with open(str(deploy.run_dir / "main.deploying")) as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                held.append(False)
            except BlockingIOError:
                held.append(True)
        return copy.deepcopy(ANSWERS[name])

    monkeypatch.setattr(steps, "run_module", step)
    assert deploy.replace()[0] == 0
    assert held == [True] * 5 + [False] * 2


def test_a_folder_that_cannot_be_written_is_named(deploy):
    deploy.run_dir.write_text("a file")
    code, result = deploy.replace()
    assert code == 1 and str(deploy.run_dir) in result["msg"] and "Run as root" in result["msg"]
    assert facts_of(result) == {"sglang_deploy_touched": False} and deploy.given == []


@pytest.mark.parametrize("name", ["../x", "", "a b"])
def test_an_instance_that_is_none_leads_nowhere(deploy, name):
    code, result = deploy.replace({"instance": name})
    assert code == 1 and "instance" in result["msg"] and deploy.given == []
    assert facts_of(result) == {"sglang_deploy_touched": False}


# -- secrets

SECRETS = {
    "environment": {"HF_TOKEN": "hf_s3cr3t-1", "A": "plain"},
    "secret_args": {"admin-api-key": "s3cr3t-2"},
    "api_key": "s3cr3t-3",
}
ALL = ["hf_s3cr3t-1", "s3cr3t-2", "s3cr3t-3"]


@pytest.mark.parametrize("phase", ["rehearse", "replace"])
def test_secrets_reach_the_modules_and_nobody_else(deploy, phase):
    for name, answer in deploy.answers.items():
        answer.update(said=["%s: %s" % (name, " ".join(ALL))], deep={"a": {"b": ALL}})
    deploy.answers["sglang_preflight"]["diff"] = [{"before": "", "after": " ".join(ALL)}]
    code, result = deploy.replace(SECRETS, diff=True) if phase == "replace" else deploy.run(settings=SECRETS, diff=True)
    assert code == 0 and "s3cr3t" not in json.dumps(result)
    wrote = next(given for _name, given in deploy.given if given.get("state") == "present")
    assert wrote["environment"]["HF_TOKEN"] == "hf_s3cr3t-1"
    assert wrote["secret_args"] == {"admin-api-key": "s3cr3t-2", "api-key": "s3cr3t-3"}


def test_secrets_do_not_show_in_failures_and_parts(deploy):
    text = "bad: " + " ".join(ALL)
    failure = {"failed": True, "msg": text, "reason": "x", "log_tail": [text], "exception": text}
    deploy.answers["sglang_wait_ready"] = failure
    code, result = deploy.replace(SECRETS)
    assert code == 1 and result["msg"].startswith("bad: ") and "s3cr3t" not in json.dumps(result)
    deploy.answers["sglang_wait_ready"] = {**WAITS, "progress": {"phase": text}, "resume": {"a": text}}
    code, result = deploy.replace(SECRETS)
    assert code == 0 and result["waiting"] is True and "s3cr3t" not in json.dumps(result)


def test_what_is_no_secret_stays(deploy):
    deploy.answers["sglang_preflight"]["sglang"]["model"] = "a plain model"
    _code, result = deploy.run(settings=SECRETS)
    assert facts_of(result)["sglang_deploy_checked"]["sglang"]["model"] == "a plain model"


@pytest.mark.parametrize(
    "secret", ["1", "true", "false", "null", '"', ":", "{", "\\", "s", "r2", "sglang_deploy_touched"]
)
@pytest.mark.parametrize("where", ["api_key", "secret_args"])
def test_a_secret_that_is_part_of_everything_leaves_facts_that_can_be_read(deploy, secret, where):
    settings = {where: secret if where == "api_key" else {"admin-api-key": secret}}
    for code, result in (deploy.run(settings=settings), deploy.replace(settings)):
        assert code == 0
        assert "sglang_deploy_touched" in facts_of(result)


def test_the_settings_do_not_come_back(deploy):
    code, result = deploy.run(settings={"served_model_name": "a-name-of-its-own"})
    # From ansible-core 2.22 on, none come back.
    shown = result.get("invocation", {}).get("module_args", {})
    assert code == 0 and set(shown) <= {"phase", "rollback", "return_after"}
    assert "a-name-of-its-own" not in json.dumps(result)


def test_ansible_does_not_log_settings_on_the_host(deploy, monkeypatch):
    logged = []
    monkeypatch.setattr(
        sglang_deploy.AnsibleModule, "log", lambda self, msg, log_args=None: logged.append((msg, log_args))
    )
    deploy.run(settings={**SECRETS, "model_path": "/a-path"})
    assert logged and "s3cr3t" not in str(logged) and "/a-path" not in str(logged)


# -- a real module within


def test_a_real_step_works_in_it(run_module, monkeypatch, tmp_path):
    """The others stand in, as they need GPUs and a server."""
    real = steps.run_module
    written = []
    folders = {name: str(tmp_path / name) for name in ("state_dir", "etc_dir", "unit_dir")}

    def step(name, main, arguments, check_mode):
        if name != "sglang_release":
            return copy.deepcopy(ANSWERS[name])
        assert main is sglang_release.main
        # A secret in a result is blanked, and the warnings of a step are the module's.
        result = real(name, main, {**arguments, **folders, "manager": "process", "audit_path": "/x"}, check_mode)
        written.append((check_mode, result))
        return result

    deploy = Deploy(run_module, monkeypatch, tmp_path)
    monkeypatch.setattr(steps, "run_module", step)
    code, result = deploy.run(settings=SECRETS)
    assert code == 0 and not os.path.exists(folders["state_dir"]), result
    assert facts_of(result)["sglang_deploy_release"]["release"]["restart_needed"] is True
    code, result = deploy.replace(SECRETS, known={"sglang_deploy_checked": facts_of(result)["sglang_deploy_checked"]})
    assert code == 0, result
    assert [check for check, _result in written] == [True, False, False]
    assert InstancePaths("main", **folders).last_good_link.exists()
    assert "s3cr3t" not in json.dumps(result)


# -- what is documented


def test_every_returned_key_is_documented(deploy):
    documented = yaml.safe_load(sglang_deploy.RETURN)
    results = [deploy.run(diff=True)[1], deploy.replace(diff=True)[1]]
    deploy.answers["sglang_wait_ready"] = WAITS
    results.append(deploy.replace()[1])
    deploy.answers["sglang_wait_ready"] = FAILED
    results.append(deploy.replace()[1])
    results.append(deploy.run(settings={"gpus": {"a": 1}})[1])
    common = {"changed", "diff", "invocation", "warnings", "deprecations", "failed", "msg", "exception"}
    returned = set().union(*results) - common
    # The action plugin adds these.
    assert returned | {"token", "of"} == set(documented)
    for result in results:
        assert {"facts", "further"} <= set(result)


def test_every_option_is_documented(monkeypatch):
    taken = []

    def module(argument_spec, **_options):
        taken.append(argument_spec)
        raise KeyboardInterrupt

    monkeypatch.setattr(sglang_deploy, "AnsibleModule", module)
    with pytest.raises(KeyboardInterrupt):
        sglang_deploy.main()
    documented = yaml.safe_load(sglang_deploy.DOCUMENTATION)["options"]
    assert set(documented) == set(taken[0])
    for name, option in documented.items():
        for key in ("type", "default", "choices", "required"):
            assert option.get(key) == taken[0][name].get(key), (name, key)


def test_the_modules_that_are_named_are_those_that_are_run(deploy):
    """In their order, as the documentation of both phases has them."""
    text = "\n".join(yaml.safe_load(sglang_deploy.DOCUMENTATION)["description"])
    lines = {
        phase: line
        for line in text.splitlines()
        for phase in ("rehearse", "replace")
        if "With O(phase=%s)" % phase in line
    }
    deploy.run()
    rehearsed = [name.strip("?") for name in deploy.taken]
    deploy.given.clear()
    deploy.replace()
    for phase, taken in (("rehearse", rehearsed), ("replace", deploy.taken)):
        assert re.findall(r"M\(inferops\.sglang\.(\w+)\)", lines[phase]) == taken
