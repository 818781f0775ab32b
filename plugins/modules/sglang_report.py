#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of this name: all of it runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_report
short_description: Show what a restart did to each host, as one table
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Prints one table on the controller. For each host it shows what was stopped, what was spared, how long the GPUs took
    to be free and the server to be ready, the requested and the effective configuration, and the acceptance length.
  - A server of several hosts is one row, with the hosts of its ranks.
  - Reads the variables that the roles of this collection registered on the hosts (C(sglang_deploy_checked),
    C(gpu_free_plan), C(gpu_free_reclaimed), C(gpu_free_proof), C(sglang_deploy_ready), C(sglang_deploy_unchanged),
    C(sglang_deploy_touched), C(sglang_deploy_failure), C(sglang_deploy_not_restored), C(sglang_deploy_not_routed),
    C(sglang_deploy_node)).
    A host without them shows as not done.
  - Runs on the controller only, without a connection to any host.
options:
  hosts:
    description: The hosts to show, in this order.
    type: list
    elements: str
    required: true
  path:
    description: File on the controller that gets the same report as JSON. It is replaced whole, or not at all.
    type: path
  plan:
    description: The plan of M(inferops.sglang.sglang_rollout), for groups and waves.
    type: dict
    default: {}
  refused:
    description:
      - Why the rollout did not come to a host, by its name, as M(inferops.sglang.sglang_rollout) has it. Such a host is
        V(refused) unless it had its turn.
    type: dict
    default: {}
  lost:
    description: Hosts that got out of reach in an earlier play of the run. Those of the present play are known.
    type: list
    elements: str
    default: []
  shown:
    description: The hosts that the table has, of O(hosts). All by default; with an empty list nothing is printed.
    type: list
    elements: str
  final:
    description: Whether the run ends with this report. If not, RV(finished) is false, although all of it is true.
    type: bool
    default: true
  at_work:
    description:
      - Makes an interim report, before the run goes on to these hosts. It says what must be taken for true if nothing
        more is written, as when the run is killed, or all of these hosts get out of reach together, which ends a run
        of Ansible without another task.
      - These hosts are V(lost) in it, but for those that have no wave in O(plan), of which nothing is touched.
        With an empty list nothing was touched yet, and all O(hosts) are V(not done).
      - Nothing is shown, and O(path) is required.
    type: list
    elements: str
attributes:
  check_mode:
    support: full
    description: Shows what was found and planned. The file of O(path) is not written.
  diff_mode:
    support: none
    description: Changes nothing on a host.
  platform:
    support: full
    platforms: posix
    description: Works where ansible-core's controller works.
"""

EXAMPLES = r"""
- name: Show what happened
  inferops.sglang.sglang_report:
    hosts: "{{ ansible_play_hosts_all }}"
    path: /var/tmp/restart.json
  run_once: true

- name: Write down what is true if the run is cut off from here on
  inferops.sglang.sglang_report:
    hosts: "{{ ansible_play_hosts_all }}"
    at_work: "{{ ansible_play_batch }}"
    path: /var/tmp/restart.json
  run_once: true
"""

RETURN = r"""
finished:
  description: Whether this is the last word about the hosts. The file of O(path) has it as well.
  returned: always
  type: bool
  sample: true
report:
  description: One entry for each host, in the order of O(hosts).
  returned: always
  type: list
  elements: dict
  contains:
    host:
      description: Name of the host in the inventory.
      returned: always
      type: str
      sample: gpu-a
    node_group:
      description: The node group, for a host that runs a server together with others. Empty where it runs its own.
      returned: always
      type: str
      sample: ""
    rank:
      description: The rank of the host in its node group. Null where it has none.
      returned: always
      type: int
      sample: 0
    group:
      description: Its replica group. Empty where nothing was planned.
      returned: always
      type: str
      sample: chat
    wave:
      description: The wave in which its turn is, from 1 on. Null where it needs none, or nothing was planned.
      returned: always
      type: int
      sample: 1
    outcome:
      description: >-
        V(restarted), V(unchanged) (the wanted configuration ran already and was proven once more), V(refused) (nothing
        was stopped), V(restored) (the new configuration failed, the last proven one serves again), V(down) (neither is
        proven to serve), V(lost) (the host could not be reached any more, or the run was cut off, after its server had
        been touched), V(checked) (check mode) or V(not done).
      returned: always
      type: str
      sample: restarted
    changes:
      description: What differs between the configuration before and the wanted one, a line for each setting.
      returned: always
      type: list
      elements: str
      sample: ["--speculative-num-steps: 3 -> 2"]
    stopped:
      description: The server and the processes that were ended.
      returned: always
      type: list
      elements: str
      sample: ["sglang-main", "sglang::scheduler 812 (root, 30518 MiB): killed"]
    spared:
      description: The processes that hold a GPU and were left alone.
      returned: always
      type: list
      elements: str
      sample: ["nv-hostengine 411 (root, 20 MiB)"]
    free_after:
      description: Seconds from the end of the stop until the GPUs were free, null where that was not reached.
      returned: always
      type: float
      sample: 0.31
    ready_after:
      description: Seconds from the start of the server until it was ready, null where that was not reached.
      returned: always
      type: float
      sample: 212.4
    requested:
      description: Requested speculation as algorithm and steps/top-k/draft tokens.
      returned: always
      type: str
      sample: EAGLE3 2/1/3
    effective:
      description: What the running server reports.
      returned: always
      type: str
      sample: EAGLE3 2/1/3
    accept_length:
      description: Mean tokens per verification step, null without speculation.
      returned: always
      type: float
      sample: 2.44
    version:
      description: Version of SGLang.
      returned: always
      type: str
      sample: 0.5.17
    release:
      description: >-
        The release that runs; for a host that was not touched, the one that ran at the checks. Empty where none is
        known to run, and for a server that was not deployed by this collection.
      returned: always
      type: str
      sample: 20261130T104500Z-5d41402a
    failure:
      description: What failed, empty where nothing did. With V(restarted) or V(unchanged), which router does not give
        the server requests.
      returned: always
      type: str
      sample: ""
"""
