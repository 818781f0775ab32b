#!/usr/bin/python
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Starts, stops and inspects an SGLang server as a process of its own."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_process
short_description: Start, stop or inspect an SGLang server where there is no service manager
version_added: 0.1.0
author: ["inferops.sglang authors (@inferops)"]
description:
  - Runs one SGLang server as a process of its own, for hosts and containers without systemd.
  - A started server gets a session of its own, no standard input, a log file, and a PID file that identifies it by PID,
    start time and boot. It keeps nothing of Ansible's connection open and outlives it.
  - A server is ended by evidence only, that is by what the PID file and the kernel say. Another process that got the
    same PID later is recognised and left alone. Names of processes play no role.
  - V(started) does not wait until the server answers. M(inferops.sglang.sglang_wait_ready) does that.
  - The server gets C(PATH), C(HOME), C(USER), C(LOGNAME), C(SHELL), C(LANG), C(LANGUAGE), C(LC_*), C(TZ), C(TMPDIR) and
    C(LD_LIBRARY_PATH) of the module's own environment, and beyond that only what the release says.
options:
  instance:
    description:
      - Name of the server on its host.
      - Lower-case letters, digits, V(-) and V(_), at most 48 characters, beginning with a letter or a digit.
    type: str
    default: main
  state:
    description:
      - V(started) starts the current release, unless it runs already. It fails where the server runs with something
        else, because replacing a server needs a stop, and GPUs that are proven free, in between.
      - V(stopped) ends the server. Its main process alone gets SIGTERM, because SGLang finishes the running requests
        with its workers and then ends them itself. After O(grace) the main process gets SIGKILL, then the workers that
        are left in its session get it.
      - V(inspected) only reports.
    type: str
    choices: [started, stopped, inspected]
    default: started
  state_dir:
    description: Folder in which the releases of all servers of the host are kept. An absolute path.
    type: path
    default: /var/lib/sglang
  run_dir:
    description: Folder of the PID file. An absolute path. It is created where it is missing.
    type: path
    default: /run/sglang
  log_dir:
    description:
      - Folder of the log, C(INSTANCE.log). An absolute path. It is created where it is missing.
      - Each start begins a new log and keeps the one before as C(INSTANCE.log.1).
    type: path
    default: /var/log/sglang
  grace:
    description: Seconds that a server has to finish its requests after SIGTERM. V(0) kills it at once.
    type: float
    default: 300
  kill_timeout:
    description: Seconds that processes have to disappear after SIGKILL. Must be positive.
    type: float
    default: 60
  command:
    description: The whole command to start, interpreter first. Without it, the command of the current release.
    type: list
    elements: str
  environment:
    description: Environment of the server. Without it, the environment of the current release.
    type: dict
attributes:
  check_mode:
    support: full
    description: Finds and checks everything and says which processes would be ended. Starts, signals and writes
      nothing.
  diff_mode:
    support: full
    description: Shows whether the server runs, and which release, before and after.
  platform:
    support: full
    platforms: linux
    description: Needs C(/proc).
seealso:
  - module: inferops.sglang.sglang_release
  - module: inferops.sglang.sglang_wait_ready
"""

EXAMPLES = r"""
- name: Start the current release
  inferops.sglang.sglang_process:
    instance: main
    state: started

- name: Stop the server, giving its requests two minutes
  inferops.sglang.sglang_process:
    instance: main
    state: stopped
    grace: 120

- name: See whether it runs
  inferops.sglang.sglang_process:
    instance: main
    state: inspected
  register: server

- name: Start a server that no release describes
  inferops.sglang.sglang_process:
    instance: trial
    state: started
    command: [/opt/sglang/bin/python3, -m, sglang.launch_server, --model-path, /models/small, --port, "30100"]
    environment:
      CUDA_VISIBLE_DEVICES: "0"
