#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Waits until an SGLang server is ready, and proves that it does what was asked."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_wait_ready
short_description: Wait until an SGLang server generates, and prove its configuration
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Waits on the host until a server that was started is ready. First nobody listens, because the model is being loaded,
    then C(/health) answers 503 during the server's warm-up, then 200, and then the server must generate.
  - Endpoints that already answer during the warm-up, such as C(/v1/models), count for nothing.
  - Looks at the main process before each request. A server that dies fails the task at once, with the classified reason
    and the end of its log.
  - Then proves the configuration. What listens on the port must be this server, the process must be that of the current
    release, C(/server_info) must report what is O(expected), and the generations must show that speculation works, or
    that there is none.
  - Then lets the server answer many requests, several at a time, and proves all of it once more. That finds a server
    which hangs after a hundred requests.
  - Shows on the controller how far the start is, while it goes on. For that an action plugin runs the module in parts.
    A connection that is lost between or during them is tried again, up to three times in a row, while the server goes
    on with its start. In a task with C(async), with O(progress_interval=0) and in check mode there is one part only.
  - Asks the server directly, whatever the proxy variables say.
extends_documentation_fragment:
  - inferops.sglang.sglang_instance
options:
  run_dir:
    description: Folder of the PID file, with O(manager=process). An absolute path.
    type: path
    default: /run/sglang
  log_dir:
    description: Folder of the log, with O(manager=process). An absolute path.
    type: path
    default: /var/log/sglang
  host:
    description:
      - Address that the server listens on. Without it, that of the current release.
      - V(0.0.0.0) and V(::) are asked through the loopback address.
    type: str
  port:
    description: Port that the server listens on. Without it, that of the current release.
    type: int
  timeout:
    description: Seconds for everything together. Must be positive. Large models take minutes to load.
    type: float
    default: 1800
  interval:
    description: Seconds between two looks. Must be positive.
    type: float
    default: 0.25
  request_timeout:
    description:
      - Seconds for one request. Must be positive. SGLang itself takes up to 20 seconds to answer C(/health).
      - A server that was up before the waiting began may be busy. A generation that was late is asked for again with
        twice the time, and each of O(soak_requests) gets four times of it.
    type: float
    default: 30
  progress_interval:
    description:
      - Seconds between two lines on the controller that say how far the server is. V(0) shows none.
      - With many hosts at a time it grows, so that all of them together show about one line a second.
    type: float
    default: 10
  expected:
    description:
      - Configuration that the server must report, by SGLang's own names, for example V(speculative_num_steps).
      - Without it, the effective configuration of the current release.
      - A value that is null means that SGLang chooses. For C(speculative_algorithm) it means no speculation.
    type: dict
  compare:
    description:
      - Names of the fields of O(expected) to compare. Those that the current release asked for always are.
      - Without it, C(model_path), C(served_model_name), C(tp_size), C(pp_size), C(dp_size), C(context_length),
        C(quantization), C(max_running_requests), C(disable_overlap_schedule), C(enable_multi_layer_eagle), and of
        C(speculative_*) the algorithm, the draft model and its quantization, the three numbers, the adaptive mode and
        its configuration, the attention mode, the acceptance thresholds and the token map.
      - V(all) means every field of O(expected), apart from those that each start and each GPU makes anew.
      - A field that only one side knows is not compared, unless the server must know it to be right.
    type: list
    elements: str
  min_accept_length:
    description:
      - Tokens per verification, over the generations of each sample, that a server which speculates must reach.
      - V(1.0) means that no draft token was accepted. A draft model that does not fit its target stays close to it.
      - Only a warning with NGRAM, which has no draft model, and with adaptive speculation while the server has requests
        of others, because it drafts less under load.
    type: float
    default: 1.2
  max_new_tokens:
    description: Tokens to generate for each prompt. At least 16.
    type: int
    default: 128
  prompts:
    description: Prompts to generate for. Without it, three short natural texts for each of the two samples.
    type: list
    elements: str
  soak_requests:
    description:
      - Short generations between the first sample and the second one. V(0) means neither these nor the second sample.
      - One in twenty of them may fail, and one always may. Each has another text, so that no cache answers for them.
    type: int
    default: 128
  soak_concurrency:
    description: How many of O(soak_requests) are under way at a time, from 1 to 256.
    type: int
    default: 8
  soak_tokens:
    description: Tokens to generate for each of O(soak_requests).
    type: int
    default: 32
  rank_zero:
    description:
      - V(HOST:PORT) of the node of rank 0, for a server on several hosts whose node here has a higher rank.
      - Such a node answers C(/health) with 200 whatever becomes of the server. So rank 0 is asked, and here the process
        and the port are watched.
      - Where the servers serve https, the chain of rank 0's certificate is checked with C(ssl_ca_certs) of the current
        release, if it has that, and its name is not.
    type: str
  api_key:
    description: Key of the server. Without it, the one in the current release, if there is one.
    type: str
  peers:
    description:
      - A name that the tasks which wait side by side for the nodes of one server have in common, another one for each
        attempt. When one of them fails, the others do as well, at their next line of progress, since a node may wait
        for another one without end. Empty means that there are none.
      - Done by the action plugin. Without effect in a task with C(async), and where O(api_key) has fewer than eight
        characters.
    type: str
    default: ''
  return_after:
    description:
      - Seconds after which to return although the server is neither proven nor failed, with RV(waiting).
      - V(0) means to wait to the end. The action plugin uses it; given by hand, the task returns so as well.
      - Without effect where O(api_key) has fewer than eight characters, because Ansible blanks out such a key in the
        middle of other values of RV(resume).
    type: float
    default: 0
  resume:
    description:
      - RV(resume) of the call before, to go on with the same wait. O(timeout) counts from the beginning of the first.
      - Its content is nobody else's business, and may change with each version of the collection.
    type: dict
