"""A figure's SVG as part of an HTML page: well formed, ids of its own, nothing that acts or
fetches."""

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup

from pessimal.errors import InputError

DRAWN = {"svg", "g", "defs", "path", "rect", "use", "clipPath", "text", "tspan", "image", "title"}
"""Elements that are kept: those that figures have. All others go, with what is in them."""
LINK = re.compile(r"url\(\s*['\"]?#")
INHERITED = ("font-family", "font-size", "stroke-linejoin", "fill", "style")
"""What the root says for all that is in it."""


@dataclass(frozen=True)
class Drawing:
    """A figure that can stand in a page, as often as it is referred to."""

    id: str
    width: float
    """In points."""
    box: str
    """Its viewBox."""
    markup: Markup
    """A `g` element of that id."""


def drawing(file: Path, id: str) -> Drawing:
    """Read an SVG file; every id in it begins with `id`.

    Raises:
        InputError: this is no SVG file with a viewBox.
    """
    try:
        root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
        box = [float(number) for number in root.attrib["viewBox"].split()]
        width = box[2]
    except (ElementTree.ParseError, KeyError, ValueError, IndexError) as error:
        raise InputError(
            f"{file} is not an SVG figure ({error}); make the artifact again"
        ) from None
    inside = _kept(root, id)
    attributes = {name: inside.attrib[name] for name in INHERITED if name in inside.attrib}
    inside.tag, inside.attrib = "g", {"id": id, **attributes}
    markup = ElementTree.tostring(inside, encoding="unicode")
    return Drawing(id, width, " ".join(f"{number:g}" for number in box), Markup(markup))


def _kept(element: ElementTree.Element, id: str) -> ElementTree.Element:
    """The element without name spaces, and without what could act or fetch."""
    made = ElementTree.Element(_name(element))
    for key, value in element.attrib.items():
        name = key.rpartition("}")[2]
        if name == "href" and value.startswith("#"):
            made.set(name, f"#{id}-{value[1:]}")
            continue
        fetches = name == "href" and not value.startswith("data:image/png;base64,")
        if fetches or name.startswith("on") or "url(" in LINK.sub("", value):
            continue
        made.set(name, f"{id}-{value}" if name == "id" else LINK.sub(f"url(#{id}-", value))
    made.text, made.tail = element.text, element.tail
    made.extend(_kept(child, id) for child in element if _name(child) in DRAWN)
    return made


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
