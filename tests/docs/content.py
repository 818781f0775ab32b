# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell what the YAML of a block is, and what is wrong with the variables in it."""

from __future__ import annotations

import tempfile
from enum import Enum
from typing import Any, Iterator, List, Mapping, Tuple

import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from yaml.constructor import ConstructorError

from .blocks import Block
from .variables import problems_of

_GROUP_KEYS = {"hosts", "children", "vars"}
_PLAY_KEYS = {"hosts", "import_playbook", "ansible.builtin.import_playbook"}


class Kind(Enum):
    """What a YAML block is to Ansible."""

    INVENTORY = "inventory"
    PLAYBOOK = "playbook"
    TASKS = "tasks"
    VARIABLES = "variables"
    COLLECTIONS = "collections"  # what ansible-galaxy installs
    SOURCE = "source"  # what an inventory plugin reads
    OTHER = "other"


class _Loader(yaml.SafeLoader):
    """YAML as Ansible reads it: a secret of Vault is a text; a key that stands twice is a mistake."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _value in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise ConstructorError(None, None, f"{', '.join(twice)} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


_Loader.add_constructor("!vault", lambda loader, node: loader.construct_scalar(node))


def load(text: str) -> Any:
    """Read one YAML document.  Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_Loader)


def kind_of(block: Block) -> Kind:
    """Tell what a block's YAML is.  Raises yaml.YAMLError."""
    data = load(block.text)
    if isinstance(data, list) and data and all(isinstance(item, Mapping) for item in data):
        return Kind.PLAYBOOK if all(_PLAY_KEYS & set(item) for item in data) else Kind.TASKS
    if not isinstance(data, Mapping) or not data:
        return Kind.OTHER
    if "collections" in data:
        return Kind.COLLECTIONS
    if isinstance(data.get("plugin"), str):
        return Kind.SOURCE
    if block.file and "_vars/" in block.file:
        return Kind.VARIABLES
    groups = all(value is None or isinstance(value, Mapping) for value in data.values())
    if groups and any(_GROUP_KEYS & set(value or ()) for value in data.values()):
        return Kind.INVENTORY
    return Kind.VARIABLES


def variable_problems(block: Block) -> List[str]:
    """Return what is wrong with the variables that a block sets.  Raises yaml.YAMLError."""
    data, kind = load(block.text), kind_of(block)
    if kind is Kind.VARIABLES:
        return problems_of(data)
    if kind is Kind.INVENTORY:
        if not hosts_of(block):
            return ["Ansible finds no host in this inventory"]
        return [f"{place}: {text}" for place, variables in _variables_of(data) for text in problems_of(variables)]
    if kind is Kind.SOURCE:
        return problems_of({name: "{{ %s }}" % value for name, value in (data.get("compose") or {}).items()})
    if kind is Kind.OTHER:
        return ["it is no inventory, play, list of tasks or set of variables"]
    return []


def hosts_of(block: Block) -> List[str]:
    """Return the hosts that Ansible finds in an inventory."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
        file.write(block.text)
        file.flush()
        return sorted(InventoryManager(loader=DataLoader(), sources=[file.name]).hosts)


def _variables_of(groups: Mapping[str, Any]) -> Iterator[Tuple[str, Mapping[str, Any]]]:
    """Yield the variables of each group and host of an inventory."""
    for name, group in groups.items():
        group = group or {}
        yield name, group.get("vars") or {}
        for host, variables in (group.get("hosts") or {}).items():
            yield host, variables or {}
        yield from _variables_of(group.get("children") or {})
