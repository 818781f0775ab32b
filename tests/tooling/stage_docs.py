# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lay out the sources of the docs' site: every page where it lies in the tree, so that the links in it stay right.

usage: stage_docs.py FOLDER

docs/index.md is a page of links in sections. Here each section of it becomes a part of the site's navigation. Sphinx
warns of a page that is in none, so that no page is forgotten.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import yaml
from copy_tree import ROOT, source_files

INDEX = Path("docs/index.md")
# Made by antsibull-docs, and below.
REFERENCE = "reference"
# What a forge shows to those who file an issue or send a change.
NO_PAGES = (".github",)

_SECTION = re.compile(r"^## (.+)$")
_ENTRY = re.compile(r"^\| \[[^]]+\]\(([^)#]+)\)|^[*-] \[[^]]+\]\(([^)#]+)\)")


def navigation(index: str) -> str:
    """Return the index with a hidden table of contents for each of its sections."""
    sections: dict[str, list[str]] = {}
    title = ""
    for line in index.splitlines():
        heading, entry = _SECTION.match(line), _ENTRY.match(line)
        if heading:
            title = heading.group(1)
        elif entry:
            sections.setdefault(title, []).append(entry.group(1) or entry.group(2))
    trees = [_tree(title, [page for page in pages if page.endswith(".md")]) for title, pages in sections.items()]
    reference = [f"/{REFERENCE}/index", f"/{REFERENCE}/playbooks"]
    return "\n".join([index, *trees, _tree("Modules, roles, plugins", reference)])


def _tree(caption: str, pages: list[str]) -> str:
    entries = "\n".join(page if page.startswith("/") else os.path.splitext(page)[0] for page in pages)
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def playbooks() -> str:
    """Return a page with what the head of each playbook says, which antsibull-docs does not read."""
    parts = ["# Playbooks\n"]
    namespace = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        text = path.read_text(encoding="utf-8").split("---\n", 1)[1]
        comment = [line[2:] for line in re.match(r"(?:#.*\n)*", text).group(0).splitlines()]
        if not comment:
            raise SystemExit(f"{path.relative_to(ROOT)}: say in a comment below --- what it does")
        parts.append(f"## {namespace['namespace']}.{namespace['name']}.{path.stem}\n")
        parts.append("```text\n" + "\n".join(comment) + "\n```\n")
    return "\n".join(parts)


def write(path: Path, text: str) -> None:
    """Write a file, unless it is so already: Sphinx reads anew what is younger than its last run."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(folder: Path) -> None:
    """Bring the folder up to date."""
    pages = {path for path in source_files() if path.suffix == ".md" and path.parts[0] not in NO_PAGES}
    for stale in {path.relative_to(folder) for path in folder.rglob("*.md")} - pages:
        (folder / stale).unlink()
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        write(folder / page, navigation(text) if page == INDEX else text)
    write(folder / REFERENCE / "playbooks.md", playbooks())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
