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
    GREY,
    INK,
    OKABE_ITO,
    PAGE_WIDTH,
    colours,
    markers,
    new_figure,
    note,
    styled,
)
from pessimal.figures.words import literal, short_names

HUMAN, MODEL = OKABE_ITO[1], OKABE_ITO[0]


@styled
def forest(correlation: pd.DataFrame, *, title: str = "Agreement with people") -> Figure:
    """Each model's Spearman correlation with people, with its interval, highest first.

    Args:
        correlation: of `analysis.human.human_correlation`.
        title: of the figure.

    Source: Christian et al. 2025, Figure 5A.
    """
    table = correlation.sort_values("spearman", ascending=False, kind="stable")
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
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eeeeee", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("Spearman's ρ between rewards and human Elo scores")
    axes.set_title(title)
    note(
        figure,
        f"{int(table['n'].iloc[0]):,} items. Lines: bootstrap interval over items, the same items for all models.",
    )
    return figure


@styled
def by_prompt(
    correlation: pd.DataFrame, *, signs: Mapping[str, int] | None = None, title: str = "Agreement with people"
) -> Figure:
    """Each model's Spearman correlation with people under each prompt, with intervals.

    Models in order of their mean agreement, where a prompt that bad words answer counts turned round.

    Args:
        correlation: of `analysis.human.human_correlation`, with a column prompt; models may lack prompts.
        signs: by prompt, −1 where bad words answer it; others count as 1.
        title: of the figure.
    """
    signs = signs or {}
    prompts = list(dict.fromkeys(correlation["prompt"]))
    agreement = correlation["spearman"] * correlation["prompt"].map(lambda prompt: signs.get(prompt, 1))
    models = list(
        agreement.groupby(correlation["model"]).mean().sort_values(ascending=False, kind="stable").index
    )
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
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eeeeee", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("Spearman's ρ between rewards and human Elo scores")
    axes.set_title(title)
    figure.legend(loc="outside right upper")
    counts = " or ".join(f"{n:,}" for n in sorted(correlation["n"].unique()))
    note(
        figure,
        f"{counts} items. Lines: bootstrap interval over items. (+): good words answer the prompt, (−): bad words do, so "
        "that who agrees with people is left of 0.",
    )
    return figure


@styled
def rank_gaps(
    difference: pd.DataFrame,
    *,
    ends: pd.DataFrame | None = None,
    k: int = 12,
    title: str = "Where models and people part",
) -> Figure:
    """The k items that models rank farthest above people, and the k farthest below.

    Args:
        difference: of `analysis.human.rank_difference`.
        ends: of `analysis.human.most_valued`, to show only items whose difference is sure; without it the farthest
            of all.
        k: items per side.
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
    _gaps(left, above, heading="models rank higher than people do")
    _gaps(right, below, heading="models rank lower than people do")
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
    told = f"Rank among {len(difference):,} items, 1 = best; models: {raters}."
    if bars:
        told += f" Pale bars: how surely {', and '.join(bars)}."
    note(figure, told + ("" if ends is None else " Only items whose difference is surely not zero."))
    return figure


def _gaps(axes: Axes, items: pd.DataFrame, *, heading: str) -> None:
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
    axes.set_xlabel("rank (best on the right)")
    axes.set_title(heading, fontsize=7.5, fontweight="normal", color=GREY)
    if items.empty:
        axes.text(
            0.5, 0.5, "none whose difference is sure", transform=axes.transAxes, ha="center", color=FAINT
        )


def _known(table: pd.DataFrame, interval: str) -> bool:
    return interval in table and bool(table[interval].notna().any())
