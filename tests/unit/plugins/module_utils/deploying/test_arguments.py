# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules of a deployment get what the tasks of the role give them."""

from __future__ import annotations

import copy

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.inferops.sglang.plugins.module_utils.deploying import arguments, steps
from ansible_collections.inferops.sglang.plugins.plugin_utils.deploy_settings import Variables
from ansible_collections.inferops.sglang.plugins.plugin_utils.patch_sources import fill_contents
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.deploying.role_variables import (
    OMIT,
    ansible_of,
    is_trusted_as_template,
    role_variables,
    role_yaml,
    template_of,
    trusted,
    unsafe,
)

# -- what the modules before have found

CHECKED = {
    "instance": "main",
    "gpus": ["GPU-1", "GPU-2"],
    "neighbours": [],
    "command": ["/usr/bin/python3", "-m", "sglang.launch_server", "--model-path", "{{ x }}"],
    "environment": {"CUDA_VISIBLE_DEVICES": "GPU-1", "HF_TOKEN": "********"},
    "container": {"engine": "", "image": ""},
    "files": {"tuned.json": "{}\n"},
    "patches": [],
    "requested": {"tp_size": 2},
    "effective": {"tp_size": 2, "speculative_algorithm": None},
    "adjusted": {"speculative_algorithm": "off"},
    "version": "0.5.17",
    "running": None,
    "unmanaged": None,
    "release": "",
}
RELEASE = {"id": "r2", "manager": "systemd", "previous_id": "r1", "last_good_id": "r1", "restart_needed": True}


def neighbour(**found):
    return {"instance": "other", "unit": None, "container": None, "session": None, **found}


FACTS = {
    "the first server": {},
    "its own server": {"running": {"pid": 5, "user": "sglang"}},
    "a server of somebody": {"running": {"pid": 5, "user": "sglang"}, "unmanaged": {"pid": 9, "user": "alice"}},
    "a server of nobody": {"running": {"pid": 5, "user": ""}, "unmanaged": {"pid": 9, "user": None}},
    "neighbours": {
        "neighbours": [
            neighbour(unit="sglang-other.service", session=77),
            neighbour(container="docker:abc"),
            neighbour(unit="sglang-{{ x }}.service"),
        ]
    },
    "a release by its name": {"release": "20260102T030405Z-1"},
}

# -- settings

