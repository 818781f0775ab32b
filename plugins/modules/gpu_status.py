#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of this name: all of it runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_status
short_description: Show the GPUs and servers of a fleet as one table
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Prints one table on the controller, with a line for each host. It shows the GPUs and who holds them, and of each
    deployed server its state, version, effective speculative configuration, acceptance and load.
  - Says what is wrong on which host, and which hosts differ from the rest of their group. Writes the same as JSON and
    as one HTML page that needs nothing else, where that is wanted.
  - Reads what C(inferops.sglang.gpu_info) and C(inferops.sglang.sglang_info) returned on the hosts, from the variables
    C(gpu_status_gpus) and C(gpu_status_servers). The playbook C(inferops.sglang.gpu_status) registers them. A host
    without them, one that could not be reached, and one whose module failed, is a line with the reason.
  - Hosts are compared with those that have the same value of C(sglang_replica_group), all hosts with one another where
    nobody has that variable.
  - Runs on the controller only, without a connection to any host.
options:
  hosts:
    description:
      - The hosts to show, in this order.
      - With an empty list the other options are checked, and nothing is shown or written.
    type: list
    elements: str
    required: true
  detail:
    description:
      - V(hosts) shows a line for each host, V(gpus) also one for each GPU.
      - V(auto) shows the GPUs where there are 16 at most.
    type: str
    choices: [hosts, gpus, auto]
    default: auto
  json:
    description:
      - File on the controller that gets everything as JSON. It is replaced whole, or not at all. Its folder must exist.
      - A new file can be read by its owner only, one that was there before keeps its mode.
      - Written in check mode as well, because no host is changed by it.
    type: path
  html:
    description: The same for an HTML page.
    type: path
  fail_on:
    description:
      - What makes the task fail, after all was shown and written. Without any the task succeeds whatever it shows.
      - V(unreachable) means a host that could not be reached.
      - V(unknown) means a host of which something is not known, be it all of it, a GPU or the state of a server.
      - V(different) means a host that differs from the rest of its group, or a group without a usual value.
      - V(not_serving) means a host that has no server which is known to serve, or one that does not.
    type: list
    elements: str
    choices: [unknown, unreachable, different, not_serving]
    default: []
attributes:
  check_mode:
    support: full
    description: Shows and writes the same as otherwise. Nothing is changed on a host in either case.
  diff_mode:
    support: none
    description: Changes nothing on a host.
  platform:
    support: full
    platforms: posix
    description: Works where ansible-core's controller works.
seealso:
  - module: inferops.sglang.gpu_info
  - module: inferops.sglang.sglang_info
"""

EXAMPLES = r"""
- name: Look at the GPUs
  inferops.sglang.gpu_info:
  register: gpu_status_gpus
  failed_when: false
  ignore_unreachable: true

- name: Look at the servers
  inferops.sglang.sglang_info:
  register: gpu_status_servers
  failed_when: false
  ignore_unreachable: true

- name: Show all of it, and fail where a server does not serve
  inferops.sglang.gpu_status:
    hosts: "{{ ansible_play_hosts_all }}"
    html: /var/tmp/gpus.html
    fail_on: [not_serving]
  run_once: true
