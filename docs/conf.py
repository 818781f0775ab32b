# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Sphinx makes the site of the docs: see `make docs`, which lays out the sources below build/."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

import yaml
from ansible import constants
from docutils import nodes
from pygments.lexers.special import TextLexer

_ROOT = Path(os.environ["DOCS_ROOT"])  # of the collection; this file is read where it is
_GALAXY = yaml.safe_load((_ROOT / "galaxy.yml").read_text(encoding="utf-8"))

project = f"{_GALAXY['namespace']}.{_GALAXY['name']}"
version = release = _GALAXY["version"]
copyright = "The inferops.sglang authors"  # Sphinx's name for it
language = "en"

extensions = ["myst_parser", "sphinx_antsibull_ext"]
root_doc = "docs/index"
exclude_patterns = ["**/conf.py"]
html_theme = "furo"
html_title = f"{project} {version}"
html_copy_source = False
html_show_sphinx = False
# The anchors that a Git forge gives to headings.
myst_heading_anchors = 4
highlight_language = "text"
smartquotes = False

nitpicky = True

# Where Ansible's own documentation has what the pages of modules refer to. Its index could only be downloaded.
_ANSIBLE = "https://docs.ansible.com/ansible/latest/"
_ANSIBLE_LABELS = {
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}
_ANSIBLE_PLUGIN = re.compile(r"ansible_collections\.ansible\.builtin\.(\w+?)(?:__.*)?")
_ANSIBLE_VARIABLES = {
    entry["name"]
    for option in constants.config.get_configuration_definitions().values()
    for entry in option.get("env") or ()
}

# A report of a sweep is a page by itself: it is copied into the site, see tests/tooling/docs.
_EXAMPLE = re.compile(r"\[([^\]]+)\]\((examples/[^)#\s]+\.(?:html|csv|json))\)")
_LINK = re.compile(r"(\]\()([^)#\s]+)")


def _link_to_sources(app, docname, source):
    """Let links to what is no page of the site lead to the forge, where the same link leads to the file itself."""
    folder = posixpath.dirname(docname)

    def lead(match):
        target = match.group(2)
        path = posixpath.normpath(posixpath.join(folder, target))
        if "://" in target or path.endswith(".md") or not (_ROOT / path).exists():
            return match.group(0)
        kind = "tree" if (_ROOT / path).is_dir() else "blob"
        return f"{match.group(1)}{_GALAXY['repository']}/{kind}/main/{path}"

    def show(match):
        text, target = match.groups()
        there = (_ROOT / posixpath.normpath(posixpath.join(folder, target))).is_file()
        return f'<a class="reference external" href="{target}">{text}</a>' if there else match.group(0)

    own = _EXAMPLE.sub(show, source[0]) if folder == "docs" else source[0]
    source[0] = _LINK.sub(lead, own)


def _link_to_ansible(app, env, node, contnode):
    """Lead references to labels and variables of Ansible to its documentation."""
    kind, target = node.get("reftype"), node.get("reftarget", "")
    plugin = _ANSIBLE_PLUGIN.fullmatch(target)
    page = _ANSIBLE_LABELS.get(target) if kind == "ref" else None
    if kind == "ref" and plugin:
        page = f"collections/ansible/builtin/{plugin.group(1)}.html"
    if kind == "envvar" and target in _ANSIBLE_VARIABLES:
        page = f"{_ANSIBLE_LABELS['ansible_configuration_settings']}#envvar-{target}"
    if page is None:
        return None
    return nodes.reference("", "", contnode, refuri=_ANSIBLE + page, internal=False)


def setup(app):
    """Called by Sphinx."""
    app.connect("missing-reference", _link_to_ansible)
    app.connect("source-read", _link_to_sources)
    app.add_lexer("sudoers", TextLexer)
