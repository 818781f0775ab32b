# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.release import (
    Release,
    ReleaseError,
    parse_release,
    read_current,
    read_last_good,
    read_release,
)
from ansible_collections.inferops.sglang.plugins.module_utils.system import regular_file

RELEASE = Release(
    id="r1",
    created="2026-11-30T10:00:00Z",
    instance="main",
    manager="systemd",
    command=["/usr/bin/python3", "--port", "1"],
    environment={"HF_TOKEN": "hf_secret", "A": "1"},
    secret_args={"api-key": "k-secret"},
    effective={"speculative_algorithm": None},
)


@pytest.fixture
def paths(tmp_path):
    return InstancePaths("main", str(tmp_path))


@pytest.fixture
def stored(paths):
    """A release on disk, which `current` names."""
    folder = paths.releases_dir / "r1"
    folder.mkdir(parents=True)
    (folder / "release.json").write_text(RELEASE.to_json())
    paths.current_link.symlink_to("releases/r1")
    return folder


def test_a_release_survives_its_file():
    assert parse_release(RELEASE.to_json()) == RELEASE
    assert RELEASE.to_json() == parse_release(RELEASE.to_json()).to_json()


def test_the_same_configuration_has_the_same_digest_whenever_it_was_written():
    data = dict(json.loads(RELEASE.to_json()), id="r2", created="later")
    again = parse_release(json.dumps(data))
    assert again.digest() == RELEASE.digest()
    assert parse_release(json.dumps(dict(data, port=1))).digest() != RELEASE.digest()


def test_what_is_shown_has_no_secret():
    assert "secret" not in json.dumps(RELEASE.shown()).replace("secret_args", "")
    assert RELEASE.shown()["environment"]["A"] == "1"


def test_before_the_first_release_there_is_none(paths):
    assert read_current(paths) is None
    assert read_last_good(paths) is None


def test_the_links_lead_to_releases(paths, stored):
    assert read_current(paths) == RELEASE
    assert read_release(stored) == RELEASE


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (None, "No such file"),
        ("", "not JSON"),
        ('{"format": 1', "not JSON"),
        ("[]", "not a JSON object"),
        ({"format": 2}, "format is 2"),
        ({"id": "other"}, "name of its folder"),
        ({"command": []}, "command"),
        ({"command": ["a", 1]}, "command"),
        ({"port": "1"}, "port has the wrong type"),
        ({"port": True}, "port has the wrong type"),
        ({"environment": {"A": 1}}, "environment"),
        ({"manager": ...}, "manager is missing"),
        (b"\xff", "release.json"),
    ],
)
def test_a_broken_release_names_file_and_remedy(paths, stored, change, part):
    path = stored / "release.json"
    if change is None:
        path.unlink()
    elif isinstance(change, bytes):
        path.write_bytes(change)
    elif isinstance(change, str):
        path.write_text(change)
    else:
        data = dict(json.loads(path.read_text()), **change)
        path.write_text(json.dumps({name: value for name, value in data.items() if value is not ...}))
    with pytest.raises(ReleaseError) as caught:
        read_current(paths)
    message = str(caught.value)
    assert part in message and str(paths.current_link) in message and "remove the link" in message


def test_a_link_into_nothing_is_broken_and_not_missing(paths):
    paths.base_dir.mkdir(parents=True, exist_ok=True)
    paths.last_good_link.symlink_to("releases/gone")
    with pytest.raises(ReleaseError, match="No such file"):
        read_last_good(paths)


def test_a_release_that_belongs_to_somebody_else_is_not_said_to_be_broken(paths, stored, monkeypatch):
    def denied(*_args, **_settings):
        raise PermissionError(13, "Permission denied")

    # A mode would not keep root out.
    monkeypatch.setattr(regular_file, "open_regular", denied)
    with pytest.raises(ReleaseError, match=r"Permission denied\. Run the task as root") as caught:
        read_current(paths)
    assert "remove" not in str(caught.value)
