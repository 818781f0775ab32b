# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page: one file, a row for each host, and nothing in it that a host could have made a part of it."""

from __future__ import annotations

from ansible_collections.inferops.sglang.plugins.plugin_utils.status_differences import differences, summary
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_host import host_entry
from ansible_collections.inferops.sglang.plugins.plugin_utils.status_page import page
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.html_reader import Page
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.status_samples import (
    HOSTILE,
    UNREACHABLE,
    gpu,
    gpus,
    holder,
    server,
    servers,
)

WRITTEN = "2026-11-30T10:52:07Z"


def entries(*results, group="all"):
    return [host_entry("gpu-%d" % number, group, *pair) for number, pair in enumerate(results)]


def made(hosts):
    found = differences(hosts)
    return page(hosts, found, summary(hosts, found), WRITTEN)


MIXED = entries(
    (gpus(), servers()),
    (gpus(driver="570.1"), servers(server("main", "failed", reason="died", message="It died."), server("b"))),
    (UNREACHABLE, None),
    (gpus(2, gpus=[gpu(0, "free"), gpu(1, "unknown")]), {"servers": []}),
    (gpus(), servers()),
)


def test_a_row_for_each_host():
    found = Page(made(MIXED))
    assert len(found.rows) == 5
    assert [row.split()[0] for row in found.rows] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    for words in ("8 busy", "1024/1123 GiB", "main: serving", "EAGLE3 3/1/4", "accepts 2.44", "load 12 + 3", "0.5.17"):
        assert words in found.rows[0]
    assert "differs" in found.rows[1] and "differs" not in found.rows[0]
    assert "unreachable" in found.rows[2] and "Failed to connect" in found.text
    assert WRITTEN in found.text and "driver: 580.159.04 on 3 hosts; 570.1 on gpu-1" in found.text


def test_it_needs_nothing_but_itself_and_fits_a_phone():
    text = made(MIXED)
    found = Page(text)
    names = {tag for tag, _attributes in found.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "svg", "video", "audio"}
    attributes = {name for _tag, attributes in found.tags for name in attributes}
    assert not attributes & {"src", "href", "srcset", "action", "background", "style", "onclick"}
    assert "url(" not in found.style and "@import" not in found.style and "://" not in text
    metas = [attributes for tag, attributes in found.tags if tag == "meta"]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in metas
    assert any("default-src 'none'" in meta.get("content", "") for meta in metas)
    assert "prefers-color-scheme: dark" in found.style and "max-width" in found.style
    assert ("html", {"lang": "en"}) in found.tags


def test_groups_have_a_column():
    one = entries((gpus(), servers()), group="x") + entries((gpus(), servers()), group="y")[:1]
    assert "Group" in Page(made(one)).text and "Group" not in Page(made(MIXED)).text


def test_no_host_at_all():
    assert Page(made([])).rows == []


def test_what_a_host_says_stays_text():
    container = {"runtime": HOSTILE, "id": HOSTILE, "name": HOSTILE}
    held = [holder(9, 0, user=HOSTILE, unit=HOSTILE), holder(8, 0, container=container)]
    odd = gpus(1, driver=HOSTILE, holders=held, gpus=[gpu(0, "unknown", name=HOSTILE, reason=HOSTILE, message=HOSTILE)])
    bad = server(
        HOSTILE,
        "failed",
        reason=HOSTILE,
        message=HOSTILE,
        version=HOSTILE,
        release=HOSTILE,
        started=HOSTILE,
        effective={"speculative_algorithm": HOSTILE, HOSTILE: HOSTILE},
        problems=[HOSTILE],
    )
    text = made(entries((odd, servers(bad)), ({"msg": HOSTILE}, {"failed": True, "msg": HOSTILE})))
    found = Page(text)
    assert len(found.rows) == 2
    assert not any(tag == "script" for tag, _attributes in found.tags)
    # It shows as it is, and none of it was taken for a template.
    assert "<script>alert(1)</script>" in found.text and "{{ lookup('pipe', 'id') }}" in found.text
    assert "\x1b" not in text and "\u202e" not in text and "\\x1b]0;owned" in found.text
    assert all(
        name in ("name", "content", "charset", "http-equiv", "lang", "class", "scope", "id", "data-label")
        for _tag, attributes in found.tags
        for name in attributes
    )
