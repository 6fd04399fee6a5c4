"""One model scanned in two modes: every token's rank in one against its rank in the other.

Knows the tables of `analysis.sensitivity`; knows nothing of what the modes are but their names.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pessimal.analysis.sensitivity import SideBySide
from pessimal.errors import TableError
from pessimal.figures.labels import place_labels
from pessimal.figures.style import FAINT, GREY, INK, OKABE_ITO, PAGE_WIDTH, PAPER, new_figure, note, styled
from pessimal.figures.words import literal

SURVIVING, CHANGED, UNKNOWN = OKABE_ITO[0], OKABE_ITO[1], FAINT


@styled
def modes(
    scans: SideBySide,
    moved: pd.DataFrame,
    *,
    extreme: int = 4,
    title: str = "Ids or text: what the mode changes",
) -> Figure:
    """Ranks in two modes, tokens that survive the way through text told from those that do not.

    Left, every token a point (drawn as one picture inside the SVG), the farthest movers named; a token on the dashed
    line keeps its rank. Ranks and not rewards, because it is the order that a scan is read for; surviving tokens lie
    off the line only as far as others passed them. Right, the share of each kind that survives, in the same colours.

    Args:
        scans: of `analysis.sensitivity.side_by_side`, with exactly two modes.
        moved: of `analysis.sensitivity.moved` for these two.
        extreme: tokens named each way.
        title: of the figure.

    Raises:
        TableError: not two modes.
    """
    if scans.rewards.shape[1] != 2:
        raise TableError(f"This figure shows two modes; given were {', '.join(scans.rewards)}.")
    a, b = scans.rewards
    ranks = scans.rewards.rank(ascending=False, method="average")
    figure = new_figure(PAGE_WIDTH, 0.66 * PAGE_WIDTH)
    axes, shares = figure.subplots(1, 2, width_ratios=(2.3, 1))
    n = len(ranks)
    survives = scans.tokens["survives"]
    axes.plot([1, n], [1, n], color=INK, lw=0.6, ls=(0, (4, 3)), zorder=3)
    for colour, members in (
        (UNKNOWN, survives.isna()),
        (CHANGED, survives.eq(False).fillna(False)),
        (SURVIVING, survives.fillna(False)),
    ):
        axes.scatter(
            *ranks[members.to_numpy(dtype=bool)].to_numpy().T,
            s=float(np.clip(2e4 / n, 0.8, 6)),
            lw=0,
            color=colour,
            alpha=0.55,
            rasterized=True,
            zorder=2,
        )
    pad = 0.06 * n
    axes.set(xlim=(n + pad, 1 - pad), ylim=(n + pad, 1 - pad), aspect="equal")
    ticks = [1, *(round(share * n) for share in (0.25, 0.5, 0.75)), n]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xlabel(f"rank in mode {a} (best on the right)")
    axes.set_ylabel(f"rank in mode {b} (best at the top)")
    axes.set_title(title)
    _kinds(shares, scans.tokens)
    note(
        figure,
        f"{n:,} candidates, rank 1 = highest reward, ties at their average rank. Dashed: the same rank. Survives: "
        "the token's text, typed into the chat template, becomes exactly this token again.",
    )
    _name(
        axes,
        pd.concat([moved[moved["moved"] > 0].head(extreme), moved[moved["moved"] < 0].head(extreme)]),
        ranks,
    )
    return figure


def _kinds(axes: Axes, tokens: pd.DataFrame) -> None:
    """A bar for all tokens and one for each kind, divided into those that survive and the others."""
    groups = {"all": tokens, **dict(list(tokens.groupby("kind")))}
    groups = dict(list(groups.items())[1:]) if len(groups) == 2 else groups
    for row, (kind, members) in enumerate(groups.items()):
        known = bool(members["survives"].notna().all())
        share = float(members["survives"].mean()) if known else 0.0
        axes.barh(row, share, height=0.34, color=SURVIVING, lw=0)
        axes.barh(row, 1 - share, left=share, height=0.34, color=CHANGED if known else UNKNOWN, lw=0)
        told = f"{share:.0%} of {len(members):,}" if known else f"not asked, {len(members):,}"
        axes.text(0, row - 0.26, kind, va="bottom", fontweight="bold" if kind == "all" else "normal")
        axes.text(1, row - 0.26, told, va="bottom", ha="right", color=GREY)
    axes.set(xlim=(0, 1), ylim=(max(len(groups), 5) - 0.4, -1.25))
    axes.set_axis_off()
    axes.text(0, -0.95, "survives", color=SURVIVING, fontweight="bold", va="bottom")
    axes.text(1, -0.95, "becomes other ids", color=CHANGED, fontweight="bold", va="bottom", ha="right")


def _name(axes: Axes, farthest: pd.DataFrame, ranks: pd.DataFrame) -> None:
    """Circle and name the farthest movers, clear of the other points."""
    if farthest.empty:
        return
    places = farthest[["rank_a", "rank_b"]].to_numpy(dtype=float)
    axes.scatter(*places.T, s=11, facecolor="none", edgecolor=INK, lw=0.6, zorder=6)
    sample = ranks.to_numpy()[:: max(1, len(ranks) // 1500)]
    for label in place_labels(axes, places, [literal(str(text)) for text in farthest["text"]], avoid=sample):
        label.set_bbox({"facecolor": PAPER, "alpha": 0.8, "lw": 0, "pad": 0.5})  # legible over a crowd
