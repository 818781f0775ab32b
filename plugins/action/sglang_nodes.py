# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Says which hosts are the ranks of one server; see the module of the same name for its options."""

from __future__ import annotations

import secrets
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible
from ansible_collections.inferops.sglang.plugins.plugin_utils.node_groups import (
    ABOUT_A_RANK,
    VARIABLE,
    HostVariables,
    NodeGroup,
    describe,
    members,
    rank_zero,
    words_of,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.node_releases import (
    Target,
    last_target,
    read_kept,
    wanted_target,
)
from ansible_collections.inferops.sglang.plugins.plugin_utils.rollout_settings import RolloutError

_LONGEST_MESSAGE = 2000  # characters


class ActionModule(ActionBase):
    """Runs on the controller; opens no connection."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(
            {
                "step": {"type": "str", "required": True, "choices": ["groups", "rank", "back"]},
                "hosts": {"type": "list", "elements": "str"},
                "group": {"type": "str"},
                "groups": {"type": "dict", "default": {}},
                "extra_args": {"type": "list", "elements": "str", "default": []},
                "wanted": {"type": "str"},
            },
            required_if=[("step", "groups", ["hosts"]), ("step", "rank", ["group"]), ("step", "back", ["hosts"])],
        )
        variables = task_vars or {}
        step = {"groups": self._groups, "rank": self._rank, "back": self._back}[arguments["step"]]
        try:
            result.update(step(arguments, variables))
        except RolloutError as error:
            # It may quote a host.
            raise AnsibleActionFail(visible(str(error), _LONGEST_MESSAGE)) from None
        result["changed"] = False
        return result

    def _groups(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """All node groups that these hosts are of.  What is wrong with one is for its own hosts to say."""
        present: List[str] = arguments["hosts"]
        inventory: Sequence[str] = variables.get("groups", {}).get("all", ())
        known = {host: self._read(variables, host, (VARIABLE,)) for host in dict.fromkeys([*inventory, *present])}
        groups: Dict[str, Any] = {}
        for name, hosts in members(known).items():
            if not set(hosts) & set(present):
                continue
            about = {host: self._read(variables, host, ABOUT_A_RANK) for host in hosts}
            # Tasks of one attempt know each other by it.
            known_by = "%s-%s" % (name, secrets.token_hex(4))
            try:
                group = describe(name, hosts, about, present)
            except RolloutError as error:
                groups[name] = {"hosts": list(hosts), "refused": str(error)}
            else:
                groups[name] = {
                    "hosts": list(hosts),
                    "refused": "",
                    "dist_init_addr": group.dist_init_addr,
                    "rank_zero": group.rank_zero,
                    "token": known_by,
                }
        return {"groups": groups}

    def _rank(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """What the host of the task is."""
        name, host = arguments["group"], str(variables["inventory_hostname"])
        found = arguments["groups"].get(name, {})
        if host not in found.get("hosts", ()):
            raise RolloutError(
                "%s: %s is none of the hosts that name the node group %r. It is a variable of hosts: set it in the "
                "inventory, or with -e." % (VARIABLE, host, name)
            )
        if found["refused"]:
            raise RolloutError(found["refused"])
        group = NodeGroup(name, tuple(found["hosts"]), found["dist_init_addr"], found["rank_zero"])
        rank = group.hosts.index(host)
        return {
            "group": name,
            "hosts": list(group.hosts),
            "rank": rank,
            "dist_init_addr": group.dist_init_addr,
            "rank_zero": group.rank_zero if rank else "",
            "words": words_of(group, host, arguments["extra_args"]),
            "token": found["token"],
        }

    def _back(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """Which release of the host of the task belongs to those of the other ranks."""
        hosts: List[str] = arguments["hosts"]
        host = str(variables["inventory_hostname"])
        if host not in hosts:
            raise RolloutError("hosts: %s is not among them. Give all hosts of its server, rank 0 first." % host)
        kept = [
            read_kept(name, self._read(variables, name, ("sglang_deploy_kept",)).get("sglang_deploy_kept"))
            for name in hosts
        ]
        wanted: Optional[str] = arguments["wanted"]
        target = last_target(kept) if wanted is None else wanted_target(kept, wanted)
        rank = hosts.index(host)
        return {
            "hosts": hosts,
            "rank": rank,
            "release": target.releases[rank],
            "releases": list(target.releases),
            "alone": target.alone,
            "rank_zero": _rank_zero_of(target) if rank and not target.alone else "",
        }

    def _read(self, variables: Mapping[str, Any], host: str, wanted: Sequence[str]) -> HostVariables:
        """Some variables of a host, as far as they are set.  Raises AnsibleActionFail."""
        hostvars = variables["hostvars"]
        if host not in hostvars:
            raise AnsibleActionFail("hosts: %r is not in the inventory. Give names of inventory hosts." % host)
        of_host = hostvars[host]
        found = {}
        for name in wanted:
            try:
                if name in of_host:
                    found[name] = of_host[name]
            except Exception as exc:
                raise AnsibleActionFail("%s of the host %s cannot be read: %s" % (name, host, exc)) from exc
        return found


def _rank_zero_of(target: Target) -> str:
    """Where rank 0 answers once it has gone back.  Raises RolloutError."""
    asked = target.requested
    try:
        return rank_zero(
            str(asked.get("host", "127.0.0.1")), asked.get("port", 30000), str(asked.get("dist_init_addr") or "")
        )
    except ValueError as error:
        told = "The release %s of rank 0 has no --dist-init-addr that is one: %s." % (target.releases[0], error)
        raise RolloutError(told) from None
