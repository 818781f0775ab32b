# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a deployment are what Ansible itself makes of the variables of the role."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.deploying.settings import NAMES, read_settings
from ansible_collections.inferops.sglang.plugins.plugin_utils.deploy_settings import OTHER_ROLES, Variables
from ansible_collections.inferops.sglang.plugins.plugin_utils.spec_profile import ProfileError
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.deploying.role_variables import (
    ansible_of,
    comparable,
    is_trusted_as_template,
    role_variables,
    role_yaml,
    template_of,
    trusted,
    unsafe,
)

# Those that have a variable of the role.
OWN = tuple(name for name in NAMES if name not in OTHER_ROLES and name != "measured")
MORE = ("profile", "profiles", "sweep_dir", "sweep_concurrency", "node_group", "gpu_host", "container_pull")
ROUTER = ("router_url", "router_drain_timeout")
MERGED = ("speculative", "max_running_requests", "mem_fraction_static", "extra_args", "environment")
# A value for each that is not its default.
EACH = {
    "instance": "second",
    "manager": "process",
    "state_dir": "/srv/state",
    "audit_path": "/srv/audit.jsonl",
    "user": "sglang",
    "working_directory": "/srv",
    "stop_timeout": 77,
    "enabled": False,
    "container": {"engine": "docker", "image": "sglang:1"},
    "container_pull": True,
    "python": "/opt/venv/bin/python",
    "launch": ["-m", "mine"],
    "model_path": "/models/a",
    "served_model_name": "a",
    "host": "0.0.0.0",
    "port": 31000,
    "gpus": ["0", "GPU-1"],
    "expected_count": 8,
    "tp_size": 4,
    "pp_size": 2,
    "dp_size": 2,
    "max_running_requests": 64,
    "mem_fraction_static": 0.8,
    "extra_args": ["--dtype", "bfloat16"],
    "environment": {"A": "1", "B": 2},
    "secret_args": {"admin-api-key": "k-2"},
    "api_key": "k-1",
    "patches": [{"src": "a.py", "target": "sglang/a.py", "sha256_before": "0" * 64}],
    "spec_profile": "mine",
    "spec_profiles": {"mine": {"num_steps": 3}},
    "sweep_dir": "/srv/sweep",
    "sweep_expected_concurrency": 12,
    "parser": "skip",
    "ready_timeout": 60,
    "progress_interval": 0,
    "min_accept_length": 1.5,
    "soak_requests": 0,
    "soak_concurrency": 2,
    "rank_zero": "a:30000",
    "node_group": "big",
    "dist_init_addr": "a:20000",
    "force_restart": True,
    "unmanaged": "take_over",
    "release": "20260102",
    "keep_releases": 3,
    "router_url": ["http://router:1"],
    "router_drain_timeout": 400,
    "gpu_host": "pve",
    "reclaim_users": ["old"],
    "reclaim_containers": ["lxc:7"],
    "drain_timeout": 12.5,
    "stop_kill_timeout": 9,
    "stop_remove_leftovers": False,
    "spec_algorithm": "EAGLE3",
    "spec_num_steps": 3,
    "spec_draft_model_path": "/models/draft",
}
EVERY = {"sglang_" + name: value for name, value in EACH.items()}
GPU_FREE = {
    "gpu_free_reader": "nvml",
    "gpu_free_nvml_timeout": 3,
    "gpu_free_reclaim": False,
    "gpu_free_units": ["a.service"],
    "gpu_free_attached": "any",
    "gpu_free_protect_users": ["x"],
    "gpu_free_grace": 1,
    "gpu_free_max_used_mib": 10,
    "gpu_free_baseline": {"GPU-1": 4},
    "gpu_free_allow_users": ["y"],
    "gpu_free_interval": 0.5,
}
SETS = {
    "nothing": {},
    "every": EVERY,
    "others": GPU_FREE,
    "direct": {"sglang_deploy_" + name: EACH[name] for name in ("port", "gpus", "api_key", "enabled", "rank_zero")},
    "direct over short": {"sglang_deploy_port": 1, "sglang_port": 2},
    "direct alias of another": {
        "sglang_deploy_port": "{{ my_port | default(5) }}",
        "my_port": "{{ base + 1 }}",
        "base": 7,
    },
    "direct speculation": {"sglang_deploy_speculative": {"algorithm": "EAGLE3"}, "sglang_spec_num_steps": 4},
    "templates": {
        "base": 30000,
        "folder": "/srv",
        "sglang_port": "{{ base + 1 }}",
        "sglang_state_dir": "{{ folder }}/state",
        "sglang_model_path": "{{ folder }}/models/{{ base }}",
        "sglang_gpus": "{{ range(2) | map('string') | list }}",
        "sglang_extra_args": ["--seed", "{{ base }}"],
        "sglang_environment": {"ROOT": "{{ folder }}"},
        "sglang_container": "{{ {'engine': 'docker', 'image': 'sglang:' ~ base} }}",
        "sglang_force_restart": "{{ base > 1 }}",
        "sglang_spec_num_steps": "{{ base - 29997 }}",
        "sglang_spec_algorithm": "{% if base > 1 %}EAGLE3{% else %}none{% endif %}",
        "sglang_user": "{# nobody #}",
        "gpu_free_grace": "{{ base / 1000 }}",
        "sglang_drain_timeout": "{{ base // 1000 }}",
    },
    "aliases of aliases": {
        "sglang_port": "{{ my_port | default(31000) }}",
        "sglang_host": "{{ my_host | default('0.0.0.0') }}",
        "my_host": "{{ other_host | default('::') }}",
        "sglang_user": "{{ my_user | default(nobody) }}",
        "nobody": "me",
        "sglang_model_path": "{{ my_model | default('/a') }}/x",
    },
    "more than an alias": {
        "sglang_gpus": "{{ my_gpus | default('0') | split(',') }}",
        "my_gpus": "2,3",
        "sglang_extra_args": "{{ my_args | default([]) + (more | default(['-x'])) }}",
        "my_args": ["--seed", "1"],
        "sglang_patches": "{{ my_patches | default([]) | union(others) }}",
        "my_patches": [],
        "others": [{"src": "b.py", "target": "sglang/b.py", "sha256_before": "1" * 64}],
        "sglang_launch": "{{ my_launch | default(['-m', 'a']) }}",
        "sglang_tp_size": "{{ my_size | default(1) * (2) }}",
        "my_size": 2,
    },
    "a default for what is empty": {
        "sglang_served_model_name": "{{ my_name | default('a', true) }}",
        "sglang_user": "{{ my_user | default('me', True) }}",
        "my_name": "",
        "sglang_port": "{{ my_port | default(31000, False) }}",
    },
    "a default with a backslash": {"sglang_model_path": "{{ my_model | default('C:\\\\n\\\\x') }}"},
    "a default with a number": {
        "sglang_port": "{{ my_port | default(0) }}",
        "sglang_tp_size": "{{ x | default(1_0) }}",
    },
    "a default with none": {
        "sglang_user": "{{ my_user | default(none) }}",
        "sglang_enabled": "{{ x | default(false) }}",
    },
    "a profile": {"sglang_spec_profile": "eagle3", "sglang_spec_draft_model_path": "/d", "sglang_spec_num_steps": 3},
    "a profile of one's own": {
        "sglang_spec_profile": "{{ 'mi' ~ 'ne' }}",
        "sglang_spec_profiles": {"mine": {"num_steps": "{{ 1 + 2 }}", "environment": {"A": "{{ 5 }}"}}},
        "sglang_environment": {"B": "x"},
    },
    "what begins like speculation": {"sglang_spec_profiler": "a", "sglang_spec_profiles": {}, "sglang_specs": "b"},
    "strings that look otherwise": {"sglang_port": "30001", "sglang_enabled": "no", "sglang_tp_size": "2"},
    "braces that are none": {"sglang_model_path": "/m/{a}", "sglang_api_key": "k-{x}%}", "sglang_user": "}}"},
}
NULLS = {"sglang_" + name: None for name in ("port", "gpus", "user", "container", "expected_count", "spec_num_steps")}


