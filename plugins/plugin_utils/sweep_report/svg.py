# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a part of a page of an SVG that matplotlib drew: pure, text in, text out.

In a file of its own an SVG has a size, a font and colours of its own, and names that only it uses.  In a page it is
as wide as there is room, has the page's font, follows its colours, and several of them share one set of names.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Set
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "http://www.w3.org/1999/xlink"
_HREF = "{%s}href" % _XLINK
_NAMESPACES = re.compile(r' xmlns(?::\w+)?="[^"]*"')
_PREFIX = re.compile(r"(</?)ns\d+:|\bns\d+:(?=href=)")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
# One matplotlib writes it as one property, another one as several.
_FONT = re.compile(r"font: (?:(?:bold|normal|\d{3}) )*([\d.]+)px [^;]+")
_FAMILY = re.compile(r"font-family: [^;]+;? ?")
_NOT_TURNED = re.compile(r"rotate\(-?0(?:\.0*)?(?: [^)]*)?\)")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
# A hundredth of a point is a fiftieth of a pixel; matplotlib writes six digits.
_FRACTION = re.compile(r"(\d+\.\d{2})\d+")
# Who drew it when, and a style for everything, which in a page would be for everything there.
_NO_SENSE = (_SVG + "metadata", _SVG + "style")


def inline(drawn: str, name: str, title: str, description: str, colours: Mapping[str, str]) -> str:
    """The <svg> element for a page.

    name: begins every id in it.  title, description: for those who cannot see it.  colours: what the colours of the
    drawing (#rrggbb) are called in the page's style; one that is not there stays as it is.
    """
    root = ElementTree.fromstring(drawn.encode("utf-8"))
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in _NO_SENSE]:
            parent.remove(child)
    used = _references(root)
    for element in root.iter():
        _adapt(element, name, used, colours)
    _unwrap(root)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    _describe(root, name, title, description)
    text = ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)
    # In HTML the parser knows which names are SVG's.
    text = _PREFIX.sub(lambda match: match.group(1) or "xlink:", _NAMESPACES.sub("", text))
    return re.sub(r">\s+<", "><", text)


def _references(root: ElementTree.Element) -> Set[str]:
    found: Set[str] = set()
    for element in root.iter():
        for attribute, value in element.attrib.items():
            if attribute == _HREF and value.startswith("#"):
                found.add(value[1:])
            found.update(_REFERENCE.findall(value))
    return found


def _adapt(element: ElementTree.Element, name: str, used: Set[str], colours: Mapping[str, str]) -> None:
    attributes: Dict[str, str] = {}
    for attribute, value in element.attrib.items():
        if attribute == "id":
            if value not in used:
                continue
            value = "%s-%s" % (name, value)
        elif attribute == _HREF and value.startswith("#"):
            value = "#%s-%s" % (name, value[1:])
        elif attribute == "style":
            value = _style(value, colours)
        elif attribute in ("d", "points", "x", "y", "width", "height", "transform"):
            value = " ".join(_FRACTION.sub(r"\1", value).split())
            if attribute == "transform" and _NOT_TURNED.fullmatch(value):
                continue
        attributes[attribute] = _REFERENCE.sub(r"url(#%s-\1)" % name, value)
    element.attrib.clear()
    element.attrib.update(attributes)


def _style(style: str, colours: Mapping[str, str]) -> str:
    style = _FAMILY.sub("", _FONT.sub(r"font-size: \1px", style))
    # Versions of matplotlib differ in their order.
    style = "; ".join(sorted(part.strip() for part in style.split(";") if part.strip()))
    return _COLOUR.sub(
        lambda found: "var(%s)" % colours[found.group()] if found.group() in colours else found.group(), style
    )


def _unwrap(parent: ElementTree.Element) -> None:
    """Put what is in a group that says nothing where the group is."""
    children: List[ElementTree.Element] = []
    for child in parent:
        _unwrap(child)
        if child.tag == _SVG + "g" and not child.attrib:
            children.extend(child)
        elif child.tag != _SVG + "defs" or len(child):
            children.append(child)
    parent[:] = children


def _describe(root: ElementTree.Element, name: str, title: str, description: str) -> None:
    root.set("role", "img")
    root.set("aria-labelledby", "%s-title %s-description" % (name, name))
    for position, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(_SVG + tag, {"id": "%s-%s" % (name, {"desc": "description"}.get(tag, tag))})
        element.text = text
        root.insert(position, element)
