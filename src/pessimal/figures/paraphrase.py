"""How often the optimal token survives another wording, model by model.

Knows the table of `analysis.paraphrase`.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pessimal.analysis.paraphrase import ANY, OPPOSITE
from pessimal.errors import TableError
from pessimal.figures.style import GREY, INK, MARKERS, OKABE_ITO, PAGE_WIDTH, new_figure, note, styled
from pessimal.figures.words import short_names

FRAMES = ("positive", "negative")


@styled
def survival(table: pd.DataFrame, *, end: str = "optimal", title: str | None = None) -> Figure:
    """For each model and frame the share of pairs of wordings in which the extreme token is the same.

    Args:
        table: `survival` of `analysis.paraphrase`, of several models, with a column model.
        end: "optimal" or "pessimal".
        title: of the figure.

    Raises:
        TableError: no rows of this end.
    """
    shown = table[(table["end"] == end) & (table["changed"] != OPPOSITE)]
    if shown.empty:
        raise TableError(f"No rows of end {end!r}; there are {sorted(table['end'].unique())}.")
    models = list(dict.fromkeys(shown["model"]))
    names = short_names(models)
    kinds = [ANY, *(kind for kind in dict.fromkeys(shown["changed"]) if kind != ANY)]
    frames = [frame for frame in FRAMES if frame in set(shown["frame"])]
    figure = new_figure(PAGE_WIDTH, 1.25 + (0.13 + 0.075 * len(kinds)) * len(models))
    panels = figure.subplots(1, len(frames), sharey=True, squeeze=False)[0]
    looks = {ANY: (INK, "D")} | {
        kind: (OKABE_ITO[place], MARKERS[place]) for place, kind in enumerate(kinds[1:])
    }
    for axes, frame in zip(panels, frames, strict=True):
        _panel(axes, shown[shown["frame"] == frame], models, looks)
        axes.text(0, 1.01, f"{frame} wordings", transform=axes.transAxes, va="bottom", color=GREY)
    panels[0].set_yticks(range(len(models)), [names[model] for model in models])
    panels[0].set_ylim(len(models) - 0.45, -0.55)
    # On the axes, as a title of the figure would lie on the legend.
    panels[0].set_title(title or f"Does the {end} token survive a paraphrase?", pad=18)
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=4, lw=1.1, label=kind)
        for kind, (colour, marker) in looks.items()
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    most = shown.loc[shown["changed"] == ANY, "wordings"].max()
    note(
        figure,
        f"Ordered pairs of up to {most} wordings of a frame; “only” means that the two differ in one factor. Lines: "
        "jackknife over wordings; where all pairs say the same, Wilson's interval for as many trials as wordings.",
    )
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, models: list[str], looks: dict[str, tuple[str, str]]) -> None:
    """One frame: every model's shares, one mark a kind of change."""
    height = 0.76 / len(looks)
    for place, (kind, (colour, marker)) in enumerate(looks.items()):
        part = rows[rows["changed"] == kind]
        level = [models.index(m) + height * (place - (len(looks) - 1) / 2) for m in part["model"]]
        axes.hlines(level, part["survives_low"], part["survives_high"], color=colour, lw=1.0)
        axes.plot(part["survives"], level, marker, color=colour, ms=3.6, clip_on=False)
    for row in range(1, len(models)):
        axes.axhline(row - 0.5, color="#eeeeee", lw=0.6, zorder=0)
    axes.set_xlim(-0.02, 1.02)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("share of pairs with the same token")
