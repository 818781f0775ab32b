# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which container a server runs, as data: the option `container`, and what a release keeps of it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

DOCKER = "docker"
PODMAN = "podman"

AUTO = "auto"  # what the engine does best
GPUS = "gpus"  # docker's --gpus, by UUID
CDI = "cdi"  # the Container Device Interface, by UUID
ALL = "all"  # every GPU of the host
NONE = "none"  # nothing: the further options do it

# By this label our containers are known; its value is the instance.
LABEL = "inferops.sglang.instance"

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]*")
_SIZE = re.compile(r"[1-9][0-9]*[bkmgBKMG]?")


class ContainerError(ValueError):
    """A container that cannot be: the message names the option, the value and the remedy."""


def container_option() -> Dict[str, Any]:
    """The entry `container` of an argument spec."""
    return {
        "type": "dict",
        "options": {
            "engine": {"type": "str", "choices": [DOCKER, PODMAN], "default": DOCKER},
            "image": {"type": "str", "required": True},
            "volumes": {"type": "list", "elements": "str", "default": []},
            "shm_size": {"type": "str", "default": ""},
            "gpu_access": {"type": "str", "choices": [AUTO, GPUS, CDI, ALL, NONE], "default": AUTO},
            "options": {"type": "list", "elements": "str", "default": []},
        },
    }


@dataclass(frozen=True)
class ContainerSettings:
    """What the container of a server is made from.

    engine_path is absolute, "" where the engine was not found; volumes are SOURCE:TARGET or
    SOURCE:TARGET:OPTIONS; shm_size is a size as the engine takes it ("32g"), "" to share the host's; options
    are further words for the engine.

    Two fields are found out on the host: image_id, which is what the name of the image meant when it was
    checked, and folders, those of the host that are mounted read-only at their own paths.
    """

    engine: str
    engine_path: str
    image: str
    volumes: Tuple[str, ...] = ()
    shm_size: str = ""
    gpu_access: str = AUTO
    options: Tuple[str, ...] = ()
    image_id: str = ""
    folders: Tuple[str, ...] = field(default=())

    @property
    def access(self) -> str:
        """How the GPUs are given: gpu_access with AUTO decided."""
        if self.gpu_access != AUTO:
            return self.gpu_access
        return GPUS if self.engine == DOCKER else CDI

    def to_dict(self) -> Dict[str, Any]:
        """What a release keeps: JSON's types only."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ContainerSettings:
        """Read what `to_dict` gave.  Raises ContainerError for anything else."""
        values: Dict[str, Any] = {}
        for item in fields(cls):
            if item.name not in data:
                continue
            value = data[item.name]
            if item.name in _LISTS:
                if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
                    raise ContainerError(f"container: {item.name} is not a list of words")
                values[item.name] = tuple(value)
            elif isinstance(value, str):
                values[item.name] = value
            else:
                raise ContainerError(f"container: {item.name} is not a text")
        for name in ("engine", "engine_path", "image"):
            if name not in values:
                raise ContainerError(f"container: {name} is missing")
        return _valid(cls(**values))


_LISTS = ("volumes", "options", "folders")


def container_from(
    params: Optional[Mapping[str, Any]], which: Callable[[str], Optional[str]]
) -> Optional[ContainerSettings]:
    """The settings from the option `container`; None where no container is wanted.

    which finds a program by its name (shutil.which).  Raises ContainerError for values that cannot be; what
    needs a look at the host is left to check_container, also that the engine is there.
    """
    if not params:
        return None
    engine = str(params.get("engine") or DOCKER)
    return _valid(
        ContainerSettings(
            engine=engine,
            engine_path=which(engine) or "",
            image=str(params.get("image") or ""),
            volumes=tuple(params.get("volumes") or ()),
            shm_size=str(params.get("shm_size") or ""),
            gpu_access=str(params.get("gpu_access") or AUTO),
            options=tuple(params.get("options") or ()),
        )
    )


def _valid(settings: ContainerSettings) -> ContainerSettings:
    if settings.engine not in (DOCKER, PODMAN):
        raise ContainerError(f"container: engine {settings.engine!r} is not known: use docker or podman")
    if not _IMAGE.fullmatch(settings.image):
        raise ContainerError(
            f"container: image {settings.image!r} is not the name of an image: give one such as lmsysorg/sglang:v0.5.17"
        )
    if settings.shm_size and not _SIZE.fullmatch(settings.shm_size):
        raise ContainerError(f"container: shm_size {settings.shm_size!r} is not a size: give one such as 32g")
    if settings.gpu_access not in (AUTO, GPUS, CDI, ALL, NONE):
        raise ContainerError(
            f"container: gpu_access {settings.gpu_access!r} is not known: use auto, gpus, cdi, all or none"
        )
    if settings.engine == PODMAN and settings.gpu_access == GPUS:
        raise ContainerError("container: gpu_access gpus is docker's --gpus, which podman does not have: use cdi")
    return settings
