# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plain-text table with wrapped cells, for a terminal or a CI log."""

from __future__ import annotations

import textwrap
from typing import List, Sequence


def _wrap(cell: str, width: int) -> List[str]:
    lines: List[str] = []
    for line in cell.splitlines() or [""]:
        lines.extend(textwrap.wrap(line, width, subsequent_indent="  ") or [""])
    return lines


def _widths(rows: Sequence[Sequence[str]], total: int) -> List[int]:
    """Share `total` columns out: each gets what it needs, the widest give way first."""
    needed = [max(len(line) for row in rows for line in (row[i].splitlines() or [""])) for i in range(len(rows[0]))]
    # A word is never broken while there is another way.
    least = [max([1] + [len(word) + 2 for row in rows for word in row[i].split()]) for i in range(len(rows[0]))]
    room = total - 3 * (len(needed) - 1)
    widths = list(needed)
    while sum(widths) > room:
        candidates = [i for i in range(len(widths)) if widths[i] > least[i]]
        if not candidates:
            break  # rather too wide than unreadable
        widest = max(candidates, key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 120, ruled: bool = True) -> str:
    """Lay out rows of cells under a header in at most `width` columns where that is possible.

    A cell may hold several lines.  Every row has as many cells as the header.  Without `ruled` there is a line
    below the header only, for tables of many rows.
    """
    widths = _widths([header] + list(rows), width)
    rule = "─┼─".join("─" * w for w in widths)
    blocks = [_block(header, widths)]
    blocks.extend(_block(row, widths) for row in rows)
    if not ruled:
        return "\n".join([*blocks[:1], *([rule] if rows else []), *blocks[1:]])
    return ("\n" + rule + "\n").join(blocks)


def _block(row: Sequence[str], widths: Sequence[int]) -> str:
    columns = [_wrap(cell, width) for cell, width in zip(row, widths)]
    height = max(len(column) for column in columns)
    lines = []
    for i in range(height):
        cells = [(column[i] if i < len(column) else "").ljust(width) for column, width in zip(columns, widths)]
        lines.append(" │ ".join(cells).rstrip())
    return "\n".join(lines)
