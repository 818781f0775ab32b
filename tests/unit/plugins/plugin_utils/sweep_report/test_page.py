# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page: the answer first, everything that was measured, and nothing that somebody wrote into it."""

from __future__ import annotations

import functools
import re

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_analysis.analysis import analyse
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.document import shaped
from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.page import page
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.html_reader import Page
from ansible_collections.inferops.sglang.tests.unit.plugins.plugin_utils.sweep_report import samples

pytest.importorskip("matplotlib")

# Of a page with 20 configurations at nine concurrencies, so that it can be mailed.
MOST_BYTES = 400_000
FOREIGN = {"script", "link", "img", "iframe", "object", "embed", "form", "base", "video", "audio", "image"}
ATTRIBUTES = {
    *("aria-hidden", "aria-label", "aria-labelledby", "charset", "class", "clip-path", "colspan", "content", "d"),
    *("height", "href", "http-equiv", "id", "lang", "name", "open", "role", "scope", "style", "tabindex", "transform"),
    *("viewbox", "width", "x", "xlink:href", "y"),
}


def made(raw, **options):
    document, problems = shaped(raw)
    return page(document, analyse(document), problems, **options)


@functools.lru_cache(maxsize=None)
def usual():
    return made(samples.usual(), folder="sweeps/llama 70b")


def attributes(found):
    return {name for _tag, given in found.tags for name in given}


def test_the_answer_comes_first():
    text = Page(usual()).text
    assert re.search(r"Use eagle3-steps5 for 1 to \d+ requests at a time, .* for \d+ to 250\.", text)
    assert text.index("Use eagle3-steps5") < text.index("Plots") < text.index("How it was measured")
    assert "llama-70b" in text and "8 x NVIDIA H200" in text and "2026-11-30 10:00 to 11:30 UTC" in text


def test_all_of_it_is_on_the_page():
    found = Page(usual())
    for words in (
        "Faster below and slower above",
        "out_of_memory",
        "a GPU ran out of memory",
        "as expected",
        '"candidate_steps"',
        "-e 'sglang_sweep_dir=sweeps/llama 70b' -e sglang_spec_profile=adaptive",
        "python3 -m sglang.launch_server --model-path /models/target",
        "speculative_num_steps = 3",
        "580.159.04",
        "0.5.17",
        "5d41402a" * 8,
        "120 tokens of input and 256 of output for each request",
        "64 prompts",
        "41.5 s",
    ):
        assert words in found.text, words
    # Each point, each comparison with its verdict, each plot.
    assert sum("reached" in row for row in found.rows) == 5 * len(samples.LEVELS)
    assert sum(row.count("\u25b2") + row.count("\u25bc") for row in found.rows) > 20
    assert sum(tag == "figure" for tag, _attributes in found.tags) == 8


def test_it_needs_nothing_but_itself():
    found = Page(usual())
    assert not {tag for tag, _attributes in found.tags} & FOREIGN
    assert "://" not in usual() and "@import" not in found.style and "url(" not in found.style
    assert attributes(found) <= ATTRIBUTES
    assert any("default-src 'none'" in given.get("content", "") for _tag, given in found.tags)
    # Links lead to places of the page, which are there, each once.
    ids = [given["id"] for _tag, given in found.tags if "id" in given]
    assert len(ids) == len(set(ids))
    targets = [given[name] for _tag, given in found.tags for name in ("href", "xlink:href") if name in given]
    assert targets and {target.lstrip("#") for target in targets} <= set(ids)
    for svg in [given for tag, given in found.tags if tag == "svg"]:
        assert svg.get("aria-hidden") == "true" or set(svg["aria-labelledby"].split()) <= set(ids)


def test_the_same_results_make_the_same_page():
    assert made(samples.usual(), folder="sweeps/llama 70b") == usual()


def test_a_large_sweep_is_no_large_page():
    text = made(samples.large())
    assert len(text.encode("utf-8")) < MOST_BYTES
    assert "no. 20" in text and "grey: 13 others" in text


def test_what_is_wrong_is_said_before_the_figures():
    raw = samples.document(
        samples.row("baseline", 0, levels=(1, 2)),
        samples.row("a", 3, levels=(1, 2), version="0.5.18", max_running_requests=48),
        {**samples.row("b", 5, levels=()), "state": "pending"},
    )
    raw["configurations"][1]["points"][0]["warnings"] = ["Only 0.5 of 1 requests were open."]
    document, _problems = shaped(raw)
    torn = "points/x/8.json was left out: it is torn."
    text = Page(page(document, analyse(document), [torn], title="Other title")).text
    assert "Other title" in text
    begin = text.index("Read this before the figures")
    warned = text[begin : text.index("Throughput", begin)]
    for words in ("0.5.18", "48", torn, "Not measured yet: b", "Only 0.5 of 1 requests"):
        assert words in warned, words
    assert "Read this before" not in Page(usual()).text


@pytest.mark.parametrize("rows", [(), (samples.failed("a", 1),), ({"name": "x"},), (samples.row("a", 1, levels=(1,)),)])
def test_a_sweep_without_an_answer_has_a_page(rows):
    text = Page(made(samples.document(*rows))).text
    assert "How it was measured" in text and "There is no baseline to compare with" in text


def test_what_others_wrote_stays_text():
    text = made(samples.hostile())
    found = Page(text)
    assert len(text) < 150_000
    assert not {tag for tag, _attributes in found.tags} & FOREIGN and attributes(found) <= ATTRIBUTES
    assert "<script>alert(1)</script>{{ 7 * 7 }}{% raw %}" in found.text and "</script>49" not in found.text
    assert "\x1b" not in text and "secret-of-somebody" not in text and "secret_of_somebody" not in text
