"""How Sphinx builds the manual: `make docs`. Every warning is an error, so that no link is dead and
no text is forgotten."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import table_columns  # noqa: E402
from sphinx.util import logging  # noqa: E402

from pessimal import __version__  # noqa: E402

project = "pessimal"
author = "The pessimal developers"
release = version = __version__
extensions = ["myst_nb", "option_tables"]
exclude_patterns = ["_build", "jupyter_execute"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"  # the notebook is run each time: what it shows is what the code does
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_output_stderr = "remove"
nitpicky = True
html_theme = "furo"
html_title = "pessimal"
html_show_sphinx = False
html_show_copyright = False

LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
FILE = re.compile(r"`((?:src|tests|conf|docs|docker|experiments)/[\w./-]+)`")


def check_outside(app) -> None:
    """Warn where a text names a file of the repository that is not there, and where a method's text
    stands on no page."""
    log = logging.getLogger(__name__)
    readme = ROOT / "README.md"
    named = [(readme, target) for target in LINK.findall(readme.read_text(encoding="utf-8"))]
    for page in (readme, *HERE.glob("*.md"), *HERE.glob("[!_]*/*.md")):
        named += [(page, target) for target in FILE.findall(page.read_text(encoding="utf-8"))]
    for page, target in named:
        if not (ROOT / target).exists() and "NAME" not in target:
            log.warning("%s names %s, which is not there", page.relative_to(ROOT), target)
    included = (HERE / "methods.md").read_text(encoding="utf-8")
    for text in sorted((ROOT / "src/pessimal/methods").glob("*.md")):
        if f"methods/{text.name}\n" not in included:
            log.warning("docs/methods.md does not include %s", text.name)


def setup(app) -> None:
    app.connect("config-inited", lambda app, config: table_columns.main())
    app.connect("builder-inited", check_outside)
