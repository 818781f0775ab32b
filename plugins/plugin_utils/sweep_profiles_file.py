# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file with the profiles of a sweep, `profiles.yml` in the sweep's folder on the controller."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Dict, Mapping

import yaml

from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json
from ansible_collections.inferops.sglang.plugins.module_utils.system.regular_file import MIB, read_text
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_profiles import (
    FORMAT,
    MEASURED,
    PROFILES,
    make_profiles,
)

NAME = "profiles.yml"
# What the file is made of, and what a sweep begins with.
_RESULTS, _PLAN = "results.json", "sweep.json"
_OPTION = "sglang_sweep_dir"
# Far more than any sweep has.
_MOST_PROFILES, _MOST_RESULTS = 4 * MIB, 64 * MIB
_HEAD = """\
# The profiles of a sweep, made of its results: written anew with them, so do not change this file.
# sglang_sweep_dir finds it in its folder; anywhere else it is a file of variables: -e @profiles.yml
---
"""


class SweepError(ValueError):
    """A folder in which there are no profiles; the message names the option, the folder and the remedy."""


class Unfinished(SweepError):
    """The folder of a sweep that is not at its end."""


@dataclass(frozen=True)
class SweepProfiles:
    """Profiles by name, and what was measured: see sweep_profiles.make_profiles."""

    folder: str
    profiles: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)


def as_yaml(results: Mapping[str, Any]) -> str:
    """The content of the file."""
    body: str = yaml.safe_dump(_plain(make_profiles(results)), sort_keys=False, default_flow_style=False, width=100)
    return _HEAD + body


def read_profiles(folder: str) -> SweepProfiles:
    """The profiles of the sweep in a folder.  Raises SweepError."""
    path = os.path.abspath(os.path.expanduser(folder))
    if not os.path.isdir(path):
        raise SweepError(
            f"{_OPTION}: there is no folder {path} on the controller. Give the folder of a sweep, or none and define "
            "the profile in sglang_spec_profiles."
        )
    file = os.path.join(path, NAME)
    if os.path.exists(file):
        return SweepProfiles(path, *_read(file, _stamp(file)))
    results = os.path.join(path, _RESULTS)
    if os.path.exists(results):
        return SweepProfiles(path, *_from_results(results, _stamp(results)))
    if os.path.exists(os.path.join(path, _PLAN)):
        raise Unfinished(
            f"{_OPTION}: the sweep in {path} has no {NAME} yet, because it is not at its end. Run it again: it goes "
            "on where it was."
        )
    raise SweepError(
        f"{_OPTION}: {path} is no folder of a sweep: it has neither {NAME} nor {_RESULTS}. Give the folder in which "
        "spec_sweep has left its results."
    )


def _stamp(file: str) -> tuple[int, int, int]:
    try:
        status = os.stat(file)
    except OSError as error:
        raise SweepError(f"{_OPTION}: {file} cannot be read: {error.strerror}.") from None
    return status.st_mtime_ns, status.st_size, status.st_ino


# A play asks for the settings of a host several times, and of many hosts.
@lru_cache(maxsize=8)
def _read(file: str, stamp: tuple[int, int, int]) -> tuple[Dict[str, Any], Dict[str, Any]]:
    text = _text(file, _MOST_PROFILES)
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SweepError(f"{_OPTION}: {file} is not valid YAML: {_first_line(error)}. {_AGAIN}") from None
    return _parts(content, file)


@lru_cache(maxsize=8)
def _from_results(file: str, stamp: tuple[int, int, int]) -> tuple[Dict[str, Any], Dict[str, Any]]:
    text = _text(file, _MOST_RESULTS)
    try:
        results = bounded_json.loads(text)
    except ValueError as error:
        raise SweepError(f"{_OPTION}: {file} is not valid JSON: {error}. {_AGAIN}") from None
    if not isinstance(results, dict) or not isinstance(results.get("configurations"), list):
        raise SweepError(f"{_OPTION}: {file} has no configurations, so it is not of a sweep. {_AGAIN}")
    return _parts(make_profiles(results), file)


_AGAIN = "Have it written again by the end of the sweep, or give another folder."


def _text(file: str, most: int) -> str:
    try:
        return read_text(file, most)
    except OSError as error:
        raise SweepError(f"{_OPTION}: {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SweepError(f"{_OPTION}: {file} is no text. {_AGAIN}") from None


def _parts(content: Any, file: str) -> tuple[Dict[str, Any], Dict[str, Any]]:
    measured = content.get(MEASURED) if isinstance(content, dict) else None
    profiles = content.get(PROFILES) if isinstance(content, dict) else None
    if not isinstance(measured, dict) or not isinstance(profiles, dict):
        raise SweepError(f"{_OPTION}: {file} was not written by a sweep: it has no {MEASURED}. {_AGAIN}")
    if measured.get("format") != FORMAT:
        raise SweepError(
            f"{_OPTION}: {file} has the format {measured.get('format')!r:.40}, and this version reads {FORMAT}. "
            f"{_AGAIN}"
        )
    return profiles, measured


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["it gave no reason"])[0]


def _plain(value: Any) -> Any:
    """Plain types: a dumper of YAML refuses what Ansible makes of texts."""
    if isinstance(value, Mapping):
        return {str.__str__(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return "".join([str(value)])
