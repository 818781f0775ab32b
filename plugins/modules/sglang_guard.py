#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of this name: all of it runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_guard
short_description: Decide by load which profile replica groups are to run
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Speculation wins at few requests and loses at many. This decides for each replica group whether its servers are to
    be switched to another profile. The playbook C(inferops.sglang.spec_guard) runs it on a schedule and has
    C(inferops.sglang.restart_eagle3) do the switch, wave by wave and with a floor.
  - There is no switch unless several runs in a row want it, the load has come back far enough, and the servers have run
    long enough. What is unknown is never a low load, and never a reason to switch.
  - Which profile runs, and since when, is taken from the servers themselves, from what
    M(inferops.sglang.sglang_info) returned into the variable C(sglang_guard_servers) of the hosts.
  - The settings are variables of the hosts, C(sglang_guard_rules), C(sglang_guard_margin), C(sglang_guard_samples),
    C(sglang_guard_min_interval), C(sglang_guard_statistic) and C(sglang_sweep_dir). They must be the same for all hosts
    of a group.
  - Prints a line for each group, with the load, the profile that runs, the one that is wanted, and why there is a
    switch or none.
  - Runs on the controller only, without a connection to any host.
options:
  step:
    description:
      - V(check) reads the settings and refuses those that cannot be, before any host is asked.
      - V(decide) decides.
      - V(finish) says that the switch is over.
    type: str
    choices: [check, decide, finish]
    default: decide
  hosts:
    description: The hosts of the run, in its order.
    type: list
    elements: str
    default: []
  candidates:
    description: All hosts that the pattern of the run stands for, those that C(--limit) leaves out too.
    type: list
    elements: str
    default: []
  pattern:
    description: The pattern that the hosts of the run come from.
    type: raw
    default: all
  state:
    description:
      - File on the controller in which is remembered how many runs have agreed, and the last switch. It is replaced
        whole. Another file beside it, whose name ends in V(.lock), keeps two runs from it at the same time.
      - Default is V(inferops/sglang_guard.json) below E(XDG_STATE_HOME), else below V(~/.local/state).
    type: path
  commit:
    description: Whether anything is remembered. Never in check mode.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Decides the same, and remembers nothing.
  diff_mode:
    support: none
    description: Changes nothing on a host.
  platform:
    support: full
    platforms: posix
    description: Works where ansible-core's controller works.
seealso:
  - module: inferops.sglang.sglang_info
  - module: inferops.sglang.sglang_rollout
"""

EXAMPLES = r"""
- name: Look at the servers
  inferops.sglang.sglang_info:
    instances: [main]
    load_window: 10
  register: sglang_guard_servers

- name: Decide
  inferops.sglang.sglang_guard:
    hosts: "{{ ansible_play_hosts_all }}"
    pattern: gpu_hosts
  run_once: true
  register: decided
"""

RETURN = r"""
groups:
  description: What was decided, by replica group.
  returned: with O(step=decide)
  type: dict
  contains:
    load:
      description: Requests that a server has at a time. Null where that is not known.
      returned: for each group
      type: float
      sample: 18.4
    load_complete:
      description: Whether that is all of it. Otherwise it is the least that it can be.
      returned: for each group
      type: bool
      sample: true
    present:
      description: The profile that runs. Empty where that cannot be told.
      returned: for each group
      type: str
      sample: eagle3
    wanted:
      description: The profile that the load asks for. Empty where nothing can be said.
      returned: for each group
      type: str
      sample: baseline
    switch:
      description: Whether the group is switched.
      returned: for each group
      type: bool
      sample: false
    reason:
      description:
        - V(switch), or why there is none.
        - V(as_wanted) (the wanted one runs), V(not_yet) (too few runs have agreed), V(too_soon) (the last start or
          switch is too recent), V(unknown_load), V(unknown_age), V(not_serving) (a server neither serves nor is
          stopped), V(nothing_serves), V(unknown_profile) (a server runs none of the profiles of the rules), V(mixed)
          (servers run different ones), or V(busy) (another run is switching).
      returned: for each group
      type: str
      sample: not_yet
    message:
      description: The line that was printed.
      returned: for each group
      type: str
      sample: "Group chat: load 18.4 requests a server, runs eagle3, wants baseline: no switch: 1 of 3 runs agree
        (sglang_guard_samples)."
    hosts:
      description: The hosts that are switched.
      returned: for each group
      type: list
      elements: str
      sample: []
switch:
  description: Whether any group is switched.
  returned: with O(step=decide)
  type: bool
  sample: false
profiles:
  description: The profile that a host is switched to, by host.
  returned: with O(step=decide)
  type: dict
  sample: {}
state:
  description: The file in which it is remembered, for O(step=finish).
  returned: with O(step=decide)
  type: str
  sample: /home/ansible/.local/state/inferops/sglang_guard.json
pattern:
  description: The pattern of the hosts that are switched. One that stands for nobody where none is.
  returned: with O(step=decide)
  type: str
  sample: all:!all
"""
