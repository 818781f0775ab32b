#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: which SGLang servers a host has, and how each is."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_info
short_description: Show the deployed SGLang servers of a host
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Tells of every instance that was deployed on the host whether it serves, which process and which release it is,
    which configuration the server itself reports, and how many requests it has.
  - All instances are asked at the same time, over https and with the API key where their release says so, and whatever
    the proxy variables say. Each question has a limit. One that gets no answer makes the server V(unknown), never
    V(serving).
  - An instance that is broken, or that cannot be looked at, does not fail the module.
  - Servers that were not deployed by this collection are not among them. See the holders of M(inferops.sglang.gpu_info)
    for those.
  - Changes nothing. C(/health) lets a server generate one token, as every health check does.
options:
  instances:
    description:
      - Names of the instances to look at, in this order. One that is not there is V(stopped) with the reason
        V(not_deployed).
      - Without it, all that have a current release below O(state_dir), by name.
    type: list
    elements: str
  state_dir:
    description: Folder in which the releases of all servers of the host are kept. An absolute path.
    type: path
    default: /var/lib/sglang
  run_dir:
    description: Folder of the PID files of instances without systemd. An absolute path.
    type: path
    default: /run/sglang
  log_dir:
    description: Folder of the logs of instances without systemd. An absolute path.
    type: path
    default: /var/log/sglang
  timeout:
    description:
      - Seconds for each question to a server. Must be positive.
      - SGLang takes at least a second to answer C(/health), longer under load, and up to 20 where it hangs.
    type: float
    default: 10
  generate:
    description:
      - Whether each serving server is to generate 16 tokens. One that does not is V(unknown).
      - It is then known at once whether speculation works, see RV(servers[].generation).
    type: bool
    default: false
  load_window:
    description:
      - For so many seconds the load of each server is looked at, once a second, see RV(servers[].load_window). All
        servers of the host are looked at during the same time.
      - V(0) for one look.
    type: float
    default: 0
  rank_zero:
    description:
      - V(HOST:PORT) of the node of rank 0, for instances here that are nodes of a higher rank of a server on several
        hosts. Such a node answers C(/health) with 200 whatever becomes of the server, so rank 0 is asked instead.
      - Without it these instances are V(unknown) with the reason V(rank_unprovable).
    type: str
attributes:
  check_mode:
    description: Can run in check mode and returns the same.
    support: full
  diff_mode:
    description: Changes nothing, so there is no difference to show.
    support: none
  platform:
    description: The platforms it runs on.
    support: full
    platforms: linux
notes:
  - Run it as root. Others cannot read releases, because these have the servers' keys, nor see whose socket listens.
seealso:
  - module: inferops.sglang.gpu_info
  - module: inferops.sglang.gpu_status
  - module: inferops.sglang.sglang_wait_ready
"""

EXAMPLES = r"""
- name: Look at all instances
  inferops.sglang.sglang_info:
  become: true
  register: found

- name: Refuse to go on unless all of them serve
  ansible.builtin.assert:
    that: found.servers | rejectattr('state', 'equalto', 'serving') | length == 0
    fail_msg: "{{ found.servers | map(attribute='message') | join(' ') }}"

- name: See whether the server main generates, and how many drafted tokens it accepts
  inferops.sglang.sglang_info:
    instances: [main]
    generate: true
    timeout: 30
  become: true
