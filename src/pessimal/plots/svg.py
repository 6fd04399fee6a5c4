"""Matplotlib's SVG made small, and fit to stand beside others in a page: its colours, ids and
tooltips.

Knows SVG; knows nothing of what is drawn.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from hashlib import sha256

from pessimal.plots.style import FONTS, INK, SIZE, VARIABLES

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_MARKED = re.compile(r"url\(#([^)]+)\)")
_LONG = re.compile(r"-?\d*\.\d{3,}(?:e-?\d+)?")
_SIZE = f"{SIZE:g}px"
_DEFAULTS = {("font-size", _SIZE), ("stroke-linejoin", "round"), ("text-anchor", "start")}
_ROOT = {
    "font-family": FONTS,
    "font-size": _SIZE,
    "stroke-linejoin": "round",
    "role": "img",
    "fill": INK,
    "style": f"fill:var({VARIABLES[INK]},{INK})",
}


def finished(svg: str, *, stem: str, tips: Mapping[str, str]) -> str:
    """The figure as it is published.

    Ink, greys and paper become CSS variables (`var(--ink, #222222)`, see `style.VARIABLES`) beside
    the plain colour, so that a page replaces them and any other viewer draws it. Ids are the stem's
    own. Text stays text. What carries no meaning goes: metadata, the style sheet (it would rule the
    page), groups around one thing, digits below 1/100 point.

    Args:
        svg: as matplotlib wrote it.
        stem: of the file; figures of one page differ in it.
        tips: what the pointer reads, by id of the group.
    """
    ET.register_namespace("", _SVG[1:-1])
    root = ET.fromstring(svg)
    for part in root.findall(f"{_SVG}metadata"):
        root.remove(part)
    links = (node.get(_LINK, "").removeprefix("#") for node in root.iter())
    marked = (
        id
        for node in root.iter()
        for value in node.attrib.values()
        for id in _MARKED.findall(value)
    )
    referred, prefix = {*links, *marked}, "f" + sha256(stem.encode()).hexdigest()[:8]
    for node in root.iter():
        _rewrite(node, prefix, referred, tips)
    _flatten(root)
    root.attrib.pop("version", None)
    root.attrib |= _ROOT
    return ET.tostring(root, encoding="unicode") + "\n"


def _rewrite(node: ET.Element, prefix: str, referred: set[str], tips: Mapping[str, str]) -> None:
    """One element's ids, colours, numbers and tooltip."""
    identifier, link = node.attrib.pop("id", None), node.attrib.pop(_LINK, None)
    if identifier is not None and identifier in tips:
        title = ET.Element(f"{_SVG}title")
        title.text = tips[identifier]
        node.insert(0, title)
        node.set("class", "tip")
    elif identifier in referred:
        node.set("id", f"{prefix}{identifier}")
    if link is not None:
        node.set("href", f"#{prefix}{link[1:]}" if link.startswith("#") else link)
    if node.get("transform", "").startswith("rotate(-0 "):
        del node.attrib["transform"]
    for name in {"d", "x", "y", "points", "width", "height"} & node.attrib.keys():
        short = _LONG.sub(
            lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), node.attrib[name]
        )
        short = re.sub(r"\s*([A-Za-z])\s*", r"\1", short) if name == "d" else short
        node.set(name, " ".join(short.split()))
    for name, value in node.attrib.items():
        node.set(name, _MARKED.sub(rf"url(#{prefix}\1)", value))
    if "style" in node.attrib:
        _restyle(node)


def _restyle(node: ET.Element) -> None:
    """Declarations as attributes; replaceable colours as both, so that viewers without variables
    draw them."""
    declared = (part.split(":", 1) for part in node.attrib.pop("style").split(";") if ":" in part)
    variables = []
    for name, value in ((name.strip(), value.strip()) for name, value in declared):
        inherited = (name, value) == ("fill", INK) and len(node) == 0 and node.tag == f"{_SVG}text"
        if inherited or name == "font-family" or (name, value) in _DEFAULTS:
            continue
        if variable := VARIABLES.get(value.lower()):
            variables.append(f"{name}:var({variable},{value})")
        node.set(name, value)
    if variables:
        node.set("style", ";".join(variables))


def _flatten(node: ET.Element) -> None:
    """Take groups away that say nothing, comments and white space between elements; keep the order
    of drawing."""
    children: list[ET.Element] = []
    for child in node:
        if not isinstance(child.tag, str) or child.tag == f"{_SVG}style":
            continue
        _flatten(child)
        child.tail = None
        group, path = child.tag == f"{_SVG}g", child.tag == f"{_SVG}path"
        if (group or child.tag == f"{_SVG}defs") and len(child) == 0:
            continue
        if (
            path
            and child.get("fill") == "none"
            and not child.get("stroke")
            and "id" not in child.attrib
        ):
            continue  # the transparent ground of a figure or panel
        children += list(child) if group and not child.attrib else [child]
    node[:] = children
    if len(node) and not (node.text or "").strip():
        node.text = None
