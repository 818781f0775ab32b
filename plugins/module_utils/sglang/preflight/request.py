# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a preflight is asked, and the host as far as it looks at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.gpu.models import GpuReading
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import Settings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.parser_probe import ProbeResult
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import ContainerSettings
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import SYSTEMD, InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.interpreter import DEFAULT_PATH
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.server_process import base_environment
from ansible_collections.inferops.sglang.plugins.module_utils.system.procfs import ProcFs
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import QUERY_TIMEOUT, Runner

AUTO = "auto"
REQUIRED = "required"
SKIP = "skip"

REFUSE = "refuse"
TAKE_OVER = "take_over"

# Of the operator's session these reach the parser where systemd will run the server: the rest of the
# session would not reach the server either.
_SESSION_VARIABLES = ("HOME", "LANG", "LOGNAME", "USER")
# These are set anew for the user that the server runs as.
_OF_AN_ACCOUNT = ("HOME", "LOGNAME", "SHELL", "TMPDIR", "USER")


class GpusUnknown(Exception):
    """The host's GPUs cannot be listed; the message has the remedy."""


@dataclass(frozen=True)
class Request:
    """What was asked for.  environment and secret_args hold plain values; parser_timeout is in seconds.

    container is None where the server runs on the host itself; patches are as the option gives them;
    unmanaged says what is to become of a server that somebody started by hand; measured is what a sweep measured the
    settings with, {} where they come from none.
    """

    settings: Settings
    paths: InstancePaths
    manager: str
    python: str
    launch: Tuple[str, ...]
    gpus: Tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_args: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    working_directory: str = ""
    parser: str = AUTO
    parser_timeout: float = 180.0
    replace_foreign: bool = False
    container: Optional[ContainerSettings] = None
    patches: Tuple[Mapping[str, Any], ...] = ()
    unmanaged: str = REFUSE
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """The host, as far as the checks look at it.

    list_gpus returns all GPUs or raises GpusUnknown; probe is parser_probe.run_probe; shared_memory is in
    MiB; free_space gives the free MiB at a path; session is the environment in which the checks run; now is
    the host's clock (seconds since the epoch); home gives the home folder of a user, "" for the caller.
    """

    procfs: ProcFs
    list_gpus: Callable[[], Sequence[GpuReading]]
    run_command: Runner
    probe: Callable[..., ProbeResult]
    shared_memory: Callable[[], Optional[int]]
    session: Mapping[str, str]
    free_space: Callable[[str], Optional[int]]
    now: Callable[[], float]
    home: Callable[[str], str]


def inherited_environment(request: Request, host: Host) -> Dict[str, str]:
    """What the server gets from its manager beside the variables of the release."""
    if request.container is not None:
        return {}
    if request.manager == SYSTEMD:
        # What an administrator gave to all units, such as proxies.
        done = host.run_command(["systemctl", "show-environment"], QUERY_TIMEOUT)
        pairs = (line.partition("=") for line in done.out.splitlines()) if done.ok else ()
        inherited = {name: value for name, equals, value in pairs if equals}
    else:
        inherited = base_environment(host.session, None)
        if not request.user:
            return inherited
    return {name: value for name, value in inherited.items() if name not in _OF_AN_ACCOUNT}


def probe_environment(request: Request, host: Host) -> Dict[str, str]:
    """What the parser gets beside the variables of the release."""
    if request.container is not None:
        return {}
    if request.manager != SYSTEMD:
        return base_environment(host.session, None)
    base = {name: host.session[name] for name in _SESSION_VARIABLES if name in host.session}
    return dict(base, PATH=DEFAULT_PATH)
