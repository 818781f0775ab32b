# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every story of the docs is told: its commands are typed and its tasks run, on test hosts."""

from __future__ import annotations

import os

import pytest

from .pages import stories
from .scene import Scene
from .steps import steps_of
from .story import Story

# Pages with a space between; all without it.
ONLY = os.environ.get("STORIES", "").split()
TOLD = {name: blocks for name, blocks in stories().items() if steps_of(blocks) and (not ONLY or name in ONLY)}


def test_the_chosen_stories_are_there():
    assert set(ONLY) <= set(TOLD)


@pytest.mark.parametrize("name", TOLD)
def test_story(name, hosts, archive, collections, tmp_path):
    """A reader who does what the page says gets what the page says."""
    hosts.clear()
    scene = Scene(name, TOLD[name], hosts, tmp_path, archive)
    story = Story(scene, TOLD[name])
    try:
        scene.prepare(collections)
        for step in story.tell():
            print(step, flush=True)
    finally:
        story.end()
