# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a story types in place of what the page says, and why.  Everything else is typed as it stands there."""

from __future__ import annotations

import re
from typing import Callable, Sequence, Tuple

# (what the page says, what is typed, why).  In what is typed, {archive}, {root} and the like are the story's.
SUBSTITUTIONS: Sequence[Tuple[str, str, str]] = (
    (
        r"^(ansible-galaxy collection install\b.*?) inferops\.sglang\b(:\S+)?",
        r"\1 --offline {archive}",
        "what is tested is the collection of this tree, packed as for Galaxy",
    ),
    (
        r"^make (?=\w)",
        "make --directory={root} --dry-run ",
        "the targets are the parts of the tests themselves: here it is seen that they exist and read their files",
    ),
    (
        r"\bsglang_release=\d{8}T\d+",
        "sglang_release={oldest_release}",
        "releases are named by the time at which they were made",
    ),
    (
        r"(?<=/site-packages/)sglang/srt/speculative/\w+\.py",
        "sglang/launch_server.py",
        "the stand-in for SGLang has no such file",
    ),
    (
        r"\bbuild/venv/bin/python\b",
        "python",
        "the tests may run in another environment of the same kind",
    ),
    (
        r"(?<![\w/])/var/tmp/",
        "{folder}/",
        "what a story writes stays in its folder",
    ),
    (
        r"\bpython3\.1\d/site-packages\b",
        "python3.11/site-packages",
        "the Debian of the test hosts has this one; in what a page shows as well",
    ),
)


def typed(text: str, value: Callable[[str], str]) -> str:
    """Return the command that is typed for a command of a page; value gives what stands in braces."""
    for pattern, replacement, _reason in SUBSTITUTIONS:
        text = re.sub(pattern, _filled(replacement, value), text, flags=re.MULTILINE) if _in(pattern, text) else text
    return text


def _in(pattern: str, text: str) -> bool:
    return re.search(pattern, text, flags=re.MULTILINE) is not None


def _filled(replacement: str, value: Callable[[str], str]) -> str:
    # The values are no patterns.
    return re.sub(r"\{(\w+)\}", lambda match: value(match.group(1)).replace("\\", r"\\"), replacement)
