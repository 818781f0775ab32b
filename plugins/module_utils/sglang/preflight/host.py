# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything about the host that is neither a GPU nor a model: folders, space, caches, the port."""

from __future__ import annotations

import os
from typing import List, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import SYSTEMD
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.cache_checks import (
    cache_folders,
    check_caches,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.host_checks import (
    check_account,
    check_disk_space,
    check_folders,
    check_shared_memory,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.preflight.request import Host, Request
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.processes.running import Running

_TEMPORARY = "/tmp"


def check_host(
    request: Request, host: Host, running: Running, environment: Mapping[str, str], model_folders: Sequence[str]
) -> List[Check]:
    """All of it; environment is all that the server gets, model_folders are those of this host."""
    home = environment.get("HOME") or host.home(request.user)
    checks = check_account(request.user, request.working_directory if request.container is None else "")
    checks += check_folders(request.paths, request.manager, bool(request.secret_args), request.replace_foreign)
    if request.container is None or not request.container.shm_size:
        checks += check_shared_memory(host.shared_memory())
    checks += _check_space(request, host, environment, home)
    if request.container is None:
        checks += check_caches(
            environment,
            home,
            model_folders,
            host.now(),
            host.procfs.root,
            lambda pid: _is_ours(pid, host, running),
            lambda pid: host.procfs.read(pid) is not None,
        )
    return checks


def _is_ours(pid: int, host: Host, running: Running) -> bool:
    process = host.procfs.read(pid)
    return process is not None and running.owns(process)


def _check_space(request: Request, host: Host, environment: Mapping[str, str], home: str) -> List[Check]:
    paths = request.paths
    needed = [str(paths.base_dir), str(paths.instance_etc_dir if request.manager == SYSTEMD else paths.run_dir)]
    if request.container is not None:
        return check_disk_space(needed, (), host.free_space)  # the rest is in the container
    temporary = environment.get("TMPDIR") or _TEMPORARY
    if os.path.isdir(temporary):
        needed.append(temporary)
    return check_disk_space(needed, cache_folders(environment, home), host.free_space)
