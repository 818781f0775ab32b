# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of routers and workers."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.sglang.routers.places import parse_place, without_rank


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://10.0.0.5:30000", "http://10.0.0.5:30000"),
        (" HTTP://GPU-A.Example.ORG:30000/ ", "http://gpu-a.example.org:30000"),
        ("http://gpu_a", "http://gpu_a:80"),
        ("https://gpu-a//", "https://gpu-a:443"),
        ("grpc://gpu-a:31000", "grpc://gpu-a:31000"),
        ("10.0.0.5:30000", "10.0.0.5:30000"),
        ("[FE80::1]:30000", "[fe80::1]:30000"),
        ("http://[::1]:30000/router/one/", "http://[::1]:30000/router/one"),
        ("http://10.0.0.5:30000@3", "http://10.0.0.5:30000"),
    ],
)
def test_what_an_address_is(text, url):
    assert parse_place(text).url == url


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("http://h:30000", "http://H:30000/", True),
        ("http://h:30000", "h:30000", True),
        ("http://h:30000", "https://h:30000", True),
        ("http://h", "h:80", True),
        ("http://h:30000@1", "http://h:30000", True),
        ("http://localhost:30000", "http://127.0.0.1:30000", True),
        ("http://h:30000", "http://h:30001", False),
        ("http://h:30000", "http://h2:30000", False),
        ("http://h:30000/a", "http://h:30000/b", False),
        ("http://h:80", "https://h", False),
    ],
)
def test_which_two_are_the_same(text, other, same):
    assert (parse_place(text).key == parse_place(other).key) is same


def test_the_rank_is_kept_apart():
    assert (parse_place("http://h:1@12").rank, parse_place("http://h:1").rank) == (12, None)
    assert [without_rank(url) for url in ("http://h:1@12", "http://h/")] == ["http://h:1", "http://h/"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no URL"),
        ("http://", "is no URL"),
        ("http://a b:1", "is no URL"),
        ("http://h:1\x1b[2J", "is no URL"),
        ("ftp://h:1", "neither http, https nor grpc"),
        ("h", "has no port"),
        ("grpc://h", "has no port"),
        ("http://h:0", "has no port"),
        ("http://h:65536", "from 1 to 65535"),
        ("http://h:1/?key=1", "is no URL"),
    ],
)
def test_what_is_no_address(text, why):
    with pytest.raises(ValueError, match=why):
        parse_place(text)


def test_a_password_is_not_repeated():
    with pytest.raises(ValueError, match="is no URL") as caught:
        parse_place("http://user:geheim@h:1")
    assert "geheim" not in str(caught.value)