"""

RETURN = r"""
process:
  description: The server's main process, after the module has acted. In check mode, as it is now.
  returned: unless the options or the PID file are in error
  type: dict
  contains:
    running:
      description: Whether it runs.
      type: bool
      returned: always
      sample: true
    pid:
      description: Its PID. Null where it does not run.
      type: int
      returned: always
      sample: 48211
    start_ticks:
      description: Its start time in clock ticks after boot. Null where it does not run.
      type: int
      returned: always
      sample: 891274
    release:
      description: ID of the release that it was started from. Empty where it does not run, or where a O(command) was
        given.
      type: str
      returned: always
      sample: 20260102T030405Z-1f2e3d4c
    log_path:
      description: File that it writes its log to.
      type: str
      returned: always
      sample: /var/log/sglang/main.log
    stale:
      description:
        - Why the PID file that was found led to no running server. Empty where it led to one, or where there was none.
        - The file was replaced or removed, except in check mode and with O(state=inspected).
      type: str
      returned: always
      sample: the process 48211 has ended
    leftovers:
      description: PIDs of workers that still run although the main process has ended, in ascending order.
      type: list
      elements: int
      returned: always
      sample: []
ended:
  description: The processes that were ended, the main process first. In check mode, those that would be.
  returned: unless the options or the PID file are in error
  type: list
  elements: dict
  contains:
    pid:
      description: PID of the process.
      type: int
      returned: always
      sample: 48211
    start_ticks:
      description: Its start time in clock ticks after boot.
      type: int
      returned: always
      sample: 891274
    name:
      description: Its name as C(ps) shows it.
      type: str
      returned: always
      sample: sglang::scheduler_TP0
    role:
      description: V(main), or V(worker) for a process that was left in its session.
      type: str
      returned: always
      sample: main
    action:
      description:
        - V(terminated) (ended after SIGTERM), V(killed) (needed SIGKILL), V(vanished) (was gone before the signal),
          V(survived).
        - In check mode V(would_terminate) or V(would_kill).
      type: str
      returned: always
      sample: terminated
    signals:
      description: The signals that it got, in order.
      type: list
      elements: str
      returned: always
      sample: [SIGTERM]
    seconds:
      description: Seconds from the first signal to its end, or to giving up.
      type: float
      returned: always
      sample: 4.2
    state:
      description: The kernel's letter for the state of one that survived, for example V(D). Empty for others.
      type: str
      returned: always
      sample: ""
    error:
      description: Why a signal could not be sent. Empty where it could.
      type: str
      returned: always
      sample: ""
