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
    description: Seconds for one request. Must be positive. SGLang itself takes up to 20 seconds to answer C(/health).
    type: float
    default: 30
  expected:
    description:
      - Configuration that the server must report, by SGLang's own names, for example V(speculative_num_steps).
      - Without it, the effective configuration of the current release.
      - A value that is null means that SGLang chooses. For C(speculative_algorithm) it means no speculation.
    type: dict
  compare:
    description:
      - Names of the fields of O(expected) to compare.
      - Without it, C(model_path), C(served_model_name), C(tp_size), C(pp_size), C(dp_size), C(max_running_requests),
        C(disable_overlap_schedule), and of C(speculative_*) the algorithm, the draft model and its quantization, the
        three numbers, the adaptive mode and its configuration, the attention mode, the acceptance thresholds and the
        token map.
      - A field that only one side knows is not compared, unless the server must know it to be right.
    type: list
    elements: str
  min_accept_length:
    description:
      - Tokens per verification, over all generations together, that a server which speculates must reach.
      - V(1.0) means that no draft token was accepted. A draft model that does not fit its target stays close to it.
    type: float
    default: 1.2
  max_new_tokens:
    description: Tokens to generate for each prompt. At least 16.
    type: int
    default: 128
  prompts:
    description: Prompts to generate for. Without it, three short natural texts.
    type: list
    elements: str
  api_key:
    description: Key of the server. Without it, the one in the current release, if there is one.
    type: str
attributes:
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
          sample: SGLang turned it off; its log says why
    worker:
      description:
        - Which implementation of the EAGLE worker runs, V(v1), V(v2) or V(v2_synchronous). Empty where that is no
          question.
        - Up to SGLang 0.5.12 there are two, and the overlap of scheduling decides.
      type: str
      returned: always
      sample: v2
    accept_length:
      description: Tokens per verification over all generations. Null without speculation.
      type: float
      returned: always
      sample: 2.72
    spec_verify_ct:
      description: Verifications of draft tokens over all generations.
      type: int
      returned: always
      sample: 141
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
            - V(starting) (nobody listens), V(warming_up) (503), V(ready) (200), V(generating), V(proving).
          type: str
          returned: always
          sample: starting
        seconds:
          description: Seconds spent in it, counted from when the waiting began.
          type: float
          returned: always
          sample: 398.2
waited:
  description: Seconds that the module has waited and asked.
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
    - Of one that lives V(timeout), V(restarted), V(foreign_listener), V(unknown_listener), V(stale_process),
      V(unauthorized), V(unexpected_answer), V(no_answer), V(generation_failed) or V(generation_timeout).
    - Of its configuration V(config_mismatch), V(no_speculation), V(low_acceptance) or V(unexpected_speculation).
    - Of its manager V(unknown_state), where the state of the unit or the PID file cannot be read.
  returned: when the server is not ready or not proven
  type: str
  sample: out_of_memory
phase:
  description: The phase that the server had reached.
  returned: when the server is not ready or not proven
  type: str
  sample: starting
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
  description: The last lines of the server's log, at most 60, without secrets and terminal escapes.
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

