# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures for tests that run real plays."""

from __future__ import annotations

import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[4]


@pytest.fixture
def collections(tmp_path):
    """A folder for a play: a collections path in which this checkout is the collection."""
    parent = tmp_path / "ansible_collections" / "inferops"
    parent.mkdir(parents=True)
    (parent / "sglang").symlink_to(REPOSITORY)
    return tmp_path
