"""What tuning found: values along each option, trials as lines, how much options matter, and the held-out comparison.

Knows the tables of `pessimal.tuning` (trials, importances, differences on held-out prompts); knows nothing of studies.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.style import (
    FAINT,
    GREY,
    INK,
    OKABE_ITO,
    PAGE_WIDTH,
    PAPER,
    new_figure,
    note,
    rows_of_marks,
    styled,
)
from pessimal.figures.words import literal, significant

UNIT = "best value found (sd)"
WHAT = (
    "Value: median over prompts and starts of the best reward found, in standard deviations of single tokens' rewards from "
    "their mean, towards the goal; of a pruned trial over the searches it made."
)
COLUMNS = 3
DEFAULTS_COLOUR, BEST_COLOUR = OKABE_ITO[1], OKABE_ITO[2]


@styled
def slices(
    trials: pd.DataFrame,
    options: Sequence[str],
    *,
    logarithmic: Collection[str] = (),
    title: str = "Trials along each option",
) -> Figure:
    """A panel an option: every trial's value over the option's, the defaults and the best marked.

    Args:
        trials: of `tuning.study_tables.trials_table`.
        options: columns of it that were varied.
        logarithmic: those drawn by their logarithm.
        title: of the figure.

    Raises:
        TableError: no trial has a value.
    """
    valued = _valued(trials)
    rows = -(-len(options) // COLUMNS)
    figure = new_figure(PAGE_WIDTH, 1.0 + 1.75 * rows)
    panels = figure.subplots(rows, min(COLUMNS, len(options)), sharey=True, squeeze=False)
    for axes in panels.flat[len(options) :]:
        axes.set_visible(False)
    norm = Normalize(0, max(valued["trial"].max(), 1))
    for axes, option in zip(panels.flat, options, strict=False):
        own = valued.dropna(subset=[option])
        scale = _Scale(own[option], logarithmic=option in logarithmic)
        for state, marks in own.groupby("state"):
            pruned = state == "pruned"
            axes.scatter(
                scale.places(marks[option]), marks["value"], c=marks["trial"], norm=norm, cmap="viridis_r",
                s=12 if pruned else 18, marker="x" if pruned else "o", lw=0.8 if pruned else 0, zorder=2,
            )  # fmt: skip
        _mark(axes, own, scale.places(own[option]))
        scale.label(axes)
        axes.set_xlabel(literal(option, limit=30))
    for axes in panels[:, 0]:
        axes.set_ylabel(UNIT)
        axes.margins(y=0.09)  # the rings stay whole
    bar = figure.colorbar(
        ScalarMappable(norm, "viridis_r"), ax=panels.ravel().tolist(), shrink=0.6, aspect=22, pad=0.02
    )
    bar.set_label("trial")
    bar.outline.set_visible(False)
    style.title(figure, title)
    figure.legend(handles=_handles(valued), loc="outside upper right", ncols=4, handletextpad=0.2)
    note(figure, f"{_counted(valued)} {WHAT}")
    return figure


@styled
def parallel_coordinates(
    trials: pd.DataFrame,
    options: Sequence[str],
    *,
    logarithmic: Collection[str] = (),
    title: str = "Trials across all options",
) -> Figure:
    """A line a trial through its value and its options, coloured by the value; pruned trials dotted.

    Args:
        trials: of `tuning.study_tables.trials_table`.
        options: columns of it that were varied.
        logarithmic: those drawn by their logarithm.
        title: of the figure.

    Raises:
        TableError: no trial has a value.
    """
    valued = _valued(trials).dropna(subset=list(options)).sort_values("value", kind="stable")
    columns = ["value", *options]
    scales = [_Scale(valued[column], logarithmic=column in logarithmic) for column in columns]
    heights = np.column_stack(
        [scale.shares(valued[column]) for scale, column in zip(scales, columns, strict=True)]
    )  # (trials, columns)
    figure = new_figure(PAGE_WIDTH, 3.3)
    axes = figure.subplots()
    norm = Normalize(valued["value"].min(), valued["value"].max())
    colour = ScalarMappable(norm, "viridis_r")
    places = np.arange(len(columns))
    for row, line in zip(valued.itertuples(), heights, strict=True):
        pruned = row.state == "pruned"
        axes.plot(
            places, line, color=colour.to_rgba(row.value), lw=0.7 if pruned else 1.1, ls=":" if pruned else "-",
            alpha=0.9, zorder=2,
        )  # fmt: skip
        if row.defaults or row.best:
            marked = BEST_COLOUR if row.best else DEFAULTS_COLOUR
            axes.plot(places, line, color=marked, lw=2.2, zorder=4 if row.best else 3)
    for place, (column, scale) in enumerate(zip(columns, scales, strict=True)):
        axes.vlines(place, 0, 1, color=INK, lw=0.6, zorder=1)
        for share, text in scale.ticks():
            axes.text(
                place + 0.03, share, text, fontsize=6.5, va="center", color=INK, zorder=5,
                path_effects=[withStroke(linewidth=1.8, foreground=PAPER)],
            )  # fmt: skip
        axes.text(
            place, 1.06, UNIT if column == "value" else literal(column, limit=20), ha="center", fontsize=7
        )
    axes.set_xlim(-0.15, len(columns) - 0.7)
    axes.set_ylim(-0.03, 1.1)
    axes.axis("off")
    style.title(figure, title)
    figure.legend(handles=_handles(valued, lines=True), loc="outside upper right", ncols=4)
    note(figure, f"{_counted(valued)} {WHAT}")
    return figure


@styled
def importances(table: pd.DataFrame, *, title: str = "How much each option matters") -> Figure:
    """Each option's share of the variance of values, with its standard error.

    Args:
        table: of `tuning.study_tables.importances`.
        title: of the figure.
    """
    figure = new_figure(0.62 * PAGE_WIDTH, 1.2 + 0.26 * len(table))
    axes = figure.subplots()
    rows = range(len(table))
    axes.barh(rows, table["importance"], height=0.6, color=OKABE_ITO[4], lw=0)
    axes.errorbar(
        table["importance"], rows, xerr=table["standard_error"], fmt="none", ecolor=INK, elinewidth=1.0
    )
    axes.set_yticks(rows, [literal(option, limit=30) for option in table["option"]])
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_xlim(0, None)
    rows_of_marks(axes)
    axes.set_xlabel("share of the variance of values")
    axes.set_title(title)
    note(
        figure,
        f"fANOVA over {table['n'].iloc[0]} trials, main effects. Lines: one standard error, by drawing trials again. In the "
        "region that the study sampled, which is denser where values are high.",
    )
    return figure


@styled
def held_out(table: pd.DataFrame, *, title: str = "Tuned options against the defaults") -> Figure:
    """The mean difference on each held-out prompt and over all of them, with 95 % intervals.

    Args:
        table: of `tuning.held_out.differences`.
        title: of the figure.
    """
    figure = new_figure(0.8 * PAGE_WIDTH, 1.25 + 0.24 * len(table))
    axes = figure.subplots()
    axes.axvline(0, color=FAINT, lw=0.7, ls=(0, (4, 3)), zorder=1)
    overall = table["prompt"].to_numpy() == "all"
    for chosen, colour, marker in ((~overall, OKABE_ITO[0], "o"), (overall, INK, "D")):
        rows = np.flatnonzero(chosen)
        own = table[chosen]
        axes.hlines(rows, own["low"], own["high"], color=colour, lw=1.4)
        axes.plot(own["difference"], rows, marker, color=colour, ms=4.2)
    level = axes.get_yaxis_transform()
    for row, difference in enumerate(table["difference"]):
        axes.text(1.02, row, f"{difference:+.2f}".replace("-", "−"), transform=level, va="center")
    prompts = int((~overall).sum())
    names = [
        f"mean over {prompts} prompts" if name == "all" else literal(name, limit=30)
        for name in table["prompt"]
    ]
    axes.set_yticks(range(len(table)), names)
    axes.set_ylim(len(table) - 0.5, -0.5)
    rows_of_marks(axes)
    axes.set_xlabel("tuned − defaults (sd); right of 0 the tuned options find more")
    axes.set_title(title)
    starts = table.loc[~overall, "starts"].iloc[0]
    note(
        figure,
        f"{starts} starts on each prompt, the same for both, none of them in a trial; both at the same number of "
        "evaluations. Lines: 95 % intervals, of a prompt over its starts, of the mean over prompts.",
    )
    return figure


class _Scale:
    """Where an option's values stand along an axis: by themselves, or by their logarithm."""

    def __init__(self, values: pd.Series, *, logarithmic: bool):
        self.logarithmic = logarithmic
        self.whole = bool((values % 1 == 0).all())
        places = self.places(values)
        self.low, self.span = float(places.min()), float(np.ptp(places)) or 1.0

    def places(self, values: pd.Series) -> np.ndarray:
        numbers = values.to_numpy(dtype=float)
        return np.log2(numbers) if self.logarithmic else numbers

    def shares(self, values: pd.Series) -> np.ndarray:
        """From 0 at the lowest to 1 at the highest."""
        return (self.places(values) - self.low) / self.span

    def ticks(self) -> list[tuple[float, str]]:
        """Shares, and the values there: the lowest, the highest and one between."""
        there = np.linspace(self.low, self.low + self.span, 3)
        numbers = pd.Series(2.0**there if self.logarithmic else there)
        if self.whole:
            numbers = numbers.round()
        shown = [f"{n:.0f}" if self.whole else significant(n, digits=3) for n in numbers]
        return list(zip(self.shares(numbers), shown, strict=True))

    def label(self, axes: Axes) -> None:
        """Name the values along the x axis."""
        if self.logarithmic:
            powers = np.arange(np.ceil(self.low), self.low + self.span + 1e-9, max(1, round(self.span / 4)))
            axes.set_xticks(powers, [f"{2.0**power:g}" for power in powers])
        elif self.whole:
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _valued(trials: pd.DataFrame) -> pd.DataFrame:
    valued = trials[trials["state"].isin(["complete", "pruned"])]
    if valued.empty:
        raise TableError("No trial has a value yet: there is nothing to draw.")
    return valued


