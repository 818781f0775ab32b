#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Measures an SGLang server with the benchmark client of its own SGLang."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_benchmark
short_description: Measure an SGLang server at given concurrencies
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Runs the benchmark client of the host's own SGLang against the server of an instance, once for each of
    O(concurrencies), and repeats each measurement.
  - The client is C(sglang.benchmark.serving), or C(sglang.bench_serving) before SGLang 0.5.15. It runs with the Python,
    the environment and the user of the current release, and in a container where the server runs in one.
  - Takes the acceptance length from the answers to the very requests that are measured. The server's own figure is an
    average over all its requests since the last flush, and only of its first replica.
  - Each request generates exactly O(output_len) tokens, so that configurations are compared at the same work. The cache
    is flushed before each repeat, after the warm-up.
  - A point in which a request failed, the server was started again or the cache could not be flushed is not measured
    but failed, with the reason.
  - Shows on the controller how far it is. For that an action plugin runs the module in parts, while the client goes on
    on the host. In a task with C(async), with O(progress_interval=0) and in check mode there is one part only.
  - Keeps only numbers of the client's result, which also has the server's arguments and keys in it.
extends_documentation_fragment:
  - inferops.sglang.sglang_instance
options:
  run_dir:
    description:
      - Folder of the PID file, with O(manager=process), and of the client's files while it runs. An absolute path.
    type: path
    default: /run/sglang
  log_dir:
    description: Folder of the server's log, with O(manager=process). An absolute path.
    type: path
    default: /var/log/sglang
  concurrencies:
    description:
      - How many requests are under way at a time. One point is measured for each, in this order.
      - More than the server's C(max_running_requests) is measured, with a warning, because the rest waits in its queue.
    type: list
    elements: int
    required: true
  prompts:
    description:
      - File of prompts on the host, one a line. Required with O(dataset=custom). The role of the same name brings one.
      - 'A line is JSON, either a string, an object with C(prompt) or C(text), or a conversation (C(conversations) or
        C(messages)), of which the first question counts. In a file whose name ends in C(.txt) a line is the prompt.'
      - The first ones of the file are taken. Where they are too few, they come again with another beginning.
    type: path
  dataset:
    description:
      - V(custom) sends O(prompts).
      - V(random-ids) sends random tokens, whose acceptance is not that of real text. It is there for a quick try.
    type: str
    choices: [custom, random-ids]
    default: custom
  input_len:
    description: Tokens of each prompt, with O(dataset=random-ids).
    type: int
    default: 512
  output_len:
    description: Tokens that each request generates, at least 4. The end of a text does not end it.
    type: int
    default: 256
  num_prompts:
    description:
      - Requests of a point. V(0) means O(prompts_per_stream) for each of its streams, at least O(num_prompts_min).
    type: int
    default: 0
  prompts_per_stream:
    description:
      - Requests for each stream, without O(num_prompts). Few make the beginning and the end of the load count much.
    type: int
    default: 4
  num_prompts_min:
    description: The least number of requests, without O(num_prompts).
    type: int
    default: 12
  repeats:
    description: How often each point is measured. The result has the median and the spread.
    type: int
    default: 3
  warmup_requests:
    description:
      - Requests that come before each repeat and do not count, all at the same time, of at most 32 tokens.
      - V(0) means as many as the concurrency.
    type: int
    default: 0
  chat_template:
    description:
      - Whether each prompt is wrapped by the chat template of the model, as a chat is. Draft models are mostly trained
        on chats.
      - V(auto) means where its tokenizer has one.
    type: str
    choices: [auto, always, never]
    default: auto
  seed:
    description: Decides the order of the prompts, or the random tokens.
    type: int
    default: 42
  timeout:
    description: Seconds for one point with all its repeats. The client is ended then, and the point has failed.
    type: float
    default: 1800
  idle_timeout:
    description: Seconds to wait before each point until the server has no requests.
    type: float
    default: 10
  request_timeout:
    description: Seconds for one question to the server, such as C(/server_info).
    type: float
    default: 30
  interval:
    description: Seconds between two looks at the client and the server.
    type: float
    default: 0.2
  progress_interval:
    description:
      - Seconds between two lines on the controller that say how far it is. V(0) shows none.
      - With many hosts at a time it grows, so that all of them together show about one line a second.
    type: float
    default: 10
  allow_other_load:
    description: Measure also while the server has requests of others, with a warning.
    type: bool
    default: false
  require_proven:
    description: Refuse a server whose current release was not proven.
    type: bool
    default: true
  failed_points:
    description:
      - V(fail) fails the task where a point failed, after all points were tried.
      - V(report) only returns it.
    type: str
    choices: [fail, report]
    default: fail
  python:
    description:
      - Interpreter that has SGLang. Without it, that of the current release.
      - Needed where a release starts a program that is no Python. In a container it is a path inside.
    type: str
  api_key:
    description:
      - Key of the server. Without it, the one in the current release, if there is one.
      - It gets to the client through a file in memory, and stands in no command line and no environment of a process.
    type: str
  return_after:
    description:
      - Seconds after which to return although not all points are measured, with RV(waiting).
      - V(0) means to measure to the end. The action plugin uses it; given by hand, the task returns so as well.
      - Without effect where O(api_key) has fewer than eight characters.
      - The client ends by itself when nobody has gone on for three minutes.
    type: float
    default: 0
  resume:
    description:
      - RV(resume) of the call before, to go on with the same benchmark.
      - Its content is nobody else's business, and may change with each version of the collection.
    type: dict