attributes:
  async:
    support: full
    description: Shows nothing meanwhile.
  check_mode:
    support: full
    description: Checks its options and returns without waiting, because there may be no server to wait for.
  diff_mode:
    support: none
    description: Changes nothing.
  platform:
    support: full
    platforms: linux
    description: Needs C(/proc), and C(systemctl) with O(manager=systemd).
notes:
  - Run it as root. Whose socket it is that listens on the port can only be seen by root and by the server's own user.
seealso:
  - module: inferops.sglang.sglang_preflight
  - module: inferops.sglang.sglang_process
"""

EXAMPLES = r"""
- name: Wait until the server is ready and does what its release says
  inferops.sglang.sglang_wait_ready:
    instance: main
    timeout: 1800

- name: The same for a server without systemd, whose draft model is known to be good
  inferops.sglang.sglang_wait_ready:
    instance: main
    manager: process
    min_accept_length: 2.0

- name: A quick look at a server that is up, for a monitoring job
  inferops.sglang.sglang_wait_ready:
    instance: main
    timeout: 60
    soak_requests: 0
    progress_interval: 0

- name: The second node of a server on two hosts
  inferops.sglang.sglang_wait_ready:
    instance: main
    rank_zero: gpu-a.example.com:30000

- name: Prove that a server does not speculate
  inferops.sglang.sglang_wait_ready:
    instance: baseline
    expected:
      speculative_algorithm:
    timeout: 60
