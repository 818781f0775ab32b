# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for the further words that a user gives to the engine."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

# The reason for each option that would undo what the collection relies on.
_OURS: Dict[str, str] = {
    "--name": "by its name the container is found again",
    "--network": "the server always uses the host's network",
    "--net": "the server always uses the host's network",
    "--publish": "the server always uses the host's network, where there is nothing to publish",
    "--publish-all": "the server always uses the host's network, where there is nothing to publish",
    "--rm": "a container that has ended is always removed",
    "--detach": "the unit must see the server end, and have its log",
    "--restart": "the engine would start a server that is being replaced",
    "--replace": "it would remove a container that somebody else gave the same name",
    "--pid": "the server's processes are told from others by their own container",
    "--pod": "the server's processes are told from others by their own container",
    "--cgroups": "the server's processes are told from others by their control group",
    "--cgroup-parent": "the server's processes are told from others by their control group",
    "--ipc": "shm_size decides over shared memory",
    "--shm-size": "the option shm_size is there for it",
    "--gpus": "gpu_access and gpus decide which GPUs the server gets",
    "--runtime": "gpu_access decides how the server gets its GPUs",
    "--init": "it is always given",
    "--log-driver": "the unit's journal is the log",
    "--log-opt": "the unit's journal is the log",
    "--attach": "the unit's journal is the log",
    "--interactive": "a server reads no input",
    "--tty": "a server has no terminal",
    "--sig-proxy": "the signal that stops the server must reach it",
    "--stop-signal": "SGLang ends properly at SIGTERM",
    "--stop-timeout": "the stop timeout of the instance is there for it",
    "--user": "the user of the instance is there for it",
    "--workdir": "the working directory of the instance is there for it",
    "--entrypoint": "the server's command decides what runs",
    "--env": "the environment of the instance is there for it, and keeps values off the command line",
    "--env-file": "the environment of the instance is there for it",
    "--env-host": "the environment of the instance is there for it",
    "--volume": "the option volumes is there for it",
    "--mount": "the option volumes is there for it",
    "--volumes-from": "the option volumes is there for it",
    "--rootfs": "the option image is there for it",
    "--pull": "an image is never pulled while the server is down",
    "--cidfile": "a file that is left behind keeps the next start from happening",
    "--sdnotify": "readiness is proven by requests",
    "--http-proxy": "the environment of the instance is there for it",
}
_SHORT = {
    "d": "--detach",
    "e": "--env",
    "v": "--volume",
    "p": "--publish",
    "P": "--publish-all",
    "i": "--interactive",
    "t": "--tty",
    "u": "--user",
    "w": "--workdir",
    "a": "--attach",
}
# Letters that take the rest of their word, or the next one.
_SHORT_WITH_VALUE = frozenset("aehlmpuvwc")
# Options that stand alone: a word after one of them would be taken for the image.
_ALONE = frozenset(
    (
        "--privileged",
        "--read-only",
        "--read-only-tmpfs",
        "--no-healthcheck",
        "--no-hosts",
        "--no-hostname",
        "--oom-kill-disable",
        "--disable-content-trust",
        "--quiet",
        "--tls-verify",
        "--rmi",
        "--passwd",
    )
)


# Where gpu_access is none, these give the GPUs.
_GPU_OPTIONS = frozenset(("--gpus", "--runtime"))


def problems_of(words: Sequence[str], gives_gpus: bool = False) -> List[str]:
    """What is wrong with such words; a sentence each, with the remedy.

    gives_gpus: the words are what gives the GPUs to the container.
    """
    found = [
        f"options: {word!r} is a label of this collection: remove it." for word in words if "inferops.sglang." in word
    ]
    takes_value = False
    for word in words:
        if not word.startswith("-"):
            if not takes_value:
                found.append(f"options: {word!r} belongs to no option: the engine would take it for the image.")
            takes_value = False
            continue
        name, equals, _value = word.partition("=")
        if name.startswith("--"):
            names, takes_value = [name], not equals and name not in _ALONE
        else:
            names, takes_value = _short_names(word[1:])
        for full in names:
            if full in ("--", "-"):
                found.append(f"options: {word!r} ends the engine's options: remove it.")
            elif full in _OURS and not (gives_gpus and full in _GPU_OPTIONS):
                said = full if word.startswith(full) else f"{word} ({full})"
                found.append(f"options: {said} is not yours to give, {_OURS[full]}: remove it.")
    return found


def _short_names(letters: str) -> Tuple[List[str], bool]:
    """The options behind "-dit", and whether the last one takes the next word."""
    if not letters:
        return ["-"], False
    names = []
    for position, letter in enumerate(letters):
        names.append(_SHORT.get(letter, "-" + letter))
        if letter in _SHORT_WITH_VALUE:
            return names, position + 1 == len(letters)
    return names, False
