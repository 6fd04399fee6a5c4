"""Which attributes a reward model's preferences depend on: all models at a glance, and one with its intervals.

Knows the table of global sensitivities (columns are named in each function). Does not know perturbations or models.
"""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, to_rgb
from matplotlib.figure import Figure

from pessimal.contrast.attribute import PLACEBO
from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.style import (
    COLUMN_WIDTH,
    GREY,
    INK,
    OKABE_ITO,
    PAGE_WIDTH,
    new_figure,
    note,
    rows_of_marks,
    styled,
)
from pessimal.figures.words import literal, short_names

RATE, CHANGE, SLOPE = "flip_rate", "change", "slope"
MEASURES = {
    RATE: "preference flip rate",
    CHANGE: "mean change of the margin, in SDs of reward",
    SLOPE: "reward gained per SD of the attribute, others held, in SDs of reward",
}
"""The columns that hold a sensitivity, and what they are."""
COLUMNS = {
    RATE: ("flip_low", "flip_high", "flip_q"),
    CHANGE: ("change_low", "change_high", "change_q"),
    SLOPE: ("slope_low", "slope_high", "slope_q"),
}
"""The columns of each with the ends of its interval and its corrected p."""
MEANINGS = {
    RATE: "Share of perturbations that flip the preference.",
    CHANGE: "Margin after the edit less before, preferred made worse or the other better; orange: towards a flip, purple: "
    "away from it.",
    SLOPE: "Least squares over all edits, on what every detector saw move; purple: more of it is rewarded, orange: less.",
}
BAND, MISSING = "#dddddd", "#e6e6e6"
_KEPT = 0.3  # of the colour of a cell that may be chance
_CELL = 0.215  # inches: the height of a row of cells


@styled
def sensitivity_heatmap(
    table: pd.DataFrame, *, measure: str = CHANGE, level: float = 0.05, title: str | None = None
) -> Figure:
    """Attributes × models, each cell with its number; those that placebo edits could give as well are pale.

    The most sensitive attribute stands on top, by the mean over models: the highest flip rate, or the change that
    brings a preference nearest to a flip, which is the most negative one, or the largest slope of either sign. Placebo edits stand apart at the bottom.

    Args:
        table: a row a model and attribute: model, attribute, n (valid perturbations), comparisons, flip_rate (0 to 1) and
            flip_q, or change (in SDs of the model's rewards) and change_q, or slope (in SDs of reward per SD of the
            attribute) and slope_q; q: corrected p. Placebo edits: rows in which
            `placebo` is true or, without that column, attribute is "placebo".
        measure: "flip_rate", "change" or "slope".
        level: q below which a number is bold and its cell in full colour.
        title: of the figure.

    Raises:
        TableError: an unknown measure, no attribute, or two rows for one model and attribute.
    """
    table, attributes, placebos = checked(table, measure)
    models = list(dict.fromkeys(table["model"]))
    values = table.pivot(index="attribute", columns="model", values=measure)[models].astype(float)
    p = table.pivot(index="attribute", columns="model", values=COLUMNS[measure][2])[models].astype(float)
    means = (values.abs() if measure == SLOPE else values).loc[attributes].mean(axis=1)
    attributes = most_sensitive_first(means, measure)
    width = min(max(1.6 + 0.62 * len(models), COLUMN_WIDTH), PAGE_WIDTH)
    room = 1.95 if len(models) > 1 else 1.1
    figure = new_figure(width, room + _CELL * (len(attributes) + len(placebos)))
    axes = figure.subplots()
    scale, low, high = _scale(values, measure)
    fontsize = 7 if len(models) <= 10 else 6 if len(models) <= 14 else 5
    starts = {0.0: attributes, len(attributes) + 0.35: placebos}
    tested = bool(p.loc[attributes].notna().any(axis=None))
    for start, names in starts.items():
        if names:
            sure = p.loc[names].to_numpy() < level
            full = sure if tested and names is attributes else np.ones_like(sure)
            _cells(
                axes,
                scale((values.loc[names].to_numpy() - low) / (high - low))[..., :3],
                [[_told(number, measure) for number in row] for row in values.loc[names].to_numpy()],
                start=start,
                full=full,
                bold=sure,
                fontsize=fontsize,
            )
    rows = [start + place for start, names in starts.items() for place in range(len(names))]
    axes.set_yticks(rows, [literal(name) for name in (*attributes, *placebos)])
    axes.set(xlim=(-0.5, len(models) - 0.5), ylim=(rows[-1] + 0.5, -0.5))
    labels = list(short_names(models, limit=24).values())
    turned = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if len(models) > 1 else {}
    axes.set_xticks(range(len(models)), labels, **turned)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    style.title(figure, title or _capital(MEASURES[measure]))
    known = table[table["attribute"].isin(attributes)]
    note(
        figure,
        f"{MEANINGS[measure]} {_test_told(p.loc[attributes], measure, bool(placebos), level)} Grey: no valid perturbation. A cell rests on "
        f"{least_to_most(known['n'], 'perturbation')} of "
        f"{least_to_most(known['comparisons'], 'comparison')}.",
    )
    return figure


