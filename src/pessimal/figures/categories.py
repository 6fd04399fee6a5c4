"""Which category of a dictionary models rank first, and what moves the rank.

Knows the tables of `analysis.categories` and `analysis.category_model`.
"""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pessimal.analysis.categories import FRAMINGS, framings_of
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

GAP = 0.6  # rows left free between bases


@styled
def category_ranks(
    medians: pd.DataFrame,
    *,
    frames: Mapping[str, int],
    bases: Mapping[str, str] | None = None,
    title: str = "Which words come first",
) -> Figure:
    """Each model's median rank of each category's words, averaged over the prompts of a frame; the best on the right.

    Args:
        medians: of `analysis.categories.median_ranks`.
        frames: 1 or −1 by prompt.
        bases: base by model; models of one base stand together.
        title: of the figure.
    """
    table = medians.assign(framing=framings_of(medians["prompt"], frames))
    groups = _groups(sorted(table["model"].unique()), bases)
    rows, ticks = {}, 0.0
    for members in groups.values():
        for model in members:
            rows[model], ticks = ticks, ticks + 1
        ticks += GAP
    names = short_names(rows)
    categories = sorted(table["category"].unique())
    colour, marker = colours(categories), markers(categories)
    framings = [framing for framing in FRAMINGS.values() if framing in set(table["framing"])]
    columns = min(len(categories), 5)
    figure = new_figure(PAGE_WIDTH, 1.25 + 0.2 * ticks + 0.16 * ((len(categories) - 1) // columns))
    panels = figure.subplots(1, len(framings), sharex=True, sharey=True, squeeze=False)[0]
    words = int(table["words"].iloc[0])
    for axes, framing in zip(panels, framings, strict=True):
        means = (
            table[table["framing"] == framing].groupby(["model", "category"])["median_rank"].mean().unstack()
        )
        level = [rows[model] for model in means.index]
        axes.axvline((words + 1) / 2, color=FAINT, lw=0.6, ls=(0, (4, 3)), zorder=0)
        axes.hlines(level, means.min(axis=1), means.max(axis=1), color="#cccccc", lw=1.2, zorder=1)
        for category in categories:
            axes.plot(means[category], level, marker[category], color=colour[category], ms=4.4, zorder=2)
        prompts = table.loc[table["framing"] == framing, "prompt"].nunique()
        told = f"{framing}: {prompts} prompt{'s' * (prompts > 1)}"
        axes.text(0, 1.01, told, transform=axes.transAxes, va="bottom", color=GREY)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.set_xlabel("mean median rank (best on the right)")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    panels[0].set_yticks(list(rows.values()), [names[model] for model in rows])
    panels[0].set_ylim(max(rows.values()) + 0.6, -0.6)
    panels[0].invert_xaxis()
    if len(groups) > 1:
        for base, members in groups.items():
            middle = (rows[members[0]] + rows[members[-1]]) / 2
            panels[-1].text(
                1.02, middle, literal(base, limit=18), transform=panels[-1].get_yaxis_transform(), va="center"
            )
    panels[0].set_title(title, pad=18)  # on the axes, as a title of the figure would lie on the legend
    handles = [
        Line2D([], [], ls="", marker=marker[c], color=colour[c], ms=4.4, label=literal(c)) for c in categories
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=columns)
    counts = table.groupby("category")["n"].first()
    sizes = ", ".join(f"{counts[category]} {literal(category)}" for category in categories)
    note(
        figure,
        f"Rank 1 is the highest reward among {words:,} words of the dictionary ({sizes}). Dashed: the middle rank.",
    )
    return figure


@styled
def category_terms(table: pd.DataFrame, *, title: str = "What moves the median rank") -> Figure:
    """Every coefficient but the intercept, with the mixed model's interval and with that of models as units.

    Args:
        table: of `analysis.category_model`.
        title: of the figure.
    """
    terms = table[table["term"] != "intercept"]
    figure = new_figure(PAGE_WIDTH, 1.3 + 0.33 * len(terms))
    axes = figure.subplots()
    axes.axvline(0, color=INK, lw=0.6, zorder=1)
    for row, term in enumerate(terms.itertuples()):
        axes.hlines(row - 0.13, term.low, term.high, color=OKABE_ITO[1], lw=2.4)
        axes.hlines(row + 0.13, term.models_low, term.models_high, color=OKABE_ITO[0], lw=1.2)
        axes.plot(term.estimate, row - 0.13, "s", color=OKABE_ITO[1], ms=4)
        axes.plot(term.estimate, row + 0.13, "o", color=OKABE_ITO[0], ms=4)
        told = (f"{term.estimate:z.2f}".replace("-", "−"), _p(term.p_value), _p(term.permutation_p))
        _columns(axes, row, told, (INK, OKABE_ITO[1], OKABE_ITO[0]))
    _columns(axes, -0.85, ("estimate", "p, mixed", "p, models"), (GREY, GREY, GREY))
    axes.set_yticks(range(len(terms)), [_broken(term) for term in terms["term"]])
    axes.set_ylim(len(terms) - 0.5, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("difference in median rank (negative: ranked better)")
    axes.set_title(title, pad=14)
    first = table.iloc[0]
    least = {
        kind: terms.loc[chosen, "smallest_p"].min()
        for kind, chosen in (("with a base", terms["base"] != ""), ("without", terms["base"] == ""))
        if chosen.any()
    }
    limits = " or ".join(f"{_p(p)}{f' (terms {kind})' * (len(least) > 1)}" for kind, p in least.items())
    note(
        figure,
        f"{first['n']:,} median ranks of {first['models']} models on {first['prompts']} prompts; reference: "
        f"{first['reference']}. Squares: mixed model with an intercept per model, as published. Dots: the same with models "
        f"as units, t interval and permutation test; its p can be no smaller than {limits}.",
    )
    return figure


def _columns(axes: Axes, row: float, texts: Sequence[str], inks: Sequence[str]) -> None:
    """Numbers right of the axes, in columns whose places do not shrink with it."""
    for place, (text, ink) in enumerate(zip(texts, inks, strict=True)):
        axes.annotate(
            text,
            (1, row),
            xycoords=axes.get_yaxis_transform(),
            xytext=(48 + 42 * place, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=ink,
            annotation_clip=False,
        )


def _groups(models: list[str], bases: Mapping[str, str] | None) -> dict[str, list[str]]:
    """Models by base, both in order of name."""
    if bases is None:
        return {"": models}
    return {base: [m for m in models if bases[m] == base] for base in sorted({bases[m] for m in models})}


def _broken(term: str) -> str:
    """A term on two lines where one would take half of the figure."""
    parts = [literal(part, limit=28) for part in term.split(" × ")]
    if len(" × ".join(parts)) <= 30:
        return " × ".join(parts)
    return " × ".join(parts[:1]) + " ×\n" + " × ".join(parts[1:])


def _p(value: float) -> str:
    if pd.isna(value):
        return "–"
    return "< .001" if value < 0.001 else f"{value:.3f}".replace("0.", ".", 1) if value < 1 else "1"
