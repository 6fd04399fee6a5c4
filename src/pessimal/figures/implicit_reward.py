"""Language models beside reward models: how far rewards follow probabilities, and what two language models differ on.

Knows the tables of `analysis.implicit_reward`.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.style import (
    GREY,
    INK,
    OKABE_ITO,
    PAGE_WIDTH,
    colours,
    grouped_legend,
    markers,
    new_figure,
    note,
    rows_of_marks,
    styled,
    subheading,
)
from pessimal.figures.words import literal, short_names

MORE, LESS = OKABE_ITO[0], OKABE_ITO[1]
HEADINGS = {
    "implicit_reward": "implicit reward, log q − log p (nats)",
    "mwlr": "mixture-weighted, ½ (p + q) (log q − log p) (nats)",
}


@styled
def reward_forest(
    correlation: pd.DataFrame, *, title: str = "Do rewards follow log-probabilities?"
) -> Figure:
    """Each reward model's rank correlation with each language model's log-probabilities, with its interval.

    Args:
        correlation: of `analysis.implicit_reward.reward_correlation`; reward models from the top in order of their
            highest correlation.
        title: of the figure.

    Raises:
        TableError: there are no rows.
    """
    if correlation.empty:
        raise TableError("No correlations to draw: give at least one reward model and one language model.")
    order = correlation.groupby("model")["kendall"].max().sort_values(ascending=False, kind="stable").index
    scores = list(dict.fromkeys(correlation["score"]))
    names, labels = short_names(order), short_names(scores)
    colour, marker = colours(scores), markers(scores)
    step = min(0.2, 0.8 / len(scores))
    height = max(0.24, 0.1 * len(scores))  # inches a reward model
    figure = new_figure(PAGE_WIDTH, max(1.0 + height * len(order), 0.8 + 0.17 * len(scores)))
    axes = figure.subplots()
    for place, score in enumerate(scores):
        rows = correlation[correlation["score"] == score].set_index("model").reindex(order)
        y = np.arange(len(order)) + step * (place - (len(scores) - 1) / 2)
        axes.hlines(y, rows["low"], rows["high"], color=colour[score], lw=1.2)
        axes.plot(rows["kendall"], y, marker[score], color=colour[score], ms=4, mec=INK, mew=0.3)
    axes.axvline(0, color=INK, lw=0.6)
    axes.set_yticks(range(len(order)), [names[model] for model in order])
    axes.set_ylim(len(order) - 0.4, -0.6)
    rows_of_marks(axes)
    axes.set_xlabel("Kendall's τ-b between rewards and log-probabilities")
    style.title(figure, title)
    handles = [
        Line2D([], [], color=colour[s], marker=marker[s], ms=4, mec=INK, mew=0.3, lw=1.2, label=labels[s])
        for s in scores
    ]
    grouped_legend(figure, {"log-probability under": handles})
    note(
        figure,
        f"{int(correlation['n'].iloc[0]):,} shared candidates, each counted alike, the same for all. Lines: bootstrap "
        "interval over candidates.",
    )
    return figure


@styled
def implicit_bars(
    ends: pd.DataFrame,
    *,
    p_name: str,
    q_name: str,
    k: int = 12,
    n: int | None = None,
    title: str | None = None,
) -> Figure:
    """What model 2 (q) says more, and what less, than model 1 (p): the ends of both measures as bars.

    Args:
        ends: of `analysis.implicit_reward.implicit_extremes`.
        p_name: name of model 1.
        q_name: name of model 2.
        k: candidates drawn per end, of those in the table.
        n: candidates that the ends are of, for the note.
        title: of the figure; by default the two models' names.

    Raises:
        TableError: there are no rows.

    Source: Christian et al. 2026 (arXiv 2601.20838), Figure 3, over all tokens.
    """
    if ends.empty:
        raise TableError("No candidates to draw: give the ends of at least one pair of language models.")
    drawn = ends[ends["rank"] <= k]
    most = int(drawn.groupby(["measure", "end"]).size().max())
    figure = new_figure(PAGE_WIDTH, 1.35 + 2 * 0.155 * most)
    for axes, (measure, heading) in zip(figure.subplots(1, 2), HEADINGS.items(), strict=True):
        _bars(axes, drawn[drawn["measure"] == measure], heading=heading)
    names = short_names([p_name, q_name], limit=40)
    p, q = names[p_name], names[q_name]
    style.title(figure, title or f"{q} (q) against {p} (p)")
    among = "" if n is None else f"The ends of {n:,} candidates. "
    note(
        figure,
        f"{among}Blue, to the right: {q} says it more; orange, to the left: less. Beside a bar: log p → log q, in nats. The "
        "left half counts a token however improbable, the right half by how often either model would say it. ␣: a space "
        "at the end of a token.",
    )
    return figure


def _bars(axes: Axes, rows: pd.DataFrame, *, heading: str) -> None:
    """Highest first, then from the least low to the lowest; of a few candidates, each once."""
    top = rows[rows["end"] == "top"].sort_values("rank")
    bottom = rows[rows["end"] == "bottom"].sort_values("rank", ascending=False)
    seen = set(zip(top["text"], top["log_p"], top["log_q"], strict=True))
    keys = zip(bottom["text"], bottom["log_p"], bottom["log_q"], strict=True)
    ordered = pd.concat([top, bottom[[key not in seen for key in keys]]])
    places = np.arange(len(ordered), dtype=float)
    places[len(top) :] += 0.6  # a gap between the ends: what lies between them is not drawn
    values = ordered["value"].to_numpy()
    axes.barh(places, values, height=0.72, color=[MORE if value > 0 else LESS for value in values])
    axes.axvline(0, color=INK, lw=0.6)
    axes.set_yticks(places, [literal(str(text), limit=18) for text in ordered["text"]])
    axes.set_ylim(places[-1] + 0.7, -0.7)
    level = axes.get_yaxis_transform()
    for place, row in zip(places, ordered.itertuples(), strict=True):
        told = f"{row.log_p:.1f} → {row.log_q:.1f}".replace("-", "−")
        axes.text(1.02, place, told, transform=level, va="center", fontsize=6, color=GREY)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.05)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    subheading(axes, heading)
