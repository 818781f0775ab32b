# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import options
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuError
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.protection import Allowance
from ansible_collections.inferops.sglang.plugins.module_utils.gpu.users import user_ids

KNOWN = {"llm": 1000, "root": 0, "4000": 7}


def test_names_and_numbers():
    assert user_ids("users", ["llm", "0", "1234"], KNOWN.__getitem__) == {1000, 0, 1234}


def test_a_name_of_digits_is_a_name_first():
    assert user_ids("users", ["4000"], KNOWN.__getitem__) == {7}


@pytest.mark.parametrize("name", ["lmm", "", "-1", "1.5", "²"])
def test_a_name_of_nobody_is_an_error(name):
    with pytest.raises(GpuError) as stop:
        user_ids("protect_users", ["llm", name], KNOWN.__getitem__)
    assert "protect_users" in str(stop.value)
    assert repr(name) in str(stop.value)


def test_the_hosts_own_users():
    assert user_ids("users", ["root"]) == {0}


def defaults(spec, **changes):
    return {**{name: entry.get("default") for name, entry in spec.items()}, **changes}


CHECKS = [
    (options.check_selection, options.selection_spec),
    (options.check_free, options.free_spec),
    (options.check_reclaim, options.reclaim_spec),
    (options.check_wait, options.wait_spec),
    (options.check_allow, options.allow_spec),
]


@pytest.mark.parametrize(("check", "spec"), CHECKS)
def test_the_defaults_are_good(check, spec):
    check(defaults(spec()))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("check", "spec", "option", "values"),
    [
        (*CHECKS[0], "nvml_timeout", [0.0, -1.0, NAN, INF]),
        (*CHECKS[0], "expected_count", [0, -8]),
        (*CHECKS[0], "gpus", [[""], ["0", "  "]]),
        (*CHECKS[1], "max_used_mib", [-1]),
        (*CHECKS[1], "max_used_fraction", [-0.1, 1.0, 7.0, NAN, INF]),
        (*CHECKS[2], "service_timeout", [0.0, -1.0, NAN]),
        (*CHECKS[2], "command_pattern", ["(", "*x"]),
        (*CHECKS[2], "units", [[""], ["a", " "]]),
        (*CHECKS[2], "containers", [["docker:"]]),
        (*CHECKS[2], "protect_units", [[""]]),
        (*CHECKS[2], "protect_containers", [[""]]),
        (*CHECKS[4], "allow_units", [[""]]),
        (*CHECKS[4], "allow_containers", [["lxc:"]]),
        (*CHECKS[2], "grace", [-0.1, NAN, INF]),
        (*CHECKS[2], "kill_timeout", [0.0, -1.0, NAN, INF]),
        (*CHECKS[2], "protect_executables", [[""], ["bin/x"], ["/opt/"]]),
        (*CHECKS[3], "timeout", [0.0, -1.0, NAN, INF]),
        (*CHECKS[3], "stable_for", [-1.0, 120.0, 121.0, NAN, INF]),
        (*CHECKS[3], "interval", [0.0, 0.009, -1.0, 2.1, NAN]),
        (*CHECKS[3], "allow_mib", [-1]),
        (*CHECKS[4], "allow_executables", [["./x"]]),
    ],
)
def test_bad_values_name_the_option_and_the_value(check, spec, option, values):
    for value in values:
        with pytest.raises(GpuError) as stop:
            check(defaults(spec(), **{option: value}))
        assert stop.value.failure.code == "option"
        assert str(stop.value).startswith(option + ": ")
        shown = value[-1] if isinstance(value, list) else value
        assert repr(shown) in str(stop.value)
        assert stop.value.failure.remedy


@pytest.mark.parametrize(
    ("check", "spec", "changes"),
    [
        (*CHECKS[2], {"grace": 0.0}),
        (*CHECKS[1], {"max_used_mib": 0}),
        (*CHECKS[3], {"stable_for": 0.0, "interval": 120.0}),
        (*CHECKS[3], {"interval": 2.0}),
        (*CHECKS[3], {"interval": 0.01}),
        (*CHECKS[2], {"protect_executables": ["x", "/opt/x"]}),
    ],
)
def test_values_at_the_edge_are_good(check, spec, changes):
    check(defaults(spec(), **changes))


@pytest.mark.parametrize(
    ("baseline", "shown"), [({"0": 100}, "'0'"), ({"GPU-1": "many"}, "'many'"), ({"GPU-1": -4}, "-4")]
)
def test_a_bad_baseline(baseline, shown):
    with pytest.raises(GpuError) as stop:
        options.check_free(defaults(options.free_spec(), baseline=baseline))
    assert str(stop.value).startswith("baseline: ")
    assert shown in str(stop.value)


def test_a_baseline_must_tell_of_each_selected_gpu():
    params = defaults(options.free_spec(), baseline={"GPU-1": 100})
    options.check_baseline(params, frozenset(["GPU-1"]))
    options.check_baseline(defaults(options.free_spec()), frozenset(["GPU-1"]))
    with pytest.raises(GpuError, match="GPU-2"):
        options.check_baseline(params, frozenset(["GPU-1", "GPU-2"]))


def test_a_baseline_that_went_through_a_template_is_text():
    limits = options.limits_from(defaults(options.free_spec(), baseline={"GPU-1": "100"}), Allowance())
    assert limits.baseline == {"GPU-1": 100}


@pytest.mark.parametrize("session", [0, -1])
def test_a_session_is_named_by_the_pid_of_its_first_process(session):
    given = defaults(options.reclaim_spec(), protect_sessions=[session])
    with pytest.raises(GpuError) as stop:
        options.check_reclaim(given)
    assert "protect_sessions" in str(stop.value) and str(session) in str(stop.value)