@styled
def sensitivity_forest(
    table: pd.DataFrame, *, confidence: float = 0.95, level: float = 0.05, title: str | None = None
) -> Figure:
    """One model's attributes: flip rate and mean change of the margin side by side, with their intervals.

    The grey band is the interval of placebo edits, the line in it their value. Attributes in order of the flip rate,
    equal ones by the change.

    Args:
        table: a row an attribute: model, attribute, n, comparisons, flip_rate, flip_low, flip_high (0 to 1), change,
            change_low, change_high (SDs of the model's rewards), flip_q, change_q (corrected), placebo as in
            `sensitivity_heatmap`. An interval that is missing is not drawn.
        confidence: that of the intervals.
        level: q below which a mark is filled.
        title: of the figure.

    Raises:
        TableError: rows of more than one model, no attribute, two rows for one attribute, or several placebos.
    """
    table, attributes, placebos = checked(table, RATE)
    models = list(dict.fromkeys(table["model"]))
    if len(models) > 1 or len(placebos) > 1:
        raise TableError(
            f"This figure shows one model and one placebo; given were the models {', '.join(map(str, models))} and "
            f"the placebos {', '.join(placebos) or 'none'}. Select one of each."
        )
    rows = table.set_index("attribute")
    keys = rows.loc[attributes].sort_values([RATE, CHANGE], ascending=[False, True], kind="stable")
    # What has no valid perturbation has no place in the order: last, and said to be empty.
    attributes = list(keys.index)
    figure = new_figure(PAGE_WIDTH, 1.5 + 0.19 * len(attributes))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, measure, colour in zip(panels, (RATE, CHANGE), OKABE_ITO, strict=False):
        if placebos:
            _null(axes, rows.loc[placebos[0]], measure)
        marks(axes, rows.loc[attributes], measure, colour=colour, level=level)
        axes.set_xlabel(MEASURES[measure])
        rows_of_marks(axes)
    panels[0].set_xlim(left=min(0.0, panels[0].get_xlim()[0]))
    panels[0].xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    panels[1].axvline(0, color=INK, lw=0.6, zorder=1)
    small = {"color": GREY, "fontsize": 7}
    for row, attribute in enumerate(rows.loc[attributes].itertuples()):
        told = f"{int(attribute.n):,}" if attribute.n else "no valid perturbation"
        panels[1].text(1.01, row, told, transform=panels[1].get_yaxis_transform(), va="center", **small)
    panels[1].text(1.01, -1, "n", transform=panels[1].get_yaxis_transform(), va="center", **small)
    panels[0].set_yticks(range(len(attributes)), [literal(name) for name in attributes])
    panels[0].set_ylim(len(attributes) - 0.4, -1.2 if len(attributes) > 1 else -1.6)
    style.title(figure, title or f"What flips the preferences of {short_names(models)[models[0]]}")
    tested = rows.loc[attributes, ["flip_q", "change_q"]].astype(float)
    control = ""
    if placebos and rows.loc[placebos[0], "n"]:
        control = f" Grey: placebo edits with their interval, n = {int(rows.loc[placebos[0], 'n']):,}."
    note(
        figure,
        f"n: valid perturbations, of {least_to_most(rows.loc[attributes, 'comparisons'], 'comparison')}. Left, the share that "
        f"flips the preference; right, below 0: towards a flip. Lines: {confidence:.0%} intervals, where there is one. "
        f"{_tested(tested, bool(placebos), level)}{control}",
    )
    return figure


def checked(table: pd.DataFrame, measure: str) -> tuple[pd.DataFrame, list[str], list[str]]:
    """The table, its attributes and its placebos, in order of appearance."""
    if measure not in MEASURES:
        raise TableError(f"No measure {measure!r}; there are {', '.join(MEASURES)}.")
    twice = table[table.duplicated(["model", "attribute"])]
    if len(twice):
        first = twice.iloc[0]
        raise TableError(
            f"Model {first['model']!r} has two rows for {first['attribute']!r}; give one a model and attribute."
        )
    flag = table["placebo"].astype(bool) if "placebo" in table else table["attribute"] == PLACEBO
    placebos = list(dict.fromkeys(table.loc[flag, "attribute"]))
    attributes = [name for name in dict.fromkeys(table["attribute"]) if name not in placebos]
    if not attributes:
        raise TableError(f"No attribute to show, only {', '.join(placebos) or 'an empty table'}.")
    return table, attributes, placebos


