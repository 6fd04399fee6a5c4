"""What an analysis returns: data, one sentence, and a declaration of how to draw it.

Knows no verb, no page and no ink: compare, search, explain, check and tune all return these, and
one function publishes them (`verbs.publish`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from pessimal.plots import Plot
from pessimal.statistics import LEVEL

RESULTS = "results.json"
"""The file of an artifact that says what its results are (`verbs.publish` writes it,
`report.artifact` reads it)."""


@dataclass(frozen=True)
class Estimate:
    """The number behind a headline."""

    label: str
    """What it is, with its unit: `τ`, `reward (SD) per Zipf unit`."""
    value: float
    n: int
    """How many things it rests on, and `of` what: words, tokens, models."""
    of: str = "tokens"
    low: float | None = None
    high: float | None = None
    """Interval, where there is one."""
    p: float | None = None
    """Corrected for the tests of its family, where there is one."""


@dataclass(frozen=True)
class Result:
    """One question answered."""

    name: str
    """Stem of the table's file and of its figures, key at W&B, anchor on the page."""
    table: pd.DataFrame
    """Tidy: keys, then estimate, low, high, n, p."""
    headline: str = ""
    """One sentence of at most 25 words. Empty: the table belongs to another result of the same
    method."""
    plot: Plot | None = None
    method: str = ""
    """Which static text says what is measured and what is not: `methods/METHOD.md`. Results of one
    method share a section of the page."""
    weight: float = 0.0
    """How much it deserves the top of the page; see `weight_of`."""
    estimate: Estimate | None = None
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    summary: Mapping[str, float | str] = field(default_factory=dict)
    """Numbers by which runs are compared at W&B."""


class Results(list[Result]):
    """Results in the order of the page, and by name."""

    def __init__(self, results: Iterable[Result] = (), skipped: Mapping[str, str] | None = None):
        super().__init__(results)
        self.skipped = dict(skipped or {})
        """What could not be done, by name: why."""

    def __getitem__(self, which: int | slice | str):
        if not isinstance(which, str):
            return super().__getitem__(which)
        if found := next((result for result in self if result.name == which), None):
            return found
        why = f"; skipped: {self.skipped[which]}" if which in self.skipped else ""
        raise KeyError(
            f"no result {which!r}{why}. There are: {', '.join(result.name for result in self)}"
        )


def weight_of(size: float, p: float | None = None, *, level: float = LEVEL) -> float:
    """How much a result deserves the top of the page: 1 where its corrected p is below `level`,
    plus its size.

    Args:
        size: of the effect, on a scale where 1 is large (a correlation, a standardised slope);
            larger ones count as 1.
        p: corrected; None where nothing was tested.
    """
    significant = p is not None and p <= level
    return float(significant) + min(abs(size), 1.0) * (1.0 if significant or p is None else 0.5)


def merged(results: Iterable[Result]) -> list[Result]:
    """One result a name: the tables under one another, headline and number of the heaviest, all
    notes."""
    by_name: dict[str, list[Result]] = {}
    for result in results:
        by_name.setdefault(result.name, []).append(result)
    whole = []
    for parts in by_name.values():
        first = max(parts, key=lambda part: (bool(part.headline), part.weight))
        if len(parts) > 1:
            notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
            summary = {key: value for part in parts for key, value in part.summary.items()}
            table = pd.concat([part.table for part in parts], ignore_index=True)
            data = [part.plot.data for part in parts if part.plot and part.plot.data is not None]
            plot = next((part.plot for part in parts if part.plot), None)
            if plot is not None and data:
                plot = replace(plot, data=pd.concat(data, ignore_index=True))
            first = replace(first, table=table, plot=plot, notes=notes, summary=summary)
        whole.append(first)
    return whole


def finite_or_none(value: object) -> object:
    """A number as JSON can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
