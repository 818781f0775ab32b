# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give the hosts of a page's inventory the addresses and keys of test hosts, without a change to that inventory."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.inventory.host import Host
from ansible.plugins.vars import BaseVarsPlugin

DOCUMENTATION = r"""
name: documented_hosts
short_description: Test hosts in the place of the hosts that a page names
description: Reads what is to be known of each host, and of all, from the JSON file that C(DOCUMENTED_HOSTS) names.
"""


class VarsModule(BaseVarsPlugin):
    """What Ansible asks for."""

    def get_vars(self, loader, path, entities, cache=True):
        """Return the variables of hosts, which win over those of the inventory, and of the group all."""
        super().get_vars(loader, path, entities)
        known = json.loads(Path(os.environ["DOCUMENTED_HOSTS"]).read_text(encoding="utf-8"))
        found = {}
        for entity in entities if isinstance(entities, list) else [entities]:
            if not isinstance(entity, Host):
                found.update(known["all"] if entity.name == "all" else {})
            elif entity.name in known["hosts"]:
                found.update(known["hosts"][entity.name])
            elif entity.name not in ("localhost", "127.0.0.1"):
                raise AnsibleError(f"{entity.name} is in no inventory that the story of this page names with -i")
        return found
