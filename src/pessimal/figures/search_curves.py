"""How a search went: its best reward against evaluations, where its restarts ended, and how the best grows with length.

Knows tables of a search (columns are named in each function); knows nothing of objectives or models.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.labels import apart
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

SEARCH, BEAM = "search", "beam"
COLOURS = {
    SEARCH: OKABE_ITO[0],
    "random search": OKABE_ITO[3],
    "coordinate ascent": OKABE_ITO[1],
    BEAM: OKABE_ITO[2],
    "beam search": OKABE_ITO[2],
    "scan": OKABE_ITO[6],
}
"""One colour a method, in all figures of a search."""
BANDS = ("#eceff3", "#f7f2e6", "#eaf4ee")
CERTIFIED = ("1-opt", "tie")
LINE_HEIGHT = 0.15  # inches a label takes


@styled
def best_so_far(
    curve: pd.DataFrame, phases: pd.DataFrame, *, goal: str, title: str = "Search and baselines"
) -> Figure:
    """The best reward so far of the search and of its baselines, against candidate evaluations on a log scale.

    Args:
        curve: method, evaluations (the first of a method at least 1), reward (best so far: rises for the goal
            optimal, falls for pessimal); each method ends at the evaluations that it spent.
        phases: of the search, in order: phase, evaluations, seconds; the certificate's are not part of the budget.
        goal: optimal or pessimal.
        title: of the figure.
    """
    methods = list(dict.fromkeys(curve["method"]))
    height = 2.7
    figure = new_figure(PAGE_WIDTH, height + 0.5)
    axes = figure.subplots()
    axes.set_xscale("log")
    last = int(curve["evaluations"].max())
    first = min(int(curve["evaluations"].min()), max(1, last // 10))
    for method in [m for m in methods if m != SEARCH] + [m for m in methods if m == SEARCH]:
        rows = curve[curve["method"] == method].sort_values("evaluations", kind="stable")
        axes.step(
            rows["evaluations"],
            rows["reward"],
            where="post",
            color=COLOURS.get(method, GREY),
            lw=1.8 if method == SEARCH else 1.1,
            solid_capstyle="butt",
        )
    axes.margins(y=0.06)
    axes.set_xlim(first, last)
    counted(axes.xaxis)
    _phase_bands(axes, phases)
    _end_labels(axes, curve, goal=goal, height=height)
    axes.set_xlabel("candidate evaluations (log scale; one gradient counts as three)")
    axes.set_ylabel(f"{'lowest' if goal == 'pessimal' else 'highest'} reward so far")
    style.title(figure, title)
    told = (
        "Rewards as the search's own engine gave them. Tinted: the phases of the search, each with its "
        "evaluations and its time."
    )
    if len(methods) > 1:
        told += f" Baselines had the same budget as the search: {_spent(curve, SEARCH):,} evaluations."
    checks = phases[phases["phase"] == "certificate"]
    if len(checks):
        told += f" The certificate took {int(checks['evaluations'].sum()):,} more, which are not in it."
    note(figure, told)
    return figure


@styled
def restarts(
    sequences: pd.DataFrame, *, noise: float, goal: str, title: str = "Where the restarts ended"
) -> Figure:
    """Rewards of the distinct final responses, by the kind of start that they came from.

    Args:
        sequences: start, reward, one_opt (True, False or missing); one row a distinct final response, best first.
        noise: numerical error of one reward.
        goal: optimal or pessimal.
        title: of the figure.
    """
    kinds = list(dict.fromkeys(sequences["start"]))
    figure = new_figure(PAGE_WIDTH, 1.15 + 0.34 * len(kinds))
    axes = figure.subplots()
    best = float(sequences["reward"].iloc[0])
    level = axes.get_yaxis_transform()
    axes.axvline(best, color=FAINT, lw=0.6, ls=(0, (4, 3)), zorder=1)
    for row, kind in enumerate(kinds):
        members = sequences[sequences["start"] == kind]
        polished = members["one_opt"].fillna(False).to_numpy(dtype=bool)
        heights = row + _fanned(members["reward"].to_numpy(dtype=float))
        for filled, chosen in ((True, polished), (False, ~polished)):
            axes.plot(
                members["reward"].to_numpy()[chosen],
                heights[chosen],
                "o",
                color=COLOURS[SEARCH],
                mfc=COLOURS[SEARCH] if filled else PAPER,
                ms=4.5,
                mew=0.9,
                alpha=0.85,
                zorder=3,
            )
        top = significant(float(members["reward"].iloc[0]), digits=5)
        axes.text(1.02, row, f"{top}   ({len(members)})", transform=level, va="center")
    axes.text(1.02, -0.75, "best   (n)", transform=level, va="center", color=GREY, fontsize=6.5)
    axes.set_yticks(range(len(kinds)), [literal(kind) for kind in kinds])
    axes.set_ylim(len(kinds) - 0.4, -0.6)
    if np.ptp(sequences["reward"]) <= 2 * noise:
        axes.set_xlim(best - max(10 * noise, 0.01), best + max(10 * noise, 0.01))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.ticklabel_format(axis="x", useOffset=False, style="plain")
    rows_of_marks(axes)
    axes.set_xlabel(
        f"reward ({'lowest' if goal == 'pessimal' else 'highest'} is best; dashed: the best found)"
    )
    axes.set_title(title)
    note(
        figure,
        f"{len(sequences):,} distinct final response{'s' * (len(sequences) != 1)}; restarts that end at one response are one dot. Filled: a whole "
        "pass of single-token changes brought nothing; hollow: not polished to the end. By kind of start.",
    )
    return figure


@styled
def growth(table: pd.DataFrame, *, goal: str, title: str = "How the best grows with length") -> Figure:
    """Best reward against the number of tokens: beam search, the search, and the scan of single tokens.

    Args:
        table: length, reward, what (beam, search or scan), verdict of the certificate ("" where there is none).
        goal: optimal or pessimal.
        title: of the figure.

    Raises:
        TableError: fewer than two lengths.
    """
    lengths = sorted(table["length"].unique())
    if len(lengths) < 2:
        raise TableError(
            f"How the best grows is shown over two lengths or more; given was {', '.join(map(str, lengths)) or 'none'}."
        )
    figure = new_figure(PAGE_WIDTH, 2.9)
    axes = figure.subplots()
    best = "min" if goal == "pessimal" else "max"
    handles = []
    for what, mark in ((BEAM, "."), (SEARCH, "o"), ("scan", "s")):
        rows = table[table["what"] == what]
        if rows.empty:
            continue
        line = rows.groupby("length")["reward"].agg(best)
        axes.plot(line.index, line, color=COLOURS[what], lw=1.1, alpha=0.7, zorder=2)
        certified = rows["verdict"].isin(CERTIFIED) | (what == "scan")
        for chosen, face in ((certified, COLOURS[what]), (~certified, PAPER)):
            face = COLOURS[what] if what == BEAM else face
            axes.plot(
                rows.loc[chosen, "length"],
                rows.loc[chosen, "reward"],
                mark,
                color=COLOURS[what],
                mfc=face,
                ms=5 if what != BEAM else 6,
                mew=0.9,
                zorder=3,
            )
        name = "scan (every token)" if what == "scan" else named(what)
        stroke = "" if what == "scan" else "-"
        handles.append(Line2D([], [], color=COLOURS[what], marker=mark, ms=5, lw=1.1, ls=stroke, label=name))
    if (~table["verdict"].isin(CERTIFIED) & (table["what"] == SEARCH)).any():
        handles.append(
            Line2D([], [], color=INK, marker="o", mfc=PAPER, ms=5, ls="", label="hollow: no certificate")
        )
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.grid(axis="y", color="#eeeeee", lw=0.6)
    axes.set_axisbelow(True)
    axes.margins(y=0.1)
    axes.set_xlabel("tokens in the response")
    axes.set_ylabel(f"{'lowest' if goal == 'pessimal' else 'highest'} reward found")
    axes.set_title(title)
    figure.legend(handles=handles, loc="outside right upper")
    note(
        figure,
        "Filled: 1-opt or tied, by a certificate over every single-token change; beam search has none. One token is "
        "exact. Lengths may differ in budget: what each search spent stands in its own result.",
    )
    return figure


def counted(axis: Axis) -> None:
    """Powers of ten written out on a log scale: matplotlib's own labels are formulas, which no figure of ours parses."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())