"""

RETURN = r"""
servers:
  description: The instances, by name, or in the order of O(instances).
  returned: success
  type: list
  elements: dict
  contains:
    instance:
      description: Name of the instance.
      returned: always
      type: str
      sample: main
    state:
      description:
        - V(serving) (its own C(/health) answered 200 in time), V(starting), V(draining) (it was told to stop, and
          finishes its requests), V(failed) (it died, dies again and again, or says itself that it is not healthy),
          V(stopped), or V(unknown).
      returned: always
      type: str
      sample: serving
    reason:
      description:
        - Why it is not serving, as a stable code; empty where the state says it all.
        - For V(starting) the phase, as in RV(inferops.sglang.sglang_wait_ready#module:phase), or V(port_taken).
        - For V(failed) V(unhealthy), V(restarts), V(no_unit), V(died), or the reason that the log shows, as in
          RV(inferops.sglang.sglang_wait_ready#module:reason).
        - For V(stopped) V(not_deployed), V(booted) or V(no_unit).
        - For V(unknown) V(health_timeout), V(unexpected_answer), V(unknown_listener), V(not_healthy),
          V(not_listening), V(generation_failed), V(generation_timeout), V(rank_unprovable), V(rank_zero_not_ready),
          V(unreadable_release), V(no_release), V(unknown_manager_state) or V(unknown_unit_state).
      returned: always
      type: str
      sample: ""
    message:
      description: State and reason in a sentence, empty for V(serving).
      returned: always
      type: str
      sample: ""
    pid:
      description: PID of the main process. Null where none runs.
      returned: always
      type: int
      sample: 48211
    started:
      description: When that was started, in UTC. Null where none runs.
      returned: always
      type: str
      sample: "2026-11-30T02:46:49Z"
    uptime:
      description: Seconds since that start, by a clock of the host that nobody can set. Null where none runs.
      returned: always
      type: float
      sample: 5210.4
    user:
      description: The user that it runs as, or would run as.
      returned: always
      type: str
      sample: sglang
    manager:
      description: Who runs it, V(systemd) or V(process). Empty where that is not known.
      returned: always
      type: str
      sample: systemd
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
    restarts:
      description: How often systemd has started it again by itself. Null without systemd.
      returned: always
      type: int
      sample: 0
    release:
      description: ID of the release that the running process was started from. Empty where it does not run, or where
        that is not known.
      returned: always
      type: str
      sample: 20261130T104500Z-5d41402a
    stale:
      description: Whether it runs another release than RV(servers[].current), because it was started before that. Null
        where it does not run, or where that is not known.
      returned: always
      type: bool
      sample: false
    current:
      description: ID of the release that the next start takes.
      returned: always
      type: str
      sample: 20261130T104500Z-5d41402a
    last_good:
      description: ID of the release that was proven last. Empty where none was.
      returned: always
      type: str
      sample: 20261130T104500Z-5d41402a
    host:
      description: The address that it listens on, by its current release.
      returned: always
      type: str
      sample: 127.0.0.1
    port:
      description: The port that it listens on, by its current release. Null where there is none that can be read.
      returned: always
      type: int
      sample: 30000
    https:
      description: Whether it serves https.
      returned: always
      type: bool
      sample: false
    node_rank:
      description: Which node of a server on several hosts it is; V(0) for one host.
      returned: always
      type: int
      sample: 0
    gpus:
      description: The UUIDs of the GPUs of its current release.
      returned: always
      type: list
      elements: str
      sample: [GPU-dcf0d3fb-72ce-ab9c-dfbf-21c3a8854f5e]
    version:
      description: Version of SGLang that the server reports. Empty where it did not answer.
      returned: always
      type: str
      sample: 0.5.17
    effective:
      description:
        - What the server reports of its configuration, by SGLang's own names, of the fields that
          O(inferops.sglang.sglang_wait_ready#module:compare) lists. Secrets are never among them.
        - Empty where it did not answer.
      returned: always
      type: dict
      sample: {speculative_algorithm: EAGLE3, speculative_num_steps: 3}
    accept_length:
      description:
        - Mean tokens per verification since the server started, or since its statistics were flushed. V(1.0) means
          that no drafted token was accepted.
        - Null without speculation, and before anything was generated.
      returned: always
      type: float
      sample: 2.44
    tier:
      description:
        - With how many steps it speculates at this moment, where it runs adaptive speculation, and has metrics
          (C(--enable-metrics)). Null otherwise, and where it does not tell.
      returned: always
      type: dict
      contains:
        num_steps:
          description: The steps. V(0) means that it does not speculate at the moment. Null where it does not tell.
          returned: always
          type: int
          sample: 3
        num_draft_tokens:
          description: The draft tokens. Null where it does not tell.
          returned: always
          type: int
          sample: 4
    load:
      description: Its requests.
      returned: always
      type: dict
      contains:
        running:
          description: How many it works on. Null where it does not tell.
          returned: always
          type: int
          sample: 3
        waiting:
          description: How many wait. Null where it does not tell.
          returned: always
          type: int
          sample: 0
        source:
          description: The path that told, V(/v1/loads), V(/get_load) or V(/metrics). Empty where none did.
          returned: always
          type: str
          sample: /v1/loads
    load_window:
      description: Its requests over O(load_window), those that run and those that wait together. Null without it.
      returned: always
      type: dict
      contains:
        seconds:
          description: How long it was looked at.
          returned: always
          type: float
          sample: 10.0
        samples:
          description: How many looks told something.
          returned: always
          type: int
          sample: 11
        unanswered:
          description: How many did not.
          returned: always
          type: int
          sample: 0
        average:
          description: The mean of what they told. Null where none did.
          returned: always
          type: float
          sample: 18.4
        peak:
          description: The most of it. Null where none did.
          returned: always
          type: int
          sample: 24
        complete:
          description: Whether all were answered, with the waiting requests. Otherwise the true numbers may be larger.
          returned: always
          type: bool
          sample: true
    generation:
      description: What it generated. Null without O(generate), and where it did not.
      returned: always
      type: dict
      contains:
        tokens:
          description: How many tokens.
          returned: always
          type: int
          sample: 16
        seconds:
          description: How long it took.
          returned: always
          type: float
          sample: 0.21
        spec_verify_ct:
          description: How often drafts were verified. V(0) means that it did not speculate.
          returned: always
          type: int
          sample: 6
        accept_length:
          description: Tokens per verification. Null where none took place.
          returned: always
          type: float
          sample: 2.67
    problems:
      description: What could not be found out, one sentence each.
      returned: always
      type: list
      elements: str
      sample: []
"""

import math
from typing import Any, Dict, List

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    LOG_DIR,
    RUN_DIR,
    STATE_DIR,
    InstanceError,
    InstancePaths,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.look import Looker, Wish, instance_names
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness.ranks import parse_address
from ansible_collections.inferops.sglang.plugins.module_utils.system import commands

# Of looking at the load (seconds): what is longer is the job of a monitor.
_LONGEST_WINDOW = 600


class UsageError(Exception):
    """Options that cannot be: the message names the option, the value and the remedy."""


def _wish(params: Dict[str, Any]) -> Wish:
    """Raises UsageError."""
    timeout = params["timeout"]
    if not (timeout > 0 and math.isfinite(timeout)):
        raise UsageError("timeout: %r is not a positive number of seconds: give more than 0." % timeout)
    rank_zero = None
    if params["rank_zero"]:
        try:
            rank_zero = parse_address(params["rank_zero"])
        except ValueError as error:
            raise UsageError("rank_zero: %s: give HOST:PORT of the node of rank 0." % error) from None
    window = params["load_window"]
    if not 0 <= window <= _LONGEST_WINDOW:
        raise UsageError("load_window: %r is not 0 to %d seconds: give fewer." % (window, _LONGEST_WINDOW))
    return Wish(timeout, params["generate"], rank_zero, window)


def _instances(params: Dict[str, Any]) -> List[InstancePaths]:
    """Raises InstanceError and UsageError."""
    folders = {name: params[name] for name in ("state_dir", "run_dir", "log_dir")}
    names = params["instances"]
    if names is None:
        InstancePaths("main", **folders)  # refuses folders that cannot be, before one of them is read
        try:
            names = instance_names(params["state_dir"])
        except OSError as error:
            raise UsageError(
                "state_dir: %s cannot be read: %s. Run the task as root (become), or give another folder."
                % (params["state_dir"], error.strerror)
            ) from None
    return [InstancePaths(name, **folders) for name in dict.fromkeys(names)]


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "str"},
            "state_dir": {"type": "path", "default": STATE_DIR},
            "run_dir": {"type": "path", "default": RUN_DIR},
            "log_dir": {"type": "path", "default": LOG_DIR},
            "timeout": {"type": "float", "default": 10},
            "generate": {"type": "bool", "default": False},
            "load_window": {"type": "float", "default": 0},
            "rank_zero": {"type": "str"},
        },
        supports_check_mode=True,
    )
    try:
        wish = _wish(module.params)
        instances = _instances(module.params)
    except (UsageError, InstanceError) as error:
        message = str(error)
        # The option is called otherwise here.
        module.fail_json(msg="instances" + message[len("instance") :] if message.startswith("instance:") else message)
    module.exit_json(changed=False, servers=Looker(wish, commands.run).look(instances))


if __name__ == "__main__":
    main()