"""

RETURN = r"""
sglang:
  description: The server, as far as it is known.
  returned: except in check mode, and unless the options or the state of the instance are in error
  type: dict
  contains:
    instance:
      description: Name of the instance.
      type: str
      returned: always
      sample: main
    release:
      description: ID of the current release. Empty where there is none.
      type: str
      returned: always
      sample: 20260102T030405Z-1f2e3d4c
    pid:
      description: PID of the main process. Null where it was not seen.
      type: int
      returned: always
      sample: 48211
    version:
      description: Version that the server reports. Empty where it was not asked.
      type: str
      returned: always
      sample: 0.5.17
    requested:
      description: What the current release asked for.
      type: dict
      returned: always
      sample: {speculative_algorithm: EAGLE3, speculative_num_steps: 3}
    effective:
      description: The compared fields as the server reports them.
      type: dict
      returned: always
      sample: {speculative_algorithm: EAGLE3, speculative_num_steps: 3}
    adjusted:
      description: The fields that were asked for and came out otherwise, each with C(requested) and C(effective).
      type: dict
      returned: always
      sample: {speculative_num_draft_tokens: {requested: 8, effective: 4}}
    mismatches:
      description: The fields that are not as O(expected).
      type: list
      elements: dict
      returned: always
      sample: []
      contains:
        field:
          description: Name of the field.
          type: str
          returned: always
          sample: speculative_adaptive
        expected:
          description: The value that was expected.
          type: raw
          returned: always
          sample: true
        actual:
          description: The value that the server reports. Null also where it reports none.
          type: raw
          returned: always
          sample: false
        note:
          description: What is known about such a difference. May be empty.
          type: str
          returned: always
          sample: "the log says: speculative_adaptive disabled: it needs speculative_eagle_topk=1."
    expected_worker:
      description: Which of the implementations in RV(sglang.worker) was asked for. Empty where none was.
      type: str
      returned: always
      sample: ""
    worker:
      description:
        - Which implementation of the EAGLE worker runs, V(v1), V(v2) or V(v2_synchronous). Empty where that is no
          question.
        - Up to SGLang 0.5.12 there are two, and the overlap of scheduling decides.
      type: str
      returned: always
      sample: v2
    accept_length:
      description: Tokens per verification in the last sample. Null without speculation.
      type: float
      returned: always
      sample: 2.72
    spec_verify_ct:
      description: Verifications of draft tokens in the last sample.
      type: int
      returned: always
      sample: 141
    tier:
      description:
        - With how many steps it speculated at the end, where it runs adaptive speculation, and has metrics
          (C(--enable-metrics)). Null otherwise.
      type: dict
      returned: always
      sample: {num_steps: 3, num_draft_tokens: 4}
    ready_after:
      description:
        - Seconds from the start of the main process to the end of its first generation here.
        - An upper bound where the server was ready before the waiting began. Null where it never generated.
      type: float
      returned: always
      sample: 412.6
    phases:
      description: The phases that the server went through, in order.
      type: list
      elements: dict
      returned: always
      sample: [{name: starting, seconds: 398.2}, {name: warming_up, seconds: 11.9}, {name: generating, seconds: 2.5}]
      contains:
        name:
          description:
            - While nobody listens, from the log, V(starting), V(connecting) (the ranks), V(loading_weights),
              V(loading_draft), V(allocating_cache), V(compiling_kernels) and V(capturing_graphs).
            - Then V(warming_up) (503), V(ready) (200), V(generating), V(proving) and V(soaking).
            - The log is read every five seconds, so that a short one may be missing.
          type: str
          returned: always
          sample: starting
        seconds:
          description: Seconds spent in it, counted from when the waiting began.
          type: float
          returned: always
          sample: 398.2
    soak:
      description: The requests between the two samples.
      type: dict
      returned: always
      sample: {requests: 128, failed: 0, seconds: 9.6, accept_length: 2.61}
      contains:
        requests:
          description: Requests that were answered or failed.
          type: int
          returned: always
          sample: 128
        failed:
          description: Requests among them that failed.
          type: int
          returned: always
          sample: 0
        seconds:
          description: Seconds that all of them took together.
          type: float
          returned: always
          sample: 9.6
        accept_length:
          description: Tokens per verification over all of them. Null without speculation.
          type: float
          returned: always
          sample: 2.61
proof:
  description: What M(inferops.sglang.sglang_release) keeps of a server that was proven.
  returned: when the server is ready and proven
  type: dict
  sample: {ready_after: 412.6, accept_length: 2.72, version: 0.5.17, phases: [{name: starting, seconds: 41.0}]}
  contains:
    ready_after:
      description: As in RV(sglang.ready_after), but null where the server was up before the waiting began.
      type: float
      returned: always
      sample: 412.6
    accept_length:
      description: As in RV(sglang.accept_length).
      type: float
      returned: always
      sample: 2.72
    version:
      description: As in RV(sglang.version).
      type: str
      returned: always
      sample: 0.5.17
    phases:
      description: As in RV(sglang.phases), but empty where the server was up before the waiting began.
      type: list
      elements: dict
      returned: always
      sample: [{name: starting, seconds: 41.0}]