attributes:
  async:
    support: full
    description: Shows nothing meanwhile.
  check_mode:
    support: full
    description: Checks the options, the prompts and the server, and returns RV(planned) without sending a request.
  diff_mode:
    support: none
    description: Changes nothing but the server's cache, which is flushed.
  platform:
    support: full
    platforms: linux
    description: Needs C(/proc), and C(systemctl) with O(manager=systemd).
notes:
  - Run it as root. Whose socket it is that listens on the port can only be seen by root and by the server's own user.
  - Take the server out of its router first, and put no other load on its GPUs.
  - The client needs about one second more for each repeat than it measures, and some seconds for its imports.
seealso:
  - module: inferops.sglang.sglang_wait_ready
  - module: inferops.sglang.sglang_process
"""

EXAMPLES = r"""
- name: Measure the server at one stream and under load
  inferops.sglang.sglang_benchmark:
    instance: main
    concurrencies: [1, 8, 64]
    prompts: /srv/prompts/support-questions.jsonl
  register: measured

- name: Show what it does with one stream
  ansible.builtin.debug:
    msg: "{{ one.output_throughput }} tok/s, {{ one.accept_length }} tokens a step"
  vars:
    one: "{{ measured.points[0].median }}"

- name: A quick try without a file of prompts
  inferops.sglang.sglang_benchmark:
    instance: main
    concurrencies: [4]
    dataset: random-ids
    output_len: 64
    repeats: 1

- name: Go on where a point fails
  inferops.sglang.sglang_benchmark:
    instance: main
    concurrencies: [1, 250]
    prompts: /srv/prompts/support-questions.jsonl
    failed_points: report
