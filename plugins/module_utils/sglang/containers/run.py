# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that run a server in a container, stop it, and ask its image.

The engine's client runs in the foreground as the main process of the unit.  Values of the environment are
never in these words: the client takes them from its own environment.
"""

from __future__ import annotations

import math
import pwd
import re
from typing import Dict, Iterable, List, Mapping, Sequence

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.gpus import gpu_words
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.mounts import Mount
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    DOCKER,
    LABEL,
    PODMAN,
    ContainerError,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import is_secret_variable
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

# The label of a container that only runs the parser; its value is nothing.
_PROBE_LABEL = "inferops.sglang.probe"
_PATCHES = "patches"
# Variables that would change the engine's client itself, were it to have them in its environment.
_CLIENT = re.compile(
    r"PATH|HOME|TMPDIR|SSL_CERT_\w+|LISTEN_\w+|NOTIFY_SOCKET|(?:LD|XDG|DOCKER|CONTAINERS?|PODMAN|BUILDAH|STORAGE)_\w+"
    r"|GO[A-Z]\w*|_CONTAINERS_\w+"
)


def run_words(settings: ContainerSettings, release: Release, paths: InstancePaths) -> List[str]:
    """The command that runs the server of a release.

    It needs the variables of `client_environment` in its environment.  Raises ContainerError for a path or
    a user that the engine cannot be told.
    """
    words = _begin(settings) + _unit_words(settings)
    words += ["--name", paths.container_name, "--label", f"{LABEL}={paths.instance}"]
    # What stops the container for another reason, such as the end of the engine, leaves as much time.
    words += ["--stop-signal", "SIGTERM", "--stop-timeout", str(_whole_seconds(release.stop_timeout))]
    words += gpu_words(settings, release.gpus)
    words += _environment_words(release.environment, paths.markers)
    for mount in mounts_of(settings, release, paths):
        words += mount.words()
    words += _user_words(release.user)
    if release.working_directory:
        words += ["--workdir", release.working_directory]
    return words + _end(settings, release.command)


def stop_words(settings: ContainerSettings, paths: InstancePaths, seconds: float) -> List[str]:
    """The command that sends SIGTERM to the server, and SIGKILL after so many seconds."""
    return [settings.engine_path, "stop", "-t", str(_whole_seconds(seconds)), paths.container_name]


def clear_words(settings: ContainerSettings, paths: InstancePaths) -> List[str]:
    """The command that removes what is left of earlier containers of this instance, for when none should run.

    A loss of power leaves one, and so does podman's monitor when it is killed with its container, which
    podman then takes for running.
    """
    return _for_each(settings, paths, '"$1" rm --force "$id"')


def end_words(settings: ContainerSettings, paths: InstancePaths, seconds: float) -> List[str]:
    """The command that stops a container of this instance which still runs, if any, and removes it."""
    commands = '"$1" stop -t "$3" "$id"; "$1" rm --force "$id"'
    return [*_for_each(settings, paths, commands), str(_whole_seconds(seconds))]


def _for_each(settings: ContainerSettings, paths: InstancePaths, commands: str) -> List[str]:
    # By the label and not by the name, which may be somebody else's.
    script = f'for id in $("$1" ps --all --quiet --filter "label=$2"); do {commands}; done'
    return ["/bin/sh", "-c", script, "sh", settings.engine_path, f"{LABEL}={paths.instance}"]


def daemon_unit(settings: ContainerSettings) -> str:
    """The systemd unit of the engine's daemon, "" for an engine that has none."""
    if settings.engine != DOCKER:
        return ""
    return "snap.docker.dockerd.service" if settings.engine_path.startswith("/snap/") else "docker.service"


def probe_words(
    settings: ContainerSettings,
    mounts: Sequence[Mount],
    environment_names: Iterable[str],
    python: str,
    gpus: Sequence[str] = (),
    user: str = "",
) -> List[str]:
    """The command that runs `PYTHON -` in the image, as the server would run and beside it.

    mounts: what it must see beyond settings.volumes and settings.folders; environment_names: variables
    that it takes from its own environment; gpus: UUIDs of GPUs to show to it, none by default; user: as in
    a release.  The script comes through standard input.
    """
    words = _begin(settings)
    words += ["--log-driver", "none", "--interactive", "--label", f"{_PROBE_LABEL}="]
    words += gpu_words(settings, gpus) if gpus else []
    words += [word for name in sorted(environment_names) if _by_name(name) for word in ("--env", name)]
    for mount in [*(Mount(folder, folder) for folder in settings.folders), *mounts]:
        words += mount.words()
    words += _user_words(user)
    return words + _end(settings, [python, "-"])


