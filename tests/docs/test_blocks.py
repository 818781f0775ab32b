# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every block of every page is known to some test, and right as far as can be said without running it."""

from __future__ import annotations

import re

import pytest

from .content import Kind, kind_of
from .languages import problems_of
from .pages import ROOT, all_blocks, pages, stories
from .steps import LIGHTER, is_run

BLOCKS = all_blocks()
# Blocks that no test runs; each has its reason in the page, and the tests print them.
MOST_NOT_RUN = 4

_OF_THE_COLLECTION = re.compile(r"inferops\.sglang\.\w+")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_is_right(block):
    """A block is what its language says, and names nothing that does not exist."""
    assert not problems_of(block)


def playbooks_of(block):
    """Return the playbooks that a console block runs, without the files of options."""
    names = set()
    for line in block.text.replace("\\\n", " ").split("\n"):
        if line.startswith("$ ansible-playbook "):
            words = line.split()[2:]
            names.update(
                word
                for before, word in zip(["", *words], words)
                if before not in ("-i", "--inventory", "-e", "--extra-vars", "--limit")
                and (_OF_THE_COLLECTION.fullmatch(word) or re.fullmatch(r"[\w./-]+\.ya?ml", word))
            )
    return names


def test_what_is_only_checked_is_run_elsewhere():
    """A playbook of which a block is only checked (notes `check`, `syntax`) is run in full in another block."""
    console = [block for block in BLOCKS if block.language == "console" and is_run(block)]
    only_checked = [block for block in console if set(LIGHTER) & set(block.notes)]
    run = {name for block in console if block not in only_checked for name in playbooks_of(block)}
    missing = {name: str(block) for block in only_checked for name in playbooks_of(block) - run}
    assert not missing


@pytest.mark.parametrize("block", [block for block in BLOCKS if "same-as" in block.notes], ids=str)
def test_other_test_has_what_the_block_shows(block):
    """Where a page says that another test runs the same, that test is there and has the block's names in it.

    Names are those of playbooks, roles and modules, and of files of this tree; where a block has none, of programs.
    """
    other = ROOT / block.notes["same-as"]
    assert other.exists()
    files = [other] if other.is_file() else [path for path in other.rglob("*") if path.is_file()]
    text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
    commands = "\n".join(line[2:] for line in block.text.split("\n") if line[:2] in ("$ ", "# "))
    words = set(_OF_THE_COLLECTION.findall(block.text))
    words |= {(ROOT / word).stem for word in commands.split() if "/" in word and (ROOT / word).is_file()}
    words = words or {line.split()[0] for line in commands.split("\n")}
    assert words
    assert not [word for word in words if word not in text]


def test_files_of_a_story_are_used():
    """A playbook or script that a page has its reader write is also run by a command of that story."""
    unused = []
    for blocks in stories().values():
        commands = "\n".join(block.text for block in blocks if block.language == "console")
        commands += "\n".join(block.text for block in blocks if "import_playbook" in block.text)
        for block in blocks:
            runs = block.language in ("sh", "python", "jinja") or (
                block.language == "yaml" and kind_of(block) in (Kind.PLAYBOOK, Kind.TASKS)
            )
            if runs and block.file and block.file not in commands:
                unused.append(f"{block}: {block.file}")
    assert not unused


def test_few_blocks_are_not_run():
    """The list of what no test runs stays short."""
    assert len([block for block in BLOCKS if "not-run" in block.notes]) <= MOST_NOT_RUN


def test_pages_are_found():
    """All pages are looked at, not only those that somebody thought of."""
    found = set(pages())
    assert {"README.md", "docs/first-restart.md", "roles/gpu_free/README.md"} <= found
    assert not [path for path in ROOT.glob("docs/**/*.md") if path.relative_to(ROOT).as_posix() not in found]