"""

RETURN = r"""
points:
  description: The measured points, in the order of O(concurrencies).
  returned: except in check mode, and unless nothing could be measured
  type: list
  elements: dict
  sample: [{concurrency: 8, num_prompts: 32, state: measured}]
  contains:
    concurrency:
      description: How many requests were to be under way at a time.
      type: int
      returned: always
      sample: 8
    num_prompts:
      description: Requests of each repeat.
      type: int
      returned: always
      sample: 32
    state:
      description: V(measured) or V(failed).
      type: str
      returned: always
      sample: measured
    reason:
      description:
        - Why it failed, as a code. Empty where it was measured.
        - Of the requests V(requests_failed), V(prompts_dropped), V(not_flushed) or V(other_load).
        - Of the client V(client_failed), V(client_missing), V(no_result), V(open_files), V(timeout) or V(busy).
        - Of the server V(server_died), V(server_restarted) or V(unknown_state).
      type: str
      returned: always
      sample: ""
    message:
      description: The same as a sentence.
      type: str
      returned: always
      sample: ""
    repeats:
      description: One entry for each repeat. Of a failed point those that were measured before it failed.
      type: list
      elements: dict
      returned: always
      sample: [{output_throughput: 512.3, completed: 32, accept_length: 2.71}]
      contains:
        duration:
          description: Seconds from the first request to the end of the last.
          type: float
          returned: always
          sample: 16.01
        completed:
          description: Requests that were answered.
          type: int
          returned: always
          sample: 32
        failed:
          description: Requests that failed. V(0), because a repeat with others does not count.
          type: int
          returned: always
          sample: 0
        output_throughput:
          description: Generated tokens in a second, over all streams.
          type: float
          returned: always
          sample: 512.3
        request_throughput:
          description: Requests in a second.
          type: float
          returned: always
          sample: 2.0
        total_input_tokens:
          description: Tokens of all prompts.
          type: int
          returned: always
          sample: 4211
        total_output_tokens:
          description: Generated tokens.
          type: int
          returned: always
          sample: 8192
        mean_ttft_ms:
          description: Milliseconds to the first token, on average.
          type: float
          returned: always
          sample: 48.1
        median_ttft_ms:
          description: The median of it.
          type: float
          returned: always
          sample: 44.0
        p99_ttft_ms:
          description: The 99th percentile of it.
          type: float
          returned: always
          sample: 91.7
        mean_tpot_ms:
          description: Milliseconds for each further token, on average.
          type: float
          returned: always
          sample: 15.2
        median_tpot_ms:
          description: The median of it.
          type: float
          returned: always
          sample: 15.1
        p99_tpot_ms:
          description: The 99th percentile of it.
          type: float
          returned: always
          sample: 17.9
        mean_e2e_latency_ms:
          description: Milliseconds for a whole request, on average. Null where the client does not tell.
          type: float
          returned: always
          sample: 3950.5
        median_e2e_latency_ms:
          description: The median of it.
          type: float
          returned: always
          sample: 3921.0
        p99_e2e_latency_ms:
          description: The 99th percentile of it. Null where the client does not tell.
          type: float
          returned: always
          sample: 4400.0
        concurrency:
          description: How many requests were under way on average.
          type: float
          returned: always
          sample: 7.9
        accept_length:
          description: Generated tokens for each verification of drafts. Null without speculation.
          type: float
          returned: always
          sample: 2.71
        accept_length_source:
          description:
            - V(requests) for the answers to the measured requests, V(sample) for further requests with the same prompts
              at the same concurrency, V(server) for the server's average. Empty without speculation.
            - The latter two only where the client cannot be listened to.
          type: str
          returned: always
          sample: requests
        verify_steps:
          description: Verifications of drafts. Null without speculation, or where nobody tells.
          type: int
          returned: always
          sample: 3023
        server_accept_length:
          description: The average that the server itself reported afterwards. Null where it does not.
          type: float
          returned: always
          sample: 2.69
        correct_drafts_histogram:
          description:
            - How many verifications accepted 0, 1, 2 and more drafts. Null where the server does not tell, as before
              SGLang 0.5.12.
          type: list
          elements: int
          returned: always
          sample: [510, 402, 371, 1740]
    median:
      description: The median of each number of the repeats. Empty for a failed point.
      type: dict
      returned: always
      sample: {output_throughput: 511.0, accept_length: 2.7}
    spread:
      description: C(min) and C(max) of each number of the repeats. Empty for a failed point.
      type: dict
      returned: always
      sample: {output_throughput: {min: 505.2, max: 512.3}}
    warnings:
      description: What somebody should know who compares this point with others.
      type: list
      elements: str
      returned: always
      sample: []
    log_tail:
      description: The last lines that the client wrote, without secrets, where the point failed.
      type: list
      elements: str
      returned: always
      sample: []
sglang:
  description: The server that was measured.
  returned: except in check mode, and unless nothing could be measured
  type: dict
  sample: {instance: main, pid: 48211, version: 0.5.17}
  contains:
    instance:
      description: Name of the instance.
      type: str
      returned: always
      sample: main
    release:
      description: ID of the current release.
      type: str
      returned: always
      sample: 20260102T030405Z-1f2e3d4c
    pid:
      description: PID of the main process.
      type: int
      returned: always
      sample: 48211
    version:
      description: Version that the server reports.
      type: str
      returned: always
      sample: 0.5.17
    effective:
      description: Its configuration as it reports it, the fields that M(inferops.sglang.sglang_wait_ready) compares.
      type: dict
      returned: always
      sample: {speculative_algorithm: EAGLE3, speculative_num_steps: 3}
    max_running_requests:
      description: How many requests it runs at a time. Null where it does not tell.
      type: int
      returned: always
      sample: 48