FULL = {
    "sglang_instance": "second",
    "sglang_manager": "process",
    "sglang_state_dir": "/srv/state",
    "sglang_audit_path": "/srv/audit.jsonl",
    "sglang_user": "sglang",
    "sglang_working_directory": "/srv",
    "sglang_stop_timeout": 77,
    "sglang_stop_kill_timeout": 9,
    "sglang_stop_remove_leftovers": False,
    "sglang_drain_timeout": 12.5,
    "sglang_enabled": False,
    "sglang_python": "/opt/python",
    "sglang_launch": ["-m", "mine"],
    "sglang_model_path": "/models/a",
    "sglang_served_model_name": "a",
    "sglang_host": "0.0.0.0",
    "sglang_port": "{{ 31000 + 1 }}",
    "sglang_gpus": ["0", "1"],
    "sglang_expected_count": 8,
    "sglang_tp_size": 4,
    "sglang_pp_size": 2,
    "sglang_dp_size": 2,
    "sglang_max_running_requests": 64,
    "sglang_mem_fraction_static": 0.8,
    "sglang_extra_args": ["--dtype", "bfloat16"],
    "sglang_environment": {"HF_TOKEN": "hf_secret", "B": 2},
    "sglang_secret_args": {"admin-api-key": "k-2"},
    "sglang_api_key": "k-1",
    "sglang_parser": "skip",
    "sglang_ready_timeout": 60,
    "sglang_deploy_parser_timeout": 17,
    "sglang_deploy_request_timeout": 3,
    "sglang_progress_interval": 0,
    "sglang_min_accept_length": 1.5,
    "sglang_soak_requests": 0,
    "sglang_soak_concurrency": 2,
    "sglang_rank_zero": "a:30000",
    "sglang_unmanaged": "take_over",
    "sglang_release": "20260102",
    "sglang_keep_releases": 3,
    "sglang_spec_algorithm": "EAGLE3",
    "sglang_spec_num_steps": 3,
    "sglang_spec_eagle_topk": 1,
    "sglang_spec_num_draft_tokens": 4,
    "sglang_spec_draft_model_path": "/models/draft",
    "sglang_spec_token_map": "/models/map",
    "sglang_spec_accept_threshold_single": "{{ 0.5 + 0.25 }}",
    "gpu_free_nvml_timeout": 3,
    "gpu_free_reader": "nvml",
    "gpu_free_units": ["a.service"],
    "gpu_free_command_pattern": "^sglang",
    "gpu_free_attached": "any",
    "gpu_free_protect_users": ["p"],
    "gpu_free_protect_executables": ["/p"],
    "gpu_free_protect_units": ["p.service"],
    "gpu_free_protect_containers": ["docker:p"],
    "gpu_free_protect_sessions": [3],
    "gpu_free_grace": 1,
    "gpu_free_kill_timeout": 2,
    "gpu_free_stop_services": True,
    "gpu_free_service_timeout": 4,
    "gpu_free_stop_mps": True,
    "gpu_free_max_used_mib": 10,
    "gpu_free_max_used_fraction": 0.1,
    "gpu_free_baseline": {"GPU-1": 4},
    "gpu_free_ignore_recovery_action": True,
    "gpu_free_allow_users": ["y"],
    "gpu_free_allow_executables": ["/y"],
    "gpu_free_allow_units": ["y.service"],
    "gpu_free_allow_containers": ["docker:y"],
    "gpu_free_allow_mib": 5,
    "gpu_free_timeout": 6,
    "gpu_free_stable_for": 1,
    "gpu_free_interval": 0.5,
}
SETTINGS = {
    "nothing": {},
    "full": FULL,
    "others are ended": {"sglang_reclaim_users": ["old"], "sglang_reclaim_containers": ["docker:old"]},
    "only others are ended": {"sglang_reclaim_containers": ["docker:old"], "sglang_user": "sglang"},
    "a container": {"sglang_container": {"engine": "docker", "image": "sglang:1"}, "sglang_user": ""},
    "a profile": {
        "sglang_spec_profile": "mine",
        "sglang_spec_profiles": {"mine": {"algorithm": "EAGLE", "num_steps": 5, "max_running_requests": 7}},
        "sglang_environment": {"A": "b"},
    },
    "a profile without speculation": {"sglang_spec_profile": "baseline", "sglang_spec_num_steps": 3},
    "what the sweep says": {"sglang_deploy_default_algorithm": "EAGLE3", "sglang_spec_num_steps": 0},
    "another default that is not needed": {"sglang_deploy_default_algorithm": "X", "sglang_spec_algorithm": "none"},
    "empty texts": {"sglang_spec_algorithm": "", "sglang_spec_draft_model_path": "", "sglang_max_running_requests": ""},
    "nulls": {"sglang_spec_num_steps": None, "sglang_mem_fraction_static": None, "sglang_spec_token_map": None},
    "numbers in texts": {"sglang_port": "30001", "sglang_expected_count": "2", "gpu_free_max_used_mib": "12"},
    "routers": {"sglang_router_url": ["http://r:1"], "sglang_router_drain_timeout": 44},
    "a key alone": {"sglang_api_key": "k-1"},
}

# -- the tasks


def task_named(path, module):
    """The options of the only task of a file that calls a module, with its variables."""
    (task,) = [task for task in role_yaml(path) if "inferops.sglang." + module in task]
    return task["inferops.sglang." + module], task.get("vars", {})


def of_task(path, module):
    return lambda: task_named("sglang_deploy/tasks/" + path, module)


def of_stop():
    (include,) = role_yaml("sglang_deploy/tasks/stop")
    return task_named("sglang_stop/tasks/main", "sglang_process")[0], include["vars"]