import math
import os
import re
import time
from typing import Any, Callable, Dict, List, Optional, Set

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail, proof
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.failure_reasons import classify
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import HttpClient
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    LOG_DIR,
    PROCESS,
    RUN_DIR,
    InstanceError,
    InstancePaths,
    instance_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.main_process import (
    MainProcess,
    PidFileProcess,
    UnitProcess,
    port_owner,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness import Limits, NotReady, Waiter
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    redact_info,
    secret_argument_values,
    secrets_of,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, ReleaseError, read_current
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.server_process import PidFileError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.unit_state import UnitError
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

_MIN_TOKENS = 16


class _Usage(Exception):
    """Options, or the files of the instance, that do not allow the task to begin."""


class _Task:
    """One run of the module: who is waited for, what it must report, and what was found so far."""

    def __init__(self, params: Dict[str, Any], run: Callable[[List[str]], Any]) -> None:
        self.params = params
        self.procfs = ProcFs()
        self.paths = InstancePaths(
            params["instance"], state_dir=params["state_dir"], run_dir=params["run_dir"], log_dir=params["log_dir"]
        )
        self.release: Optional[Release] = read_current(self.paths)
        self.host = self._setting("host")
        self.port = self._setting("port")
        if params["expected"] is None and self.release is None:
            raise _Usage("%s does not exist: deploy a release, or give expected." % self.paths.current_link)
        self.expected: Dict[str, Any] = params["expected"]
        if self.expected is None and self.release is not None:
            self.expected = self.release.effective
        self.api_key = params["api_key"] or self._key_of_release()
        self.fields = params["compare"] if params["compare"] is not None else list(proof.COMPARED)
        self.warnings: List[str] = []
        self.facts: Dict[str, Any] = {
            "instance": params["instance"],
            "release": self.release.id if self.release else "",
            "pid": None,
            "version": "",
            "requested": redact_info(self.release.requested) if self.release else {},
            "effective": {},
            "adjusted": {},
            "mismatches": [],
            "worker": "",
            "accept_length": None,
            "spec_verify_ct": 0,
            "ready_after": None,
        }
        self.process: MainProcess
        if params["manager"] == PROCESS:
            self.process = PidFileProcess(self.paths.pid_file, self.paths.log_file, self.procfs)
        else:
            self.process = UnitProcess(self.paths.unit_name, run, self.procfs)
        self.waiter = Waiter(
            HttpClient(self.host, self.port, self.api_key),
            self.process.look,
            lambda: port_owner(self.process, self.host, self.port, self.procfs).foreign,
            Limits(params["timeout"], params["interval"], params["request_timeout"]),
            time.monotonic,
            time.sleep,
        )

    def _setting(self, name: str) -> Any:
        given = self.params[name]
        if given is not None:
            return given
        if self.release is None:
            raise _Usage("%s: it is not given and %s does not exist: give it." % (name, self.paths.current_link))
        return getattr(self.release, name)

    def _key_of_release(self) -> Optional[str]:
        if self.release is None:
            return None
        if "api-key" in self.release.secret_args:
            return self.release.secret_args["api-key"]
        for position, word in enumerate(self.release.command):
            if word == "--api-key" or word.startswith("--api-key="):
                values = secret_argument_values(self.release.command[position:])
                return values[0] if values else None
        return None

    @property
    def secrets(self) -> Set[str]:
        """What must not be shown."""
        found: Set[str] = {self.api_key} if self.api_key else set()
        if self.release is not None:
            found |= secrets_of(self.release.command, self.release.environment) | set(self.release.secret_args.values())
        return found

    def run(self) -> None:
        """Wait and prove.  Raises NotReady."""
        waiter = self.waiter
        waiter.wait_for_health()
        prompts = self.params["prompts"] if self.params["prompts"] is not None else list(proof.PROMPTS)
        tokens = self.params["max_new_tokens"]
        generations = waiter.generate(prompts[:1], tokens)
        self._note_ready()
        generations += waiter.generate(prompts[1:], tokens)
        self._prove_process()
        info = waiter.server_info()
        waiter.check_still_there()
        self._prove_configuration(info)
        speculation = proof.judge_speculation(proof.algorithm_of(info), generations, self.params["min_accept_length"])
        self.facts["accept_length"] = speculation.accept_length
        self.facts["spec_verify_ct"] = speculation.verify_count
        notes = proof.log_warnings(self.process.log_start(self.secrets) + self.process.log(self.secrets))
        self.warnings += waiter.warnings + proof.capacity_warnings(info) + notes
        if self.facts["mismatches"]:
            raise NotReady("config_mismatch", self._mismatch_message(notes), in_log=True)
        if speculation.problem:
            raise NotReady(speculation.problem, speculation.message, in_log=True)

    def _note_ready(self) -> None:
        identity = self.process.identity
        if identity is not None:
            # Both count from the boot of the host, so that a clock that is set meanwhile does not matter.
            started = identity.start_time / os.sysconf("SC_CLK_TCK")
            self.facts["ready_after"] = round(max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started), 2)

    def _prove_process(self) -> None:
        owner = port_owner(self.process, self.host, self.port, self.procfs)
        if not owner.known:
            raise NotReady(
                "unknown_listener",
                "It cannot be seen whose socket listens on port %d, so it cannot be told whether this server answered. "
                "Run as root (in a container with the capability SYS_PTRACE) or as the server's user." % self.port,
            )
        if self.release is None or self.process.identity is None:
            return
        why = self.process.stale(self.release, os.lstat(str(self.paths.current_link)).st_mtime)
        pid = self.process.identity.pid
        if why:
            raise NotReady(
                "stale_process",
                "The process %d does not run the current release %s: %s. Stop it, then start it again."
                % (pid, self.release.id, why),
            )
        process = self.procfs.read(pid)
        if process is not None and proof.command_differs(process.argv, self.release.command):
            self.warnings.append(
                "The command line of the process %d is not the one of the release %s." % (pid, self.release.id)
            )

    def _prove_configuration(self, info: Dict[str, Any]) -> None:
        facts = self.facts
        shown = redact_info(info)
        facts["version"] = str(info.get("version") or "")
        facts["effective"] = proof.effective_of(shown, self.fields)
        facts["adjusted"] = proof.adjusted_of(facts["requested"], shown)
        facts["worker"] = proof.worker_of(info)
        facts["mismatches"] = [
            mismatch.to_dict() for mismatch in proof.compare(redact_info(self.expected), shown, self.fields)
        ]
        checked = self.release.sglang_version if self.release else ""
        if checked and facts["version"] and checked != facts["version"]:
            self.warnings.append(
                "The server runs SGLang %s, but its configuration was checked with %s." % (facts["version"], checked)
            )
        for name in self.params["compare"] or []:
            if name not in self.expected or name not in info:
                self.warnings.append("compare: %s was not compared, because only one side knows it, or none." % name)

    def _mismatch_message(self, notes: List[str]) -> str:
        found = "; ".join(proof.Mismatch(**mismatch).message() for mismatch in self.facts["mismatches"])
        return " ".join(["The server does not run with what was expected: %s." % found, *notes])

    # -- results

    def results(self) -> Dict[str, Any]:
        """What is returned in any case."""
        identity, status = self.process.identity, self.waiter.status
        pid = identity.pid if identity is not None else status.pid if status is not None else None
        facts = {**self.facts, "pid": pid, "phases": self.waiter.journal.phases()}
        return {"changed": False, "sglang": facts, "waited": round(self.waiter.journal.elapsed, 3)}

    def failure(self, error: NotReady) -> Dict[str, Any]:
        """The results of a server that is not ready."""
        status = error.status
        lines = self.process.log(self.secrets)
        reason, message = error.reason, str(error)
        if error.in_log:
            why = classify(
                lines, status.exit_status if status is not None else None, status is not None and status.killed
            )
            if reason == "died":
                reason = why.code
            if why.code != "unknown" or error.reason == "died":
                message = "%s %s" % (message, why.message())
        return {
            "msg": message,
            "reason": reason,
            "phase": self.waiter.journal.phase,
            "last_answers": log_tail.clean("\n".join(self.waiter.journal.answers), self.secrets),
            "exit_status": status.exit_status if status is not None else None,
            "log_tail": log_tail.tail(lines),
        }


