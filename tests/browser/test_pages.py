# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages as somebody sees them, on a phone and on a large screen, without a network."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

LOOK = (Path(__file__).parent / "look.js").read_text(encoding="utf-8")
PHONE, SCREEN = (360, 800), (1280, 900)
REPORTS = {"usual": 8, "large": 8, "example": 8, "hostile": 0, "empty": 0}
WRONG = ("small", "overlapping", "outside", "tiny", "pale")


def colours(png):
    """How many pixels of the most frequent colours a picture has."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    return sorted(image.getcolors(maxcolors=1 << 24), reverse=True), image.size


@pytest.mark.parametrize("size", [PHONE, SCREEN], ids=["phone", "screen"])
@pytest.mark.parametrize("name", [*REPORTS, "status"])
def test_it_can_be_read(browser, pages, name, size):
    browser.show(pages[name], *size)
    found = browser.evaluate(LOOK)
    assert browser.complaints() == []
    assert browser.requests() == [pages[name].as_uri()]
    assert (found["width"], found["scrolled"]) == (size[0], size[0]), "the page can be moved sideways"
    assert {kind: found[kind] for kind in WRONG} == {kind: [] for kind in WRONG}
    if name in REPORTS:
        assert found["plots"] >= REPORTS[name]
    seen, shape = colours(browser.screenshot())
    assert shape == size and len(seen) > 20 and seen[0][0] < 0.995 * size[0] * size[1], "the picture is blank"


@pytest.mark.parametrize("name", ["usual", "status"])
def test_it_follows_the_colours_of_the_system(browser, pages, name):
    browser.show(pages[name], *SCREEN, dark=True)
    assert browser.evaluate(LOOK)["pale"] == []
    (_count, back), *_others = colours(browser.screenshot())[0]
    assert max(back) < 60


def test_each_plot_has_something_in_it(browser, pages):
    browser.show(pages["usual"], *SCREEN)
    boxes = browser.evaluate(
        "[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().toJSON())"
        ".map(b => ({x: b.x, y: b.y + scrollY, width: b.width, height: b.height}))"
    )
    assert len(boxes) == 8
    for box in boxes:
        seen, _shape = colours(browser.picture(box))
        # Beside the background and the axes there are lines in colours, as wide as the plot.
        strong = [count for count, colour in seen if max(colour) - min(colour) > 100]
        assert sum(strong) > 100


def test_tables_move_inside_themselves(browser, pages):
    browser.show(pages["usual"], *PHONE)
    widths = browser.evaluate("[...document.querySelectorAll('.scroll')].map(s => [s.scrollWidth, s.clientWidth])")
    assert any(inner > outer for inner, outer in widths) and all(outer <= 360 for _inner, outer in widths)


def test_no_script_of_a_page_runs(browser, tmp_path, pages):
    text = pages["usual"].read_text(encoding="utf-8")
    evil = '<script>document.title = "owned"</script><img src="http://192.0.2.1/x.png"></main>'
    (tmp_path / "evil.html").write_text(text.replace("</main>", evil), encoding="utf-8")
    browser.show(tmp_path / "evil.html", *SCREEN)
    # So what the tests above ask for would be noticed.
    assert browser.evaluate("document.title") == "llama-70b"
    assert len([told for told in browser.complaints() if "Content Security Policy" in told]) == 2


def test_what_is_wrong_with_a_page_is_noticed(browser, tmp_path):
    (tmp_path / "bad.html").write_text(
        "<meta name='viewport' content='width=device-width'><body style='background: #fff'>"
        "<div style='width: 900px; color: #ccc; font-size: 8px'>pale and tiny</div>"
        "<figure><svg viewBox='0 0 360 250' width='100'><title>bad</title><text x='10' y='50'>one</text>"
        "<text x='12' y='52'>two</text><text x='350' y='99'>too far</text></svg></figure>"
        "<img src='http://192.0.2.1/x.png'><script>console.error('no')</script>",
        encoding="utf-8",
    )
    browser.show(tmp_path / "bad.html", *PHONE)
    found = browser.evaluate(LOOK)
    assert found["scrolled"] > found["width"] and all(found[kind] for kind in WRONG)
    assert browser.complaints() and "http://192.0.2.1/x.png" in browser.requests()
