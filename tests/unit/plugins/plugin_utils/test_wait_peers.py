# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tasks that wait side by side tell each other."""

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.plugin_utils.wait_peers import Peers


def test_the_first_failure_is_told_to_the_others(tmp_path):
    one, other = Peers(str(tmp_path), "big-1 new"), Peers(str(tmp_path), "big-1 new")
    assert one.failed("a main") == ""
    other.fail("b main", "out of memory")
    other.fail("c main", "another node has failed")
    assert one.failed("a main") == "b main: out of memory"
    # Not to the one that it is.
    assert one.failed("b main") == ""
    assert Peers(str(tmp_path), "big-1 back").failed("a main") == ""
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_cannot_be_written_or_read_says_nothing(tmp_path):
    nowhere = Peers(str(tmp_path / "gone"), "x")
    nowhere.fail("a", "b")
    assert nowhere.failed("c") == ""
    peers = Peers(str(tmp_path), "x")
    peers.fail("a", "y" * 10000)
    (path,) = tmp_path.iterdir()
    assert len(peers.failed("c")) < 600
    path.write_text("{")
    assert peers.failed("c") == ""
