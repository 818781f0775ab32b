# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drawing becomes a part of a page: its size, font, colours and names are those of the page."""

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.plugin_utils.sweep_report.svg import inline

DRAWN = """<?xml version="1.0" encoding="utf-8" standalone="no"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="360pt" height="250pt" viewBox="0 0 360 250"
 xmlns="http://www.w3.org/2000/svg" version="1.1">
 <metadata><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/></metadata>
 <defs><style type="text/css">*{stroke-linejoin: round}</style></defs>
 <g id="figure_1">
  <defs><path id="m12" d="M 0 0.123456 L 1 2"/>
   <clipPath id="p9"><rect x="0" y="0" width="1" height="1"/></clipPath></defs>
  <g id="axes_1" clip-path="url(#p9)"><use xlink:href="#m12" style="stroke: #0072b2; fill: #123456"/></g>
  <text style="%s; fill: #1c1f23" x="1" y="2" transform="rotate(-0 1 2)">&lt;script&gt;{{ x }} &amp; $y$</text>
  <text style="fill: #1c1f23" transform="rotate(-90 1 2)">turned</text>
 </g>
</svg>"""
FONTS = [
    "font: 11px 'DejaVu Sans', 'Arial', sans-serif",
    "font: bold 11px 'DejaVu Sans'",
    "font-size: 11px; font-family: 'DejaVu Sans'",
]


@pytest.mark.parametrize("font", FONTS)
def test_it_is_part_of_the_page(font):
    text = inline(DRAWN % font, "speed", "Title <b>", "Told & tried", {"#0072b2": "--s1", "#1c1f23": "--text"})
    begin = '<svg viewBox="0 0 360 250" role="img" aria-labelledby="speed-title speed-description">'
    assert text.startswith(begin + '<title id="speed-title">Title &lt;b&gt;</title><desc id="speed-description">')
    assert "Told &amp; tried" in text and text.endswith("</svg>")
    for gone in (
        "xmlns",
        "://",
        "metadata",
        "<style",
        "DejaVu",
        'width="360',
        "figure_1",
        "axes_1",
        "rotate(-0",
        "<g>",
    ):
        assert gone not in text
    # What is referred to keeps a name, which no other drawing of the page has.
    assert 'id="speed-m12"' in text and 'xlink:href="#speed-m12"' in text
    assert 'id="speed-p9"' in text and 'clip-path="url(#speed-p9)"' in text
    assert "fill: #123456; stroke: var(--s1)" in text and "fill: var(--text); font-size: 11px" in text
    assert "M 0 0.12 L 1 2" in text and "rotate(-90 1 2)" in text
    assert "&lt;script&gt;{{ x }} &amp; $y$" in text
