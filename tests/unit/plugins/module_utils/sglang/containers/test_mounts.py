# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.mounts import (
    Mount,
    Volume,
    host_path,
    parse_volume,
    uncovered,
)
from ansible_collections.inferops.sglang.plugins.module_utils.sglang.containers.settings import (
    ContainerError,
    ContainerSettings,
)


def settings(*volumes, folders=()):
    return ContainerSettings("docker", "/usr/bin/docker", "i", volumes, folders=folders)


def test_a_mount():
    assert Mount("/a b", "/c:d").words() == ["--mount", "type=bind,source=/a b,target=/c:d,readonly"]


@pytest.mark.parametrize("path", ["/a,readonly=false", '/a"', "/a\nb"])
def test_a_path_that_would_be_more_than_a_path(path):
    for mount in (Mount(path, "/x"), Mount("/x", path)):
        with pytest.raises(ContainerError, match="cannot be mounted"):
            mount.words()


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("/a:/b", Volume("/a", "/b")),
        ("/a:/b/:ro,z", Volume("/a", "/b", ("ro", "z"))),
        ("cache:/root/.cache", Volume("cache", "/root/.cache")),
    ],
)
def test_volumes(text, volume):
    assert parse_volume(text) == volume and volume.named is (text[0] != "/")


@pytest.mark.parametrize("text", ["", "/a", "/a:", ":/b", "/a:b", "/a:/", "/a:/b:", "/a:/b:ro:x", "./a:/b", "-v:/b"])
def test_words_that_are_no_volume(text):
    with pytest.raises(ContainerError, match="volumes: "):
        parse_volume(text)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/models/target", "/data/m/target"),
        ("/models", "/data/m"),
        ("/models/deep/x", "/fast/x"),  # the innermost shows
        ("/models/../models/target/", "/data/m/target"),
        ("/models2", None),
        ("/cache/x", None),  # kept by the engine
        ("/own/file", "/own/file"),
        ("/image", None),
    ],
)
def test_where_a_path_lies_on_the_host(path, place):
    given = settings("/data/m:/models:ro", "/fast:/models/deep", "kept:/cache", "broken", folders=("/own",))
    assert host_path(given, path) == place


def test_what_must_be_mounted():
    there = {"/models/target", "/models/target/tokenizer", "/other/draft", "/vol/x"}
    wanted = ["/models/target/", "/models/target/tokenizer", "/other/draft", "/vol/x", "/in/image", "org/name", "/"]
    assert uncovered(settings("/data:/vol"), wanted, there.__contains__) == ("/models/target", "/other/draft")
