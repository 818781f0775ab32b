# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible filter: the table of the playbook gpu_reset."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_reset_table
short_description: Lay out what the playbook gpu_reset does, or did, as a table
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Makes a table with a line for each host from what the playbook C(inferops.sglang.gpu_reset) registered. Below it
    stand the steps of the plan, or why a host was refused or failed.
positional: hosts
options:
  _input:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
  hosts:
    description: The hosts to tell of, in this order.
    type: list
    elements: str
    required: true
  plan:
    description: Whether to show what would be done, and not what was done.
    type: bool
    default: false
  width:
    description: How many columns the table may have, where that is possible.
    type: int
    default: 160
"""

EXAMPLES = r"""
- name: Show what was done
  ansible.builtin.debug:
    msg: "{{ (hostvars | inferops.sglang.gpu_reset_table(ansible_play_hosts_all)).splitlines() }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The table as text of several lines.
  type: str
"""

from typing import Any, Callable, Dict, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.inferops.sglang.plugins.plugin_utils.reset_table import reset_table


def gpu_reset_table(variables: Any, hosts: Any, plan: bool = False, width: int = 160) -> str:
    """Lay it out, with errors as Ansible reports them."""
    if not isinstance(variables, Mapping):
        raise AnsibleFilterError(f"gpu_reset_table needs the variables of the hosts (hostvars), and got {variables!r}.")
    if isinstance(hosts, str) or not isinstance(hosts, Sequence):
        raise AnsibleFilterError(f"gpu_reset_table needs a list of hosts, and got {hosts!r}.")
    return reset_table([str(host) for host in hosts], variables, bool(plan), int(width))


class FilterModule:
    """What Ansible asks for."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        """The filters of this file."""
        return {"gpu_reset_table": gpu_reset_table}