def of_reclaim():
    return role_yaml("gpu_free/vars/main")["__gpu_free_reclaim_arguments"], free_variables()


def of_proof():
    return task_named("gpu_free/tasks/wait", "gpu_wait_free")[0], free_variables()


def free_variables():
    (include,) = role_yaml("sglang_deploy/tasks/free")
    return include["vars"]


# Each step, and where its task has its options.
STEPS = {
    "check": (steps.CHECK, of_task("preflight", "sglang_preflight")),
    "check_kept": (steps.CHECK_KEPT, of_task("rehearse_rollback_by_tasks", "sglang_preflight")),
    "write": (steps.WRITE, of_task("release", "sglang_release")),
    "go_back": (steps.GO_BACK, of_task("go_back_release", "sglang_release")),
    "remember": (steps.REMEMBER, of_task("proven", "sglang_release")),
    "stop": (steps.STOP, of_stop),
    "start": (steps.START, of_task("start", "sglang_process")),
    "wait": (steps.WAIT, of_task("wait", "sglang_wait_ready")),
    "plan": (steps.PLAN_RECLAIM, of_reclaim),
    "reclaim": (steps.RECLAIM, of_reclaim),
    "prove_free": (steps.PROVE_FREE, of_proof),
}


class _Specified(Exception):
    """The options of a module."""


def options_of(step):
    """The argument spec of a step's module."""

    def module_class(argument_spec, **_options):
        raise _Specified(argument_spec)

    with pytest.raises(_Specified) as found:
        step.load()(module_class)
    return found.value.args[0]


def read_as_options(step, given):
    """What the module has in the end: with defaults, and each value in its type."""
    result = ArgumentSpecValidator(options_of(step)).validate(copy.deepcopy(given))
    assert result.unsupported_parameters == set()
    errors = [error for error in result.error_messages if "model_path" not in error]
    assert errors == []
    return result.validated_parameters


def without_omitted(options):
    return {name: value for name, value in options.items() if value != OMIT}


def within_role(variables, facts):
    """All variables that are there when the tasks of a deployment run."""
    included = {}
    for _step, task in STEPS.values():
        included.update(task()[1])
    return {**role_variables(variables, ("gpu_free", "sglang_stop")), **facts, **included}


def facts_of(checked=None, release=None, ready=None):
    return {
        "sglang_deploy_checked": {"sglang": {**CHECKED, **(checked or {})}},
        "sglang_deploy_release": {"release": {**RELEASE, **(release or {})}, "files": []},
        "sglang_deploy_ready": {"proof": {"accept_length": 2.5}} if ready is None else ready,
    }


def settings_of(variables):
    """The settings as the action plugin hands them over."""
    found = role_variables(variables)
    return fill_contents(Variables(found, template_of(found), is_trusted_as_template).settings(), str)


def compare_all(names, variables, checked=None, release=None, ready=None):
    """What the deployment and the tasks give the modules of these steps, by step."""
    variables = {name: trusted(value) for name, value in variables.items()}
    facts = facts_of(checked, release, ready)
    ansible = ansible_of(within_role(variables, unsafe(facts)))
    settings = settings_of(variables)
    given, before = {}, copy.deepcopy((facts, settings))
    for name in names:
        step, task = STEPS[name]
        # As the action plugins of the modules do.
        theirs = fill_contents(without_omitted(ansible(task()[0])), str)
        ours = step.arguments(settings, facts)
        assert read_as_options(step, ours) == read_as_options(step, theirs), name
        given[name] = (ours, theirs)
    assert (facts, settings) == before
    return given


def compare(name, *given, **more):
    return compare_all([name], *given, **more)[name]