def _mark(axes: Axes, trials: pd.DataFrame, places: np.ndarray) -> None:
    for column, colour, size in (("defaults", DEFAULTS_COLOUR, 60), ("best", BEST_COLOUR, 95)):
        chosen = trials[column].to_numpy(dtype=bool)
        axes.scatter(
            places[chosen],
            trials["value"][chosen],
            s=size,
            facecolor="none",
            edgecolor=colour,
            lw=1.4,
            zorder=4,
        )


def _handles(trials: pd.DataFrame, *, lines: bool = False) -> list[Line2D]:
    """What the marks, or the lines, mean; of the states and kinds that there are."""
    looks = {
        "complete": ({"ls": "-"}, {"marker": "o", "ms": 4}),
        "pruned": ({"ls": ":"}, {"marker": "x", "ms": 4}),
    }
    present = [(state, GREY) for state in looks if (trials["state"] == state).any()]
    kinds = {"defaults": DEFAULTS_COLOUR, "best": BEST_COLOUR}
    present += [(kind, colour) for kind, colour in kinds.items() if trials[kind].any()]
    ring = {"marker": "o", "markerfacecolor": "none", "markeredgewidth": 1.4, "ms": 7}
    handles = []
    for label, colour in present:
        line, mark = looks.get(label, ({"lw": 2.2}, ring))
        look = line if lines else mark | {"ls": ""}
        handles.append(Line2D([], [], color=colour, label=label, **look))
    return handles


def _counted(trials: pd.DataFrame) -> str:
    complete, pruned = ((trials["state"] == state).sum() for state in ("complete", "pruned"))
    return f"{complete} complete and {pruned} pruned trials."
