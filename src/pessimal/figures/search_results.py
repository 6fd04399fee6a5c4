"""What a search found: the response token by token, how far gradients can be trusted, and where it stands among all.

Knows tables of a search (columns are named in each function); knows nothing of objectives or models.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pessimal.figures import style
from pessimal.figures.search_curves import counted
from pessimal.figures.style import (
    FAINT,
    GREY,
    INK,
    MARKERS,
    OKABE_ITO,
    PAGE_WIDTH,
    new_figure,
    note,
    rows_of_marks,
    styled,
)
from pessimal.figures.words import literal, significant

WORSE, BETTER, TIED = OKABE_ITO[0], OKABE_ITO[1], OKABE_ITO[5]
POINTS = {"start": (GREY, "s", "a random response"), "result": (OKABE_ITO[0], "o", "the result")}
"""Colour, mark and meaning of the points at which gradients are looked at."""
UNREADABLE = "\ufffd"


def spelling(token: str, text: str, *, limit: int = 22) -> str:
    """A token as people read it; as the vocabulary writes it where its bytes are no text by themselves."""
    return literal(token if not text or UNREADABLE in text else text, limit=limit)


@styled
def margins(neighbours: pd.DataFrame, *, noise: float, goal: str, title: str = "Token by token") -> Figure:
    """Each token of a response, and by how much the best token in its place is worse.

    The scale is linear within twice the noise, where two rewards cannot be told apart, and logarithmic beyond, so that
    a tie and a margin a hundred thousand times the noise are both seen.

    Args:
        neighbours: position, token, text, neighbour, neighbour_text, reward (with the neighbour), margin (in units of
            reward, positive where the neighbour is worse).
        noise: numerical error of one reward.
        goal: optimal or pessimal.
        title: of the figure.
    """
    n = len(neighbours)
    figure = new_figure(PAGE_WIDTH, 1.45 + 0.22 * n)
    axes, numbers = figure.subplots(1, 2, sharey=True, width_ratios=(1.1, 1))
    margin = neighbours["margin"].to_numpy(dtype=float)
    tie = _tie(margin, noise)
    colour = np.where(margin > tie, WORSE, np.where(margin < -tie, BETTER, TIED))
    axes.set_xscale("symlog", linthresh=tie, linscale=0.5)
    axes.axvspan(-tie, tie, color="#e6e6e6", lw=0, zorder=0)
    axes.barh(range(n), margin, height=0.6, color=colour, lw=0, zorder=2)
    axes.axvline(0, color=INK, lw=0.6, zorder=3)
    _decades(axes, margin, tie)
    axes.set_yticks(
        range(n),
        [f"{spelling(row.token, row.text)}   {row.position}" for row in neighbours.itertuples()],
    )
    axes.set_ylim(n - 0.4, -1.3)
    rows_of_marks(axes)
    axes.set_xlabel("margin: by how much the best neighbour is worse (reward)")
    _print_neighbours(numbers, neighbours, colour)
    style.title(figure, title)
    told = (
        f"For each position the best of all other allowed tokens there ({'lowest' if goal == 'pessimal' else 'highest'} "
        "reward), all else unchanged; position 0 is the first token. "
    )
    told += (
        f"Grey: within twice the numerical noise of a reward ({significant(noise, digits=2)}), where two responses are tied."
        if noise > 0
        else "No numerical noise was measured."
    )
    if (margin < -tie).any():
        told += " Bars to the left: the neighbour is BETTER."
    note(figure, told)
    return figure


@styled
def gradient_ranks(quality: pd.DataFrame, *, title: str = "What the gradient knows") -> Figure:
    """The rank that the gradient gives to the truly best swap of each position, at a start and at the result.

    Args:
        quality: point (start or result), position, best (text of the truly best token), gain (positive towards the
            goal), gradient_rank (1: the gradient's first choice), n (tokens ranked), top_k.
        title: of the figure.
    """
    points = [point for point in POINTS if (quality["point"] == point).any()]
    positions = sorted(quality["position"].unique())
    n, top_k = int(quality["n"].max()), int(quality["top_k"].max())
    figure = new_figure(PAGE_WIDTH, 1.75 + (0.1 + 0.17 * len(points)) * len(positions))
    axes, numbers = figure.subplots(1, 2, sharey=True, width_ratios=(1.35, 1))
    axes.set_xscale("log")
    counted(axes.xaxis)
    axes.axvspan(0.8, top_k, color="#eaf1f7", lw=0, zorder=0)
    axes.axvline(top_k, color=OKABE_ITO[0], lw=0.7, ls=(0, (4, 3)), zorder=1)
    axes.axvline(n / 2, color=FAINT, lw=0.7, ls=(0, (1, 2)), zorder=1)
    numbers.set_axis_off()
    numbers.set_xlim(0, 1)
    for name, x, side in (("truly best", 0.02, "left"), ("its gain", 0.72, "right"), ("rank", 1.0, "right")):
        numbers.text(x, -0.9, name, ha=side, va="center", color=GREY)
    for place, point in enumerate(points):
        colour, mark, _ = POINTS[point]
        rows = quality[quality["point"] == point]
        at = rows["position"].map({p: row for row, p in enumerate(positions)})
        at = at + (place - (len(points) - 1) / 2) * 0.4
        axes.plot(rows["gradient_rank"], at, mark, color=colour, ms=4, zorder=3)
        _print_swaps(numbers, rows, at, colour)
    axes.set_xlim(0.8, n * 1.15)
    axes.set_yticks(range(len(positions)), [f"position {position}" for position in positions])
    axes.set_ylim(len(positions) - 0.4, -1.2)
    for label, x in ((f"top {top_k:,}", top_k), ("chance", n / 2)):
        axes.text(x, -0.75, label, ha="right", va="center", fontsize=6.5, color=GREY)
    rows_of_marks(axes)
    axes.set_xlabel(f"the gradient's rank of the truly best swap, of {n:,} (1 is its first choice)")
    style.title(figure, title)
    handles = [
        Line2D([], [], ls="", marker=POINTS[p][1], color=POINTS[p][0], ms=4, label=POINTS[p][2])
        for p in points
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    note(
        figure,
        "The truly best token of each position is known from a pass over all allowed ones; right, which it is and what it "
        f"gains towards the goal (below 0: it is worse than what stands there). Tinted: the {top_k:,} candidates that the search draws from. "
        "Chance: half of the tokens, the median rank of blind guessing.",
    )
    return figure


@styled
def among_all(
    histogram: pd.DataFrame, standing: pd.DataFrame, *, goal: str, title: str = "Every response of two tokens"
) -> Figure:
    """The rewards of every pair of tokens, counts on a log scale, and where what was found by other ways stands.

    Args:
        histogram: low, high (edges of a bin, units of reward), n (pairs).
        standing: result (pruned, gradient search, beam …), pair (its text), reward, rank (1 is the best of all; missing
            where it is not known), of (pairs in all); and rank_most where a rank is only known to lie from rank to that.
        goal: optimal or pessimal.
        title: of the figure.
    """
    height, lines = 2.6, 0.17 * (len(standing) + 1)
    figure = new_figure(PAGE_WIDTH, height + lines + 0.6)
    axes, listed = figure.subplots(2, 1, height_ratios=(height, lines))
    counts = histogram["n"].to_numpy(dtype=float)
    bins = histogram[np.isfinite(histogram[["low", "high"]]).all(axis=1)]
    filled = np.flatnonzero(bins["n"])
    bins = bins.iloc[filled[0] : filled[-1] + 1]
    edges = np.append(bins["low"].to_numpy(dtype=float), float(bins["high"].iloc[-1]))
    axes.set_yscale("log")
    counted(axes.yaxis)
    shown = bins["n"].to_numpy(dtype=float)
    axes.stairs(np.where(shown > 0, shown, np.nan), edges, baseline=0.5, fill=True, color="#b9cbdc", lw=0)
    top = max(float(np.log10(counts.max())), 1.0)
    rise = min(0.06, 0.5 / max(len(standing), 1))
    for place, row in enumerate(standing.itertuples()):
        colour, mark = OKABE_ITO[place % 7], MARKERS[place % len(MARKERS)]
        # Each at its own height, so that none hides another.
        tip = 10 ** (top * (1.06 + rise * (len(standing) - place)))
        axes.plot([row.reward, row.reward], [0.5, tip], color=colour, lw=0.8)
        axes.plot(row.reward, tip, mark, color=colour, ms=4.5)
    axes.set_ylim(0.5, 10 ** (top * (1.12 + rise * len(standing))))
    axes.set_yticks([10.0**k for k in range(int(top) + 1)])  # none beside the marks, which are no counts
    axes.set_xlabel("reward")
    axes.set_ylabel("pairs per bin (log scale)")
    axes.set_title(title)
    _print_standing(listed, standing)
    worst = "lowest" if goal == "pessimal" else "highest"
    outside = counts.sum() - shown.sum()
    note(
        figure,
        f"{int(counts.sum()):,} pairs in {len(shown):,} bins; rank 1 is the {worst} reward of all. No bar: no pair in the "
        f"bin.{f' {int(outside):,} pairs lie outside the bins.' if outside else ''}",
    )
    return figure


def _tie(margin: np.ndarray, noise: float) -> float:
    """Half width of the band in which two rewards are tied; something below every margin where there is no noise."""
    if noise > 0:
        return 2 * noise
    sizes = np.abs(margin[margin != 0])
    return float(sizes.min()) / 10 if len(sizes) else 1e-9


def _decades(axes: Axes, margin: np.ndarray, tie: float) -> None:
    """Limits around the bars and the band, and ticks at powers of ten beyond it, as many as have room."""
    first = int(np.ceil(np.log10(10 * tie)))  # nearer to 0 its label would lie on that of 0
    ends = [
        int(np.ceil(np.log10(max(float((sign * margin).max(initial=0.0)), 10 * tie)))) for sign in (1, -1)
    ]
    both = bool((margin < -tie).any())
    step = -(-sum(end - first + 1 for end in ends[: 1 + both]) // 6)
    right, left = ([10.0**k for k in range(end, first - 1, -step)] for end in ends)
    ticks = [*((-tick for tick in left) if both else ()), 0.0, *right]
    axes.set_xlim(-(10.0 ** ends[1]) if both else -1.6 * tie, 10.0 ** ends[0])
    axes.set_xticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
    axes.minorticks_off()


def _print_neighbours(axes: Axes, neighbours: pd.DataFrame, colour: np.ndarray) -> None:
    """Three columns level with the bars: the best neighbour, the reward with it, the margin."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    columns = ((0.02, "left"), (0.68, "right"), (1.0, "right"))
    for (x, side), name in zip(columns, ("best neighbour", "reward", "margin"), strict=True):
        axes.text(x, -0.9, name, ha=side, va="center", color=GREY, fontsize=7)
    for row, (cells, ink) in enumerate(zip(neighbours.itertuples(), colour, strict=True)):
        told = (
            spelling(cells.neighbour, cells.neighbour_text, limit=13),
            significant(cells.reward, digits=5),
            "tie" if ink == TIED else significant(cells.margin, digits=3),
        )
        for (x, side), text in zip(columns, told, strict=True):
            axes.text(
                x, row, text, ha=side, va="center", fontsize=7, color=ink if x == 1.0 and ink != TIED else INK
            )


def _print_swaps(axes: Axes, rows: pd.DataFrame, at: pd.Series, colour: str) -> None:
    """The truly best token and its gain, level with its mark."""
    for height, cells in zip(at, rows.itertuples(), strict=True):
        gain = ("+" if cells.gain > 0 else "") + significant(cells.gain, digits=2)
        for x, side, text in (
            (0.02, "left", literal(cells.best, limit=20)),
            (0.72, "right", gain),
            (1.0, "right", f"{int(cells.gradient_rank):,}"),
        ):
            axes.text(x, height, text, ha=side, va="center", fontsize=6.5, color=colour)


def rank_of(least: float, most: float | None) -> str:
    """A rank in words: exact, between two bounds, or not known."""
    if pd.isna(least):
        return "not known"
    return f"{int(least):,}" if pd.isna(most) or most == least else f"{int(least):,} to {int(most):,}"


def _print_standing(axes: Axes, standing: pd.DataFrame) -> None:
    """A line for each mark: what found it, the pair, its reward and its rank."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(standing) - 0.4, -1.5)
    columns = ((0.03, "left"), (0.34, "left"), (0.76, "right"), (1.0, "right"))
    headings = (
        "found by",
        "pair",
        "reward",
        f"rank of {int(standing['of'].max()):,}" if len(standing) else "",
    )
    for (x, side), name in zip(columns, headings, strict=True):
        axes.text(x, -1, name if len(standing) else "", ha=side, va="center", color=GREY, fontsize=7)
    for place, row in enumerate(standing.itertuples()):
        axes.plot(0.01, place, MARKERS[place % len(MARKERS)], color=OKABE_ITO[place % 7], ms=4.5)
        cells = (
            literal(row.result, limit=30),
            literal(row.pair, limit=28),
            significant(row.reward, digits=5),
            rank_of(row.rank, getattr(row, "rank_most", None)),
        )
        for (x, side), cell in zip(columns, cells, strict=True):
            axes.text(x, place, cell, ha=side, va="center", fontsize=7)