"""

RETURN = r"""
hosts:
  description: One entry for each host, in the order of O(hosts). The file of O(json) has it as well.
  returned: with at least one host
  type: list
  elements: dict
  contains:
    host:
      description: Name of the host in the inventory.
      returned: always
      type: str
      sample: gpu-a
    group:
      description: Whom it is compared with.
      returned: always
      type: str
      sample: all
    unreachable:
      description: Whether it could not be reached.
      returned: always
      type: bool
      sample: false
    problems:
      description: Why something of it is not known, one sentence each.
      returned: always
      type: list
      elements: str
      sample: []
    differs:
      description: The columns in which it differs from the usual value of its group.
      returned: always
      type: list
      elements: str
      sample: [driver]
    driver:
      description: Version of the NVIDIA driver. Null where it is not known.
      returned: always
      type: str
      sample: 580.159.04
    gpu_model:
      description: How many GPUs of which model. Null where it is not known.
      returned: always
      type: str
      sample: 8 x NVIDIA H200
    gpus:
      description: The GPUs. Null where they are not known.
      returned: always
      type: list
      elements: dict
      contains:
        index:
          description: The NVML index.
          returned: always
          type: int
          sample: 0
        uuid:
          description: The UUID, empty where it is not known.
          returned: always
          type: str
          sample: GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e
        name:
          description: The model.
          returned: always
          type: str
          sample: NVIDIA H200
        memory_used_mib:
          description: Memory in use, in MiB. Null where it could not be read.
          returned: always
          type: int
          sample: 131072
        memory_total_mib:
          description: All memory, in MiB. Null where it could not be read.
          returned: always
          type: int
          sample: 143771
        verdict:
          description: V(free), V(busy) or V(unknown).
          returned: always
          type: str
          sample: busy
        reason:
          description: Why it is not free, as in RV(inferops.sglang.gpu_info#module:gpus[].reason).
          returned: always
          type: str
          sample: holder
        message:
          description: The verdict in words.
          returned: always
          type: str
          sample: "131072 MiB used; PID 602 is listed."
        recovery_action:
          description: What the driver wants done, as in RV(inferops.sglang.gpu_info#module:gpus[].recovery_action).
          returned: always
          type: str
          sample: none
        holders:
          description: Who uses it, as in RV(hosts[].holders).
          returned: always
          type: list
          elements: dict
          sample: []
    holders:
      description:
        - Who uses the GPUs, by user, unit and container together, most memory first.
        - Null where it is not known.
      returned: always
      type: list
      elements: dict
      contains:
        user:
          description: The user.
          returned: always
          type: str
          sample: llm
        unit:
          description: The systemd unit, empty outside of any.
          returned: always
          type: str
          sample: sglang-main.service
        container:
          description: Runtime and name of the container, empty outside of any.
          returned: always
          type: str
          sample: ""
        names:
          description: The names of the processes, eight at most.
          returned: always
          type: list
          elements: str
          sample: ["sglang::scheduler_TP0"]
        pids:
          description: The PIDs.
          returned: always
          type: list
          elements: int
          sample: [602]
        memory_mib:
          description: The memory that they use, in MiB. Null where the driver does not say it of one of them.
          returned: always
          type: int
          sample: 131072
        states:
          description: The kernel's letters for their states.
          returned: always
          type: list
          elements: str
          sample: [S]
        protected:
          description: Whether M(inferops.sglang.gpu_reclaim) leaves one of them alone.
          returned: always
          type: bool
          sample: false
    servers:
      description: The deployed servers. Null where they are not known.
      returned: always
      type: list
      elements: dict
      contains:
        instance:
          description: Name of the instance.
          returned: always
          type: str
          sample: main
        state:
          description: As in RV(inferops.sglang.sglang_info#module:servers[].state).
          returned: always
          type: str
          sample: serving
        reason:
          description: As in RV(inferops.sglang.sglang_info#module:servers[].reason).
          returned: always
          type: str
          sample: ""
        message:
          description: State and reason in a sentence.
          returned: always
          type: str
          sample: ""
        user:
          description: The user that it runs as.
          returned: always
          type: str
          sample: llm
        unit:
          description: The systemd unit, empty without one.
          returned: always
          type: str
          sample: sglang-main.service
        container:
          description: The name of its container, empty where it runs in none.
          returned: always
          type: str
          sample: ""
        manager:
          description: Who runs it, V(systemd) or V(process).
          returned: always
          type: str
          sample: systemd
        pid:
          description: PID of the main process. Null where none runs.
          returned: always
          type: int
          sample: 48211
        started:
          description: When that was started, in UTC. Empty where none runs.
          returned: always
          type: str
          sample: "2026-11-30T02:46:49Z"
        port:
          description: The port that it listens on. Null where it is not known.
          returned: always
          type: int
          sample: 30000
        version:
          description: Version of SGLang. Null where it is not known.
          returned: always
          type: str
          sample: 0.5.17
        release:
          description: ID of the release that it runs. Empty where it does not run, or where that is not known.
          returned: always
          type: str
          sample: 20261130T104500Z-5d41402a
        current:
          description: ID of the release that the next start takes.
          returned: always
          type: str
          sample: 20261130T104500Z-5d41402a
        last_good:
          description: ID of the release that was proven last.
          returned: always
          type: str
          sample: 20261130T104500Z-5d41402a
        release_state:
          description:
            - V(proven), V(not proven) or V(not the current one). Null where nothing runs.
            - Hosts are compared by this, because each host has releases of its own.
          returned: always
          type: str
          sample: proven
        effective:
          description: What the server reports of its configuration. Empty where that is not known.
          returned: always
          type: dict
          sample: {speculative_algorithm: EAGLE3, speculative_num_steps: 3}
        speculation:
          description:
            - The speculation in short. Null where it is not known.
            - Of a server that adapts and has metrics also with how many steps it speculates at the moment, such as
              V(EAGLE3 3/1/4 adaptive (now 0\)).
          returned: always
          type: str
          sample: EAGLE3 3/1/4
        tier:
          description: As in RV(inferops.sglang.sglang_info#module:servers[].tier).
          returned: always
          type: dict
          sample: {num_steps: 0, num_draft_tokens: 1}
        accept_length:
          description: Mean tokens per verification. Null without speculation, or where it is not known.
          returned: always
          type: float
          sample: 2.44
        load:
          description: Its requests, C(running) and C(waiting). Null where they are not known.
          returned: always
          type: dict
          sample: {running: 3, waiting: 0}
        problems:
          description: What could not be found out of it.
          returned: always
          type: list
          elements: str
          sample: []
differences:
  description: One entry for each column of a group in which the hosts are not all the same.
  returned: with at least one host
  type: list
  elements: dict
  contains:
    group:
      description: The group.
      returned: always
      type: str
      sample: all
    column:
      description: V(driver), V(GPUs), or of an instance its state, version, release or a setting.
      returned: always
      type: str
      sample: "main: speculative_num_steps"
    kind:
      description: V(different), or V(tie) where as many hosts have one value as another one.
      returned: always
      type: str
      sample: different
    usual:
      description: The value of most hosts. Null in a tie.
      returned: always
      type: str
      sample: "3"
    values:
      description: Each value with its hosts, the most frequent first.
      returned: always
      type: list
      elements: dict
      sample: [{value: "3", hosts: [gpu-a, gpu-b]}, {value: "2", hosts: [gpu-c]}]
    not_known:
      description: The hosts of which the value is not known.
      returned: always
      type: list
      elements: str
      sample: []
summary:
  description: Counts over all hosts.
  returned: with at least one host
  type: dict
  contains:
    hosts:
      description: How many hosts.
      returned: always
      type: int
      sample: 3
    hosts_by_condition:
      description: For how many hosts each of the conditions of O(fail_on) holds.
      returned: always
      type: dict
      sample: {unknown: 0, unreachable: 0, different: 1, not_serving: 0}
    gpus:
      description: How many GPUs are known of.
      returned: always
      type: int
      sample: 24
    gpus_by_verdict:
      description: How many of them have which verdict.
      returned: always
      type: dict
      sample: {busy: 24}
    servers:
      description: How many servers are known of.
      returned: always
      type: int
      sample: 3
    servers_by_state:
      description: How many of them are in which state.
      returned: always
      type: dict
      sample: {serving: 3}
"""
