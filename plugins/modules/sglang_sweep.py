#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of this name: all of it runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_sweep
short_description: Plan a sweep, deal its configurations out, and keep what was measured
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - The steps of the role R(sglang_sweep,ansible_collections.inferops.sglang.sglang_sweep_role) that know the whole
    sweep. A playbook of your own includes the role rather than this.
  - Makes the configurations out of lists of settings, and refuses what could not be compared, before anything is
    touched.
  - Keeps a sweep in a folder on the controller, one file a point, each written whole. So a run that was killed at any
    time goes on with what is left.
  - What it needs to know of hosts is in their variables C(sglang_sweep_found), C(sglang_sweep_checked) and
    C(sglang_sweep_refused).
  - Runs on the controller only, without a connection to any host.
options:
  step:
    description:
      - V(plan) makes the configurations and says which are to be checked. Writes nothing.
      - V(begin) refuses the sweep or writes it down, and shows the plan.
      - V(next) gives the host of the task the configuration that it measures next.
      - V(record) keeps a configuration's row, or a point.
      - V(adaptive) computes the configuration that switches speculation by load from the points of the others.
      - V(finish) says what each host is to run in the end.
      - V(close) writes down how it ended, and makes the file of profiles.
    type: str
    required: true
    choices: [plan, begin, next, record, adaptive, finish, close]
  dir:
    description: Folder of the sweep on the controller. It is made if it is not there, and must be of one sweep alone.
    type: path
    required: true
  hosts:
    description: The hosts of the run; with O(step=next) and later those that can still be reached.
    type: list
    elements: str
    default: []
  options:
    description:
      - The variables of the role, without C(sglang_sweep_).
      - For O(step=plan), O(step=begin), O(step=adaptive) and O(step=finish).
    type: dict
    default: {}
  plan:
    description: RV(plan) of O(step=plan), for O(step=begin).
    type: dict
    default: {}
  key:
    description: Key of the configuration whose row or point is recorded.
    type: str
    default: ''
  row:
    description: What was found when the configuration was deployed, with C(state) V(proven) or V(failed).
    type: dict
    default: {}
  point:
    description: A point to be recorded, as one of RV(inferops.sglang.sglang_benchmark#module:points).
    type: dict
    default: {}
  adopted:
    description: The release that was made of a server that was taken over, to be recorded as what comes back.
    type: str
    default: ''
  deadline:
    description: Seconds since the epoch after which nothing new is begun, for O(step=next). V(0) for none.
    type: float
    default: 0.0
attributes:
  check_mode:
    support: partial
    description: O(step=plan) and O(step=begin) do the same and write nothing. The other steps are not meant for it.
  diff_mode:
    support: none
    description: Changes nothing on a host.
  platform:
    support: full
    platforms: posix
    description: Works where ansible-core's controller works.
seealso:
  - module: inferops.sglang.sglang_benchmark
  - module: inferops.sglang.sglang_sweep_report
"""

EXAMPLES = r"""
- name: Plan a sweep over the number of steps
  inferops.sglang.sglang_sweep:
    step: plan
    dir: sweeps/llama
    hosts: "{{ ansible_play_hosts_all }}"
    options:
      num_steps: [1, 3, 5]
      concurrencies: [1, 8, 64]
      repeats: 3
      prompts: /srv/prompts/support-questions.jsonl
  run_once: true
  register: planned
"""

RETURN = r"""
plan:
  description: The sweep as it would be.
  returned: with O(step=plan)
  type: dict
  contains:
    sweep:
      description: What all configurations have in common.
      returned: always
      type: dict
      sample: {name: llama, concurrencies: [1, 8, 64], repeats: 3}
    configurations:
      description: All configurations, the baseline of each host first.
      returned: always
      type: list
      elements: dict
      sample: [{name: baseline, key: 3f2a9c01d4e7, baseline: true, host: gpu-a}]
    left:
      description: The concurrencies that were not measured yet, by key.
      returned: always
      type: dict
      sample: {3f2a9c01d4e7: [1, 8, 64]}
    check:
      description: The configurations that are to be checked on the hosts, or on C(host) alone where that is given.
      returned: always
      type: list
      elements: dict
      sample: [{name: baseline, key: 3f2a9c01d4e7, host: gpu-a}]
left:
  description: The concurrencies that were not measured, by key.
  returned: with O(step=begin), O(step=finish) and O(step=close)
  type: dict
  sample: {3f2a9c01d4e7: [1, 8, 64]}
most_turns:
  description: How many configurations one host measures at most.
  returned: with O(step=begin)
  type: int
  sample: 4
deadline:
  description: Seconds since the epoch after which nothing new is begun. V(0) for none.
  returned: with O(step=begin)
  type: float
  sample: 1796083200.5
configuration:
  description: The configuration that is measured next. Empty where there is none.
  returned: with O(step=next) and O(step=adaptive)
  type: dict
  contains:
    name:
      description: Its name.
      returned: where there is one
      type: str
      sample: eagle3-steps3
    key:
      description: A short hash of all that makes it another configuration. Names of files in the folder.
      returned: where there is one
      type: str
      sample: 8d1c5b7e2f60
    profile:
      description: The profile that it is deployed with. Empty for none.
      returned: where there is one
      type: str
      sample: ''
    speculative:
      description: The speculative settings that it is deployed with, beside the profile.
      returned: where there is one
      type: dict
      sample: {algorithm: EAGLE3, num_steps: 3, eagle_topk: 1, num_draft_tokens: 4}
    environment_name:
      description: The environment that it is deployed with. Empty for the inventory's alone.
      returned: where there is one
      type: str
      sample: ''
    settings:
      description: The speculative settings that all of that makes together, without secrets.
      returned: where there is one
      type: dict
      sample: {algorithm: EAGLE3, num_steps: 3, eagle_topk: 1, num_draft_tokens: 4}
concurrencies:
  description: The concurrencies at which it was not measured yet.
  returned: with O(step=next)
  type: list
  elements: int
  sample: [8, 64]
host:
  description: The host that measures it. Empty for none.
  returned: with O(step=adaptive)
  type: str
  sample: gpu-a
targets:
  description: What each host is to run in the end.
  returned: with O(step=finish)
  type: dict
  sample: {gpu-a: {kind: release, release: 20261130T104500Z-5d41402a, configuration: {}}}
failed_configurations:
  description: The names of the configurations that did not start.
  returned: with O(step=close)
  type: list
  elements: str
  sample: [eagle3-steps9]
"""
