"""Models and people: how well they agree, and over which items they part.

Knows the tables of `analysis.human`.
"""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pessimal.analysis.human import ENDS
from pessimal.figures import style
from pessimal.figures.style import (
    FAINT,
    INK,
    OKABE_ITO,
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

HUMAN, MODEL = OKABE_ITO[1], OKABE_ITO[0]


ASKED = {
    1: "Good words answer the prompt",
    -1: "Bad words answer the prompt, so who agrees with people is left of 0",
    None: "Which words answer the prompt is not stated",
}
"""By the sign of the prompt."""


@styled
def forest(
    correlation: pd.DataFrame, *, sign: int | None = 1, title: str = "Agreement with people"
) -> Figure:
    """Each model's Spearman correlation with people, with its interval, the model closest to people first.

    Args:
        correlation: of `analysis.human.human_correlation`.
        sign: 1 where good words answer the prompt, −1 where bad words do, so that the lowest correlation is the
            closest; None where this is not known: highest first, and the figure says so.
        title: of the figure.

    Source: Christian et al. 2025, Figure 5A.
    """
    table = correlation.sort_values("spearman", ascending=sign == -1, kind="stable")
    names = short_names(table["model"])
    figure = new_figure(PAGE_WIDTH, 1.0 + 0.24 * len(table))
    axes = figure.subplots()
    rows = range(len(table))
    axes.hlines(rows, table["low"], table["high"], color=MODEL, lw=1.4)
    axes.plot(table["spearman"], rows, "o", color=MODEL, ms=4.5)
    level = axes.get_yaxis_transform()
    for row, model in zip(rows, table.itertuples(), strict=True):
        numbers = f"{model.spearman:.3f}  [{model.low:.3f}, {model.high:.3f}]".replace("-", "−")
        axes.text(1.02, row, numbers, transform=level, va="center")
    if table["low"].min() < 0:
        axes.axvline(0, color=INK, lw=0.6)
    axes.set_yticks(rows, [names[model] for model in table["model"]])
    axes.set_ylim(len(table) - 0.4, -0.6)
    rows_of_marks(axes)
    axes.set_xlabel("Spearman's ρ between rewards and human Elo scores")
    axes.set_title(title)
    told = f"{int(table['n'].iloc[0]):,} items. Lines: bootstrap interval over items"
    if len(table) == 1:
        note(figure, f"{told}. {ASKED[sign]}.")
    else:
        order = "highest ρ first" if sign is None else "closest to people first"
        note(figure, f"{told}, the same items for all models. {ASKED[sign]}; models: {order}.")
    return figure


@styled
def by_prompt(
    correlation: pd.DataFrame, *, signs: Mapping[str, int] | None = None, title: str = "Agreement with people"
) -> Figure:
    """Each model's Spearman correlation with people under each prompt, with intervals.

    Models in order of their mean agreement over the prompts whose sign is known, where a prompt that bad words answer
    counts turned round; models with no such prompt come last, by their mean correlation.

    Args:
        correlation: of `analysis.human.human_correlation`, with a column prompt; models may lack prompts.
        signs: by prompt, 1 where good words answer it, −1 where bad words do; others are not known.
        title: of the figure.
    """
    signs = signs or {}
    prompts = list(dict.fromkeys(correlation["prompt"]))
    mean = (
        correlation.assign(agreement=correlation["spearman"] * correlation["prompt"].map(signs).astype(float))
        .groupby("model", sort=False)[["agreement", "spearman"]]
        .mean()
    )
    models = list(mean.sort_values(["agreement", "spearman"], ascending=False).index)
    names, colour, marker = short_names(models), colours(prompts), markers(prompts)
    figure = new_figure(PAGE_WIDTH, 1.1 + (0.08 * len(prompts) + 0.1) * len(models))
    axes = figure.subplots()
    axes.axvline(0, color=INK, lw=0.6)
    step = 0.7 / len(prompts)
    for place, prompt in enumerate(prompts):
        rows = correlation[correlation["prompt"] == prompt]
        at = [models.index(model) + (place - (len(prompts) - 1) / 2) * step for model in rows["model"]]
        axes.hlines(at, rows["low"], rows["high"], color=colour[prompt], lw=1.3)
        label = literal(prompt, limit=30) + {1: "  (+)", -1: "  (−)"}.get(signs.get(prompt), "")
        axes.plot(rows["spearman"], at, marker[prompt], color=colour[prompt], ms=3.8, label=label)
    for row in range(1, len(models)):
        axes.axhline(row - 0.5, color="#eeeeee", lw=0.6)
    axes.set_yticks(range(len(models)), [names[model] for model in models])
    axes.set_ylim(len(models) - 0.4, -0.6)
    rows_of_marks(axes)
    axes.set_xlabel("Spearman's ρ between rewards and human Elo scores")
    axes.set_title(title)
    figure.legend(loc="outside right upper")
    counts = " or ".join(f"{n:,}" for n in sorted(correlation["n"].unique()))
    told = {
        1: "(+): good words answer the prompt.",
        -1: "(−): bad words answer it, so that who agrees with people is left of 0.",
        None: "No mark: which words answer it is not stated.",
    }
    there = {signs.get(prompt) for prompt in prompts}
    marks = " ".join(text for sign, text in told.items() if sign in there)
    order = "mean agreement over their prompts with a mark" if {1, -1} & there else "mean ρ"
    by = f"; models by {order}" if len(models) > 1 else ""
    note(figure, f"{counts} items. Lines: bootstrap interval over items{by}. {marks}")
    return figure


@styled
def rank_gaps(
    difference: pd.DataFrame,
    *,
    ends: pd.DataFrame | None = None,
    k: int = 12,
    turned: bool = False,
    title: str = "Where models and people part",
) -> Figure:
    """The k items that models rank farthest above people, and the k farthest below.

    Args:
        difference: of `analysis.human.rank_difference`.
        ends: of `analysis.human.most_valued`, to show only items whose difference is sure, where there are intervals;
            without it the farthest of all.
        k: items per side.
        turned: rank 1 of a model is its lowest reward.
        title: of the figure.

    Source: Christian et al. 2025, Figure 5B.
    """
    if ends is None:
        ordered = difference.sort_values("difference", kind="stable")
        above, below = ordered.head(k), ordered.tail(k).iloc[::-1]
    else:
        above, below = (ends[ends["end"] == end].head(k) for end in ENDS)
    figure = new_figure(PAGE_WIDTH, 1.3 + 0.18 * max(len(above), len(below), 2))
    left, right = figure.subplots(1, 2, sharex=True)
    sure = ends is not None and (_known(difference, "people_low") or _known(difference, "models_low"))
    none = "none whose difference is sure" if sure else "none"
    _gaps(left, above, heading="models rank higher than people do", none=none)
    _gaps(right, below, heading="models rank lower than people do", none=none)
    left.set_xlim(len(difference) * 1.04, -0.04 * len(difference))
    style.title(figure, title)
    marks = {"people": HUMAN, "models": MODEL}
    handles = [Line2D([], [], ls="", marker="o", color=c, ms=3.8, label=name) for name, c in marks.items()]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    models = int(difference["n_models"].iloc[0]) if "n_models" in difference else 0
    raters = (
        "the one model" if models == 1 else f"median over {models} models" if models else "median over models"
    )
    bars = []
    if _known(difference, "people_low"):
        bars.append("people's ranks are known by their match counts, at best")
    if _known(difference, "models_low"):
        bars.append("the median is over samples of models")
    told = (
        f"Rank among {len(difference):,} items: 1 is people's highest Elo, and the models' {'LOWEST' if turned else 'highest'} "
        f"reward; models: {raters}."
    )
    if bars:
        told += f" Pale bars: how surely {', and '.join(bars)}."
    note(figure, told + (" Only items whose difference is surely not zero." if sure else ""))
    return figure


def _gaps(axes: Axes, items: pd.DataFrame, *, heading: str, none: str) -> None:
    """Each item's two ranks, joined; how sure each is, as a pale bar under it."""
    rows = range(len(items))
    axes.hlines(rows, items["human_rank"], items["model_rank"], color="#bbbbbb", lw=0.8, zorder=1)
    wide = {"lw": 4.5, "alpha": 0.3, "zorder": 0}
    if _known(items, "people_low"):
        # The interval of the difference is that of the human rank, turned round, beside a fixed model rank.
        axes.hlines(
            rows,
            items["model_rank"] - items["people_high"],
            items["model_rank"] - items["people_low"],
            color=HUMAN,
            **wide,
        )
    if _known(items, "models_low"):
        axes.hlines(
            rows,
            items["models_low"] + items["human_rank"],
            items["models_high"] + items["human_rank"],
            color=MODEL,
            **wide,
        )
    axes.plot(items["human_rank"], rows, "o", color=HUMAN, ms=3.8, label="people")
    axes.plot(items["model_rank"], rows, "o", color=MODEL, ms=3.8, label="models")
    axes.set_yticks(rows, [literal(str(name), limit=26) for name in items["name"]])
    axes.set_ylim(max(len(items), 1) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("rank (1 on the right)")
    subheading(axes, heading)
    if items.empty:
        axes.text(0.5, 0.5, none, transform=axes.transAxes, ha="center", color=FAINT)


def _known(table: pd.DataFrame, interval: str) -> bool:
    return interval in table and bool(table[interval].notna().any())
