"""The directive `options`: a verb's options as a table, by the functions that print `pessimal VERB
--help`.

    ```{options} search
    :only: search
    ```

One row a field: its key, what it takes, its default as Hydra composes it from `conf/`, and the
sentence after the field in `pessimal/config/schema/`. `only` and `without` choose by the first part
of the key. Words after the verb are overrides.
"""

import inspect
import typing

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from pessimal.cli import MANY, SHARED, composed, list_options
from pessimal.config.schema import TASKS


class Options(SphinxDirective):
    """`options VERB`, with `only` or `without`; the fields that many verbs share only where they
    are named."""

    required_arguments = 1
    optional_arguments = 9
    option_spec: typing.ClassVar = {"only": directives.unchanged, "without": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        verb, *overrides = self.arguments
        self.env.note_dependency(inspect.getfile(TASKS[verb]))
        only, without = (set(self.options.get(name, "").split(",")) for name in ("only", "without"))
        rows = []
        for key, kind, default, said in list_options(
            TASKS[verb], composed([f"task={verb}", *overrides])
        ):
            first = key.split(".")[0]
            if first in only if only != {""} else first not in {*SHARED, *MANY, *without}:
                said = said.replace("|", "\\|")
                rows.append(f"| `{key}` | {kind} | {f'`{default}`' if default else ''} | {said} |")
        if not rows:
            raise self.error(f"options {verb}: nothing is left of its fields")
        return self.parse_text_to_nodes(
            "\n".join(["| option | takes | default | meaning |", "|---|---|---|---|", *rows])
        )


def setup(app) -> dict:
    app.add_directive("options", Options)
    return {"version": "1", "parallel_read_safe": False}
