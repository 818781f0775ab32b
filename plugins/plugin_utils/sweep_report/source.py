# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what a report is made of: the folder of a sweep, or a file of results."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Tuple

from ansible_collections.inferops.sglang.plugins.module_utils.system import bounded_json
from ansible_collections.inferops.sglang.plugins.module_utils.system.regular_file import MIB, read_text
from ansible_collections.inferops.sglang.plugins.module_utils.system.visible import PATH, visible
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import DocumentError, shaped
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_store import SweepStoreError, read_results

# All repeats of a large sweep are a few MiB.
_MOST_RESULTS, _MOST_PART = 64 * MIB, 4 * MIB
# Files of a sweep that hold what was measured.
_PARTS = ("configurations", "points")
_MOST_NAMED = 20


class SourceError(ValueError):
    """Nothing can be read; the message names option, file and remedy."""


def from_folder(folder: str) -> Tuple[Dict[str, Any], List[str]]:
    """The document of a sweep's folder, and a sentence for each thing that was left out.  Raises SourceError."""
    path = os.path.abspath(os.path.expanduser(folder))
    if not os.path.isdir(path):
        raise SourceError(
            "dir: there is no folder %s on the controller. Give the folder of a sweep." % visible(path, PATH)
        )
    torn = list(_torn(path))
    try:
        document, problems = shaped(read_results(path))
    except SweepStoreError as exc:
        raise SourceError("dir: %s Give the folder of a sweep." % exc) from exc
    except DocumentError as exc:
        raise SourceError(
            "dir: %s holds no results of a sweep: %s. Give the folder of a sweep." % (visible(path, PATH), exc)
        ) from exc
    problems = ["%s was left out: %s." % (name, why) for name, why in torn[:_MOST_NAMED]] + problems
    if len(torn) > _MOST_NAMED:
        problems.append("%d more files were left out, because they cannot be read." % (len(torn) - _MOST_NAMED))
    return document, problems


def from_results(file: str) -> Tuple[Dict[str, Any], List[str]]:
    """The same of a results.json, whose analysis is made anew.  Raises SourceError."""
    path = os.path.abspath(os.path.expanduser(file))
    try:
        return shaped(bounded_json.loads(read_text(path, _MOST_RESULTS)))
    except OSError as exc:
        reason = exc.strerror or str(exc)
    except UnicodeDecodeError:
        reason = "it is no text"
    except DocumentError as exc:
        reason = "it holds no results of a sweep: %s" % exc
    except ValueError as exc:
        reason = "it is no JSON: %s" % exc
    raise SourceError(
        "results: %s cannot be read: %s. Give the results.json of a sweep." % (visible(path, PATH), reason)
    )


def _torn(folder: str) -> Iterator[Tuple[str, str]]:
    """The files of measurements that cannot be read, by their names below the folder, each with the reason."""
    for part in _PARTS:
        for parent, folders, names in os.walk(os.path.join(folder, part)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(".json"):
                    path = os.path.join(parent, name)
                    why = _why_unreadable(path)
                    if why:
                        yield visible(os.path.relpath(path, folder), PATH), why


def _why_unreadable(path: str) -> str:
    try:
        value = bounded_json.loads(read_text(path, _MOST_PART))
    except OSError as exc:
        return exc.strerror or "it cannot be read"
    except UnicodeDecodeError:
        return "it is no text"
    except ValueError as exc:
        return "it is no JSON, or torn (%s)" % visible(str(exc), PATH)
    return "" if isinstance(value, dict) else "it holds no object"
