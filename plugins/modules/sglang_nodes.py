#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of this name: all of it runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_nodes
short_description: Say which hosts are the ranks of one SGLang server
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Hosts with the same C(sglang_node_group) run one server together (C(--nnodes)). The first one in the order of the
    inventory is rank 0, which alone serves.
  - With O(step=groups) it finds these groups among the hosts of a run, where their ranks meet (C(--dist-init-addr)) and
    where the others ask whether rank 0 serves. A group of which not all hosts are there is refused.
  - With O(step=rank) it says which rank the host of the task is, and the arguments that make its server that.
  - With O(step=back) it says which kept release of the host belongs to which ones of the other ranks, since all of a
    server have to go back together.
  - Runs on the controller only, without a connection to any host.
options:
  step:
    description: What is asked.
    type: str
    required: true
    choices: [groups, rank, back]
  hosts:
    description:
      - With O(step=groups), the hosts that take part.
      - With O(step=back), the hosts of the server, rank 0 first. Each needs the variable C(sglang_deploy_kept), the
        result of M(inferops.sglang.sglang_release) with C(state=inspected).
      - Required for both.
    type: list
    elements: str
  group:
    description: Name of the node group, required for O(step=rank).
    type: str
  groups:
    description: RV(groups) of O(step=groups), for O(step=rank).
    type: dict
    default: {}
  extra_args:
    description:
      - The further arguments of the host's server, for O(step=rank). What they say of the ranks must agree with the
        group, and is not said again.
    type: list
    elements: str
    default: []
  wanted:
    description:
      - With O(step=back), the releases to go back to. V(previous) means those that were proven together last and are
        not the current ones; otherwise an ID of a release of any rank, or its beginning.
      - Without it, those that were proven together last. Where that never was, servers of one host go back each by
        itself, and servers that were taken over go back together.
    type: str
attributes:
  check_mode:
    support: full
    description: Does the same, since it changes nothing.
  diff_mode:
    support: none
    description: Changes nothing on a host.
  platform:
    support: full
    platforms: posix
    description: Works where ansible-core's controller works.
seealso:
  - module: inferops.sglang.sglang_rollout
  - module: inferops.sglang.sglang_release
"""

EXAMPLES = r"""
- name: Find the servers of several hosts
  inferops.sglang.sglang_nodes:
    step: groups
    hosts: "{{ ansible_play_batch }}"
  run_once: true
  register: node_groups

- name: Find the rank of this host
  inferops.sglang.sglang_nodes:
    step: rank
    group: "{{ sglang_node_group }}"
    groups: "{{ node_groups.groups }}"
    extra_args: "{{ sglang_extra_args | default([]) }}"
  register: node
"""

RETURN = r"""
groups:
  description: The node groups by name.
  returned: with O(step=groups)
  type: dict
  sample:
    big:
      hosts: [gpu-a, gpu-b]
      refused: ""
      dist_init_addr: 10.0.0.5:20000
      rank_zero: 10.0.0.5:30000
      token: big-5d41402a
group:
  description: Name of the node group.
  returned: with O(step=rank)
  type: str
  sample: big
hosts:
  description: All hosts of the server, rank 0 first.
  returned: with O(step=rank) and O(step=back)
  type: list
  elements: str
  sample: [gpu-a, gpu-b]
rank:
  description: The rank of the host.
  returned: with O(step=rank) and O(step=back)
  type: int
  sample: 1
dist_init_addr:
  description: Where the ranks meet, as C(HOST:PORT).
  returned: with O(step=rank)
  type: str
  sample: 10.0.0.5:20000
rank_zero:
  description:
    - Where the host asks whether rank 0 serves, as C(HOST:PORT). Empty for rank 0 itself, for servers of one host, and
      where only C(sglang_rank_zero) says it.
  returned: with O(step=rank) and O(step=back)
  type: str
  sample: 10.0.0.5:30000
words:
  description: Arguments to add to those that were given. Empty for a group of one host.
  returned: with O(step=rank)
  type: list
  elements: str
  sample: [--nnodes, "2", --node-rank, "1", --dist-init-addr, "10.0.0.5:20000"]
token:
  description: A word that the ranks of this group have in common, and no other run has.
  returned: with O(step=rank)
  type: str
  sample: big-5d41402a
release:
  description: The release that this host goes back to.
  returned: with O(step=back)
  type: str
  sample: 20261129T180000Z-7d793037
releases:
  description: The releases of all ranks, in their order.
  returned: with O(step=back)
  type: list
  elements: str
  sample: [20261129T180000Z-7d793037, 20261129T180001Z-9a0364b9]
alone:
  description: Whether these are servers of one host each, from before there was a group.
  returned: with O(step=back)
  type: bool
  sample: false
"""
