# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the code blocks of a Markdown page, each with the comment above it that says how to test it.

Pure: text in, blocks out.  What a comment may say is listed in README.md beside this file.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import Dict, List

from markdown_it import MarkdownIt

# What a comment may say, and whether it takes a value.
NOTES = {
    "story": True,
    "host": True,
    "expect": True,
    "file": True,
    "same-as": True,
    "not-run": True,
    "check": False,
    "syntax": False,
}
_COMMENT = re.compile(r"<!--\s*test:(.*?)-->\s*", re.DOTALL)
_FILE_NAME = re.compile(r"(?:#|//|;)\s*((?:[\w.-]+/)*[\w.-]+\.(?:ya?ml|cfg|ini|conf|service|json|j2|sh|py))\s*")


class BlockError(ValueError):
    """A block or comment that breaks the convention; the message names place and remedy."""


@dataclass(frozen=True)
class Block:
    """One code block."""

    page: str
    line: int  # of the opening fence, from 1
    language: str
    text: str
    notes: Dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.language}"

    @property
    def file(self) -> str:
        """The file that a reader writes this block into; empty where it is only a part of one."""
        named = self.notes.get("file", "")
        first = _FILE_NAME.fullmatch(self.text.split("\n", 1)[0])
        return named or (first.group(1) if first and self.language != "console" else "")

    @property
    def story(self) -> str:
        """The story that it belongs to: by default each page is one."""
        return self.notes.get("story", self.page)


def blocks_of(page: str, markdown: str) -> List[Block]:
    """Return the blocks of a page, in order.  Raises BlockError."""
    found: List[Block] = []
    comment, comment_line = None, 0
    for token in MarkdownIt("commonmark").parse(markdown):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block" and _COMMENT.fullmatch(token.content):
            if comment is not None:
                raise BlockError(_lonely(page, comment_line))
            comment, comment_line = token.content, line
        elif token.type == "code_block":
            raise BlockError(f"{page}:{line}: an indented block has no language: put ``` and a language around it")
        elif token.type == "fence":
            language = token.info.strip()
            if not language:
                raise BlockError(f"{page}:{line}: a block without a language: write it behind the ```")
            notes = _notes(page, comment_line, comment) if comment is not None else {}
            found.append(Block(page, line, language, token.content, notes))
            comment = None
        elif comment is not None:
            raise BlockError(_lonely(page, comment_line))
    if comment is not None:
        raise BlockError(_lonely(page, comment_line))
    return found


def _lonely(page: str, line: int) -> str:
    return f"{page}:{line}: this comment for the tests is not directly above a block: move or remove it"


def _notes(page: str, line: int, comment: str) -> Dict[str, str]:
    match = _COMMENT.fullmatch(comment)
    words = shlex.split(match.group(1)) if match else []
    notes: Dict[str, str] = {}
    while words:
        name, equals, value = words.pop(0).partition("=")
        if name not in NOTES:
            raise BlockError(f"{page}:{line}: there is no note {name!r}; known are {', '.join(sorted(NOTES))}")
        if NOTES[name] and not equals:
            value = words.pop(0) if words else ""  # "same-as PATH"
        if name in notes or NOTES[name] != bool(value):
            need = "a value" if NOTES[name] else "no value"
            raise BlockError(f"{page}:{line}: the note {name!r} takes {need}, and stands once")
        notes[name] = value
    if not notes:
        raise BlockError(f"{page}:{line}: this comment for the tests says nothing: remove it")
    return notes