def both(given):
    """The variables of a host, and what Ansible makes of a template there."""
    variables = role_variables({name: trusted(value) for name, value in given.items()})
    ansible = ansible_of(variables)
    return Variables(variables, template_of(variables), is_trusted_as_template), ansible


@pytest.mark.parametrize("given", [*SETS.values(), NULLS], ids=[*SETS, "null"])
def test_each_variable_is_what_ansible_makes_of_it(given):
    found, ansible = both(given)
    names = (*OWN, *MORE, *ROUTER)
    theirs = ansible({name: "{{ sglang_deploy_%s }}" % name for name in names})
    assert comparable({name: found.of_role(name) for name in names}) == comparable(theirs)
    theirs = {
        name: ansible("{{ %s }}" % variable) if variable in given else default
        for name, (variable, default) in OTHER_ROLES.items()
    }
    assert comparable({name: found.of_other_role(name) for name in OTHER_ROLES}) == comparable(theirs)


@pytest.mark.parametrize("given", SETS.values(), ids=SETS)
def test_the_settings_are_what_the_tasks_of_the_role_have(given):
    # Hosts with these are left to the tasks, and there is no sweep here.
    left_out = ("sglang_sweep_dir", "sglang_node_group", "sglang_gpu_host", "sglang_container_pull")
    given = {name: value for name, value in given.items() if name not in left_out}
    found, ansible = both(given)
    settings = found.settings()
    assert set(settings) == set(NAMES)
    theirs = ansible(
        {
            "merged": "{{ __sglang_deploy_settings }}",
            "drain_timeout": role_yaml("sglang_deploy/tasks/stop")[0]["vars"]["sglang_stop_drain_timeout"],
        }
    )
    merged = {"measured": {}, **theirs["merged"]}
    assert comparable({name: settings[name] for name in (*MERGED, "measured")}) == comparable(
        {name: merged[name] for name in (*MERGED, "measured")}
    )
    assert comparable(settings["drain_timeout"]) == comparable(theirs["drain_timeout"])
    for name in OWN:
        if name not in MERGED:
            assert settings[name] == found.of_role(name)
    # What the host gets of it is what the host can read.
    assert set(read_settings(settings)) == set(NAMES)