waiting:
  description: The server is not proven yet, and it has not failed. Always V(true).
  returned: when O(return_after) has passed
  type: bool
  sample: true
progress:
  description: How far the server is.
  returned: when O(return_after) has passed
  type: dict
  sample: {phase: loading_weights, percent: 45, elapsed: 130.2, left: 329.8, last_start: 460.0, silent: 1.5}
  contains:
    phase:
      description: One of the phases in RV(sglang.phases).
      type: str
      returned: always
      sample: loading_weights
    percent:
      description: How much of the phase is done, as the log says. Null where it does not.
      type: int
      returned: always
      sample: 45
    elapsed:
      description: Seconds since the server was started, or since the waiting began where that is not known.
      type: float
      returned: always
      sample: 130.2
    left:
      description: Seconds until it was ready the last time, 0 where it takes longer. Null where that is not known.
      type: float
      returned: always
      sample: 329.8
    last_start:
      description: Seconds that the last proven start of this release took, or else that of the last proven release.
      type: float
      returned: always
      sample: 460.0
    requests:
      description: Requests of O(soak_requests) that are done, in that phase.
      type: int
      returned: always
      sample: 40
    of:
      description: O(soak_requests), in that phase.
      type: int
      returned: always
      sample: 128
    silent:
      description: Seconds since the log was last seen to move, while nobody listens.
      type: float
      returned: always
      sample: 1.5
resume:
  description: For the option of the same name.
  returned: when O(return_after) has passed
  type: dict
  sample: {format: 1}
waited:
  description: Seconds that the module has waited and asked, over all parts.
  returned: except in check mode, and unless the options or the state of the instance are in error
  type: float
  sample: 412.9
reason:
  description:
    - Why the server is not ready or not proven, as a code.
    - Of a server that died V(out_of_memory), V(memory_unbalanced), V(not_enough_memory), V(port_in_use),
      V(model_not_found), V(draft_not_found), V(draft_mismatch), V(graph_capture_failed), V(bad_argument),
      V(missing_dependency), V(driver_error), V(nccl_error), V(warmup_failed), V(watchdog_timeout), V(killed),
      V(permission_denied) or V(unknown).
    - Of one that lives V(timeout), V(worker_died), V(restarted), V(foreign_listener), V(unknown_listener),
      V(stale_process), V(unauthorized), V(unexpected_answer), V(no_answer), V(rank_unprovable),
      V(peer_failed), V(generation_failed), V(generation_timeout) or V(hangs_under_load).
    - Of its configuration V(config_mismatch), V(no_speculation), V(low_acceptance) or V(unexpected_speculation).
    - Of its manager V(unknown_state), where the state of the unit or the PID file cannot be read.
  returned: when the server is not ready or not proven
  type: str
  sample: out_of_memory
phase:
  description: The phase that the server had reached, one of those in RV(sglang.phases).
  returned: when the server is not ready or not proven
  type: str
  sample: loading_weights
percent:
  description: How much of the phase was done, as the log says. Null where it does not.
  returned: when the server is not ready or not proven
  type: int
  sample: 45
last_answers:
  description: The last different answers of the server.
  returned: when the server is not ready or not proven
  type: list
  elements: str
  sample: ["starting: nothing listens on 127.0.0.1:30000"]
exit_status:
  description: Exit status of a main process that died, 128 + N after signal N. Null where it is not known.
  returned: when the server is not ready or not proven
  type: int
  sample: 1
log_tail:
  description:
    - The last lines of the server's log, at most 60, without secrets and terminal escapes.
    - Without those about requests for C(/health), of which this module makes many.
  returned: when the server is not ready or not proven
  type: list
  elements: str
  sample: ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
skipped_reason:
  description: Why nothing was waited for.
  returned: in check mode
  type: str
  sample: Nothing is started in check mode, so there is nothing to wait for.
"""

from ansible_collections.inferops.sglang.plugins.module_utils.modules.sglang_wait_ready import main

if __name__ == "__main__":
    main()