def _check_options(params: Dict[str, Any]) -> None:
    """Raises _Usage."""
    for name in ("timeout", "interval", "request_timeout"):
        if not (params[name] > 0 and math.isfinite(params[name])):
            raise _Usage("%s: %r is not a positive number of seconds: give more than 0." % (name, params[name]))
    if not (params["min_accept_length"] >= 0 and math.isfinite(params["min_accept_length"])):
        raise _Usage("min_accept_length: %r is no number of tokens: give 1.0 or more." % params["min_accept_length"])
    if params["max_new_tokens"] < _MIN_TOKENS:
        raise _Usage(
            "max_new_tokens: %d is too little to judge speculation by: give %d or more."
            % (params["max_new_tokens"], _MIN_TOKENS)
        )
    if params["port"] is not None and not 0 < params["port"] < 65536:
        raise _Usage("port: %d is not a port: give a number from 1 to 65535." % params["port"])
    prompts = params["prompts"]
    if prompts is not None and not (prompts and all(prompt.strip() for prompt in prompts)):
        raise _Usage("prompts: an empty list, or an empty prompt, proves nothing: give some text, or leave it out.")
    key = params["api_key"]
    if key is not None and not re.fullmatch(r"[\x21-\x7e]*", key):
        raise _Usage("api_key: it holds characters that a HTTP header cannot carry: give printable ASCII.")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **instance_options(),
            "run_dir": {"type": "path", "default": RUN_DIR},
            "log_dir": {"type": "path", "default": LOG_DIR},
            "host": {"type": "str"},
            "port": {"type": "int"},
            "timeout": {"type": "float", "default": 1800},
            "interval": {"type": "float", "default": 0.25},
            "request_timeout": {"type": "float", "default": 30},
            "expected": {"type": "dict"},
            "compare": {"type": "list", "elements": "str"},
            "min_accept_length": {"type": "float", "default": 1.2},
            "max_new_tokens": {"type": "int", "default": 128, "no_log": False},
            "prompts": {"type": "list", "elements": "str"},
            "api_key": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    try:
        _check_options(module.params)
        if module.check_mode:
            InstancePaths(module.params["instance"], state_dir=module.params["state_dir"])
            module.exit_json(
                changed=False,
                skipped_reason="Nothing is started in check mode, so there is nothing to wait for.",
            )
        if module.params["manager"] != PROCESS and module.get_bin_path("systemctl") is None:
            raise _Usage("manager: this host has no systemctl: set manager to process.")
        task = _Task(module.params, module.run_command)
    except (_Usage, InstanceError, ReleaseError, PidFileError) as error:
        module.fail_json(msg=str(error))
    try:
        task.run()
    except NotReady as error:
        failed: Optional[NotReady] = error
    except (UnitError, PidFileError) as error:
        failed = NotReady("unknown_state", str(error))
    else:
        failed = None
    for warning in task.warnings:
        module.warn(warning)
    if failed is not None:
        module.fail_json(**task.results(), **task.failure(failed))
    module.exit_json(**task.results())


if __name__ == "__main__":
    main()