@pytest.mark.parametrize(
    "given", [{"sglang_router_url": ["http://r:1"], "sglang_rank_zero": rank} for rank in ("", "a:1")]
)
def test_a_server_out_of_its_routers_has_the_time_that_these_give(given):
    found, ansible = both(given)
    theirs = ansible("{{ sglang_deploy_router_drain_timeout if __sglang_deploy_has_routers else 30 }}")
    assert comparable(found.settings()["drain_timeout"]) == comparable(theirs)
    assert found.has_routers() is ansible("{{ __sglang_deploy_has_routers }}")


UNTRUSTED = (
    "{{ base | default('x') }}",
    "{{ nothing_there | default('x') }}",
    "{{ base }}",
    "{% if x %}",
    "{{ __sglang_deploy_spec_variables }}",
)


@pytest.mark.parametrize("text", UNTRUSTED)
@pytest.mark.parametrize("name", ["sglang_api_key", "sglang_deploy_api_key"])
def test_a_text_that_is_no_template_stays_as_it_is(text, name):
    """As one that a host gave, or with !unsafe in the inventory."""
    variables = role_variables({name: unsafe(text), "base": 5})
    ansible = ansible_of(variables)
    assert ansible("{{ sglang_deploy_api_key }}") == text
    assert Variables(variables, template_of(variables), is_trusted_as_template).of_role("api_key") == text


@pytest.mark.parametrize("text", ["{{ nothing_there }}", "{{ nothing_there.x }}"])
def test_a_variable_that_leads_nowhere_is_as_ansible_has_it(text):
    """Its default counts."""
    found, ansible = both({"sglang_port": text})
    assert comparable(ansible("{{ sglang_deploy_port }}")) == comparable(30000)
    assert comparable(found.of_role("port")) == comparable(30000)


@pytest.mark.parametrize("name", ["gpus", "launch", "patches", "environment", "extra_args"])
def test_what_is_null_is_not_given(name):
    """The tasks take it so, and their modules have their defaults then."""
    found, _ansible = both({"sglang_" + name: None})
    assert not read_settings(found.settings())[name]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "sglang_" + name: st.one_of(
                st.booleans(),
                st.integers(-5, 10**6),
                st.floats(allow_nan=False, allow_infinity=False, width=16),
                st.text("ab{}%#'\" \n\\|", max_size=6),
                st.lists(st.text("ab-", max_size=3), max_size=2),
            )
            for name in ("port", "user", "model_path", "enabled", "extra_args", "drain_timeout")
        },
    )
)
def test_any_value_that_is_no_template_is_itself(values):
    values = {
        name: value
        for name, value in values.items()
        if not (isinstance(value, str) and any(brace in value for brace in ("{{", "{%", "{#")))
    }
    calls = []
    found = Variables(role_variables(values), lambda raw: calls.append(raw) or raw, is_trusted_as_template)
    for name in ("port", "user", "model_path", "enabled", "extra_args"):
        if "sglang_" + name in values:
            assert found.of_role(name) == values["sglang_" + name]
    assert all(isinstance(raw, list) or "__sglang_deploy_own_guest" in raw for raw in calls)


# -- what costs


def test_plain_values_cost_no_template():
    calls = []
    given = {
        "sglang_model_path": "/m",
        "sglang_port": 30001,
        "sglang_spec_algorithm": "EAGLE3",
        "sglang_gpus": [],
        "sglang_router_url": "",
    }

    def template(raw):
        calls.append(raw)
        return template_of(variables)(raw)

    variables = role_variables(given)
    found = Variables(variables, template, is_trusted_as_template)
    found.are_for_tasks("router_url")
    found.has_routers()
    found.settings()
    # The guest of a Proxmox host is no constant.
    assert calls == ["{{ sglang_reclaim_containers | default(__sglang_deploy_own_guest) }}"]


