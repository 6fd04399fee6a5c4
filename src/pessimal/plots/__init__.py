"""Six ways of drawing a table, declared: what is drawn is said in names of columns, and drawn on
demand.

A declaration holds no ink and imports no matplotlib; `plots.draw` makes figures of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

CANDIDATES = "candidates"
BETWEEN = " · "
"""Between the parts of a tab's name."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Fields that all six have in common."""

    tabs: tuple[str, ...] = ("prompt",)
    """Columns that divide the table into figures, one for each combination of values; those that
    the table has not are passed over. `model` among them: the figures stand on the models' cards.
    Several candidate sets in one table always get figures of their own."""
    where: Mapping[str, object] = field(default_factory=dict)
    """Only rows with these values: column and value, or list of values."""
    across: int = 3
    """Panels side by side at most."""
    data: pd.DataFrame | None = None
    """The drawn table, where it is not the result's own table."""


@dataclass(frozen=True, kw_only=True)
class Forest(Plot):
    """Rows of points with intervals, named on the left."""

    row: str = "model"
    estimate: str = "estimate"
    low: str | None = "low"
    high: str | None = "high"
    group: str | None = None
    """A column whose values get a colour and a mark each, side by side in a row."""
    panel: str | None = None
    """A column whose values get a panel each, beside one another."""
    p: str | None = None
    """A column of corrected p values: marks above .05 are hollow, those without a test grey."""
    band: str | None = None
    """A column of half-widths about the reference, drawn as a grey band behind each row: where 95 %
    of random heads lie."""
    xlabel: str = ""
    reference: float | None = 0.0
    """Where nothing is found: a vertical line."""
    limit: float | None = None
    """Value that the estimates are held against: a dashed line."""

    @classmethod
    def of(cls, effect: Any, **rest: Any) -> "Forest":
        """The declaration of an effect (`tables.result.Effect`): its columns, with a line at its
        null; `rest` are other fields."""
        null = None if isinstance(effect.null, str) else effect.null
        columns = {"estimate": effect.column, "low": effect.low, "high": effect.high}
        return cls(**columns | {"p": effect.p, "band": effect.band, "reference": null} | rest)


@dataclass(frozen=True, kw_only=True)
class Heatmap(Plot):
    """Coloured cells with their numbers."""

    row: str = "model_a"
    column: str = "model_b"
    value: str = "estimate"
    panel: str | None = None
    symmetric: bool = False
    """The table holds each pair once: both halves are drawn. Rows of a name with itself (a noise
    floor) are the diagonal, without a colour."""
    order: bool = False
    """Rows and columns of a symmetric matrix in the order of a hierarchical clustering."""
    diverging: bool = False
    """Two colours around 0."""
    label: str = ""
    """Name of the numbers."""


@dataclass(frozen=True, kw_only=True)
class Scatter(Plot):
    """Points, some of them with their names. Many points become a density with the named ones on
    top."""

    x: str
    y: str
    name: str | None = None
    """A column of names."""
    named: str | None = None
    """A boolean column: which points are named; all of them where it is None."""
    group: str | None = None
    panel: str | None = None
    xlabel: str = ""
    """A tab column in braces, `reward on {first}`, stands for its value."""
    ylabel: str = ""
    diagonal: bool = False
    """Draws y = x."""
    equal: bool = False
    """One unit is as long in x as in y (a map)."""
    line: str | None = None
    """A column of fitted values: a line through them for each of `group`."""
    dense: bool = False
    """A density however few points there are."""
    axes: bool = True
    """False: no ticks, as distances mean something and directions do not."""


@dataclass(frozen=True, kw_only=True)
class Lines(Plot):
    """A line for each group, over x."""

    x: str
    y: str
    group: str | None = None
    low: str | None = None
    high: str | None = None
    """A band around each line."""
    panel: str | None = None
    marks: bool = False
    """Points as well as lines."""
    beside: str | None = None
    """A column of numbers, one for each x: printed with the column's name beside the name of x."""
    thin: str | None = None
    """A column of groups drawn thin and grey (each model), under the mean drawn bold."""
    ends: bool = False
    """Names stand at the lines' ends instead of in a legend."""
    steps: bool = False
    log_x: bool = False
    log_y: bool = False
    falling: bool = False
    """The y axis falls, as for ranks."""
    xlabel: str = ""
    ylabel: str = ""
    reference: float | None = None


@dataclass(frozen=True, kw_only=True)
class Violin(Plot):
    """Distributions beside one another, of densities computed before: `row`, `x` and `density`."""

    row: str = "model"
    x: str = "x"
    density: str = "density"
    ylabel: str = ""


@dataclass(frozen=True, kw_only=True)
class TokenTable(Plot):
    """Tokens at both ends, a column for each model; on the page a table of text."""

    column: str = "model"
    end: str = "end"
    rank: str = "rank"
    text: str = "text"
    value: str = "reward"
    shown: int = 10
    """Ranks at each end."""
    ends: tuple[str, str] = ("optimal", "pessimal")
    """Names of the ends `top` and `bottom`."""


def tabs_of(
    tabs: Sequence[str], table: pd.DataFrame, value: str | None
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each figure by the tab's name, in order of first appearance: the one rule of
    figures and the page.

    Args:
        tabs: as declared; columns that the table has not are passed over.
        value: the column of what is drawn; a tab in which it is missing everywhere is left out.
    """
    columns = [column for column in tabs if column in table]
    if CANDIDATES not in columns and CANDIDATES in table and table[CANDIDATES].nunique() > 1:
        columns.append(CANDIDATES)  # results of several candidate sets stand under one another
    groups = table.groupby(columns, sort=False, dropna=False) if columns else [((), table)]
    for values, rows in groups:
        if len(rows) and (value not in rows or rows[value].notna().any()):
            yield BETWEEN.join(map(str, values)), rows
