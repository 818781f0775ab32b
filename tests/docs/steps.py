# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell which blocks of a page are run, which of them together, and how much of a command of Ansible.

Pure: blocks in, blocks out.
"""

from __future__ import annotations

from typing import List, Sequence

from .blocks import Block
from .content import Kind, kind_of

# Notes for a command that differs from another one of the docs in its variables alone.
LIGHTER = ("check", "syntax")


def lighter(text: str, block: Block) -> str:
    """Return a command of Ansible as a block's notes have it run; only where its playbook is run in full elsewhere.

    check: everything but the change. The inventory and all variables are read, the hosts are reached, and the whole
    rehearsal runs on them.
    syntax: the inventory and the playbook are read. The variables behind -e are held against the roles' argument
    specs without a run, as those of every block are.
    """
    if not text.startswith("ansible-playbook "):
        return text
    comment = text.find(" #")
    text = text[:comment] if comment > 0 else text
    return text + "".join(f" --{note}{'-check' if note == 'syntax' else ''}" for note in LIGHTER if note in block.notes)


def is_run(block: Block) -> bool:
    """Tell whether a story runs a block, rather than that something else says what is wrong with it."""
    if "same-as" in block.notes or "not-run" in block.notes:
        return False
    if block.language == "yaml":
        return not block.file and kind_of(block) in (Kind.TASKS, Kind.PLAYBOOK)
    return block.language in ("console", "sudoers") or (block.language == "sh" and not block.file)


def steps_of(blocks: Sequence[Block]) -> List[List[Block]]:
    """Return what is done together: tasks and plays that follow each other are one playbook."""
    steps: List[List[Block]] = []
    for block in blocks:
        if not is_run(block):
            continue
        joined = (
            steps
            and steps[-1][-1].language == block.language == "yaml"
            and not {"expect", "check", "syntax"} & set(block.notes)
            and not {"expect", "check", "syntax"} & set(steps[-1][-1].notes)
        )
        if joined:
            steps[-1].append(block)
        else:
            steps.append([block])
    return steps