reason:
  description: Why the server died right after its start, as RV(inferops.sglang.sglang_wait_ready#module:reason).
  returned: when the server died right after its start
  type: str
  sample: missing_dependency
exit_status:
  description: Exit status of the server that died right after its start. Negative after a signal.
  returned: when the server died right after its start
  type: int
  sample: 1
log_tail:
  description: The last lines of its log, without secrets.
  returned: when the server died right after its start
  type: list
  elements: str
  sample: ["/usr/bin/python3: No module named sglang"]
"""

import os
import time
from dataclasses import replace
from typing import Any, Dict, List, Optional, Set, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail, server_process
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.failure_reasons import classify
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.files import make_folder
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    LOG_DIR,
    RUN_DIR,
    InstanceError,
    InstancePaths,
    instance_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.launch_environment import environment_from
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import secrets_of
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import ReleaseError, read_current
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.server_process import (
    Found,
    Launch,
    PidRecord,
    ServerProcessError,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

# How long a new process is watched for an immediate death, such as a missing module (seconds).
_WATCHED = 0.3


class _Failure(Exception):
    """Ends the module with a message and results."""

    def __init__(self, msg: str, **results: Any) -> None:
        super().__init__(msg)
        self.results = results


class _Server:
    """One server, its files, and what became of them so far."""

    def __init__(self, module: AnsibleModule, paths: InstancePaths, procfs: ProcFs) -> None:
        self.module = module
        self.paths = paths
        self.procfs = procfs
        self.changed = False
        self.ended: List[Dict[str, Any]] = []
        self.found = self._look()
        self.stale = self.found.stale
        self.before = self._shown()

    def _look(self) -> Found:
        return server_process.inspect(server_process.read_pid_file(self.paths.pid_file), self.procfs)

    def act(self, state: str) -> None:
        """Bring the server into a state, or in check mode find out what that would take."""
        if state == "inspected":
            return
        act = self._start if state == "started" else self._stop
        if self.module.check_mode:
            act()
            return
        with server_process.exclusive(self.paths.pid_file.with_suffix(".lock")):
            # Whoever held the lock until now may have changed everything.
            self.found = self._look()
            self.stale = self.found.stale
            act()

    # -- start

    def _start(self) -> None:
        launch, release_id, secrets = self._launch()
        if self.found.running and self.found.record is not None:
            if self.found.record.command_sha256 == launch.digest():
                return
            raise _Failure(
                "%s runs already (PID %d), with another command, environment or user than %s. "
                "Stop it first (state=stopped)."
                % (
                    self.paths.instance,
                    self.found.record.pid,
                    "the release %s" % release_id if release_id else "the one given",
                )
            )
        if self.found.leftovers:
            raise _Failure(
                "%s has ended, but workers of it still run and may hold GPUs: PID %s. Stop them first (state=stopped)."
                % (self.paths.instance, ", ".join(str(member.pid) for member in self.found.leftovers))
            )
        account = server_process.account_of(launch.user)
        environment = server_process.base_environment(os.environ, account)
        environment.update(launch.environment)
        server_process.check_launch(launch, environment)
        self.changed = True
        if self.module.check_mode:
            return
        log_path = self.paths.log_file
        make_folder(log_path.parent)
        server_process.rotate_log(log_path)
        child = server_process.spawn(launch, environment, account, log_path)
        identity = self.procfs.identity(child.pid)
        record = PidRecord(
            pid=child.pid,
            # The child is not waited for yet, so that it is in /proc even if it is dead.
            start_ticks=identity.start_time if identity else 0,
            boot_id=self.procfs.boot_id(),
            release=release_id,
            command_sha256=launch.digest(),
        )
        try:
            server_process.write_pid_file(self.paths.pid_file, record)
        except OSError:
            server_process.stop(record, 0, self.module.params["kill_timeout"], self.procfs)
            raise
        status = server_process.died_within(child, _WATCHED, time.monotonic, time.sleep)
        if status is None:
            self.found = Found(record, running=True)
            return
        # What it may have left in its session would be found by nobody later.
        server_process.stop(record, 0, self.module.params["kill_timeout"], self.procfs)
        server_process.remove_pid_file(self.paths.pid_file)
        self.found = Found(None)
        lines = log_tail.read_lines(str(log_path), secrets)
        why = classify(lines, status)
        raise _Failure(
            "%s ended right after its start %s. %s" % (self.paths.instance, _ending(status), why.message()),
            reason=why.code,
            exit_status=status,
            log_tail=log_tail.tail(lines),
        )

    def _launch(self) -> Tuple[Launch, str, Set[str]]:
        params = self.module.params
        given = params["command"]
        release = None
        if given is None or params["environment"] is None:
            release = read_current(self.paths)
        if given is None and release is None:
            raise _Failure(
                "%s does not exist: deploy a release (sglang_release), or give command." % self.paths.current_link
            )
        launch = server_process.launch_of(release) if release is not None else Launch((), {})
        if given is not None:
            launch = replace(launch, command=tuple(given))
        if params["environment"] is not None:
            launch = replace(launch, environment=environment_from(params["environment"]))
        secrets = secrets_of(launch.command, launch.environment) | set(launch.secret_args.values())
        return launch, release.id if release is not None and given is None else "", secrets

    # -- stop

    def _stop(self) -> None:
        record = self.found.record
        if record is None:
            return
        self.changed = True
        if self.module.check_mode:
            self.ended = self._would_end(record)
            return
        grace, kill_timeout = self.module.params["grace"], self.module.params["kill_timeout"]
        ended = server_process.stop(record, grace, kill_timeout, self.procfs)
        self.ended = [_shown_ended(item) for item in ended]
        survivors = server_process.survivors_of(ended)
        if survivors:
            self.changed = len(survivors) < len(ended)
            self.found = self._look()
            raise _Failure(
                "%s could not be stopped. Still there: %s."
                % (self.paths.instance, "; ".join(_survivor(item) for item in survivors))
            )
        server_process.remove_pid_file(self.paths.pid_file)
        self.found = Found(None)

    def _would_end(self, record: PidRecord) -> List[Dict[str, Any]]:
        planned = []
        if self.found.running:
            action = "would_terminate" if self.module.params["grace"] > 0 else "would_kill"
            planned.append((self.procfs.read(record.pid), "main", action))
        # While the main process lives, it ends its workers itself.
        planned += [(member, "worker", "would_kill") for member in self.found.leftovers]
        return [
            _ended(process.pid, process.start_time, process.name, role, action)
            for process, role, action in planned
            if process is not None
        ]

    # -- results

    def _shown(self) -> Dict[str, Any]:
        record = self.found.record if self.found.running else None
        return {"running": self.found.running, "release": record.release if record else ""}

    def results(self) -> Dict[str, Any]:
        """What the module returns in any case."""
        record = self.found.record if self.found.running else None
        results: Dict[str, Any] = {
            "changed": self.changed,
            "process": {
                **self._shown(),
                "pid": record.pid if record else None,
                "start_ticks": record.start_ticks if record else None,
                "log_path": str(self.paths.log_file),
                "stale": self.stale,
                "leftovers": [member.pid for member in self.found.leftovers],
            },
            "ended": self.ended,
        }
        if self.module._diff:
            results["diff"] = {"before": self.before, "after": self._after()}
        return results

    def _after(self) -> Dict[str, Any]:
        if not self.module.check_mode or not self.changed:
            return self._shown()
        if self.module.params["state"] == "stopped":
            return {"running": False, "release": ""}
        return {"running": True, "release": self._launch()[1]}


def _ending(status: int) -> str:
    return "by signal %d" % -status if status < 0 else "with status %d" % status


def _ended(
    pid: int,
    start_ticks: int,
    name: str,
    role: str,
    action: str,
    signals: Optional[List[str]] = None,
    seconds: float = 0.0,
    state: str = "",
    error: str = "",
) -> Dict[str, Any]:
    return {
        "pid": pid,
        "start_ticks": start_ticks,
        "name": name,
        "role": role,
        "action": action,
        "signals": signals or [],
        "seconds": round(seconds, 3),
        "state": state,
        "error": error,
    }


def _shown_ended(item: server_process.Ended) -> Dict[str, Any]:
    outcome = item.outcome
    return _ended(
        item.process.pid,
        item.process.start_time,
        item.process.name,
        item.role,
        outcome.action,
        list(outcome.signals),
        outcome.seconds,
        outcome.state,
        outcome.error,
    )


def _survivor(item: server_process.Ended) -> str:
    outcome = item.outcome
    if outcome.error:
        why = "%s; run as root or as its user" % outcome.error
    elif outcome.state == "D":
        why = "in an uninterruptible wait, mostly in a driver: see dmesg; only that, or a reboot, ends it"
    else:
        why = "state %s after SIGKILL" % (outcome.state or "?")
    return "PID %d (%s, %s): %s" % (item.process.pid, item.process.name, item.role, why)


def _check_seconds(params: Dict[str, Any]) -> Optional[str]:
    if not 0 <= params["grace"] < float("inf"):
        return "grace: %r is not a number of seconds: give 0 or more." % params["grace"]
    if not 0 < params["kill_timeout"] < float("inf"):
        return "kill_timeout: %r is not a number of seconds: give more than 0." % params["kill_timeout"]
    return None


def main() -> None:
    """Run the module."""
    options = instance_options()
    del options["manager"]  # this is the manager
    module = AnsibleModule(
        argument_spec={
            **options,
            "state": {"type": "str", "choices": ["started", "stopped", "inspected"], "default": "started"},
            "run_dir": {"type": "path", "default": RUN_DIR},
            "log_dir": {"type": "path", "default": LOG_DIR},
            "grace": {"type": "float", "default": 300},
            "kill_timeout": {"type": "float", "default": 60},
            "command": {"type": "list", "elements": "str"},
            "environment": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    params = module.params
    problem = _check_seconds(params)
    if problem:
        module.fail_json(msg=problem)
    results: Dict[str, Any] = {}
    failure: Dict[str, Any] = {}
    try:
        paths = InstancePaths(
            params["instance"], state_dir=params["state_dir"], run_dir=params["run_dir"], log_dir=params["log_dir"]
        )
        server = _Server(module, paths, ProcFs())
        try:
            server.act(params["state"])
        finally:
            results = server.results()
    except _Failure as error:
        failure = {"msg": str(error), **error.results}
    except (InstanceError, ReleaseError, ServerProcessError) as error:
        failure = {"msg": str(error)}
    except OSError as error:
        where = error.filename or params["run_dir"]
        failure = {"msg": "%s: %s. Run as root, or give folders that may be written." % (where, error.strerror)}
    if failure:
        module.fail_json(**{**results, **failure})
    module.exit_json(**results)


if __name__ == "__main__":
    main()
