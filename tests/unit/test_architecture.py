# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages for maintainers name files and make targets that exist, and every folder of the code."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UTILS = "plugins/module_utils"
# Where the paths of a page may begin.
PAGES = {
    "docs/architecture.md": ("", UTILS, UTILS + "/gpu"),
    "tests/README.md": ("", "tests", "tests/unit/plugins/module_utils"),
}
_PATH = re.compile(r"`((?:\.\./)?[A-Za-z_*][\w./*-]*(?:/|\.(?:py|md|c|sh|yml)))`")
_TARGET = re.compile(r"(?:`|^[$#] )make ([a-z-]+)", re.MULTILINE)


def is_there(name, starts):
    return any(any(True for _found in (ROOT / start).glob(name.replace("../", ""))) for start in starts)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page):
    named = sorted(set(_PATH.findall((ROOT / page).read_text(encoding="utf-8"))))
    assert len(named) > 20
    assert [name for name in named if not is_there(name.rstrip("/"), PAGES[page])] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_exists(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(_TARGET.findall((ROOT / page).read_text(encoding="utf-8")))
    assert named and [name for name in sorted(named) if "\n%s:" % name not in makefile] == []


def test_every_folder_and_every_file_of_the_gpu_part_is_explained():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = sorted(path.parent for path in (ROOT / UTILS).rglob("__init__.py"))
    assert [
        str(folder)
        for folder in folders
        if folder != ROOT / UTILS and "`%s/`" % folder.relative_to(ROOT / UTILS) not in text
    ] == []
    patterns = [name for name in _PATH.findall(text) if "/" not in name]
    files = sorted(path for path in (ROOT / UTILS / "gpu").glob("*.py") if path.name != "__init__.py")
    assert [path.name for path in files if not any(path.match(pattern) for pattern in patterns)] == []