def mounts_of(settings: ContainerSettings, release: Release, paths: InstancePaths) -> List[Mount]:
    """What a server sees of the host beyond its volumes.  Needs the release's id where it has files or patches."""
    mounts = [Mount(folder, folder) for folder in settings.folders]
    if release.secret_args:
        mounts.append(Mount(str(paths.secret_args_file), str(paths.secret_args_file)))
    folder = paths.release_dir(release.id)
    # The command names the files by the link `current`.  Inside, there is no link but the folder of this
    # very release in its place, so that nothing moves under a server that runs.
    for name in sorted(release.files):
        mounts.append(Mount(str(folder / name), str(paths.current_link / name)))
    for patch in release.patches:
        mounts.append(Mount(str(folder / _PATCHES / str(patch["sha256_after"])), str(patch["path"])))
    return mounts


def client_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """The part of a server's environment that the engine's client is to be given in its own."""
    return {name: value for name, value in environment.items() if _by_name(name)}


def _by_name(name: str) -> bool:
    return is_secret_variable(name) or not _CLIENT.fullmatch(name)


def _environment_words(environment: Mapping[str, str], markers: Mapping[str, str]) -> List[str]:
    words = []
    for name, value in sorted(environment.items()):
        words += ["--env", name if _by_name(name) else f"{name}={value}"]
    for name, value in sorted(markers.items()):
        words += ["--env", f"{name}={value}"]
    return words


def _begin(settings: ContainerSettings) -> List[str]:
    """What every container gets, up to the options of one kind."""
    # An image is fetched beforehand, and not for half an hour between two servers.
    words = [settings.engine_path, "run", "--rm", "--pull", "never"]
    # The kernel keeps SIGTERM from a first process that has not yet installed a handler, and SGLang does so
    # only after minutes; a first process must also wait for orphans.
    words += ["--init", "--network", "host"]
    # NCCL and SGLang's own processes share memory; an engine's default is 64 MiB.
    words += ["--shm-size", settings.shm_size] if settings.shm_size else ["--ipc", "host"]
    # Pinned memory; sockets; threads, of which podman allows 2048 by default.
    words += ["--ulimit", "memlock=-1:-1", "--ulimit", "nofile=1048576:1048576", "--pids-limit", "-1"]
    # SELinux would keep the server from the GPUs and from folders that carry the host's labels.
    words += ["--security-opt", "label=disable"]
    # Podman would hand over the proxies that it finds in its own environment.
    return words + (["--http-proxy=false"] if settings.engine == PODMAN else [])


def _unit_words(settings: ContainerSettings) -> List[str]:
    """What ties a container to the unit that runs the client."""
    if settings.engine == DOCKER:
        # The client hands the output to the unit's journal; docker would keep a second copy that grows for ever.
        return ["--log-driver", "none"]
    # The server's processes stay in the control group of the unit and write to its journal themselves.
    return ["--cgroups", "split", "--log-driver", "passthrough"]


def _end(settings: ContainerSettings, command: Sequence[str]) -> List[str]:
    """The user's words, the image and what runs in it."""
    words = [word for volume in settings.volumes for word in ("--volume", volume)]
    # The image that was checked, wherever its name points by now.  Its own entry point may be a server.
    words += [*settings.options, "--entrypoint", command[0], settings.image_id or settings.image]
    return words + list(command[1:])


def _user_words(user: str) -> List[str]:
    """The user by number: the image has names of its own, and files on the host belong to numbers."""
    if not user:
        return []
    if re.fullmatch(r"[0-9]+(:[0-9]+)?", user):
        return ["--user", user]
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise ContainerError(f"user {user!r} does not exist on this host: create it, or name another one") from None
    return ["--user", f"{entry.pw_uid}:{entry.pw_gid}"]


def _whole_seconds(seconds: float) -> int:
    # 0 would mean SIGKILL at once.
    return max(1, math.ceil(seconds))
