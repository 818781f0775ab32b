# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server that is measured: that it is the proven one, that nobody else uses it, and that it stays the same."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from ansible_collections.inferops.sglang.plugins.module_utils.sglang import log_tail
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.compared import effective_of
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.current_since import current_since
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.http_client import HttpClient, HttpError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import PROCESS, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.looking.load import Load, read_load
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.main_process import (
    MainProcess,
    PidFileProcess,
    UnitProcess,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.ports import port_owner
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import container_id
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.readiness import proof
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import redact_info
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    Release,
    read_current,
    read_last_good,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.tls import tls_of_release
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcessIdentity, ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import Runner
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import visible, visible_value

# What makes the server claim acceptance that it does not have.
_SIMULATED = "SGLANG_SIMULATE_ACC_"
_POLL = 0.2


class Refused(Exception):
    """A server that is not measured, or not any more: a code and a sentence with the remedy."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Subject:
    """The current release of an instance and the process that runs it.

    params are the options of the module; run starts a program and is what the unit is asked with.
    Raises Refused, InstanceError, ReleaseError and PidFileError.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        run: Runner,
        procfs: Optional[ProcFs] = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._params = params
        self._clock = clock
        self._sleep = sleep
        self.procfs = procfs or ProcFs()
        self.paths = InstancePaths(
            params["instance"], state_dir=params["state_dir"], run_dir=params["run_dir"], log_dir=params["log_dir"]
        )
        release = read_current(self.paths)
        if release is None:
            raise Refused("no_release", "%s does not exist: deploy a release first." % self.paths.current_link)
        self.release: Release = release
        self.api_key = params["api_key"] or release.api_key()
        self.client = HttpClient(release.host, release.port, self.api_key, tls=tls_of_release(release))
        self.process: MainProcess
        if params["manager"] == PROCESS:
            self.process = PidFileProcess(self.paths.pid_file, self.paths.log_file, self.procfs)
        else:
            self.process = UnitProcess(
                self.paths.unit_name, run, self.procfs, lambda: container_id(release, self.paths, self.procfs, run)
            )
        self.info: Dict[str, Any] = {}

    @property
    def secrets(self) -> Set[str]:
        """What must not be shown."""
        return self.release.secrets() | ({self.api_key} if self.api_key else set())

    def shown(self, text: str) -> str:
        """A text that may quote the server or its client, as one line that may be shown."""
        return " ".join(log_tail.clean(text, self.secrets))

    # -- before

    def check(self) -> None:
        """Find out who is measured, and whether that makes sense.  Raises Refused and UnitError."""
        self._check_proven()
        self._check_process()
        self._check_simulated()
        self.read_info()

    def _check_proven(self) -> None:
        if not self._params["require_proven"]:
            return
        good = read_last_good(self.paths)
        if good is None or good.id != self.release.id:
            raise Refused(
                "not_proven",
                "The current release %s of %s is not proven: it may do something else than it says. Deploy it again, "
                "or set require_proven to false." % (self.release.id, self.paths.instance),
            )

    def _check_process(self) -> None:
        status = self.process.look()
        if status.dead or status.pid is None or self.process.identity is None:
            why = status.detail or "it has no main process"
            raise Refused("server_died", "The server %s does not run: %s." % (self.paths.instance, why))
        why = self.process.stale(self.release, current_since(self.paths, self.procfs))
        if why:
            raise Refused(
                "stale_process",
                "The process %d does not run the current release %s: %s." % (status.pid, self.release.id, why),
            )
        owner = port_owner(self.process.owns, self.release.host, self.release.port, self.procfs)
        if owner.foreign:
            raise Refused("foreign_listener", "%s, which is not this server." % owner.foreign)
        if not owner.known:
            raise Refused(
                "unknown_listener",
                "It cannot be seen whose socket listens on port %d, so it cannot be told what would be measured: the "
                "server is not ready, or this is not run as root." % self.release.port,
            )

    def _check_simulated(self) -> None:
        identity = self.process.identity
        environments: List[Mapping[str, str]] = [self.release.environment]
        if identity is not None:
            environments.append(self.procfs.environ(identity.pid) or {})
        for environment in environments:
            for name, value in sorted(environment.items()):
                if name.startswith(_SIMULATED) and value:
                    raise Refused(
                        "simulated_acceptance",
                        "%s is set for the server: its acceptance is made up, and so would be every figure. Deploy it "
                        "without." % name,
                    )

    def read_info(self) -> None:
        """Ask the server what it is.  Raises Refused."""
        try:
            answer = self.client.get("/server_info", self._params["request_timeout"])
            if answer.status == 404:
                answer = self.client.get("/get_server_info", self._params["request_timeout"])
            if answer.status == 401:
                raise Refused("unauthorized", "The server wants another key: give it as api_key.")
            if answer.status != 200:
                raise Refused("unexpected_answer", "/server_info answered %d: %s" % (answer.status, answer.text()))
            self.info = redact_info(answer.json_object())
        except HttpError as error:
            raise Refused("no_answer", "The server does not answer: %s." % error) from None

    # -- what it is

    @property
    def speculates(self) -> bool:
        """Whether the server says so."""
        return proof.algorithm_of(self.info) is not None

    @property
    def adaptive(self) -> bool:
        """Whether it drafts less under load, down to nothing."""
        return bool(self.info.get("speculative_adaptive"))

    @property
    def max_running_requests(self) -> Optional[int]:
        """How many requests it runs at a time, None where it does not say."""
        states = self.info.get("internal_states")
        first = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
        each = _count(first.get("effective_max_running_requests_per_dp"))
        if each is not None:
            return each * (_count(self.info.get("dp_size")) or 1)
        return _count(self.info.get("max_running_requests"))

    @property
    def model_path(self) -> str:
        """The model's folder or name."""
        return str(self.release.effective.get("model_path") or self.info.get("model_path") or "")

    @property
    def tokenizer_path(self) -> str:
        """The tokenizer's folder or name."""
        found = self.release.effective.get("tokenizer_path") or self.info.get("tokenizer_path")
        return str(found or self.model_path)

    def facts(self) -> Dict[str, Any]:
        """As it is returned."""
        identity = self.process.identity
        fields = proof.fields_to_compare(None, redact_info(self.release.requested), self.release.effective)
        return {
            "instance": self.paths.instance,
            "release": self.release.id,
            "pid": identity.pid if identity is not None else None,
            "version": visible(str(self.info.get("version") or "")),
            "effective": visible_value(effective_of(self.info, fields)) if self.info else {},
            "max_running_requests": self.max_running_requests,
        }

    # -- meanwhile

    def wait_until_idle(self, patience: float) -> Load:
        """Its load once it has no requests, or after so many seconds; what it does not tell is in `problem`."""
        deadline = self._clock() + patience
        while True:
            load = read_load(self.client, self._params["request_timeout"])
            if load.running is None or not (load.running or load.waiting) or self._clock() >= deadline:
                return load
            self._sleep(_POLL)

    def check_same(self, identity: Optional[ProcessIdentity]) -> None:
        """Raise Refused unless the main process is still this one.  Raises UnitError."""
        status = self.process.look()
        if status.dead:
            raise Refused("server_died", "The server ended while it was measured: %s." % status.detail)
        if status.replaced or (identity is not None and self.process.identity != identity):
            why = status.detail or "its main process is another one now"
            raise Refused("server_restarted", "The server was started again while it was measured: %s." % why)


def _count(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else None
