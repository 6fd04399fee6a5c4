"""Some items from rater to rater: the people first, then the models in the order given.

Knows ranks of items by several raters; knows nothing of rewards or Elo.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.labels import apart
from pessimal.figures.style import GREY, MARKERS, OKABE_ITO, PAGE_WIDTH, new_figure, note, styled, subheading
from pessimal.figures.words import literal, short_names

COLOURS = OKABE_ITO[:7]  # the eighth, yellow, does not stand as a line on white
LINE_HEIGHT = 0.15  # inches a name takes


@styled
def trajectories(
    ranks: pd.DataFrame,
    groups: dict[str, Sequence[str]],
    *,
    order: str = "by falling agreement with people",
    turned: bool = False,
    title: str = "Items from people to models",
) -> Figure:
    """A line per item through its rank by every rater, one panel a group of items.

    Ranks are drawn on a scale that is logarithmic from either end (the logit of the rank's share), so that rank 1
    and rank 10 can be told apart, and last and last but ten. A line breaks the eye's path only by colour and
    marker, so names stand at both ends.

    Args:
        ranks: items × raters, of all the items, 1 = people's highest and the models' highest reward; the first
            column is the people, the others in the order in which they are drawn.
        groups: names of the items drawn, by the heading of their panel, at most ten to a panel.
        order: of the models, in words.
        turned: rank 1 of a model is its lowest reward.
        title: of the figure.

    Raises:
        TableError: fewer than two raters, a panel without items or with more than ten, or an item without ranks.

    Source: Christian et al. 2025, Figures 5 and A5–A7.
    """
    if ranks.shape[1] < 2 or not groups:
        raise TableError(
            f"Trajectories lead through two raters or more, of one group of items or more; given were "
            f"{_counted(ranks.shape[1], 'rater')} and {_counted(len(groups), 'group')}."
        )
    rows = {
        item: row for row, item in enumerate(ranks.index)
    }  # .loc cannot look up a list with a lone surrogate
    for heading, items in groups.items():
        if not 1 <= len(items) <= len(MARKERS):
            raise TableError(
                f"{_counted(len(items), 'item')} under {heading!r}; 1 to {len(MARKERS)} lines can be told apart."
            )
        if missing := [item for item in items if item not in rows]:
            raise TableError(f"No rank of {missing[0]!r}; the table has {len(ranks)} items.")
    raters = [ranks.columns[0], *short_names(ranks.columns[1:], limit=26).values()]
    n = len(ranks)
    heights = [max(1.5, LINE_HEIGHT * (len(items) + 2)) for items in groups.values()]  # inches
    figure = new_figure(PAGE_WIDTH, sum(heights) + 0.35 * len(heights) + 1.6)
    panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
    for panel, (heading, items), height in zip(panels, groups.items(), heights, strict=True):
        _panel(panel, ranks.iloc[[rows[item] for item in items]], n=n, height=height)
        subheading(panel, heading)
    panels[-1].set_xticks(range(len(raters)), raters, rotation=40, ha="right", rotation_mode="anchor")
    panels[-1].get_xticklabels()[0].set_fontweight("bold")
    style.title(figure, title)
    note(
        figure,
        f"Rank among {n:,} items, on a scale stretched at both ends: 1 is people's highest Elo, and the models' "
        f"{'LOWEST' if turned else 'highest'} reward; equals share their average rank. Left: people; then "
        f"{_counted(len(raters) - 1, 'model')}{f', {order}' if len(raters) > 2 else ''}.",
    )
    return figure


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _panel(axes: Axes, ranks: pd.DataFrame, *, n: int, height: float) -> None:
    """The lines of one group, named at both ends."""
    places = _stretched(ranks.to_numpy(dtype=float), n=n)  # (items, raters)
    across = np.arange(places.shape[1])
    margin = 0.06 * max(np.ptp(places), 0.5)
    low, high = places.min() - margin, places.max() + margin
    pad = 0.02 * places.shape[1]
    axes.set_ylim(low, high)
    axes.set_xlim(-pad, across[-1] + pad)
    axes.axvspan(-pad, pad, color="#ededed", lw=0, zorder=0)
    gap = (high - low) / height * LINE_HEIGHT  # what one line of text takes, in units of the axis
    _rank_labels(axes, places, n=n, gap=gap)
    for item, line in enumerate(places):
        axes.plot(
            across,
            line,
            color=_colour(item),
            marker=MARKERS[item],
            ms=3.4,
            lw=1.1,
            ls="-" if item < len(COLOURS) else (0, (4, 1.5)),
            clip_on=False,
        )
    for column in (0, -1):
        labels = apart(places[:, column], gap=gap, low=low, high=high)
        for item, (name, at, label) in enumerate(zip(ranks.index, places[:, column], labels, strict=True)):
            _name(axes, literal(str(name), limit=24), at, label, right=column == -1, colour=_colour(item))
    axes.set_yticks([])
    axes.tick_params(axis="x", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)


def _rank_labels(axes: Axes, places: np.ndarray, *, n: int, gap: float) -> None:
    """A faint line at round ranks, and the rank on it, between those two raters where the fewest lines pass it."""
    low, high = axes.get_ylim()
    ticks, last = [], np.inf
    for tick in sorted({1, 10, 100, 1000, n // 2, n - 999, n - 99, n - 9, n}):
        at = float(_stretched(np.array([float(tick)]), n=n)[0]) if 1 <= tick <= n else np.nan
        if low <= at <= high and last - at >= 0.9 * gap:
            ticks.append((tick, at))
            last = at
    between = (places[:, 1:] + places[:, :-1]) / 2  # (items, gaps)
    met = sum((np.abs(between - at) < 0.5 * gap).sum(axis=0) for _, at in ticks) + np.zeros(between.shape[1])
    x = int(np.argmin(met)) + 0.5
    for tick, at in ticks:
        axes.axhline(at, color="#e4e4e4", lw=0.6, zorder=0)
        box = {"color": "white", "pad": 0.6, "lw": 0}
        axes.text(x, at, f"{tick:,}", fontsize=6, color=GREY, ha="center", va="center", bbox=box, zorder=1)


def _name(axes: Axes, text: str, at: float, label: float, *, right: bool, colour: str) -> None:
    """An item's name beside the end of its line, joined to it."""
    level = axes.get_yaxis_transform()  # x as a share of the axes' width, y on the scale of ranks
    edge, end, name = (1.0, 1.022, 1.027) if right else (0.0, -0.022, -0.027)
    axes.plot([edge, end], [at, label], color=colour, lw=0.5, transform=level, clip_on=False)
    axes.text(
        name,
        label,
        text,
        transform=level,
        fontsize=6.5,
        color=colour,
        ha="left" if right else "right",
        va="center",
    )


def _stretched(ranks: np.ndarray, *, n: int) -> np.ndarray:
    """Ranks as heights: the logit of the share of items at or below, so that 1 is highest and both ends open up."""
    share = (n + 0.5 - ranks) / n
    return np.log10(share / (1 - share))


def _colour(item: int) -> str:
    return COLOURS[item % len(COLOURS)]