benchmark:
  description: How it was measured.
  returned: except in check mode, and unless nothing could be measured
  type: dict
  sample: {module: sglang.benchmark.serving, output_len: 256}
  contains:
    module:
      description: The client's Python module. Empty where none was started.
      type: str
      returned: always
      sample: sglang.benchmark.serving
    version:
      description: The client's SGLang.
      type: str
      returned: always
      sample: 0.5.17
    chat_template:
      description: Whether the prompts were wrapped by the chat template.
      type: bool
      returned: always
      sample: true
    dataset:
      description: As in O(dataset).
      type: str
      returned: always
      sample: custom
    prompts:
      description: C(name), C(sha256) and C(count) of the file of prompts. Null for random tokens.
      type: dict
      returned: always
      sample: {name: prompts.jsonl, sha256: 3f9a77d1, count: 200}
    output_len:
      description: As in O(output_len).
      type: int
      returned: always
      sample: 256
    input_len:
      description: As in O(input_len). Null for prompts of a file.
      type: int
      returned: always
      sample: 512
    repeats:
      description: As in O(repeats).
      type: int
      returned: always
      sample: 3
    seed:
      description: As in O(seed).
      type: int
      returned: always
      sample: 42
reason:
  description:
    - Why nothing was measured, or why the first failed point failed, as a code. Those of RV(points), and for the whole
      V(no_release), V(not_proven), V(server_died), V(stale_process), V(foreign_listener), V(unknown_listener),
      V(simulated_acceptance), V(unauthorized), V(unexpected_answer), V(no_answer), V(busy) and V(unknown_state).
  returned: when the task fails for another reason than its options
  type: str
  sample: not_proven
planned:
  description: C(concurrency) and C(num_prompts) of each point.
  returned: in check mode
  type: list
  elements: dict
  sample: [{concurrency: 8, num_prompts: 32}]
skipped_reason:
  description: Why nothing was measured.
  returned: in check mode
  type: str
  sample: Nothing is measured in check mode.
waiting:
  description: There is more to measure. Always V(true).
  returned: when O(return_after) has passed
  type: bool
  sample: true
progress:
  description: How far it is.
  returned: when O(return_after) has passed
  type: dict
  sample: {concurrency: 8, point: 2, points: 3, repeat: 1, repeats: 3, requests: 12, of: 32}
  contains:
    concurrency:
      description: That of the present point.
      type: int
      returned: always
      sample: 8
    point:
      description: Its number, from 1.
      type: int
      returned: always
      sample: 2
    points:
      description: How many points there are.
      type: int
      returned: always
      sample: 3
    repeat:
      description: Number of the present repeat, 0 while the client is imported.
      type: int
      returned: always
      sample: 1
    repeats:
      description: As in O(repeats).
      type: int
      returned: always
      sample: 3
    requests:
      description: Requests of the repeat that are done.
      type: int
      returned: always
      sample: 12
    of:
      description: Requests of a repeat.
      type: int
      returned: always
      sample: 32
    output_throughput:
      description: Of the last repeat of this point. Null before the first.
      type: float
      returned: always
      sample: 512.3
    accept_length:
      description: Of the last repeat of this point. Null before the first, and without speculation.
      type: float
      returned: always
      sample: 2.71
    elapsed:
      description: Seconds since this point was begun.
      type: float
      returned: always
      sample: 21.4
resume:
  description: For the option of the same name.
  returned: when O(return_after) has passed
  type: dict
  sample: {format: 1}
