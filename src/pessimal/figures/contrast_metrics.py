"""How good perturbations are as explanations: how many comparisons they cover, and how far from the original they go.

Knows tables (columns are named in each function). Does not know who makes perturbations, nor how.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pessimal.contrast.attribute import PLACEBO
from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.style import (
    GREY,
    PAGE_WIDTH,
    colours,
    markers,
    new_figure,
    note,
    rows_of_marks,
    styled,
    subheading,
)
from pessimal.figures.words import literal, short_names

SIDES = ("chosen", "rejected", "both")
KINDS = {
    "CF": "counterfactual: an edit that flips the preference",
    "SF": "semifactual: an edit that leaves the preference as it was",
}
_REQUEST = ["comparison", "response", "attribute", "direction", "seed", "perturber"]
"""What names a perturbation, whichever model looks at it."""


@styled
def coverage(
    table: pd.DataFrame, *, kind: str = "CF", confidence: float = 0.95, title: str | None = None
) -> Figure:
    """The share of comparisons with at least one counterfactual (or semifactual), by side, model and perturber.

    Args:
        table: a row a model, perturber, kind ("CF" or "SF") and side ("chosen", "rejected" or "both"): coverage, low,
            high (0 to 1; an interval that is missing is not drawn), n; and unit, what n counts (without it: comparisons).
        kind: which of the two is shown.
        confidence: that of the intervals.
        title: of the figure.

    Raises:
        TableError: no rows of this kind, or two for one mark.
    """
    shown = table[table["kind"] == kind]
    if shown.empty:
        raise TableError(f"No rows of kind {kind!r}; there are {sorted(table['kind'].unique())}.")
    if shown.duplicated(["model", "perturber", "side"]).any():
        raise TableError("Two rows for one model, perturber and side; give one of each.")
    models, perturbers = (list(dict.fromkeys(shown[column])) for column in ("model", "perturber"))
    sides = [side for side in SIDES if side in set(shown["side"])]
    colour, mark = colours(perturbers), markers(perturbers)
    figure = new_figure(PAGE_WIDTH, 1.35 + (0.12 + 0.11 * len(perturbers)) * len(models))
    panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    for axes, side in zip(panels, sides, strict=True):
        rows = shown[shown["side"] == side]
        for place, perturber in enumerate(perturbers):
            part = rows[rows["perturber"] == perturber]
            level = [models.index(model) for model in part["model"]]
            level = np.array(level) + 0.72 * ((place + 0.5) / len(perturbers) - 0.5)
            axes.hlines(level, part["low"], part["high"], color=colour[perturber], lw=1.1, zorder=3)
            axes.plot(
                part["coverage"],
                level,
                mark[perturber],
                color=colour[perturber],
                ms=4,
                zorder=4,
                clip_on=False,
            )
        for row in range(1, len(models)):
            axes.axhline(row - 0.5, color="#eeeeee", lw=0.6, zorder=0)
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks([0, 0.5, 1], ["0", "50%", "100%"])
        rows_of_marks(axes)
        subheading(axes, side)
    names = short_names(models)
    panels[0].set_yticks(range(len(models)), [names[model] for model in models])
    panels[0].set_ylim(len(models) - 0.45, -0.55)
    style.title(figure, title or f"Comparisons with a {KINDS[kind].split(':')[0]}")
    if len(perturbers) > 1:
        figure.legend(handles=_handles(perturbers), loc="outside right upper", title="perturber")
    counts = shown.loc[shown["side"].isin(sides) & (shown["n"] > 0), "n"].astype(int)
    if counts.empty:
        raise TableError(f"No coverage of kind {kind!r} rests on any comparison; there is nothing to draw.")
    unit = literal(str(shown["unit"].iloc[0])) if "unit" in shown else "comparisons"
    n = f"{counts.min():,}" if counts.min() == counts.max() else f"{counts.min():,} to {counts.max():,}"
    only = "" if len(perturbers) > 1 else f" Perturber: {literal(str(perturbers[0]))}."
    note(
        figure,
        f"Share of {n} {unit} with at least one {KINDS[kind]}. Chosen: the preferred response made worse; "
        f"rejected: the other made better; both: at least one of each. Lines: {confidence:.0%} intervals.{only}",
    )
    return figure


@styled
def distances(table: pd.DataFrame, *, title: str = "How far edits go") -> Figure:
    """Syntactic × semantic distance of edits from their originals: of all that were made, and of those that flip.

    Left and right are drawn alike, since counterfactuals alone would favour whoever makes many small edits that flip
    nothing. Each edit is one point, however many models saw it, so that its distance is counted once. Large marks:
    medians, with lines from the lower to the upper quartile. Placebo edits are not shown.

    Args:
        table: of outcomes: comparison, response, attribute, direction, seed, perturber, outcome ("CF", "SF", "tie", or
            missing where there is no text), syntactic (0 to 1), semantic (0 to 2; missing where it is not known).
        title: of the figure.

    Raises:
        TableError: no edit has both distances.
    """
    made = table[table["outcome"].notna() & (table["attribute"] != PLACEBO)]
    known = made[np.isfinite(made[["syntactic", "semantic"]].astype(float)).all(axis=1)]
    if known.empty:
        raise TableError(
            "No perturbation has both distances, syntactic and semantic; there is nothing to draw."
        )
    flips = known[known["outcome"] == "CF"].drop_duplicates(_REQUEST)
    every = known.drop_duplicates(_REQUEST)
    perturbers = list(dict.fromkeys(every["perturber"]))
    figure = new_figure(PAGE_WIDTH, 3.1 + 0.12 * len(perturbers))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    told = ("all edits", "those that flip a preference (counterfactuals)")
    for axes, heading, rows in zip(panels, told, (every, flips), strict=True):
        _cloud(axes, rows, perturbers)
        axes.set_xlabel("syntactic distance (share of words changed)")
        subheading(axes, heading)
    panels[0].set_ylabel("semantic distance (1 − cosine)")
    panels[0].set(xlim=(-0.02, 1.02), ylim=(-0.02 * float(every["semantic"].max() or 1), None))
    style.title(figure, title)
    if len(perturbers) > 1:
        figure.legend(handles=_handles(perturbers), loc="outside right upper", title="perturber")
    left_out = len(made.drop_duplicates(_REQUEST)) - len(every)
    models = table["model"].nunique()
    note(
        figure,
        f"{len(every):,} edits, {len(flips):,} of which flip the preference of "
        + ("the model" if models == 1 else f"at least one of {models} models")
        + f" ({_counts(every, flips, perturbers)}). Large marks: medians; lines: the middle half. Without placebo edits."
        + (f" {left_out:,} edits without a known distance are left out." if left_out else ""),
    )
    return figure


def _cloud(axes: Axes, rows: pd.DataFrame, perturbers: list[str]) -> None:
    """A point an edit, and each perturber's medians and quartiles over all."""
    colour, mark = colours(perturbers), markers(perturbers)
    for perturber in perturbers:
        part = rows.loc[rows["perturber"] == perturber, ["syntactic", "semantic"]].to_numpy(dtype=float)
        if not len(part):
            continue
        size = float(np.clip(600 / len(rows), 2, 9))
        axes.scatter(*part.T, s=size, color=colour[perturber], alpha=0.3, lw=0, rasterized=True, zorder=2)
        (x_low, y_low), (x, y), (x_high, y_high) = np.quantile(part, (0.25, 0.5, 0.75), axis=0)
        for line in (([x_low, x_high], [y, y]), ([x, x], [y_low, y_high])):
            axes.plot(*line, color="white", lw=2.6, zorder=3, solid_capstyle="butt")
            axes.plot(*line, color=colour[perturber], lw=1.3, zorder=4, solid_capstyle="butt")
        axes.plot(x, y, mark[perturber], color=colour[perturber], mec="white", mew=0.8, ms=7, zorder=5)
    if not len(rows):
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.grid(color="#eeeeee", lw=0.6)
    axes.set_axisbelow(True)


def _handles(perturbers: list[str]) -> list[Line2D]:
    """What the colours and marks stand for."""
    colour, mark = colours(perturbers), markers(perturbers)
    return [
        Line2D(
            [], [], ls="", marker=mark[name], color=colour[name], ms=4.5, label=literal(str(name), limit=22)
        )
        for name in perturbers
    ]


def _counts(every: pd.DataFrame, flips: pd.DataFrame, perturbers: list[str]) -> str:
    """Edits and flips by perturber."""
    return ", ".join(
        f"{literal(str(name))} {(every['perturber'] == name).sum():,} and {(flips['perturber'] == name).sum():,}"
        for name in perturbers
    )
