"""The page's scripts: ours, and the charting library's; each known to the browser by its digest.

Knows JavaScript files and content security policies. Does not know what the scripts do.

The library (Bokeh, from the package of that name) is carried as data and becomes a script
only when a chart is looked at: so the page paints before its 1.4 MB are read, and they take a third
of the bytes.
"""

import base64
import hashlib
import re
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup

from pessimal.errors import InputError, WorkError, require

OURS: tuple[str, ...] = ("text", "data", "columns", "search", "grid")
OURS += ("pinned", "library", "scatter", "explorer", "start")
"""Files of `js/`, in the order in which they are run."""
BOKEH = ("bokeh.min.js", "bokeh-api.min.js")


@dataclass(frozen=True)
class Script:
    """A script inside the page."""

    text: str

    def __post_init__(self):
        """Raise WorkError where a browser would read another text than was hashed."""
        if "\r" in self.text or re.search(r"</script|<!--", self.text, re.IGNORECASE):
            raise WorkError("a script of the page holds a carriage return, </script or <!--")

    @property
    def digest(self) -> str:
        """As a content security policy names it: 'sha256-…'."""
        return f"'sha256-{base64.b64encode(hashlib.sha256(self.text.encode()).digest()).decode()}'"

    @property
    def deflated(self) -> str:
        """base64 of its deflated UTF-8."""
        return base64.b64encode(zlib.compress(self.text.encode(), 9)).decode("ascii")


@cache
def own_script() -> Script:
    """Our files as one script, in which nothing is global."""
    folder = files("pessimal.report") / "js"
    bodies = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in OURS]
    return Script("(() => {\n'use strict';\n" + "\n".join(bodies) + "})();\n")


@cache
def library() -> tuple[Script, ...]:
    """The charting library's files. MissingExtraError where it is not installed."""
    folder = require("bokeh", purpose="the page's explorer") / "server" / "static" / "js"
    return tuple(Script((folder / name).read_text(encoding="utf-8")) for name in BOKEH)


def policy(scripts: list[Script]) -> str:
    """The content security policy of a page with these scripts: they may run, pictures may be in
    it, nothing else."""
    sources = f"; script-src {' '.join(script.digest for script in scripts)}" if scripts else ""
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'{sources}"


DRAWN = {"svg", "g", "defs", "path", "rect", "use", "clipPath", "text", "tspan", "image", "title"}
"""Elements that are kept: those that figures have. All others go, with what is in them."""
LINK = re.compile(r"url\(\s*['\"]?#")
INHERITED = ("font-family", "font-size", "stroke-linejoin", "fill", "style")
"""Attributes of the root that all in it inherits."""


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
        message = f"{file} is not an SVG figure ({error}); make the artifact again"
        raise InputError(message) from None
    inside = _strip_names(root, id)
    attributes = {name: inside.attrib[name] for name in INHERITED if name in inside.attrib}
    inside.tag, inside.attrib = "g", {"id": id, **attributes}
    markup = ElementTree.tostring(inside, encoding="unicode")
    return Drawing(id, width, " ".join(f"{number:g}" for number in box), Markup(markup))


def _strip_names(element: ElementTree.Element, id: str) -> ElementTree.Element:
    """The element without name spaces, and without what could act or fetch."""
    copy = ElementTree.Element(_name(element))
    for key, value in element.attrib.items():
        name = key.rpartition("}")[2]
        fetches = name == "href" and not value.startswith(("#", "data:image/png;base64,"))
        if fetches or name.startswith("on") or "url(" in LINK.sub("", value):
            continue
        value = re.sub("^#", f"#{id}-", value) if name == "href" else value
        copy.set(name, f"{id}-{value}" if name == "id" else LINK.sub(f"url(#{id}-", value))
    copy.text, copy.tail = element.text, element.tail
    copy.extend(_strip_names(child, id) for child in element if _name(child) in DRAWN)
    return copy


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
