# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a deployment as its module reads them."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferops.sglang.plugins.module_utils.deploying import settings as under_test
from ansible_collections.inferops.sglang.plugins.module_utils.deploying.settings import (
    NAMES,
    SettingsError,
    read_settings,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.deploy_settings import Variables
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.deploying.role_variables import (
    is_trusted_as_template,
    role_variables,
    template_of,
)

_PLAIN = Variables(role_variables({}), lambda raw: [], is_trusted_as_template).settings()
LISTS, DICTS, BOOLS = under_test._LISTS, under_test._DICTS, under_test._BOOLS


@pytest.fixture(scope="module")
def plain():
    """The settings where the inventory has none."""
    found = role_variables({})
    return Variables(found, template_of(found), is_trusted_as_template).settings()


def test_each_setting_has_one_kind():
    assert len(NAMES) == len(set(NAMES)) > 70


def test_settings_are_what_they_were(plain):
    before = copy.deepcopy(plain)
    assert read_settings(plain) == before == plain


def test_settings_come_through_json(plain):
    assert read_settings(json.loads(json.dumps(plain))) == plain


@pytest.mark.parametrize("name", NAMES)
def test_each_setting_must_be_there(plain, name):
    with pytest.raises(SettingsError) as error:
        read_settings({key: value for key, value in plain.items() if key != name})
    assert "sglang_deploy_*" in str(error.value) and name in str(error.value)


def test_a_setting_that_is_none_is_refused(plain):
    with pytest.raises(SettingsError) as error:
        read_settings({**plain, "colour": "red"})
    assert "colour" in str(error.value)


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_lists(plain, name):
    assert read_settings({**plain, name: "a,b"})[name] == ["a", "b"]
    assert read_settings({**plain, name: ["a"]})[name] == ["a"]
    with pytest.raises(SettingsError) as error:
        read_settings({**plain, name: {"a": 1}})
    assert name in str(error.value)


@pytest.mark.parametrize("name", DICTS)
def test_dictionaries_are_dictionaries(plain, name):
    assert read_settings({**plain, name: '{"a": 1}'})[name] == {"a": 1}
    assert read_settings({**plain, name: {"a": 1}})[name] == {"a": 1}
    with pytest.raises(SettingsError) as error:
        read_settings({**plain, name: ["a"]})
    assert name in str(error.value)


@pytest.mark.parametrize("name", BOOLS)
@pytest.mark.parametrize(
    ("given_value", "read"), [("no", False), ("true", True), (1, True), (False, False), ("0", False)]
)
def test_flags_are_flags(plain, name, given_value, read):
    assert read_settings({**plain, name: given_value})[name] is read


def test_a_flag_that_is_none_is_refused(plain):
    with pytest.raises(SettingsError) as error:
        read_settings({**plain, "force_restart": "perhaps"})
    assert "force_restart" in str(error.value)


@pytest.mark.parametrize("value", [None, "", 0, "30001", 30001, 1.5, True, "{{ x }}"])
def test_the_rest_is_left_to_its_module(plain, value):
    assert read_settings({**plain, "port": value})["port"] == value


@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a,b", "no", "{x", "{{ x }}", '{"a": 1}']),
        max_size=9,
    )
)
def test_any_value_is_read_or_refused_in_words(changes):
    try:
        settings = read_settings({**_PLAIN, **changes})
    except SettingsError as error:
        assert any(name in str(error) for name in changes)
    else:
        assert set(settings) == set(NAMES)
        # None is "not given", of a list too.
        assert all(isinstance(settings[name], list) for name in LISTS if settings[name] is not None)
