# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a copy of this collection up to date, under the path that Ansible's tools expect.

usage: copy_tree.py FOLDER          FOLDER ends in ansible_collections/NAMESPACE/NAME

ansible-test, ansible-lint and molecule want a collection in such a folder and do not follow links.
The copy holds what git tracks or would track. Files that did not change are left alone. It is a git repository of
its own, without a commit: the tools ask git which files to look at, and to the sources' git the copy is to be ignored.
"""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Written into the copy by the tools that run there.
LEFT_BY_TOOLS = (".ansible", ".git", "tests/output")


def source_files() -> set[Path]:
    """Return the paths of the collection's files, relative to its root."""
    if not (ROOT / ".git").exists():  # an unpacked archive of the sources
        everything = {path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()}
        return {path for path in everything if path.parts[0] != "build" and "__pycache__" not in path.parts}
    listing = subprocess.run(
        # root may work on the checkout of another user
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout.decode()
    # A file that is deleted but not yet committed is still listed.
    return {Path(name) for name in listing.split("\0") if name and (ROOT / name).is_file()}


def is_tools_own(path: Path) -> bool:
    """Tell whether a file in the copy was put there by a tool that ran in it."""
    return "__pycache__" in path.parts or any(path.is_relative_to(folder) for folder in LEFT_BY_TOOLS)


def update(copy: Path) -> None:
    """Make the copy equal to the sources."""
    wanted = source_files()
    present = {path.relative_to(copy) for path in copy.rglob("*") if path.is_file() or path.is_symlink()}
    for path in present - wanted:
        if not is_tools_own(path):
            (copy / path).unlink()
    for path in wanted:
        source, target = ROOT / path, copy / path
        if target.is_file() and filecmp.cmp(source, target, shallow=True):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    remove_empty_folders(copy)


def remove_empty_folders(copy: Path) -> None:
    """Remove folders that lost their last file: a role without files is still a role to the linters."""
    folders = [path for path in copy.rglob("*") if path.is_dir() and not is_tools_own(path.relative_to(copy))]
    for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def main(copy: Path) -> None:
    """Make the copy, or bring it up to date."""
    copy.mkdir(parents=True, exist_ok=True)
    if not (copy / ".git").exists():
        subprocess.run(["git", "init", "--quiet", "--template=", str(copy)], check=True)
    update(copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
