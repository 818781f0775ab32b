# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.patch_sources import (
    PatchSourceError,
    fill_contents,
    hide_contents,
)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "worker.py"
    path.write_bytes("x = 'ä'\r\n".encode())
    return path


def test_contents_come_from_the_files_as_they_are(source):
    arguments = {"state": "present", "patches": [{"src": "worker.py", "target": "t"}, {"target": "u"}]}
    filled = fill_contents(arguments, {"worker.py": str(source)}.__getitem__)
    assert filled["patches"] == [{"src": "worker.py", "target": "t", "content": "x = 'ä'\r\n"}, {"target": "u"}]
    assert "content" not in arguments["patches"][0] and filled["state"] == "present"


@pytest.mark.parametrize("patches", [None, "text", [], ["text"], [{"src": ""}]])
def test_what_is_no_patch_is_left_to_the_module(patches):
    assert fill_contents({"patches": patches}, lambda src: src) == {"patches": patches}
    assert fill_contents({}, lambda src: src) == {}


@pytest.mark.parametrize(
    ("data", "part"),
    [(b"\xff\xfe", "no text in UTF-8"), (b"a\0b", "no text in UTF-8"), (b"x" * (4 * 1024 * 1024 + 1), "4 MiB")],
)
def test_what_is_no_source_is_refused(source, data, part):
    source.write_bytes(data)
    with pytest.raises(PatchSourceError, match=r"src worker\.py") as caught:
        fill_contents({"patches": [{"src": "worker.py"}]}, lambda _src: str(source))
    assert part in str(caught.value)


def test_a_folder_is_no_source(tmp_path):
    with pytest.raises(PatchSourceError, match="cannot be read: Is a directory"):
        fill_contents({"patches": [{"src": "x"}]}, lambda _src: str(tmp_path))


def test_src_and_content_exclude_each_other():
    with pytest.raises(PatchSourceError, match="both src and content"):
        fill_contents({"patches": [{"src": "x", "content": ""}]}, lambda src: src)


def test_contents_do_not_stay_in_results():
    result = {"invocation": {"module_args": {"patches": [{"target": "t", "content": "secret sauce"}, "x"], "a": 1}}}
    shown = hide_contents(result)
    assert shown["invocation"]["module_args"] == {
        "patches": [{"target": "t", "content": "(12 characters)"}, "x"],
        "a": 1,
    }
    for other in ({}, {"invocation": None}, {"invocation": {"module_args": {}}}):
        assert hide_contents(dict(other)) == other
