# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import Release, ReleaseError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.listing import (
    find_release,
    list_releases,
    speculation_in_short,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.releases.proof import Proof, proof_file

FIRST, SECOND, THIRD = "20261128T100000Z-aaaaaaaa", "20261129T100000Z-bbbbbbbb", "20261130T100000Z-cccccccc"


class Host:
    """An instance with three releases."""

    def __init__(self, folder):
        self.paths = InstancePaths("main", str(folder))
        for identity in (FIRST, SECOND, THIRD):
            self.store(identity)

    def store(self, identity, **changes):
        fields = {"created": f"{identity[:4]}-…", "instance": "main", "manager": "process", "command": ["/p"]}
        text = Release(id=identity, **dict(fields, **changes)).to_json()
        self.file(identity).parent.mkdir(parents=True, exist_ok=True)
        self.file(identity).write_text(text)

    def file(self, identity):
        return self.paths.release_dir(identity) / "release.json"

    def prove(self, identity, **measured):
        proof_file(self.paths, identity).write_text(Proof("2026-11-30T10:45:00Z", **measured).to_json())

    def link(self, current=None, last_good=None):
        for link, identity in ((self.paths.current_link, current), (self.paths.last_good_link, last_good)):
            if link.is_symlink():
                link.unlink()
            if identity:
                link.symlink_to(f"releases/{identity}")


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def found(host, wanted):
    return find_release(host.paths, wanted).id


def test_the_list_is_newest_first_and_tells_what_is_known(host):
    host.store(FIRST, origin="adopted")
    host.store(
        SECOND, sglang_version="0.5.17", requested={"speculative_algorithm": "EAGLE3", "api_key": "sk-secret-123"}
    )
    host.prove(SECOND, accept_length=2.8, ready_after=541.2)
    host.link(THIRD, SECOND)
    third, second, first = (entry.to_dict() for entry in list_releases(host.paths))
    assert second == {
        "id": SECOND,
        "created": "2026-…",
        "current": False,
        "last_good": True,
        "proven": True,
        "origin": "",
        "version": "0.5.17",
        "requested": {"speculative_algorithm": "EAGLE3"},
        "accept_length": 2.8,
        "ready_after": 541.2,
        "proven_at": "2026-11-30T10:45:00Z",
        "ranks": [],
    }
    assert (third["current"], third["proven"], third["accept_length"]) == (True, False, None)
    assert (first["origin"], first["proven"], first["proven_at"]) == ("adopted", True, None)


def test_a_broken_release_is_listed_as_broken(host):
    host.file(SECOND).write_text("{")
    host.prove(SECOND, accept_length=2.8)
    entries = [entry.to_dict() for entry in list_releases(host.paths)]
    assert [entry["id"] for entry in entries] == [THIRD, SECOND, FIRST]
    assert "not JSON" in entries[1]["broken"] and entries[1]["proven"] and "broken" not in entries[0]
    assert (entries[1]["created"], entries[1]["requested"]) == (None, {})


def test_what_was_not_finished_is_no_release_unless_a_link_names_it(host):
    host.file(SECOND).unlink()
    host.file(FIRST).unlink()
    host.link(FIRST)
    entries = [entry.to_dict() for entry in list_releases(host.paths)]
    assert [entry["id"] for entry in entries] == [THIRD, FIRST]
    assert "No such file" in entries[1]["broken"]


def test_without_any_release_the_list_is_empty(tmp_path):
    paths = InstancePaths("none", str(tmp_path))
    assert list_releases(paths) == []
    for wanted in ("previous", "2026"):
        with pytest.raises(ReleaseError, match="No release is kept"):
            find_release(paths, wanted)


@pytest.mark.parametrize(
    ("proven", "current", "last_good", "meant"),
    [
        ([FIRST, SECOND], SECOND, SECOND, FIRST),
        ([FIRST, SECOND, THIRD], THIRD, THIRD, SECOND),
        ([FIRST, SECOND, THIRD], FIRST, FIRST, THIRD),
        # The current one does not work: the last one that did.
        ([FIRST, SECOND], THIRD, SECOND, SECOND),
        ([FIRST], THIRD, FIRST, FIRST),
        # A return to the first one was begun: it is not taken back by asking again.
        ([FIRST, SECOND], FIRST, SECOND, FIRST),
        # Proven before there were proofs.
        ([], THIRD, SECOND, SECOND),
        # Without a current one.
        ([FIRST, SECOND], None, SECOND, SECOND),
    ],
)
def test_the_previous_one_is_the_newest_proven_one_that_is_not_the_current_one(host, proven, current, last_good, meant):
    for identity in proven:
        host.prove(identity)
    host.link(current, last_good)
    assert found(host, "previous") == meant


def test_a_broken_release_is_not_the_previous_one(host):
    for identity in (FIRST, SECOND, THIRD):
        host.prove(identity)
    host.link(THIRD, THIRD)
    host.file(SECOND).write_text("{")
    assert found(host, "previous") == FIRST


def test_without_a_previous_one_the_error_lists_what_there_is(host):
    host.store(SECOND, requested={"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3})
    host.link(THIRD, THIRD)
    with pytest.raises(ReleaseError, match="no proven release of main other than the current one") as caught:
        find_release(host.paths, "previous")
    message = str(caught.value)
    assert f"{THIRD} (no speculation, proven, current, last good); {SECOND} (EAGLE3 3/?/?, not proven);" in message
    assert FIRST in message


@pytest.mark.parametrize(
    ("wanted", "meant"), [(SECOND, SECOND), ("20261129", SECOND), ("20261128T100000Z-a", FIRST), ("", THIRD)]
)
def test_an_id_or_its_beginning(host, wanted, meant):
    host.link(THIRD, THIRD)
    assert found(host, wanted) == meant


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        ("2026", "can mean 3 releases"),
        ("2025", "main has no release '2025'"),
        ("../../etc", "has no release"),
        ("bbbbbbbb", "has no release"),
    ],
)
def test_what_is_not_meant_clearly_is_refused_with_the_list(host, wanted, part):
    host.link(THIRD, THIRD)
    with pytest.raises(ReleaseError, match="release: ") as caught:
        find_release(host.paths, wanted)
    assert part in str(caught.value) and all(identity in str(caught.value) for identity in (FIRST, SECOND, THIRD))


def test_a_broken_release_that_is_asked_for_says_why(host):
    host.file(SECOND).write_text("{")
    with pytest.raises(ReleaseError, match="not JSON"):
        find_release(host.paths, SECOND)


@pytest.mark.parametrize(
    ("requested", "effective", "text"),
    [
        ({}, {}, "no speculation"),
        ({"speculative_algorithm": "NEXTN"}, {"speculative_algorithm": None}, "no speculation"),
        (
            {"speculative_algorithm": "EAGLE3", "speculative_num_draft_tokens": 8},
            {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4},
            "EAGLE3 3/1/4",
        ),
        ({"speculative_algorithm": "EAGLE3", "speculative_adaptive": True}, {}, "EAGLE3 ?/?/? adaptive"),
    ],
)
def test_speculation_in_short(requested, effective, text):
    release = Release("i", "c", "main", "process", ["/p"], requested=requested, effective=effective)
    assert speculation_in_short(release) == text
