#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of this name: all of it runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_rollout
short_description: Plan in which waves servers are replaced, and let each begin or not
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - The servers that can answer for each other are a replica group. With O(step=plan) it divides the hosts of a run into
    waves, so that in each group one server is replaced first, and never fewer serve than C(sglang_min_serving) says.
  - With O(step=gate) it lets a wave begin when enough other servers of each of its groups serve at that moment. It says
    whom to ask; the playbook asks them with M(inferops.sglang.sglang_info). What is unknown or out of reach does not
    count.
  - With O(step=settle) it says after a wave whether the next one may come.
  - Hosts with the same C(sglang_node_group) run one server, and are replaced together. They count as one.
  - The settings are variables of the hosts, C(sglang_replica_group), C(sglang_min_serving), C(sglang_ramp),
    C(sglang_max_failed), C(sglang_groups_at_a_time) and C(sglang_floor_timeout). Hosts for which a setting must be the
    same, and is not, are named.
  - Hosts of the inventory that name the same group and are not of the run count for the floor, and are never touched.
  - Runs on the controller only, without a connection to any host.
options:
  step:
    description: What is asked.
    type: str
    required: true
    choices: [plan, gate, settle]
  hosts:
    description: The hosts of the run, in its order; with O(step=gate) and O(step=settle) those of the wave.
    type: list
    elements: str
    required: true
  candidates:
    description:
      - All hosts that the pattern of the run stands for, those that C(--limit) leaves out too. Those that name no group
        are replicas of the hosts of the run that name none.
      - For O(step=plan).
    type: list
    elements: str
    default: []
  pattern:
    description: The pattern that the hosts of the run come from. It is returned with the plan, for O(step=plan).
    type: raw
    default: all
  plan:
    description: What O(step=plan) has returned, for the other steps.
    type: dict
    default: {}
  gate:
    description:
      - What O(step=gate) returned for the wave before, with questions that are answered by now in the variable
        C(sglang_deploy_answers) of the hosts that asked.
      - For O(step=settle), whether the gate was shut.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: Does the same, and does not wait for a floor that is not kept at the moment.
  diff_mode:
    support: none
    description: Changes nothing on a host.
  platform:
    support: full
    platforms: posix
    description: Works where ansible-core's controller works.
seealso:
  - module: inferops.sglang.sglang_info
"""

EXAMPLES = r"""
- name: Plan the waves
  inferops.sglang.sglang_rollout:
    step: plan
    hosts: "{{ ansible_play_hosts_all }}"
    candidates: "{{ query('ansible.builtin.inventory_hostnames', 'gpu_hosts') }}"
    pattern: gpu_hosts
  run_once: true
  register: planned

- name: See whether enough others serve
  inferops.sglang.sglang_rollout:
    step: gate
    hosts: "{{ ansible_play_batch }}"
    plan: "{{ planned.plan }}"
  run_once: true
  register: gate
"""

RETURN = r"""
plan:
  description: The waves. Empty where there can be none.
  returned: with O(step=plan)
  type: dict
  contains:
    hosts:
      description: All hosts of the run, wave after wave.
      returned: where there is a plan
      type: list
      elements: str
      sample: [gpu-a, gpu-b, gpu-c]
    sizes:
      description: How many hosts each wave has.
      returned: where there is a plan
      type: list
      elements: int
      sample: [1, 2]
    groups:
      description: >-
        By name, each with C(floor), the number of servers that must serve, and C(units), the servers. A unit has its
        C(hosts), rank 0 first, its C(fate) (V(replace), V(vacant) where nothing runs, V(keep) where the wanted
        configuration runs already, or V(outside) the run), the number of its C(wave) (0 for none), and C(ask), what its
        first host is asked about.
      returned: where there is a plan
      type: dict
      sample:
        chat:
          floor: 1
          units:
            - hosts: [gpu-a]
              fate: replace
              wave: 1
              ask:
                instance: main
                state_dir: /var/lib/sglang
    max_failed:
      description: How many servers may fail or get lost before no further wave begins.
      returned: where there is a plan
      type: int
      sample: 0
    groups_at_a_time:
      description: How many groups are gone through side by side.
      returned: where there is a plan
      type: int
      sample: 1
    floor_timeout:
      description: Seconds that a wave waits for enough others to serve.
      returned: where there is a plan
      type: float
      sample: 60.0
    pattern:
      description: The O(pattern).
      returned: where there is a plan
      type: raw
      sample: gpu_hosts
refused:
  description: >-
    Why nothing may begin, by host. With O(step=plan) a setting that cannot be, with O(step=gate) a floor that would not
    be kept. Empty where nothing is in the way.
  returned: with O(step=plan) and O(step=gate)
  type: dict
  sample: {}
wave:
  description: Number of the wave, from 1 on.
  returned: with O(step=gate) and O(step=settle)
  type: int
  sample: 2
open:
  description: Whether the wave may begin.
  returned: with O(step=gate)
  type: bool
  sample: false
questions:
  description: >-
    By the host of the wave that is to ask, whom it is to ask. Each has C(host), C(instance) and C(state_dir), and what
    tells it from the questions of other rounds. Empty where the gate is open or shut.
  returned: with O(step=gate)
  type: dict
  sample:
    gpu-a:
      - host: gpu-b
        instance: main
        state_dir: /var/lib/sglang
        round: 1
        started: 8123.5
round:
  description: How often questions were asked before this call, and one more.
  returned: with O(step=gate) unless it is shut
  type: int
  sample: 1
started:
  description: When the first of them was asked, in seconds of the controller's monotonic clock.
  returned: with O(step=gate) unless it is shut
  type: float
  sample: 8123.5
answers:
  description: What is known by now, by host, each with C(state), C(reason) and C(message).
  returned: with O(step=gate) unless it is shut
  type: dict
  sample: {}
stop:
  description: Whether no further wave may begin.
  returned: with O(step=settle)
  type: bool
  sample: false
last:
  description: Whether this was the last wave.
  returned: with O(step=settle)
  type: bool
  sample: true
not_proven:
  description: The hosts that have failed until now.
  returned: with O(step=settle)
  type: list
  elements: str
  sample: []
lost:
  description: The hosts that have got out of reach until now.
  returned: with O(step=settle)
  type: list
  elements: str
  sample: []
speakers:
  description: The hosts in whose name the end of the run is told. Those that have failed, or one that is there.
  returned: with O(step=settle)
  type: list
  elements: str
  sample: [gpu-a]
"""
