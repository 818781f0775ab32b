# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All Markdown pages of the collection and their blocks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Dict, List

from .blocks import Block, blocks_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tooling"))

from copy_tree import source_files  # noqa: E402

# Where a reader begins; the order in which a story of several pages is told.
FIRST = "README.md"


def pages() -> List[str]:
    """Return the paths of all pages, relative to the collection's root, in reading order."""
    found = {path.as_posix() for path in source_files() if path.suffix == ".md"}
    return sorted(found, key=lambda page: (page != FIRST, page.count("/") > 1, page))


def all_blocks() -> List[Block]:
    """Return the blocks of all pages.  Raises BlockError."""
    return [block for page in pages() for block in blocks_of(page, (ROOT / page).read_text(encoding="utf-8"))]


def stories() -> Dict[str, List[Block]]:
    """Return the blocks by story, in the order in which they are told.

    The page that a story is named for tells its part first; then come the blocks that other pages add to it.
    """
    told: Dict[str, List[Block]] = {}
    for block in sorted(all_blocks(), key=lambda block: block.page != block.story):
        told.setdefault(block.story, []).append(block)
    return told
