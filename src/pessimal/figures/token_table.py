"""What each model wants most and least: optimal and pessimal tokens, models side by side.

Knows the tables of `analysis.extremes`, one after another with a `model` column.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.style import FAINT, GREY, OKABE_ITO, new_figure, note, styled
from pessimal.figures.words import literal, short_names, significant

NEEDED = ("model", "end", "rank", "text", "reward", "tied")
PANEL_WIDTH, LINE_HEIGHT = 1.95, 0.15  # inches


@styled
def token_table(
    extremes: pd.DataFrame, *, columns: int = 4, title: str = "Optimal and pessimal tokens"
) -> Figure:
    """One panel a model: its highest-scoring tokens from the top, its lowest from the bottom, with rewards.

    Tokens are drawn literally, with escapes for what cannot be seen. A reward in brackets is shared by
    candidates that the cut left out, so the choice among them is arbitrary.

    Args:
        extremes: model, end, rank, text, reward, tied; models in the order of their panels.
        columns: panels side by side.
        title: of the figure.

    Raises:
        TableError: a column is missing, or there are no rows.

    Source: Christian et al. 2025, Tables 2 and A6.
    """
    if (missing := [name for name in NEEDED if name not in extremes]) or extremes.empty:
        raise TableError(
            f"The token table needs rows with {', '.join(NEEDED)}; missing: {', '.join(missing) or 'all rows'}. "
            "Give `extremes(...)` of each model, with `.assign(model=name)`, concatenated."
        )
    models = list(dict.fromkeys(extremes["model"]))
    names = short_names(models, limit=24)
    k = int(extremes["rank"].max())
    columns = min(columns, len(models))
    rows = -(-len(models) // columns)
    figure = new_figure(PANEL_WIDTH * columns + 0.2, rows * (2 * k + 5) * LINE_HEIGHT + 0.55)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(models) :]:
        panel.set_visible(False)
    for panel, model in zip(panels, models, strict=False):
        _panel(panel, extremes[extremes["model"] == model], name=names[model], k=k)
    style.title(figure, title)
    note(
        figure,
        "␣: a space at either end of a token. (reward): shared with candidates that did not fit in the table.",
    )
    return figure


def _panel(axes: Axes, table: pd.DataFrame, *, name: str, k: int) -> None:
    """One model: its name, k lines from the top, a rule, and k lines down to the very worst.

    Lines are counted from 0 (the name) to 2k + 3: "optimal", k tokens, the rule's line, k tokens, "pessimal".
    """
    axes.set_axis_off()
    axes.set_xlim(0, 1.1)
    axes.set_ylim(2 * k + 4, -0.7)
    axes.text(0, 0, name, fontweight="bold", va="center")
    axes.plot([0, 1], [k + 2] * 2, color=FAINT, lw=0.5, ls=(0, (1, 2)))
    for end, (word, colour, line) in {
        "top": ("optimal", OKABE_ITO[0], 1),
        "bottom": ("pessimal", OKABE_ITO[1], 2 * k + 3),
    }.items():
        axes.text(0, line, word, color=GREY, fontsize=6, va="center", style="italic")
        for row in table[table["end"] == end].itertuples():
            at = line + row.rank if end == "top" else line - row.rank
            reward = significant(row.reward, digits=4)
            axes.text(0, at, literal(str(row.text), limit=18), color=colour, va="center", fontsize=7)
            axes.text(1, at, f"({reward})" if row.tied else reward, va="center", ha="right", fontsize=6.5)
