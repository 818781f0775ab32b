# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a page as a browser does, as far as tests of pages need it."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = ("meta", "link", "img", "br", "hr", "input")


class Page(HTMLParser):
    """What a browser makes of a page, as far as it matters here."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.rows, self.text, self.style = [], [], [], "", ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "tr" and "tbody" in self.open:
            self.rows.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            self.style += data
            return
        self.text += data
        if "tbody" in self.open and self.rows:
            self.rows[-1] += data
