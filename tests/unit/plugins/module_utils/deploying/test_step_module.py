# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that is run within another one does what it does as a task, and never ends the process."""

from __future__ import annotations

import copy
import sys

import pytest
from ansible.module_utils import basic
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.deploying import step_module
from ansible_collections.inferops.sglang.plugins.module_utils.modules import sglang_release

SPEC = {
    "number": {"type": "int", "default": 3},
    "words": {"type": "list", "elements": "str", "default": []},
    "inner": {"type": "dict", "default": {}},
    "key": {"type": "str", "no_log": True},
}


@pytest.fixture(autouse=True)
def around(monkeypatch, tmp_path):
    """The module around it: what Ansible told it, and what it warned of."""
    internal = {"_ansible_check_mode": False, "_ansible_diff": True, "_ansible_remote_tmp": str(tmp_path), "phase": "x"}
    monkeypatch.setattr(basic, "_load_params", lambda: copy.deepcopy(internal))
    return internal


def run(act, arguments=None, check_mode=False, spec=None, **options):
    """Run a module that does act."""

    def main(module_class=AnsibleModule):
        act(module_class(argument_spec=spec or SPEC, supports_check_mode=True, **options))

    return step_module.run_module("sglang_test", main, arguments or {}, check_mode)


def test_a_result_has_what_the_module_says_and_nothing_else():
    result = run(lambda module: module.exit_json(changed=True, number=module.params["number"] + 1), {"number": "4"})
    assert result == {"changed": True, "number": 5}


def test_defaults_are_those_of_the_module():
    result = run(lambda module: module.exit_json(params=dict(module.params)), {"words": "a,b"})
    assert result["params"] == {"number": 3, "words": ["a", "b"], "inner": {}, "key": None}


def test_a_failure_is_a_result():
    result = run(lambda module: module.fail_json(msg="It broke.", reason="x", changed=True))
    assert result == {"failed": True, "msg": "It broke.", "reason": "x", "changed": True}


def test_an_exception_given_to_a_failure_stays_in_it():
    result = run(lambda module: module.fail_json(msg="no library", exception="Traceback: ..."))
    assert (result["failed"], result["exception"]) == (True, "Traceback: ...")


def test_options_that_are_none_are_a_failure():
    for arguments, part in (({"number": "many"}, "number"), ({"colour": 1}, "colour")):
        result = run(lambda module: module.exit_json(), arguments)
        assert result["failed"] is True and part in result["msg"]


def test_secrets_are_blanked_out_of_results_and_failures():
    for end in (lambda module: module.exit_json, lambda module: module.fail_json):
        result = run(
            lambda module, end=end: end(module)(msg="with k-1234567", deep=[{"a": "k-1234567"}]), {"key": "k-1234567"}
        )
        assert "k-1234567" not in str(result) and "with ****" in result["msg"]


def test_what_a_module_blanks_is_not_blanked_in_the_next():
    run(lambda module: module.exit_json(), {"key": "k-1234567"})
    assert run(lambda module: module.exit_json(said="k-1234567")) == {"said": "k-1234567"}


@pytest.mark.parametrize("error", [ValueError("a b"), KeyError("a b"), OSError(2, "a b"), AssertionError("a b")])
def test_an_error_of_the_module_itself_is_a_failure_with_its_traceback(error):
    def act(_module):
        raise error

    result = run(act)
    assert result["failed"] is True
    assert result["msg"].startswith("sglang_test ended by an error in itself: %s: " % type(error).__name__)
    assert "a b" in result["msg"]
    assert result["exception"].startswith("Traceback") and "in act" in result["exception"]


def test_a_module_that_ends_without_a_result():
    assert run(lambda module: None) == {"failed": True, "msg": "sglang_test ended without a result."}


def test_nothing_that_a_module_does_about_errors_holds_its_end_up():
    def act(module):
        try:
            module.exit_json(changed=False)
        except Exception:
            module.fail_json(msg="caught")

    assert run(act) == {"changed": False}


def test_cleaning_up_is_done_before_the_end():
    done = []

    def act(module):
        try:
            module.exit_json(changed=False)
        finally:
            done.append("closed")

    run(act)
    assert done == ["closed"]


def test_files_that_were_to_be_removed_are(tmp_path):
    path = tmp_path / "a"
    path.touch()

    def act(module):
        module.add_cleanup_file(str(path))
        module.exit_json()

    run(act)
    assert not path.exists()


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("diff", [False, True])
def test_check_mode_is_the_steps_and_diff_mode_is_the_deployments(around, check_mode, diff):
    around["_ansible_diff"] = diff
    around["_ansible_check_mode"] = not check_mode
    result = run(lambda module: module.exit_json(check=module.check_mode, diff=module._diff), check_mode=check_mode)
    assert result == {"check": check_mode, "diff": diff}


def test_a_module_logs_under_its_own_name():
    assert run(lambda module: module.exit_json(name=module._name)) == {"name": "sglang_test"}


def test_the_arguments_of_the_module_around_are_none_of_it():
    assert "phase" not in run(lambda module: module.exit_json(params=dict(module.params)))["params"]


def test_arguments_are_not_changed_in_place():
    arguments = {"number": "4", "words": ["a"], "inner": {"a": [1]}}
    before = copy.deepcopy(arguments)

    def act(module):
        module.params["words"].append("b")
        module.params["inner"]["a"].append(2)
        module.exit_json()

    run(act, arguments)
    assert arguments == before


def test_one_module_after_the_other():
    results = [run(lambda module: module.exit_json(n=module.params["number"]), {"number": n}) for n in range(3)]
    results.append(run(lambda module: module.fail_json(msg="no")))
    results.append(run(lambda module: module.exit_json(n=module.params["number"])))
    assert results == [{"n": 0}, {"n": 1}, {"n": 2}, {"failed": True, "msg": "no"}, {"n": 3}]


def test_warnings_are_those_of_the_module_around(around, run_module):
    """It says them in its own result."""
    del around["phase"]

    class Around:
        @staticmethod
        def main():
            module = AnsibleModule(argument_spec={})
            run(lambda inner: (inner.warn("Look out."), inner.exit_json(changed=False)))
            module.exit_json(changed=False)

    _code, result = run_module(Around, {})
    assert "Look out." in str(result["warnings"])


def test_a_real_module_of_the_collection(tmp_path):
    folders = {name: str(tmp_path / name) for name in ("state_dir", "etc_dir", "unit_dir")}
    arguments = {**folders, "state": "inspected", "environment": {"HF_TOKEN": "hf_secret", "A": "1"}}
    result = step_module.run_module("sglang_release", sglang_release.main, arguments, True)
    assert (result["changed"], result["releases"]) == (False, [])
    result = step_module.run_module("sglang_release", sglang_release.main, {**arguments, "state": "restored"}, True)
    assert result["failed"] is True and "no proven release of main" in result["msg"]


def test_the_process_goes_on_and_nothing_is_written(capfd):
    assert run(lambda module: module.exit_json(changed=False)) == {"changed": False}
    assert run(lambda module: module.fail_json(msg="no"))["failed"] is True
    assert capfd.readouterr() == ("", "") and sys.exc_info() == (None, None, None)