# -- the defaults of the other roles


def other_defaults():
    return {**role_yaml("gpu_free/defaults/main"), **role_yaml("sglang_stop/defaults/main")}


@pytest.mark.parametrize("name", OTHER_ROLES)
def test_the_defaults_are_those_of_the_other_roles(name):
    variable, default = OTHER_ROLES[name]
    defaults = other_defaults()
    ansible = ansible_of(defaults)
    if variable in defaults:
        theirs = ansible("{{ %s }}" % variable)
    else:
        aliases = [text for text in defaults.values() if isinstance(text, str) and "{{ %s |" % variable in text]
        assert aliases, variable
        (theirs,) = [ansible(alias) for alias in aliases]
    assert comparable(default) == comparable(theirs)


def test_every_variable_of_gpu_free_that_its_tasks_use_is_known_or_set():
    used = set(re.findall(r"\bgpu_free_\w+", str(role_yaml("gpu_free/vars/main")["__gpu_free_reclaim_arguments"])))
    (task,) = role_yaml("gpu_free/tasks/wait")
    used |= set(re.findall(r"\bgpu_free_\w+", str({key: task[key] for key in task if key != "register"})))
    used |= {"gpu_free_reclaim"}
    used &= set(role_yaml("gpu_free/defaults/main"))
    fixed = set(role_yaml("sglang_deploy/tasks/free")[0]["vars"])
    ours = {variable for variable, _default in OTHER_ROLES.values() if variable.startswith("gpu_free_")}
    # The deployment records where it says itself, like its other steps.
    assert used - fixed - {"gpu_free_audit_path"} == ours
    assert len(used) > 30


def test_every_variable_of_sglang_stop_is_known_or_set():
    (task,) = role_yaml("sglang_stop/tasks/main")
    used = set(re.findall(r"\bsglang_stop_\w+", str(task["inferops.sglang.sglang_process"])))
    fixed = set(role_yaml("sglang_deploy/tasks/stop")[0]["vars"])
    ours = {variable for variable, _default in OTHER_ROLES.values() if variable.startswith("sglang_stop_")}
    assert used - fixed - {"sglang_stop_audit_path"} == ours


# -- what they are together


@pytest.mark.parametrize(
    ("given", "more", "expected"),
    [
        ({}, (), False),
        ({"sglang_node_group": "big"}, (), True),
        ({"sglang_gpu_host": "pve"}, (), True),
        ({"sglang_container_pull": True}, (), True),
        ({"sglang_container_pull": "{{ 1 == 1 }}"}, (), True),
        ({"sglang_container_pull": "yes"}, (), True),
        ({"sglang_container_pull": "False"}, (), False),
        ({"sglang_container_pull": "no"}, (), False),
        ({"sglang_container_pull": 0}, (), False),
        ({"sglang_container_pull": "0"}, (), False),
        ({"sglang_node_group": "{{ '' }}"}, (), False),
        ({"sglang_node_group": "{{ 'b' ~ 'ig' }}"}, (), True),
        ({"sglang_router_url": ["http://r:1"]}, (), False),
        ({"sglang_router_url": ["http://r:1"]}, ("router_url",), True),
        ({"sglang_router_url": []}, ("router_url",), False),
    ],
)
def test_which_hosts_are_left_to_the_tasks_of_the_role(given, more, expected):
    assert both(given)[0].are_for_tasks(*more) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, False),
        ({"sglang_router_url": ["http://r:1"]}, True),
        ({"sglang_router_url": "http://r:1"}, True),
        ({"sglang_router_url": "{{ ['http://r:1'] }}"}, True),
        ({"sglang_router_url": ""}, False),
        ({"sglang_router_url": ["http://r:1"], "sglang_rank_zero": "a:30000"}, False),
    ],
)
def test_who_has_routers(given, expected):
    found, ansible = both(given)
    assert found.has_routers() is expected
    assert ansible("{{ __sglang_deploy_has_routers }}") is expected


def test_without_the_role_a_variable_is_not_there():
    with pytest.raises(KeyError):
        Variables({}, ansible_of({}), is_trusted_as_template).of_role("instance")


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"sglang_spec_profile": "eagle4"}, "there is no profile 'eagle4': did you mean eagle3?"),
        ({"sglang_spec_profile": "eagle3", "sglang_spec_algorithm": "NGRAM"}, "sglang_spec_algorithm is 'NGRAM'"),
        ({"sglang_spec_profile": "best", "sglang_sweep_dir": "/nowhere"}, "/nowhere"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(given, part):
    with pytest.raises(ProfileError) as error:
        both(given)[0].settings()
    assert part in str(error.value)