"""

import math
import re
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.prompts import PromptsError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.results import FAILED
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.state import StateError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.subject import Refused
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.benchmark.task import (
    UNKNOWN_STATE,
    BenchmarkTask,
    StillMeasuring,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    LOG_DIR,
    PROCESS,
    RUN_DIR,
    InstanceError,
    instance_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import ReleaseError
from ansible_collections.inferops.sglang.plugins.module_utils.system import commands

_MOST_CONCURRENCY = 8192
_MOST_REQUESTS = 1000000
_LIMITS = (
    ("output_len", 4, 1000000),
    ("input_len", 2, 1000000),
    ("num_prompts", 0, _MOST_REQUESTS),
    ("prompts_per_stream", 1, 1000),
    ("num_prompts_min", 1, _MOST_REQUESTS),
    ("repeats", 1, 100),
    ("warmup_requests", 0, _MOST_CONCURRENCY),
    ("seed", 0, 2**32 - 1),
)


class UsageError(Exception):
    """Options that make no sense; the message names the option, its value and the remedy."""


def _check_options(params: Dict[str, Any]) -> None:
    """Raises UsageError."""
    concurrencies = params["concurrencies"]
    if not concurrencies:
        raise UsageError("concurrencies: it is empty: give at least one number.")
    for value in concurrencies:
        if not 1 <= value <= _MOST_CONCURRENCY:
            raise UsageError(
                "concurrencies: %d is not possible: give numbers from 1 to %d." % (value, _MOST_CONCURRENCY)
            )
    if len(set(concurrencies)) != len(concurrencies):
        raise UsageError("concurrencies: %s has a number twice: give each once, and raise repeats." % concurrencies)
    for name, least, most in _LIMITS:
        if not least <= params[name] <= most:
            raise UsageError("%s: %d is not possible: give a number from %d to %d." % (name, params[name], least, most))
    if params["num_prompts"] and params["num_prompts"] < max(concurrencies):
        raise UsageError(
            "num_prompts: %d requests can never be %d at a time: give at least as many as the largest of concurrencies."
            % (params["num_prompts"], max(concurrencies))
        )
    for name in ("timeout", "request_timeout", "interval"):
        if not (params[name] > 0 and math.isfinite(params[name])):
            raise UsageError("%s: %r is not a positive number of seconds: give more than 0." % (name, params[name]))
    for name in ("idle_timeout", "return_after", "progress_interval"):
        if not (params[name] >= 0 and math.isfinite(params[name])):
            raise UsageError("%s: %r is not a number of seconds: give 0 or more." % (name, params[name]))
    key = params["api_key"]
    if key is not None and not re.fullmatch(r"[\x21-\x7e]*", key):
        raise UsageError("api_key: it holds characters that a HTTP header cannot carry: give printable ASCII.")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **instance_options(),
            "run_dir": {"type": "path", "default": RUN_DIR},
            "log_dir": {"type": "path", "default": LOG_DIR},
            "concurrencies": {"type": "list", "elements": "int", "required": True},
            "prompts": {"type": "path"},
            "dataset": {"type": "str", "choices": ["custom", "random-ids"], "default": "custom"},
            "input_len": {"type": "int", "default": 512},
            "output_len": {"type": "int", "default": 256},
            "num_prompts": {"type": "int", "default": 0},
            "prompts_per_stream": {"type": "int", "default": 4},
            "num_prompts_min": {"type": "int", "default": 12},
            "repeats": {"type": "int", "default": 3},
            "warmup_requests": {"type": "int", "default": 0},
            "chat_template": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
            "seed": {"type": "int", "default": 42},
            "timeout": {"type": "float", "default": 1800},
            "idle_timeout": {"type": "float", "default": 10},
            "request_timeout": {"type": "float", "default": 30},
            "interval": {"type": "float", "default": 0.2},
            "progress_interval": {"type": "float", "default": 10},
            "allow_other_load": {"type": "bool", "default": False},
            "require_proven": {"type": "bool", "default": True},
            "failed_points": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
            "python": {"type": "str"},
            "api_key": {"type": "str", "no_log": True},
            "return_after": {"type": "float", "default": 0},
            "resume": {"type": "dict"},
        },
        required_if=[("dataset", "custom", ["prompts"])],
        supports_check_mode=True,
    )
    try:
        _check_options(module.params)
        if module.params["manager"] != PROCESS and module.get_bin_path("systemctl") is None:
            raise UsageError("manager: this host has no systemctl: set manager to process.")
        task = BenchmarkTask(module.params, commands.run)
    except (UsageError, InstanceError, PromptsError, ReleaseError, StateError) as error:
        module.fail_json(msg=str(error))
    except Refused as error:
        module.fail_json(msg=str(error), reason=error.reason)
    except UNKNOWN_STATE as error:
        module.fail_json(msg=str(error), reason="unknown_state")
    _measure(module, task)


def _measure(module: AnsibleModule, task: BenchmarkTask) -> None:
    """Measure, and end the module."""
    try:
        if module.check_mode:
            task.subject.check()
        else:
            task.run()
    except StillMeasuring:
        module.exit_json(**task.part())
    except Refused as error:
        task.give_up()
        module.fail_json(msg=task.subject.shown(str(error)), reason=error.reason, **task.results())
    except UNKNOWN_STATE as error:
        task.give_up()
        module.fail_json(msg=task.subject.shown(str(error)), reason="unknown_state", **task.results())
    except BaseException:
        task.give_up()
        raise
    if module.check_mode:
        module.exit_json(changed=False, planned=task.planned(), skipped_reason="Nothing is measured in check mode.")
    found = task.results()
    failed = [point for point in found["points"] if point["state"] == FAILED]
    if failed and module.params["failed_points"] == "fail":
        first = failed[0]
        module.fail_json(
            msg="%d of %d points failed. Concurrency %d: %s"
            % (len(failed), len(found["points"]), first["concurrency"], first["message"]),
            reason=first["reason"],
            **found,
        )
    module.exit_json(**found)


if __name__ == "__main__":
    main()
