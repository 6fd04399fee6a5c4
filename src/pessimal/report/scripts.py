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

from pessimal.errors import WorkError, require

OURS = (
    "text",
    "data",
    "columns",
    "search",
    "grid",
    "pinned",
    "library",
    "scatter",
    "explorer",
    "start",
)
"""Files of `js/`, in the order in which they are run."""
BOKEH = ("bokeh.min.js", "bokeh-api.min.js")


@dataclass(frozen=True)
class Script:
    """A script inside the page."""

    text: str
    digest: str
    """As a content security policy names it: 'sha256-…'."""

    @property
    def deflated(self) -> str:
        """base64 of its deflated UTF-8."""
        return base64.b64encode(zlib.compress(self.text.encode(), 9)).decode("ascii")


@cache
def own_script() -> Script:
    """Our files as one script, in which nothing is global."""
    folder = files("pessimal.report") / "js"
    bodies = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in OURS]
    return _script("(() => {\n'use strict';\n" + "\n".join(bodies) + "})();\n")


@cache
def library() -> tuple[Script, ...]:
    """The charting library's files. MissingExtraError where it is not installed."""
    folder = require("bokeh", why="the page's explorer") / "server" / "static" / "js"
    return tuple(_script((folder / name).read_text(encoding="utf-8")) for name in BOKEH)


def policy(scripts: list[Script]) -> str:
    """The content security policy of a page with these scripts: they may run, pictures may be in
    it, nothing else."""
    sources = f"; script-src {' '.join(script.digest for script in scripts)}" if scripts else ""
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'{sources}"


def _script(text: str) -> Script:
    """Raises WorkError where a browser would read another text than was hashed."""
    if "\r" in text or re.search(r"</script|<!--", text, re.IGNORECASE):
        raise WorkError("a script of the page holds a carriage return, </script or <!--")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return Script(text, f"'sha256-{digest}'")
