# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a configuration changes about the current release: lines for people, and a diff.  Without secrets."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.configuration.arguments import parse_extra_args
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.redaction import (
    REDACTED,
    is_secret_argument,
    is_secret_variable,
    shown_variable,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release

FIRST = "first deployment of this instance"
_HIDDEN = "not shown"
# Plain fields of a release that decide how the server is started.
_FIELDS = ("manager", "user", "working_directory")

# A list of names and values, in order, of which the second one is compared and the third one shown.
_Parts = List[Tuple[str, Any, str]]


def describe_changes(current: Optional[Release], wanted: Release) -> List[str]:
    """One line for each difference, in the order of the command line; [] where nothing differs."""
    if current is None:
        return [FIRST]
    lines: List[str] = []
    for parts in (_program, _options, _secrets, _environment, _container, _patches, _files, _plain):
        lines += _differences(parts(current), parts(wanted))
    return lines


def diff_of(current: Optional[Release], wanted: Release) -> Dict[str, str]:
    """Before and after for Ansible's diff mode: one option a line, the environment sorted."""
    return {
        "before_header": f"{wanted.instance}: current release",
        "after_header": f"{wanted.instance}: checked configuration",
        "before": "" if current is None else _text(current),
        "after": _text(wanted),
    }


def _differences(before: _Parts, after: _Parts) -> List[str]:
    old, new = ({name: (value, shown) for name, value, shown in parts} for parts in (before, after))
    names = list(new) + [name for name in old if name not in new]
    lines = []
    for name in names:
        if name not in old:
            lines.append(f"{name}: added{_in_brackets(new[name][1])}")
        elif name not in new:
            lines.append(f"{name}: removed{_in_brackets(old[name][1])}")
        elif old[name][0] != new[name][0]:
            lines.append(f"{name}: {_change(old[name][1], new[name][1])}")
    return lines


def _in_brackets(shown: str) -> str:
    return f" ({shown})" if shown else ""


def _change(old: str, new: str) -> str:
    if old == new:
        return f"changed ({new})" if new == _HIDDEN else "changed"
    return f"{old or 'nothing'} -> {new or 'nothing'}"


# -- the parts of a release, each a name, what is compared, and what is shown


def _split(command: Sequence[str]) -> Tuple[List[str], List[str]]:
    first = next((number for number, word in enumerate(command) if word.startswith("--")), len(command))
    return list(command[:first]), list(command[first:])


def _program(release: Release) -> _Parts:
    words = _split(release.command)[0]
    return [("program", words, " ".join(words))]


def _options(release: Release) -> _Parts:
    parts: _Parts = []
    counted: Dict[str, int] = {}
    for option in parse_extra_args(_split(release.command)[1])[0]:
        # An option that is given again has a line of its own.
        counted[option.name] = counted.get(option.name, 0) + 1
        name = option.name if counted[option.name] == 1 else f"{option.name} (number {counted[option.name]})"
        shown = _HIDDEN if is_secret_argument(option.name) else " ".join(option.values)
        parts.append((name, option.values, shown))
    return parts


def _secrets(release: Release) -> _Parts:
    return [(name, value, _HIDDEN) for name, value in sorted(release.secret_args.items())]


def _environment(release: Release) -> _Parts:
    return [
        (f"environment {name}", value, _HIDDEN if is_secret_variable(name) else (shown_variable(name, value) or '""'))
        for name, value in sorted(release.environment.items())
    ]


def _container(release: Release) -> _Parts:
    parts: _Parts = []
    for name, value in sorted(release.container.items()):
        if value not in (None, "", [], {}):
            label = "image" if name == "image" else f"container {name}"
            parts.append((label, value, _plain_text(value)))
    return parts


def _patches(release: Release) -> _Parts:
    sums = {str(patch.get("target", "")): str(patch.get("sha256_after", "")) for patch in release.patches}
    return [(f"patch {target}", checksum, checksum[:12]) for target, checksum in sorted(sums.items())]


def _files(release: Release) -> _Parts:
    return [(f"file {name}", text, "") for name, text in sorted(release.files.items())]


def _plain(release: Release) -> _Parts:
    return [
        (name, getattr(release, name), str(getattr(release, name))) for name in _FIELDS if getattr(release, name) != ""
    ]


def _plain_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping) else str(value)


def _text(release: Release) -> str:
    """Everything, a line for each option."""
    program, words = _split(release.command)
    lines = [" ".join(program)]
    for option in parse_extra_args(words)[0]:
        shown = [option.name, REDACTED] if is_secret_argument(option.name) and option.values else option.words
        lines.append("  " + " ".join(shown))
    lines += [f"  --{name} {REDACTED}" for name in sorted(release.secret_args)]
    lines += [
        f"environment {name}={shown_variable(name, value)}" for name, value in sorted(release.environment.items())
    ]
    others: Sequence[Callable[[Release], _Parts]] = (_container, _patches, _plain)
    lines += [f"{name} {shown}".rstrip() for parts in others for name, _value, shown in parts(release)]
    for name, text in sorted(release.files.items()):
        lines += [f"file {name}", *("  " + line for line in text.splitlines())]
    return "\n".join(lines) + "\n"
