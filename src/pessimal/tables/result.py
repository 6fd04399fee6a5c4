"""Result of an analysis: data, one sentence, and a declaration of how to draw it.

Knows no verb, no page and no ink: compare, search, explain, check and tune all return these, and
one function publishes them (`verbs.publish`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, SupportsIndex, TypeGuard, overload

import numpy as np
import pandas as pd

from pessimal.plots import Plot
from pessimal.statistics import LEVEL, correct_p

RESULTS = "results.json"
"""The file of an artifact that says what its results are (`verbs.publish` writes it,
`report.artifact` reads it)."""
POWER = 0.8
"""Chance at which an effect of the size `detectable` is found."""
LEGEND = (
    "Brackets: 95 % intervals. p: how often chance, or a random output layer (the same network, "
    "its last layer drawn at random), shows as much, whichever does more often; corrected for the "
    "models and prompts that were tested alike. Found: p ≤ .05. Would have been found: in four "
    "cases of five. SD: of one model's rewards of all words."
)
"""The words for an `Estimate` behind a headline, for people."""
UNTESTED, TESTED, HOLDS = 0, 1, 2
"""Standing of a number: nothing tests it; a test does not say that it holds; it holds after
correction."""


@dataclass(frozen=True)
class Estimate:
    """The number behind a headline."""

    label: str
    """Name with its unit: `τ`, `reward (SD) per Zipf unit`."""
    value: float
    n: int
    """Number of things it rests on, and `of` what: words, tokens, models."""
    of: str = "tokens"
    low: float | None = None
    high: float | None = None
    """Interval, where there is one."""
    p: float | None = None
    """Corrected for the tests of its family, where there is one."""
    null: float | None = None
    """Value that a reader compares it with: 0, ½, what a random head gives; None where nothing
    is."""
    heads: float | None = None
    """Share of random heads that show as much, where it is known."""
    detectable: float | None = None
    """The smallest distance from the null that would have been found with a chance of `POWER`."""

    @property
    def standing(self) -> int:
        """HOLDS, TESTED or UNTESTED. An interval beside a null is a test, but an uncorrected one:
        it never counts for more than TESTED."""
        if _is_number(self.p):
            return HOLDS if self.p <= LEVEL else TESTED
        compared = _is_number(self.low) and _is_number(self.high) and _is_number(self.null)
        return TESTED if compared else UNTESTED

    @property
    def miss(self) -> str:
        """The effect that would have been found, in words, where a test found nothing; else
        empty."""
        if self.detectable is None or self.standing != TESTED:
            return ""
        null = f"{self.null:g} ± " if self.null else ""
        return f"{null}{self.detectable:.2g} would have been found"

    def weight(self, size: float | None = None, *, share: float = 1.0) -> float:
        """`weight_of` this number.

        Args:
            size: where that of the distance from the null is not what deserves attention.
            share: less than 1 where the result is expected, or a part of what another says.
        """
        size = self.value - (self.null or 0.0) if size is None else size
        return self.standing + share * min(abs(size), 1.0)


@dataclass(frozen=True)
class Effect:
    """The finding of a result, as columns of its table. Cards, figures, the order of the page, W&B
    and `results.json` read this; nothing guesses what a column means by its name."""

    column: str
    """The effect itself."""
    label: str
    """Name with its unit; the label of its `Estimate`."""
    low: str | None = None
    high: str | None = None
    """Ends of its interval."""
    p: str | None = None
    """The corrected p (see `correct`)."""
    null: float | str | None = None
    """Value that a reader compares it with: a number, or the column that has it for each row (a
    random head's, say); None where there is nothing to compare it with."""
    n: str = "n"
    """Number of things a row rests on."""
    of: str = "tokens"
    """Name of these things."""
    symbol: str = ""
    """Text before the number where there is little room: `spearman`."""
    unit: str = ""
    """Text behind it: `SD`."""
    band: str | None = None
    """Half-width about the null in which 95 % of random heads lie."""
    family: tuple[str, ...] = ()
    """Columns in which the rows of one family are alike, whose tests are corrected together; all
    rows without one."""
    correction: str = "Holm"
    """One of `statistics.CORRECTIONS`."""

    simultaneous: bool = False
    """Whether the interval holds for all tests of the family at once."""

    def correct(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table with the column `p`, `NAME_corrected`: the larger of the p in its column NAME
        and of the share of random heads, where the table has these, corrected for the tests of its
        family; and, where there is an interval, `detectable`: the smallest effect that would have
        been found (`Estimate.detectable`), as if errors were normal and this test the smallest p of
        its family."""
        if self.p is None:
            return table
        columns = [c for c in (self.p.removesuffix("_corrected"), "random_head") if c in table]
        p, tests = correct_p(table, columns, self.family, method=self.correction)
        table = table.assign(**{self.p: p})
        if self.low is None or self.high is None:
            return table
        from scipy.stats import norm  # half a second, which reading a result need not wait for

        level, alone = norm.isf(LEVEL / 2 / tests.clip(lower=1)), norm.isf(LEVEL / 2)
        error = (table[self.high] - table[self.low]) / 2 / (level if self.simultaneous else alone)
        reach = error if self.band is None else np.fmax(error, table[self.band] / alone)
        return table.assign(detectable=(level * reach + norm.ppf(POWER) * error).where(p.notna()))

    def estimate_row(self, row: pd.Series, label: str | None = None) -> Estimate:
        """The number of one row of the table.

        Args:
            row: as `table.iloc[…]` gives it.
            label: where the row is chosen in a way that a reader must know (`τ, highest`).
        """
        low, high, p = (_number(row, name) for name in (self.low, self.high, self.p))
        null = _number(row, self.null) if isinstance(self.null, str) else self.null
        value, n = float(row[self.column]), int(row[self.n])
        heads, detectable = (
            _number(row, name) if name in row else None for name in ("random_head", "detectable")
        )
        label = label or self.label
        return Estimate(label, value, n, self.of, low, high, p, null, heads, detectable)


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
    """Text that says what is measured and what is not: the key of `methods/METHOD.md`, or the text
    itself, Markdown of several lines of which the first is the heading. Results of one method share
    a section of the page."""
    weight: float = 0.0
    """Degree to which it deserves the top of the page; see `weight_of`. No more than the standing
    of the estimate allows, so that an untested number never comes before a tested one."""
    estimate: Estimate | None = None
    """The number behind the headline, mostly `effect.at(row)`."""
    notes: tuple[str, ...] = ()
    """Things that were left out, and why."""
    summary: Mapping[str, float | str] = field(default_factory=dict)
    """Numbers by which runs are compared at W&B."""
    effect: Effect | None = None
    """Columns of the table that are its finding."""

    def __post_init__(self) -> None:
        standing = self.estimate.standing if self.estimate else UNTESTED
        if self.weight > standing + 1:
            object.__setattr__(self, "weight", float(standing + 1))
        missing = {*_columns(self.effect)} - {*self.table.columns} if len(self.table) else set()
        if missing:
            raise ValueError(
                f"the result {self.name!r} declares an effect in {', '.join(sorted(missing))}, and "
                f"its table has {', '.join(map(str, self.table.columns))}"
            )

    def __len__(self) -> int:
        return len(self.table)

    def __bool__(self) -> bool:
        return True  # without rows, too

    def __repr__(self) -> str:
        rows = f"{len(self):,} row{'s' * (len(self) != 1)}"
        return f"<Result {self.name}, {rows}: {self.headline or self.method}>"

    @property
    def df(self) -> pd.DataFrame:
        """The table."""
        return self.table

    def top(self, n: int = 10) -> pd.DataFrame:
        """The n rows whose effect is farthest from what it is compared with, the farthest first;
        without an effect the first n."""
        if self.effect is None:
            return self.table.head(n)
        null = self.effect.null or 0.0
        middle = self.table[null] if isinstance(null, str) else null
        far = (self.table[self.effect.column] - middle).abs().sort_values(ascending=False)
        return self.table.loc[far.index[:n]]

    @classmethod
    def of_row(
        cls,
        row: pd.Series,
        name: str,
        table: pd.DataFrame,
        effect: Effect,
        headline: str,
        *,
        label: str | None = None,
        size: float | None = None,
        share: float = 1.0,
        **rest: Any,
    ) -> "Result":
        """A result whose headline is about one row of its table, which gives its number and weight.

        Args:
            row: as `table.iloc[…]` gives it.
            label: of the number, where a reader must know how the row was chosen.
            size, share: see `Estimate.weight`.
            rest: further fields.
        """
        estimate = effect.estimate_row(row, label)
        weight = estimate.weight(size, share=share)
        return cls(name, table, headline, weight=weight, estimate=estimate, effect=effect, **rest)


class Results(list[Result]):
    """Results in the order of the page, and by name."""

    def __init__(
        self,
        results: Iterable[Result] = (),
        skipped: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ):
        super().__init__(results)
        self.skipped = dict(skipped or {})
        """Reasons for what could not be done, by name."""
        self.folder = folder
        """Where they are published; None without a store."""

    def __repr__(self) -> str:
        lines = [repr(result) for result in self]
        return "\n".join(
            [*lines, *(f"<not done, {n}: {reason}>" for n, reason in self.skipped.items())]
        )

    @overload
    def __getitem__(self, which: SupportsIndex | str) -> Result: ...

    @overload
    def __getitem__(self, which: slice) -> list[Result]: ...

    def __getitem__(self, which: SupportsIndex | slice | str) -> Result | list[Result]:
        if not isinstance(which, str):
            return super().__getitem__(which)
        if result := next((result for result in self if result.name == which), None):
            return result
        reason = f"; skipped: {self.skipped[which]}" if which in self.skipped else ""
        raise KeyError(
            f"no result {which!r}{reason}. There are: {', '.join(result.name for result in self)}"
        )


def weight_of(size: float, p: float | None = None, *, share: float = 1.0) -> float:
    """Degree to which a result deserves the top of the page: what holds after correction before
    what was tested and does not hold, and that before what was not tested; in each of them by its
    size.

    Args:
        size: of the effect, on a scale where 1 is large (a correlation, a standardised slope);
            larger ones count as 1.
        p: corrected; None where nothing was tested.
        share: less than 1 where the result is expected, or a part of what another says.
    """
    return Estimate("", size, 0, p=p).weight(share=share)


def _columns(effect: Effect | None) -> list[str]:
    if effect is None:
        return []
    names = (effect.column, effect.low, effect.high, effect.p, effect.n, effect.null, effect.band)
    return [name for name in names if isinstance(name, str)]


def _is_number(value: float | None) -> TypeGuard[float]:
    return value is not None and not np.isnan(value)


def _number(row: pd.Series, name: str | None) -> float | None:
    return None if name is None or pd.isna(row[name]) else float(row[name])


def merged(results: Iterable[Result]) -> list[Result]:
    """One result a name: the tables under one another, headline and number of the heaviest, all
    notes."""
    by_name: dict[str, list[Result]] = {}
    for result in results:
        by_name.setdefault(result.name, []).append(result)
    together = []
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
        together.append(first)
    return together


def finite_or_none(value: object) -> object:
    """A number as JSON can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