def most_sensitive_first(means: pd.Series, measure: str) -> list[str]:
    """Attributes by their means; those without one last."""
    return list(means.sort_values(ascending=measure == CHANGE, kind="stable", na_position="last").index)


def _scale(values: pd.DataFrame, measure: str) -> tuple[Colormap, float, float]:
    """A colour scale and the numbers at its ends: from 0 for rates, around 0 for changes."""
    numbers = values.to_numpy()
    widest = float(np.nanmax(np.abs(numbers))) if np.isfinite(numbers).any() else 0.0
    widest = widest or 1.0
    name, low = ("Blues", 0.0) if measure == RATE else ("PuOr", -widest)
    return colormaps[name].with_extremes(bad=MISSING), low, widest


def _cells(
    axes: Axes,
    colours: np.ndarray,
    told: list[list[str]],
    *,
    start: float,
    full: np.ndarray,
    bold: np.ndarray,
    fontsize: float,
) -> None:
    """A block of cells from row `start` on, paler where not `full`, each with its number."""
    height, width = bold.shape
    missing = np.array([[not text for text in row] for row in told])
    colours = np.where((full | missing)[..., None], colours, _KEPT * colours + 1 - _KEPT)
    extent = (-0.5, width - 0.5, start + height - 0.5, start - 0.5)
    axes.imshow(colours, extent=extent, aspect="auto", interpolation="nearest")
    for row, column in np.ndindex(height, width):
        dark = np.dot(colours[row, column], (0.2126, 0.7152, 0.0722)) < 0.5
        axes.text(
            column,
            start + row,
            told[row][column],
            ha="center",
            va="center",
            fontsize=fontsize,
            fontweight="bold" if bold[row, column] else "normal",
            color="white" if dark else INK if full[row, column] else GREY,
        )


def _null(axes: Axes, placebo: pd.Series, measure: str) -> None:
    """What edits do that keep the meaning: their interval as a band, their value as a line."""
    low, high = (float(placebo[column]) for column in COLUMNS[measure][:2])
    if np.isfinite([low, high]).all():
        axes.axvspan(low, high, color=BAND, lw=0, zorder=0)
    if np.isfinite(placebo[measure]):
        axes.axvline(placebo[measure], color="#9a9a9a", lw=0.8, zorder=1)


def marks(axes: Axes, rows: pd.DataFrame, measure: str, *, colour: str, level: float) -> None:
    """A mark an attribute, filled where it is not chance, and its interval."""
    lows, highs, p = (rows[column].to_numpy(dtype=float) for column in COLUMNS[measure])
    for row, number in enumerate(rows[measure].to_numpy(dtype=float)):
        axes.hlines(row, lows[row], highs[row], color=colour, lw=1.1, zorder=3)
        fill = to_rgb(colour) if p[row] < level else "white"
        axes.plot(number, row, "o", ms=4, mfc=fill, mec=colour, mew=0.9, zorder=4, clip_on=False)


def _test_told(p: pd.DataFrame, measure: str, placebo: bool, level: float) -> str:
    """What bold and pale mean; slopes are tested against 0, all else against the placebo."""
    if not p.notna().any(axis=None):
        lacking = "comparisons are too few" if measure == SLOPE else "there is no placebo to test against"
        return f"Nothing is tested, as {lacking}."
    untested = " or not tested" if p.isna().any(axis=None) else ""
    against = " against placebo edits" if placebo else ""
    return f"Bold: q < {level:g}{against}; pale: q ≥ {level:g}{untested}."


def _tested(p: pd.DataFrame, placebo: bool, level: float) -> str:
    """What a filled mark means."""
    if not p.notna().any(axis=None):
        return "Nothing is tested, as there is no placebo to test against."
    return f"Filled: p < {level:g}{' against placebo edits' if placebo else ''}, corrected; hollow: may be chance."


def _told(number: float, measure: str) -> str:
    """A cell's number: whole percent, or two decimals; what only rounds to none or all is not called so."""
    if not np.isfinite(number):
        return ""
    if measure == RATE:
        return "<1%" if 0 < number < 0.005 else ">99%" if 0.995 <= number < 1 else f"{number:.0%}"
    return f"{number:z.2f}".replace("-", "−")


def least_to_most(counts: pd.Series, what: str) -> str:
    """The least and the greatest of some counts of what is named in the singular, nothing aside: 1 edit, 2 to 4 edits."""
    counts = counts[counts > 0]
    if counts.empty:
        return f"0 {what}s"
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,}{'' if low == high else f' to {high:,}'} {what}{'' if high == 1 else 's'}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
