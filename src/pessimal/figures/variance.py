"""Where the variance of rewards lies when one question is asked in many wordings.

Knows the tables of `analysis.variance_components`.
"""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pessimal.errors import TableError
from pessimal.figures.style import INK, OKABE_ITO, PAGE_WIDTH, new_figure, note, rows_of_marks, styled
from pessimal.figures.words import short_names

PART_COLOURS = {"both frames": INK, "positive": OKABE_ITO[0], "negative": OKABE_ITO[1]}
PART_MARKERS = {"both frames": "D", "positive": "o", "negative": "s"}
ORDER = [
    "token",
    "token × frame",
    "token × wording",
    "token × model",
    "token × model × frame",
    "token × model × wording",
]
MEANINGS = {
    "token": "token\nliked by all models in all wordings",
    "token × frame": "token × frame\nturns round with the question",
    "token × wording": "token × wording\nthe same turn in all models",
    "token × model": "token × model\none model's taste in all wordings",
    "token × model × frame": "token × model × frame\none model's, turns round",
    "token × model × wording": "token × model × wording\nand what is left over",
}
SEGMENTS = {"token": OKABE_ITO[4], "token × frame": OKABE_ITO[0], "token × wording": OKABE_ITO[1]}
LEAST_TOLD = 0.07  # a narrower segment has no room for its number


@styled
def components(table: pd.DataFrame, *, title: str = "What decides the order of tokens") -> Figure:
    """Each component's share of the variance that moves tokens against one another, with its interval.

    Args:
        table: `components` of `analysis.variance_components`; the rows of all models are drawn.
        title: of the figure.

    Raises:
        TableError: there are no rows of all models.
    """
    shown = table[(table["units"] == "standardised") & table["component"].isin(ORDER)]
    if shown.empty:
        raise TableError(
            "No components over all models: with one model there are only its own; draw `by_model`."
        )
    names = [name for name in ORDER if name in set(shown["component"])]
    parts = [part for part in PART_COLOURS if part in set(shown["part"])]
    figure = new_figure(PAGE_WIDTH, 1.2 + 0.42 * len(names))
    axes = figure.subplots()
    for place, part in enumerate(parts):
        rows = shown[shown["part"] == part].set_index("component")
        rows = rows.loc[[name for name in names if name in rows.index]]
        level = [names.index(name) + 0.22 * (place - (len(parts) - 1) / 2) for name in rows.index]
        colour = PART_COLOURS[part]
        axes.hlines(level, rows["order_share_low"], rows["order_share_high"], color=colour, lw=1.3)
        axes.plot(rows["order_share"], level, PART_MARKERS[part], color=colour, ms=4.2)
    axes.set_yticks(range(len(names)), [MEANINGS[name] for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    rows_of_marks(axes)
    axes.set_xlabel("share of the variance that has the token in it")
    axes.set_title(title)
    handles = [
        Line2D([], [], color=PART_COLOURS[part], marker=PART_MARKERS[part], ms=4.2, lw=1.3, label=part)
        for part in parts
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    first = shown.iloc[0]
    few = "" if "models" in first["covers"] else "; not over models, of which it takes three"
    wordings = ", ".join(f"{shown.loc[shown['part'] == part, 'wordings'].iloc[0]} {part}" for part in parts)
    note(
        figure,
        f"{first['tokens']:,} tokens, {first['models']} models, wordings: {wordings}. Rewards standardised within each "
        f"model. Lines: jackknife over {first['covers']}{few}.",
    )
    return figure


@styled
def by_model(table: pd.DataFrame, *, title: str = "What a model's order of tokens follows") -> Figure:
    """Each model alone: its order of tokens divided between what stays, what turns with the frame, and wording.

    Args:
        table: `components` of `analysis.variance_components`; both frames are drawn, or the one there is.
        title: of the figure.
    """
    own = table[table["units"] == "raw"]
    part = "both frames" if "both frames" in set(own["part"]) else own["part"].iloc[0]
    shares = own[own["part"] == part].pivot(index="model", columns="component", values="order_share")
    names = short_names(shares.index)
    figure = new_figure(PAGE_WIDTH, 1.15 + 0.24 * len(shares))
    axes = figure.subplots()
    left = pd.Series(0.0, index=shares.index)
    drawn = {name: colour for name, colour in SEGMENTS.items() if name in shares}
    for name, colour in drawn.items():
        axes.barh(range(len(shares)), shares[name], left=left, height=0.7, color=colour, lw=0)
        for row, (share, start) in enumerate(zip(shares[name], left, strict=True)):
            if share >= LEAST_TOLD:
                dark = colour == OKABE_ITO[0]
                axes.text(
                    start + share / 2,
                    row,
                    f"{share:.0%}",
                    ha="center",
                    va="center",
                    color="white" if dark else INK,
                )
        left = left + shares[name]
    level = axes.get_yaxis_transform()
    for row, share in enumerate(shares["token × wording"]):
        axes.text(1.01, row, f"wording {share:.1%}", transform=level, va="center")
    axes.set_yticks(range(len(shares)), [names[model] for model in shares.index])
    axes.set_ylim(len(shares) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the variance that has the token in it")
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_title(title)
    words = {
        "token": "token (whatever the question)" if len(drawn) == 3 else "token",
        "token × frame": "token × frame (turns round)",
        "token × wording": "token × wording",
    }
    handles = [Patch(color=colour, label=words[name]) for name, colour in drawn.items()]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    first = own[own["part"] == part].iloc[0]
    note(
        figure,
        f"{part[0].upper()}{part[1:]}: {first['wordings']} wordings, {first['tokens']:,} tokens, raw rewards. Negative "
        "components count as 0; intervals are in the table.",
    )
    return figure
