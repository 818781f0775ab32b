# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the roles of a deployment, and what Ansible itself makes of them."""

from __future__ import annotations

import functools
import pathlib

import pytest
import yaml

# A host has only the half of ansible-core that modules import.
pytest.importorskip("ansible.template", reason="only a controller makes anything of variables")

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import filter_loader
from ansible.template import Templar

try:
    from ansible.template import is_trusted_as_template, trust_as_template
except ImportError:  # ansible-core 2.18 trusts all that is not marked as unsafe
    from ansible.utils.unsafe_proxy import AnsibleUnsafe
    from ansible.utils.unsafe_proxy import wrap_var as unsafe

    def trust_as_template(text):
        return text

    def is_trusted_as_template(value):
        return not isinstance(value, AnsibleUnsafe)
else:

    def unsafe(value):
        return value


ROOT = pathlib.Path(__file__).resolve().parents[5]
# What stands for an option that is left out.
OMIT = "__omit_place_holder__of_the_tests"


def trusted(value):
    """A value whose texts are templates, as those of an inventory, of a role and of a play are."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [trusted(item) for item in value]
    return value


@functools.lru_cache(maxsize=None)
def _read(path):
    text = (ROOT / "roles" / path).read_text(encoding="utf-8")
    # By their short names plugins are found without the finder of collections, which would stay in this process.
    for long, short in (("inferops.sglang.sglang_settings", "sglang_settings"), ("'ansible.builtin.", "'")):
        text = text.replace(long, short)
    return trusted(yaml.safe_load(text))


def role_yaml(path):
    """A file of a role: roles/PATH.yml."""
    return _read(path + ".yml")


def role_variables(given, others=()):
    """The variables of a host within the role sglang_deploy; others: further roles that have their defaults there."""
    defaults = {}
    for role in (*others, "sglang_deploy"):
        defaults.update(role_yaml(role + "/defaults/main"))
    return {**defaults, **given, **role_yaml("sglang_deploy/vars/main")}


@functools.lru_cache(maxsize=None)
def _templar():
    """One for all, as it keeps what it has compiled."""
    filter_loader.add_directory(str(ROOT / "plugins" / "filter"))
    return Templar(loader=DataLoader())


def template_of(variables):
    """As the templar of an action plugin: what is no template to Ansible stays as it is."""
    templar, found = _templar(), {**variables, "omit": OMIT}

    def template(value):
        templar.available_variables = found
        return templar.template(value)

    return template


def ansible_of(variables):
    """What Ansible makes of a template of a play, or of what holds some."""
    template = template_of(variables)
    return lambda value: template(trusted(value))


@functools.lru_cache(maxsize=None)
def is_native():
    """Whether templates keep the types of values; before ansible-core 2.19 most become texts."""
    return ansible_of({})("{{ 1 if true else 2 }}") == 1


def comparable(value):
    """A value as it can be compared: with its types, where Ansible keeps those."""
    if isinstance(value, dict):
        return {str(key): comparable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [comparable(item) for item in value]
    if is_native():
        return (isinstance(value, bool), value)
    return "" if value is None else str(value)
