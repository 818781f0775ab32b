# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module sglang_process does; plugins/modules/sglang_process.py has its options."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Optional, Type

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    environment_from,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import (
    ETC_DIR,
    LOG_DIR,
    PROCESS,
    RUN_DIR,
    SYSTEMD,
    InstanceError,
    InstancePaths,
    instance_options,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.managers.unit_state import UnitError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes import server_process
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import (
    Running,
    RunningError,
    find_all,
    find_running,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import ServerProcessError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.starting import (
    ProcessStart,
    StartError,
    UnitStart,
    launch_from,
    refuse_other_manager,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.starting import Tools as StartTools
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.stop_sequence import (
    Report,
    StopError,
    StopSequence,
    Wish,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.stopping import Tools as StopTools
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.unmanaged import REFUSE, TAKE_OVER
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, ReleaseError, read_current
from ansible_collections.inferops.sglang.plugins.module_utils.system import commands
from ansible_collections.inferops.sglang.plugins.module_utils.system.audit import AuditLog, audit_options
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs

# How long a new process is watched for an immediate death, such as a missing module (seconds).
_WATCHED = 0.3
_LAST_PORT = 65535
# What keeps a server from being started, stopped or found, in sentences that have the remedy.
_ERRORS = (InstanceError, ReleaseError, RunningError, ServerProcessError, StartError, StopError, UnitError)


class _Task:
    """One run of the module, and what became of the server so far."""

    def __init__(self, module: AnsibleModule, paths: InstancePaths, procfs: ProcFs, audit: AuditLog) -> None:
        self.module = module
        self.audit = audit
        self.params = module.params
        self.paths = paths
        self.procfs = procfs
        self.changed = False
        self.release = self._current()
        if self.release is not None:
            audit.hide(self.release.secrets())
        self.manager = self._manager()
        self.running = self._look()
        self.stale = self._stale()
        self.before = self._shown()
        self.report: Optional[Report] = None

    def _current(self) -> Optional[Release]:
        if self.params["command"] is not None and self.params["environment"] is not None:
            return None  # nothing of it is needed
        try:
            return read_current(self.paths)
        except ReleaseError as error:
            if self.params["state"] != "stopped":
                raise
            # What runs shows without it, and must end all the same.
            self.module.warn("%s It is stopped without what the release says of its port and key." % error)
            return None

    def _manager(self) -> str:
        if self.params["manager"] is not None:
            return str(self.params["manager"])
        return self.release.manager if self.release is not None else SYSTEMD

    def _look(self) -> Running:
        return find_running(self.paths, self.manager, self.procfs, commands.run)

    def _stale(self) -> str:
        return self.running.found.stale if self.running.found is not None else ""

    # -- acting

    def act(self) -> None:
        """Bring the server into the state, or in check mode find out what that would take."""
        state = self.params["state"]
        if state == "inspected":
            return
        if self.module.check_mode:
            self._act(state)
            return
        with server_process.exclusive(self.paths.pid_file.with_suffix(".lock")):
            # Whoever held the lock until now may have changed everything.
            self.running = self._look()
            self.stale = self._stale()
            try:
                self._act(state)
            finally:
                self.running = self._look()

    def _act(self, state: str) -> None:
        if state == "started":
            self._start()
        else:
            self._stop()

    def _start(self) -> None:
        everywhere = find_all(self.paths, self.manager, self.release, self.procfs, commands.run)
        refuse_other_manager(self.paths.instance, everywhere[1:])
        tools = StartTools(self.procfs, commands.run, _WATCHED, self.params["kill_timeout"], audit=self.audit)
        act = not self.module.check_mode
        if self.manager == SYSTEMD:
            start = UnitStart(self.paths, self.release, self.params["enabled"], tools)
            self.changed = start.run(self.running, act)
            return
        command, environment = self.params["command"], self.params["environment"]
        if command is None and self.release is None:
            raise StartError(
                "%s does not exist: deploy a release (sglang_release), or give command." % self.paths.current_link
            )
        launch = launch_from(self.release, command, None if environment is None else environment_from(environment))
        process = ProcessStart(self.paths, launch, self.release if command is None else None, tools)
        self.changed = process.run(self.running, act)

    def _release_id(self) -> str:
        return self.release.id if self.release is not None and self.params["command"] is None else ""

    def _stop(self) -> None:
        params, release = self.params, self.release
        wish = Wish(
            manager=self.manager,
            grace=params["grace"],
            kill_timeout=params["kill_timeout"],
            drain_timeout=params["drain_timeout"],
            host=params["host"] or (release.host if release is not None else "127.0.0.1"),
            port=params["port"] or (release.port if release is not None else 0),
            api_key=params["api_key"],
            unmanaged=params["unmanaged"],
            remove_leftovers=params["remove_leftovers"],
        )
        tools = StopTools(self.procfs, commands.run, audit=self.audit, instance=self.paths.instance)
        sequence = StopSequence(self.paths, wish, release, tools)
        self.report = sequence.report
        try:
            sequence.run(not self.module.check_mode)
        finally:
            self.changed = self.report.changed
            for warning in self.report.warnings:
                self.module.warn(warning)

    # -- results

    def _shown(self) -> Dict[str, Any]:
        running = self.running.process is not None
        return {"running": running, "release": self.running.release if running else ""}

    def results(self) -> Dict[str, Any]:
        """What the module returns in any case."""
        process, state = self.running.process, self.running.state
        results: Dict[str, Any] = {
            "changed": self.changed,
            "process": {
                **self._shown(),
                "pid": process.pid if process is not None else None,
                "start_ticks": process.start_time if process is not None else None,
                "manager": self.manager,
                "unit": self.running.unit,
                "container": self.running.container,
                "detail": state.describe() if state is not None else "",
                "log_path": str(self.paths.log_file) if self.manager == PROCESS else "",
                "stale": self.stale,
                "leftovers": self._leftovers(),
            },
            "ended": self.report.ended if self.report is not None else [],
        }
        if self.report is not None:
            results.update(_stop_results(self.report))
        if self.module._diff:
            results["diff"] = {"before": self.before, "after": self._after()}
        return results

    def _leftovers(self) -> List[int]:
        if self.running.process is not None:
            return []
        return sorted(member.process.pid for member in self.running.members())

    def _after(self) -> Dict[str, Any]:
        if not self.module.check_mode or not self.changed:
            return self._shown()
        if self.params["state"] == "stopped":
            return {"running": False, "release": ""}
        return {"running": True, "release": self._release_id()}


def _stop_results(report: Report) -> Dict[str, Any]:
    return {
        "drain": report.drain.to_dict(),
        "exit_status": report.exit_status,
        "clean_exit": report.clean_exit,
        "leftovers": [item.to_dict() for item in report.leftovers],
        "port": report.port,
        "adopted": report.adopted,
        "unmanaged": report.unmanaged,
        "steps": report.steps,
    }


def _problem_with(params: Dict[str, Any]) -> str:
    """What is wrong with the options, "" for nothing."""
    for name in ("grace", "drain_timeout"):
        if not (params[name] >= 0 and math.isfinite(params[name])):
            return "%s: %r is not a number of seconds: give 0 or more." % (name, params[name])
    if not (params["kill_timeout"] > 0 and math.isfinite(params["kill_timeout"])):
        return "kill_timeout: %r is not a number of seconds: give more than 0." % params["kill_timeout"]
    if params["port"] is not None and not 0 < params["port"] <= _LAST_PORT:
        return "port: %d is not a port: give a number from 1 to %d." % (params["port"], _LAST_PORT)
    if params["api_key"] is not None and not re.fullmatch(r"[\x21-\x7e]*", params["api_key"]):
        return "api_key: it holds characters that a HTTP header cannot carry: give printable ASCII."
    given = [name for name in ("command", "environment") if params[name] is not None]
    if given and params["manager"] == SYSTEMD and params["state"] == "started":
        return "%s: a unit runs what its release says: leave it out, or set manager to process." % given[0]
    return ""


def main(module_class: Type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module; module_class makes it out of its options."""
    options = instance_options()
    options["manager"] = {"type": "str", "choices": [SYSTEMD, PROCESS]}
    module = module_class(
        argument_spec={
            **options,
            "state": {"type": "str", "choices": ["started", "stopped", "inspected"], "default": "started"},
            "run_dir": {"type": "path", "default": RUN_DIR},
            "log_dir": {"type": "path", "default": LOG_DIR},
            "etc_dir": {"type": "path", "default": ETC_DIR},
            "host": {"type": "str"},
            "port": {"type": "int"},
            "api_key": {"type": "str", "no_log": True},
            "drain_timeout": {"type": "float", "default": 0},
            "grace": {"type": "float", "default": 300},
            "kill_timeout": {"type": "float", "default": 60},
            "unmanaged": {"type": "str", "choices": [REFUSE, TAKE_OVER], "default": REFUSE},
            "remove_leftovers": {"type": "bool", "default": True},
            "enabled": {"type": "bool", "default": True},
            "command": {"type": "list", "elements": "str"},
            "environment": {"type": "dict"},
            **audit_options(),
        },
        supports_check_mode=True,
    )
    params = module.params
    problem = _problem_with(params)
    if problem:
        module.fail_json(msg=problem)
    audit = AuditLog.of_module(module)
    results: Dict[str, Any] = {}
    failure: Dict[str, Any] = {}
    try:
        folders = {name: params[name] for name in ("state_dir", "run_dir", "log_dir", "etc_dir")}
        paths = InstancePaths(params["instance"], **folders)
        task = _Task(module, paths, ProcFs(), audit)
        try:
            task.act()
        finally:
            results = task.results()
    except _ERRORS as error:
        failure = {"msg": str(error), **getattr(error, "results", {})}
    except OSError as error:
        where = error.filename or params["run_dir"]
        failure = {"msg": "%s: %s. Run as root, or give folders that may be written." % (where, error.strerror)}
    for warning in audit.problems:
        module.warn(warning)
    if failure:
        module.fail_json(**{**results, **failure})
    module.exit_json(**results)
