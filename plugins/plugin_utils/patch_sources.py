# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the files on the controller that the option `patches` names, and keeps them out of results."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping

# A source file of SGLang has at most a few hundred kilobytes.
_MOST_BYTES = 4 * 1024 * 1024


class PatchSourceError(Exception):
    """A source that cannot be used; the message names it and the remedy."""


def fill_contents(arguments: Mapping[str, Any], find: Callable[[str], str]) -> Dict[str, Any]:
    """A copy of a module's arguments in which each patch has the content of its src.

    find gives the path of a source, and raises what it likes where there is none.  What is not as the
    option asks for is left to the module, which says so.  Raises PatchSourceError.
    """
    filled = dict(arguments)
    patches = arguments.get("patches")
    if isinstance(patches, list):
        filled["patches"] = [_filled(patch, find) for patch in patches]
    return filled


def _filled(patch: Any, find: Callable[[str], str]) -> Any:
    if not isinstance(patch, Mapping) or not patch.get("src"):
        return patch
    if patch.get("content") is not None:
        raise PatchSourceError("patches: %s has both src and content: give one of them." % patch["src"])
    src = str(patch["src"])
    return dict(patch, content=read_source(find(src), src))


def read_source(path: str, src: str) -> str:
    """The text of a source; src is its name for messages.  Raises PatchSourceError."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise PatchSourceError("patches: src %s cannot be read: %s." % (src, error.strerror)) from error
    if len(data) > _MOST_BYTES:
        raise PatchSourceError("patches: src %s is larger than 4 MiB: it is no source file of SGLang." % src)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise PatchSourceError("patches: src %s is no text in UTF-8: only source files can be patched." % src)
    return text


def hide_contents(result: Dict[str, Any]) -> Dict[str, Any]:
    """The same result, without the contents of patches among the arguments of the module."""
    invocation = result.get("invocation")
    arguments = invocation.get("module_args") if isinstance(invocation, dict) else None
    patches: Any = arguments.get("patches") if isinstance(arguments, dict) else None
    shown: List[Any] = []
    for patch in patches if isinstance(patches, list) else []:
        if isinstance(patch, dict) and isinstance(patch.get("content"), str):
            patch = dict(patch, content="(%d characters)" % len(patch["content"]))
        shown.append(patch)
    if shown and isinstance(arguments, dict):
        arguments["patches"] = shown
    return result