# Each, where not all steps have to do with the settings.
SOME = {
    "others are ended": ("reclaim", "plan"),
    "only others are ended": ("reclaim", "plan", "write"),
    "a container": ("check", "reclaim"),
    "a profile": ("check", "write"),
    "a profile without speculation": ("check",),
    "what the sweep says": ("check",),
    "another default that is not needed": ("check",),
    "empty texts": ("check",),
    "routers": ("stop", "wait"),
    "a key alone": ("check", "write", "stop", "wait"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_each_module_gets_what_its_task_gives_it(name):
    compare_all(SOME.get(name, STEPS), SETTINGS[name])


@pytest.mark.parametrize("checked", FACTS.values(), ids=FACTS)
def test_what_was_found_before_is_handed_on_in_the_same_way(checked):
    for variables in ({}, {"sglang_user": "sglang", "gpu_free_protect_units": ["p.service"]}):
        compare_all(("write", "go_back", "reclaim", "prove_free"), variables, checked)


@pytest.mark.parametrize("step", ["remember", "start", "wait"])
@pytest.mark.parametrize("manager", ["systemd", "process"])
def test_a_release_that_comes_back_keeps_its_manager(step, manager):
    ours, _theirs = compare(step, {"sglang_manager": "systemd"}, release={"manager": manager})
    assert ours["manager"] == manager


@pytest.mark.parametrize("ready", [{}, {"proof": {}}, {"proof": {"ready_after": 5.0, "phases": []}}])
def test_the_proof_is_handed_on(ready):
    compare("remember", {}, ready=ready)


@pytest.mark.parametrize("text", ["x = 1\n", ""], ids=["a text", "an empty file"])
def test_a_patch_reaches_the_release_with_its_text(tmp_path, text):
    """The preflight finds where it lies, and returns no text."""
    source = tmp_path / "a.py"
    source.write_text(text)
    given = {"src": str(source), "target": "sglang/a.py", "sha256_before": "0" * 64}
    found = {**given, "path": "/site-packages/sglang/a.py", "sha256_after": "1" * 64}
    for ours, _theirs in compare_all(("check", "write"), {"sglang_patches": [given]}, {"patches": [found]}).values():
        assert ours["patches"][0]["content"] == text


def test_both_name_the_same_options():
    """Both are wired option by option: one that is new to one of them must come to the other."""
    given = compare_all(STEPS, FULL, {"release": "r1"})
    differ = {name: set(ours) ^ set(theirs) for name, (ours, theirs) in given.items() if set(ours) != set(theirs)}
    # Who waits for further ranks is left to the tasks.
    assert differ == {"wait": {"peers"}}


@pytest.mark.parametrize("name", ["sglang_deploy_audit_path", "sglang_audit_path"])
def test_all_steps_record_in_the_same_place(name):
    recording = [step for step, (taken, _task) in STEPS.items() if "audit_path" in options_of(taken)]
    assert sorted(recording) == ["go_back", "plan", "reclaim", "remember", "start", "stop", "write"]
    settings = settings_of({name: "/srv/a.jsonl"})
    for step in recording:
        assert STEPS[step][0].arguments(settings, facts_of())["audit_path"] == "/srv/a.jsonl"


@pytest.mark.parametrize(
    ("variables", "checked", "expected"),
    [
        ({}, {}, ["root"]),
        ({"sglang_user": "sglang"}, {"running": {"user": "sglang"}}, ["sglang"]),
        ({"sglang_user": "b"}, {"running": {"user": "a"}, "unmanaged": {"user": "c"}}, ["b", "a", "c"]),
        ({"sglang_reclaim_users": ["x"]}, {"running": {"user": "a"}}, ["x"]),
        ({"sglang_reclaim_containers": ["docker:x"]}, {"running": {"user": "a"}}, []),
    ],
)
def test_whose_processes_are_ended(variables, checked, expected):
    assert compare("reclaim", variables, checked)[0]["users"] == expected


def test_secret_arguments_have_the_key():
    settings = {"secret_args": {"admin-api-key": "a"}, "api_key": "b"}
    assert arguments.secret_args(settings) == {"admin-api-key": "a", "api-key": "b"}
    assert arguments.secret_args({**settings, "api_key": ""}) == {"admin-api-key": "a"}
