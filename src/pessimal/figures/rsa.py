"""What agreement between models follows: coefficients beside what chance gives.

Knows the table of `analysis.rsa.rsa`.
"""

import pandas as pd
from matplotlib.figure import Figure

from pessimal.analysis.rsa import ESTIMATED
from pessimal.figures.style import FAINT, INK, OKABE_ITO, PAGE_WIDTH, new_figure, note, styled

WORDS = {
    "base": "same base",
    "developer": "same developer",
    "parameters": "similar size",
    "rank": "similar rank",
}


@styled
def rsa(table: pd.DataFrame, *, title: str = "What agreement follows") -> Figure:
    """Each factor's standardised coefficient on the range that permuting the models gives.

    A dot outside its grey bar is unlikely by chance; the p value is printed, because the bar is the null of the
    coefficient and the test is of its t statistic. Hollow: the factor alone (Mantel's r). A factor left out of
    the regression says why.

    Args:
        table: of `analysis.rsa.rsa`.
        title: of the figure.

    Source: Christian et al. 2025, Figure 2C.
    """
    figure = new_figure(PAGE_WIDTH, 1.15 + 0.34 * len(table))
    axes = figure.subplots()
    axes.axvline(0, color=INK, lw=0.6, zorder=1)
    level = axes.get_yaxis_transform()
    for row, factor in enumerate(table.itertuples()):
        if factor.status != ESTIMATED:
            axes.text(
                0.5,
                row,
                factor.status,
                transform=level,
                ha="center",
                va="center",
                color=FAINT,
                style="italic",
                bbox={"color": "white", "pad": 1},
            )
            continue
        axes.plot(
            [factor.null_low, factor.null_high],
            [row, row],
            color="#d9d9d9",
            lw=7,
            solid_capstyle="butt",
            zorder=0,
        )
        axes.plot(factor.mantel_r, row, "o", mfc="white", mec=OKABE_ITO[0], mew=0.9, ms=4.5, zorder=2)
        axes.plot(factor.beta, row, "o", color=OKABE_ITO[0], ms=5.5, zorder=3)
        axes.text(1.02, row, f"β = {factor.beta:z.2f}".replace("-", "−"), transform=level, va="center")
        axes.text(1.14, row, p_text(factor.p_value), transform=level, va="center")
    axes.set_yticks(range(len(table)), [WORDS.get(factor, factor) for factor in table["factor"]])
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("standardised coefficient")
    axes.set_title(title)
    first = table.iloc[0]
    note(
        figure,
        f"{first['n_models']} models, {first['n_dyads']} pairs, R² = {first['r_squared']:.2f}. Filled: β of the joint "
        "regression, with its MRQAP p value; hollow: the factor alone (Mantel's r).\n"
        "Grey: the middle 95 % of β when models are permuted.",
    )
    return figure


def p_text(p_value: float) -> str:
    """A p value for a figure, without its leading zero."""
    return "p < .001" if p_value < 0.001 else f"p = {p_value:.3f}".replace("0.", ".")