def _phase_bands(axes: Axes, phases: pd.DataFrame) -> None:
    """A tint behind each phase of the budget, and above the axes what it took."""
    begin, handles = 0, []
    for phase, tint in zip(phases[phases["phase"] != "certificate"].itertuples(), BANDS, strict=False):
        end = begin + int(phase.evaluations)
        axes.axvspan(max(begin, axes.get_xlim()[0]), end, color=tint, lw=0, zorder=0)
        took = f" ({duration(float(phase.seconds))})" if phase.seconds else ""  # 0: was not measured
        label = f"{phase.phase} {int(phase.evaluations):,}{took}"
        handles.append(Patch(facecolor=tint, edgecolor=FAINT, lw=0.4, label=label))
        begin = end
    if handles:
        axes.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(handles), borderaxespad=0.3,
            handlelength=1.2, columnspacing=1.4,
        )  # fmt: skip


def _end_labels(axes: Axes, curve: pd.DataFrame, *, goal: str, height: float) -> None:
    """Each method's name and last reward right of its line, apart from one another."""
    ends = curve.sort_values("evaluations", kind="stable").groupby("method", sort=False)["reward"].last()
    # Of equal ends the search's label comes on the better side: equals stand in their order, from above.
    ends = ends.sort_index(key=lambda method: method == SEARCH, ascending=goal != "optimal", kind="stable")
    low, high = axes.get_ylim()
    places = apart(ends.to_numpy(dtype=float), gap=(high - low) / height * LINE_HEIGHT, low=low, high=high)
    level = axes.get_yaxis_transform()
    for method, at, label in zip(ends.index, ends, places, strict=True):
        colour = COLOURS.get(method, GREY)
        axes.plot([1.0, 1.02], [at, label], color=colour, lw=0.6, transform=level, clip_on=False)
        axes.text(
            1.025,
            label,
            f"{named(method)}  {significant(float(at), digits=5)}",
            transform=level,
            color=colour,
            va="center",
            fontweight="bold" if method == SEARCH else "normal",
        )


def _spent(curve: pd.DataFrame, method: str) -> int:
    return int(curve.loc[curve["method"] == method, "evaluations"].max())


def named(method: str) -> str:
    """A method as a reader wants it named."""
    return "beam search" if method == BEAM else literal(method)


def duration(seconds: float) -> str:
    """Seconds in the unit that a person would choose."""
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _fanned(values: np.ndarray) -> np.ndarray:
    """Offsets within a row, so that dots at one value do not hide one another; the same each time."""
    return 0.22 * np.resize([0.0, 1.0, -1.0, 0.5, -0.5], len(values)) if len(values) > 1 else np.zeros(1)
