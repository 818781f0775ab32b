# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has been taken out, kept on the host."""

from __future__ import annotations

import json
import stat

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.instance import InstancePaths
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.errors import RouterError
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.records import (
    Record,
    RecordFile,
    from_dict,
    records_file,
    to_dict,
)

A, B = "http://router-a:8080", "http://router-b:8080"
RECORD = Record("http://10.0.0.5:30000", {"priority": 7, "labels": {"tier": "gold"}})


@pytest.fixture
def file(tmp_path):
    return RecordFile(records_file(InstancePaths("main", str(tmp_path))))


def test_it_lies_beside_the_releases_for_root_alone(file, tmp_path):
    file.add({A: RECORD})
    assert file.path == tmp_path / "main" / "routers.json"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert RecordFile(file.path).read() == {A: RECORD}


def test_what_was_taken_out_before_stays(file):
    file.add({A: RECORD})
    file.add({B: RECORD})
    file.add({A: Record("http://10.0.0.5:30000", {"priority": 8})})
    assert file.read() == {A: Record("http://10.0.0.5:30000", {"priority": 8}), B: RECORD}


def test_nothing_new_writes_nothing(file):
    file.add({})
    assert not file.path.exists()
    file.add({A: RECORD})
    before = file.path.stat()
    file.add({A: RECORD})
    assert file.path.stat().st_ino == before.st_ino


def test_with_the_last_router_the_file_goes(file):
    file.add({A: RECORD, B: RECORD})
    file.drop(A)
    assert file.read() == {B: RECORD}
    file.drop("http://never:1")
    file.drop(B)
    assert not file.path.exists()
    file.drop(B)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2, "routers": {}}',
        '{"format": 1}',
        '{"format": 1, "routers": {"http://r:1": []}}',
        '{"format": 1, "routers": {"http://r:1": {"worker_url": 5}}}',
        '{"format": 1, "routers": {"http://r:1": {"worker_url": "http://h:1", "attributes": []}}}',
    ],
)
def test_a_broken_one_is_never_taken_for_nothing(file, text):
    file.path.parent.mkdir()
    file.path.write_text(text)
    with pytest.raises(RouterError, match=r"routers.json .* cannot be used.*by hand, then remove the file") as caught:
        file.read()
    assert caught.value.reason == "broken_record"
    with pytest.raises(RouterError):
        file.add({A: RECORD})
    assert file.path.read_text() == text


def test_there_and_back():
    assert from_dict(json.loads(json.dumps(to_dict({B: RECORD, A: RECORD})))) == {A: RECORD, B: RECORD}
    assert list(to_dict({B: RECORD, A: RECORD})) == [A, B]
