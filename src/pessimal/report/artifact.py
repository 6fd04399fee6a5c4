"""A published artifact as the page reads it: `results.json`, tables, figures, views, and the
methods' texts.

Knows files. Does not know HTML, but for that of the methods' Markdown.
"""

import json
import re
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from pessimal.errors import InputError
from pessimal.explaining.views import View, from_json
from pessimal.tables.result import HOLDS, RESULTS, UNTESTED, Estimate

KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
TO_DO = "What to do: "
"""Begins the last line of a method's text, where it makes findings."""


@dataclass(frozen=True)
class Shown:
    """A result, as `results.json` has it."""

    name: str
    headline: str = ""
    weight: float = 0.0
    method: str = ""
    estimate: dict | None = None
    plot: dict = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    """Stems by tab."""
    notes: list[str] = field(default_factory=list)
    effect: dict | None = None
    """Columns of its table that hold the effect: the fields of `tables.result.Effect`."""

    @classmethod
    def read(cls, entry: dict) -> "Shown":
        """Read a result from its entry in `results.json`. Where it declares no effect, its figure
        does; an entry from before results could weighs by today's rule."""
        plot, estimate = entry["plot"] or {}, entry["estimate"]
        result = cls(**{**entry, "plot": plot})
        if "effect" not in entry:
            standing = Estimate(**estimate).standing if estimate else UNTESTED
            size = result.weight - 1 if standing == HOLDS else result.weight
            result = replace(result, weight=standing + min(max(size, 0.0), 1.0))
        column = plot.get("estimate") or plot.get("value")
        if result.effect or not column:
            return result
        symbol = column.replace("_", " ")
        effect = {"column": column, "symbol": symbol, "unit": "", "null": plot.get("reference")}
        effect |= {name: plot.get(name) for name in ("low", "high", "p")}
        return replace(result, effect=effect)

    @property
    def has_cards(self) -> bool:
        """Whether its figures stand on the models' cards."""
        return "model" in self.plot.get("tabs", ())


@dataclass(frozen=True)
class Artifact:
    """A comparison, search result, study or explanation to be shown."""

    reference: str
    """`comparison/name:vN`."""
    folder: Path
    created: str
    """UTC time of publishing."""
    commit: str | None = None
    """Commit of the code that made it, where that is known."""
    dirty: bool | None = None
    """Whether that code differed from the commit."""
    _tables: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def document(self) -> dict:
        """`results.json`. Raises InputError where an earlier edition made the artifact."""
        file = self.folder / RESULTS
        if not file.is_file():
            raise InputError(
                f"{self.reference} has no {RESULTS}: an earlier version of pessimal made it. Make "
                "it again, with the command that made it"
            )
        return json.loads(file.read_text(encoding="utf-8"))

    @cached_property
    def results(self) -> list[Shown]:
        """In their own order."""
        return [Shown.read(entry) for entry in self.document["results"]]

    @property
    def labels(self) -> dict[str, str]:
        """Names of models as people see them."""
        return self.document["labels"]

    def table(self, name: str) -> pd.DataFrame:
        """A result's table; empty where there is none of this name."""
        if name not in self._tables:
            file = self.folder / "tables" / f"{name}.parquet"
            self._tables[name] = pd.read_parquet(file) if file.is_file() else pd.DataFrame()
        return self._tables[name]

    def effect(self, name: str) -> dict | None:
        """The effect that a result declares; None where it declares none or no result has this
        name."""
        return next((result.effect for result in self.results if result.name == name), None)

    def rows(self, result: Shown) -> pd.DataFrame:
        """Those that a result's plot shows: of its own table, or of `shown/` where it draws
        another."""
        other = self.folder / "shown" / f"{result.name}.parquet"
        table = pd.read_parquet(other) if other.is_file() else self.table(result.name)
        for column, wanted in result.plot.get("where", {}).items():
            table = table[table[column].isin(wanted if isinstance(wanted, list) else [wanted])]
        return table

    def figure(self, stem: str) -> Path:
        """The SVG of this stem."""
        return self.folder / "figures" / f"{stem}.svg"

    def views(self, name: str) -> list[View]:
        """Comparisons to be read word by word, that belong to the result of this name."""
        file = self.folder / "views" / f"{name}.json"
        return from_json(file.read_text(encoding="utf-8")) if file.is_file() else []


class Method(NamedTuple):
    """Meaning of a measure, and its limits."""

    title: str
    text: Markup
    to_do: str = ""
    """Advice about a finding; plain text."""


@cache
def method(key: str) -> Method:
    """The text `methods/KEY.md`, or the key itself where it is a text of several lines; the key as
    a title where there is no text."""
    file = files("pessimal") / "methods" / f"{key}.md"
    text = file.read_text(encoding="utf-8") if KEY.fullmatch(key) and file.is_file() else key
    if "\n" not in text:
        return Method(key.replace("_", " ").capitalize(), Markup())
    first, _, rest = text.partition("\n")
    line = rest.strip().rpartition("\n")[2]
    to_do = line.removeprefix(TO_DO) if line.startswith(TO_DO) else ""
    return Method(first.lstrip("# ").strip(), Markup(MARKDOWN.render(rest)), to_do)
