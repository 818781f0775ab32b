# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import FAILED, OK, WARNING
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    check_environment,
    environment_from,
    version_tuple,
)


def check(environment, version=""):
    return [(check.status, check.message) for check in check_environment(environment, version)]


def test_values_become_strings_as_an_operator_means_them():
    assert environment_from({"B": True, "A": 1, "C": None, "D": "x"}) == {"A": "1", "B": "true", "C": "", "D": "x"}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0.5.17", (0, 5, 17)), ("0.5.17.post1", (0, 5, 17)), ("", ()), ("main", ()), ("0.5rc1", (0, 5))],
)
def test_version_tuple(text, numbers):
    assert version_tuple(text) == numbers


def test_an_ordinary_environment_passes():
    assert [status for status, _message in check({"NCCL_DEBUG": "INFO", "SGLANG_SIMULATE_ACC_LEN": "-1"})] == [OK]


@pytest.mark.parametrize("name", ["", "A-B", "1A", "A B", "A=B", "Ä"])
def test_refuses_names_that_no_variable_can_have(name):
    assert check({name: "x"})[0][0] == FAILED


@pytest.mark.parametrize("value", ["a\0b", "a\rb", "\x1b[0m"])
def test_refuses_values_that_would_be_dropped(value):
    ((status, message),) = check({"A": value})
    assert status == FAILED and "A in environment" in message


def test_refuses_simulated_acceptance():
    ((status, message),) = check({"SGLANG_SIMULATE_ACC_LEN": "3"})
    assert status == FAILED and "SGLANG_SIMULATE_ACC_LEN" in message


@pytest.mark.parametrize(
    ("version", "value", "status"),
    [
        ("0.5.7", "True", OK),
        ("0.5.12", "True", OK),
        ("0.5.13", "True", OK),
        ("0.5.13", "False", WARNING),
        ("0.5.14", "True", WARNING),
        ("0.5.23", "False", WARNING),
        ("", "True", OK),
    ],
)
def test_warns_where_a_version_ignores_the_choice_of_the_worker(version, value, status):
    assert [found for found, _message in check({"SGLANG_ENABLE_SPEC_V2": value}, version)] == [status]


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_warns_of_a_proxy_that_catches_the_servers_own_requests(proxy):
    ((status, message),) = check({proxy: "http://p:3128", "no_proxy": "localhost"})
    assert status == WARNING and "lacks 127.0.0.1" in message


@pytest.mark.parametrize("exempt", [{"no_proxy": "localhost, 127.0.0.1"}, {"NO_PROXY": "*"}])
def test_a_proxy_with_exceptions_is_fine(exempt):
    assert [status for status, _message in check({"http_proxy": "http://p:3128", **exempt})] == [OK]


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("SGLANG_SIMULATE_ACC_LEN", "2.5", FAILED),
        ("SGLANG_SIMULATE_ACC_LEN", "0", OK),
        ("SGLANG_SIMULATE_UNIFORM_EXPERTS", "true", FAILED),
        ("SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS", "1", FAILED),
        ("SGLANG_SIMULATE_UNIFORM_EXPERTS", "false", OK),
        ("SGLANG_SIMULATE_WHATEVER_COMES", "1", FAILED),
        ("SGLANG_SIMULATE_ACC_METHOD", "match-expected", WARNING),
        ("SGLANG_SIMULATE_ACC_TOKEN_MODE", "real-draft-token", WARNING),
        ("SGLANG_TEST_RETRACT", "1", WARNING),
        ("SGLANG_TEST_RETRACT", "0", OK),
        ("SGLANG_IS_IN_CI", "true", WARNING),
        ("SGLANG_RECORD_STEP_TIME", "1", OK),
    ],
)
def test_variables_that_are_for_tests_of_sglang(name, value, status):
    ((found, message),) = check({name: value})
    assert found == status and (status == OK or name in message)


def inherited(variables, environment=None, host="127.0.0.1"):
    return [(c.status, c.message) for c in check_environment(environment or {}, "", host, variables)]


def test_what_the_manager_adds_counts_too():
    ((status, message),) = inherited({"ALL_PROXY": "http://p:3128"})
    assert status == WARNING and "ALL_PROXY is set by the host" in message
    assert inherited({"ALL_PROXY": "x"}, {"no_proxy": "localhost,127.0.0.1"})[0][0] == OK
    assert inherited({"ALL_PROXY": "x"}, {"ALL_PROXY": ""})[0][0] == OK
    assert inherited({"SGLANG_SIMULATE_ACC_LEN": "3"})[0][0] == FAILED


@pytest.mark.parametrize(
    ("host", "missing"), [("10.1.2.3", True), ("0.0.0.0", False), ("::", False), ("127.0.0.1", False)]
)
def test_the_servers_own_address_must_be_exempt(host, missing):
    ((status, message),) = inherited({}, {"http_proxy": "x", "no_proxy": "localhost,127.0.0.1"}, host)
    assert (status == WARNING) is missing
    assert not missing or f"lacks {host}" in message


def test_all_proxies_are_named():
    ((_status, message),) = inherited({}, {"http_proxy": "x", "all_proxy": "y"})
    assert "all_proxy" in message and "http_proxy" in message
