# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is checked of a container while the old server still serves."""

from __future__ import annotations

import json
import os
import posixpath
import re
from dataclasses import replace
from typing import Callable, List, Optional, Sequence, Set, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.checks import Check, failed, ok, skipped, warning
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.launch_environment import (
    version_tuple,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.gpus import CDI_KIND
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.mounts import (
    host_path,
    parse_volume,
    uncovered,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.options import problems_of
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.run import daemon_unit
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ALL,
    CDI,
    DOCKER,
    NONE,
    PODMAN,
    ContainerError,
    ContainerSettings,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.state import container_state
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.system.supervisor import QUERY_TIMEOUT, Runner

_NAME = "container"
# Since then podman has --log-driver passthrough.
_OLDEST_PODMAN = (4,)
# Since then docker has --pull.
_OLDEST_DOCKER = (20, 10)
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
_CDI_NAME = re.compile(r"""["']?name["']?\s*:\s*["']?([A-Za-z0-9][A-Za-z0-9_.:-]*)""")
_HOOK = "nvidia-container-runtime-hook"
# A folder of a model has some hundred files; the last of them need not be looked at.
_MOST_FILES = 2000
_MOST_LINKS = 16


def settle(
    settings: ContainerSettings,
    model_paths: Sequence[str],
    run: Runner,
    exists: Callable[[str], bool] = os.path.exists,
) -> ContainerSettings:
    """The settings with what the host says: which image the name means now, which folders must be mounted.

    model_paths are the absolute paths that the server reads: target, draft, tokenizer.  image_id stays ""
    where the image is not on the host; check_container says so.
    """
    folders = uncovered(settings, model_paths, exists)
    return replace(settings, image_id=image_id(settings, run) or "", folders=folders)


def image_id(settings: ContainerSettings, run: Runner) -> Optional[str]:
    """The engine's identifier of the image on this host; None where it has none of that name."""
    if not settings.engine_path:
        return None
    done = run([settings.engine_path, "image", "inspect", "--format", "{{.Id}}", settings.image], QUERY_TIMEOUT)
    return done.out.strip() or None if done.ok else None


def check_container(
    settings: ContainerSettings,
    paths: InstancePaths,
    model_paths: Sequence[str],
    run: Runner,
    gpus: Sequence[str] = (),
    cdi_folders: Sequence[str] = CDI_FOLDERS,
) -> List[Check]:
    """Check settled settings; gpus are the UUIDs that the server will get."""
    found = [
        failed(_NAME, f"container: {problem}") for problem in problems_of(settings.options, settings.access == NONE)
    ]
    found += _check_volumes(settings)
    engine = _check_engine(settings, run)
    if engine:
        return found + engine
    found += _check_image(settings, run)
    found += _check_name(settings, paths, run)
    found += _check_gpu_access(settings, run, gpus, cdi_folders)
    for path in model_paths:
        found += _check_visible(settings, path)
    image = f"{settings.engine} runs {settings.image} ({short(settings.image_id)})."
    return found or [ok(_NAME, image)]


def short(identifier: str) -> str:
    """An identifier of an image as engines print it."""
    return identifier.split(":")[-1][:12]


def _check_engine(settings: ContainerSettings, run: Runner) -> List[Check]:
    """What keeps the engine from being asked anything further."""
    engine = settings.engine
    if not settings.engine_path:
        return [failed(_NAME, f"container: there is no {engine} on this host: install it, or choose the other engine.")]
    side = "Server" if engine == DOCKER else "Client"
    done = run([settings.engine_path, "version", "--format", "{{.%s.Version}}" % side], QUERY_TIMEOUT)
    if not done.ok:
        return [failed(_NAME, f"container: {engine} does not answer: {done.reason.rstrip('.')}. Start it first.")]
    version = done.out.strip()
    oldest = _OLDEST_DOCKER if engine == DOCKER else _OLDEST_PODMAN
    if () < version_tuple(version) < oldest:
        wanted = ".".join(str(part) for part in oldest)
        return [failed(_NAME, f"container: {engine} {version} is too old: {wanted} or newer is needed.")]
    return _check_daemon_unit(settings, run)


def _check_daemon_unit(settings: ContainerSettings, run: Runner) -> List[Check]:
    unit = daemon_unit(settings)
    if not unit:
        return []
    done = run(["systemctl", "show", "--property", "LoadState", "--value", unit], QUERY_TIMEOUT)
    if not done.ok or done.out.strip() in ("loaded", ""):
        return []
    return [
        failed(
            _NAME,
            f"container: {settings.engine} answers, but is not run by {unit}, which the server's unit needs to be "
            "started and stopped in the right order: install the engine as a service of the system.",
        )
    ]


def _check_image(settings: ContainerSettings, run: Runner) -> List[Check]:
    if image_id(settings, run) is not None:
        return []
    return [
        failed(
            _NAME,
            f"container: the image {settings.image} is not on this host, and fetching it while no server runs would "
            f"take long. Run: {settings.engine} pull {settings.image}",
        )
    ]


def _check_name(settings: ContainerSettings, paths: InstancePaths, run: Runner) -> List[Check]:
    try:
        state = container_state(settings, paths, run)
    except ContainerError as error:
        return [failed(_NAME, f"container: {error}.")]
    if state is None or state.ours:
        return []
    name = paths.container_name
    return [
        failed(
            _NAME,
            f"container: {settings.engine} has a container {name} that was not made for this instance. Rename it "
            f"({settings.engine} rename {name} NEW-NAME), remove it, or choose another instance.",
        )
    ]


# ---- files


def _check_volumes(settings: ContainerSettings) -> List[Check]:
    found = []
    targets: Set[str] = set()
    for text in settings.volumes:
        try:
            volume = parse_volume(text)
        except ContainerError as error:
            found.append(failed(_NAME, f"container: {error}."))
            continue
        if volume.target in targets:
            found.append(failed(_NAME, f"container: volumes: two have the target {volume.target}: remove one."))
        targets.add(volume.target)
        if not volume.named and not os.path.exists(volume.source):
            found.append(
                failed(
                    _NAME, f"container: volumes: {volume.source} does not exist on this host: make it, or correct it."
                )
            )
    return found


def _check_visible(settings: ContainerSettings, path: str) -> List[Check]:
    """Whether a container sees a path as the host does, with all that its links lead to."""
    if not path.startswith("/"):
        return []  # a name on a hub, which the server looks up itself
    place = host_path(settings, path)
    if place is None:
        return [skipped(_NAME, f"container: {path} is not a folder of this host: it must be in the image or a volume.")]
    if not os.path.exists(place):
        return [failed(_NAME, f"container: {path} is {place} on this host, which does not exist: correct volumes.")]
    astray = _stray_link(settings, path, place)
    if not astray:
        return []
    link, target = astray
    both = _common(path, target)
    return [
        failed(
            _NAME,
            f"container: {link} is a link to {target}, which the container does not see. Mount the folder that holds "
            f"both, such as that of the Hugging Face cache: volumes: ['{both}:{both}:ro']",
        )
    ]


def _common(path: str, target: str) -> str:
    folder = posixpath.commonpath([path, target])
    return folder if folder != "/" else posixpath.dirname(target)


def _stray_link(settings: ContainerSettings, path: str, place: str) -> Optional[Tuple[str, str]]:
    """The first link in a folder of the container whose end it does not see, and that end."""
    if not os.path.isdir(place):
        return None
    with os.scandir(place) as entries:
        names = sorted(entry.name for _number, entry in zip(range(_MOST_FILES), entries) if entry.is_symlink())
    for name in names:
        seen = posixpath.join(path, name)
        for _step in range(_MOST_LINKS):
            where = host_path(settings, seen)
            if where is None or not os.path.lexists(where):
                return posixpath.join(path, name), seen
            if not os.path.islink(where):
                break
            # Inside, a link counts from the place that the container sees it in.
            seen = posixpath.normpath(posixpath.join(posixpath.dirname(seen), os.readlink(where)))
    return None


# ---- GPUs


def _check_gpu_access(
    settings: ContainerSettings, run: Runner, gpus: Sequence[str], cdi_folders: Sequence[str]
) -> List[Check]:
    if settings.access == NONE:
        return []
    if settings.access == CDI or (settings.access == ALL and settings.engine == PODMAN):
        return _check_cdi(settings, gpus if settings.access == CDI else (), cdi_folders)
    return _check_nvidia_runtime(settings, run)


def _check_nvidia_runtime(settings: ContainerSettings, run: Runner) -> List[Check]:
    """--gpus is done by the hook of the NVIDIA Container Toolkit, which docker looks for when it starts."""
    done = run([settings.engine_path, "info", "--format", "{{json .Runtimes}}"], QUERY_TIMEOUT)
    try:
        runtimes = json.loads(done.out) if done.ok else None
    except ValueError:
        runtimes = None
    if isinstance(runtimes, dict) and "nvidia" in runtimes:
        return []
    hook = run([_HOOK, "--version"], QUERY_TIMEOUT)
    if not hook.missing:
        return []
    if runtimes is None:
        return [warning(_NAME, "container: docker does not say which runtimes it has, so --gpus may not work.")]
    return [
        failed(
            _NAME,
            "container: docker has no runtime nvidia and the host no nvidia-container-runtime-hook, so --gpus would "
            "fail. Install the NVIDIA Container Toolkit, run: nvidia-ctk runtime configure --runtime=docker, and "
            "restart docker.",
        )
    ]


def _check_cdi(settings: ContainerSettings, gpus: Sequence[str], folders: Sequence[str]) -> List[Check]:
    names = _cdi_names(folders)
    remedy = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
    if names is None:
        return [
            failed(
                _NAME,
                f"container: {settings.engine} is to give the GPUs by CDI, and there is no description of "
                f"{CDI_KIND} in {', '.join(folders[:2])}. Run: {remedy}",
            )
        ]
    missing = [name for name in gpus or ["all"] if name not in names]
    if not missing:
        return []
    return [
        failed(
            _NAME,
            f"container: CDI has no device {CDI_KIND}={missing[0]} (it has {', '.join(sorted(names)[:10])}). "
            f"Run: {remedy}",
        )
    ]


def _cdi_names(folders: Sequence[str]) -> Optional[Set[str]]:
    """The names of NVIDIA's GPUs in the files of CDI, YAML or JSON; None where no file is about them."""
    names: Optional[Set[str]] = None
    for folder in folders:
        try:
            files = sorted(name for name in os.listdir(folder) if name.endswith((".yaml", ".yml", ".json")))
        except OSError:
            continue
        for name in files:
            try:
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as stream:
                    text = stream.read()
            except OSError:
                continue
            if CDI_KIND in text:
                names = (names or set()).union(_CDI_NAME.findall(text))
    return names
