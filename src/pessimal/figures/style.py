"""The one look all figures share: type, colours, frame, and how wide a journal's page is.

Knows matplotlib; knows nothing of what is drawn.
"""

import functools
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ParamSpec

import matplotlib
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

COLUMN_WIDTH, PAGE_WIDTH = 3.5, 7.2  # inches: one and two columns of a journal page

INK, GREY, FAINT, PAPER = "#222222", "#555555", "#8a8a8a", "#ffffff"
# Okabe & Ito 2008, told apart with any colour vision; yellow last, as it is the palest on white.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")

# DejaVu comes with matplotlib and has no Chinese, Japanese, Korean or emoji. Tokens are full of them: take what
# the machine has for the PNG, and leave the rest to the browser, which reads the SVG's text and the same list.
_WIDER = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "Noto Sans Symbols", "Noto Emoji")
_INSTALLED = {font.name for font in font_manager.fontManager.ttflist}

STYLE = {
    "font.family": ["DejaVu Sans", *(name for name in _WIDER if name in _INSTALLED), "sans-serif"],
    "font.size": 7.5,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.title_fontsize": 7,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Solid white, so that the figure can be read on a dark page as well.
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "figure.dpi": 150,
    "savefig.dpi": 220,
    "svg.fonttype": "none",
    "text.parse_math": False,  # a token with two dollar signs is not a formula
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
}

P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run a figure function under the shared style, and leave matplotlib as it was."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapper


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, width × height inches, whose parts make room for one another."""
    return Figure(figsize=(width, height), layout="constrained")


def colours(categories: Iterable[str]) -> dict[str, str]:
    """A colour for each category, in order of first appearance; from the ninth on, paler rounds of the same."""
    distinct = list(dict.fromkeys(categories))
    return {
        category: _paler(OKABE_ITO[place % len(OKABE_ITO)], times=place // len(OKABE_ITO))
        for place, category in enumerate(distinct)
    }


def markers(categories: Iterable[str]) -> dict[str, str]:
    """A marker for each category, in order of first appearance; they repeat from the eleventh on."""
    distinct = list(dict.fromkeys(categories))
    return {category: MARKERS[place % len(MARKERS)] for place, category in enumerate(distinct)}


def note(figure: Figure, text: str) -> None:
    """A few lines below everything: what the marks mean, and on how many items."""
    fitting = int(18 * figure.get_figwidth())  # 18 characters of this size go to the inch
    figure.supxlabel(textwrap.fill(text, width=fitting), x=0.01, ha="left", fontsize=6.5, color=GREY)


def title(figure: Figure, text: str) -> None:
    """A title over the whole figure, flush left."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=STYLE["axes.titlesize"], fontweight="bold")


def subheading(axes: Axes, text: str) -> None:
    """What one panel of a figure shows, in small grey type over it."""
    axes.set_title(text, fontsize=7.5, fontweight="normal", color=GREY)


def rows_of_marks(axes: Axes) -> None:
    """Axes whose rows are named on the left: no ticks or line there, and a faint grid across to read marks by."""
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eeeeee", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)


def grouped_legend(figure: Figure, groups: Mapping[str, list[Artist]]) -> None:
    """One legend right of everything, each group of handles under its heading."""
    handles: list[Artist] = []
    for heading, members in groups.items():
        handles += [Line2D([], [], ls="", label=heading), *members]
    legend = figure.legend(handles=handles, loc="outside right upper")
    for text, handle in zip(legend.get_texts(), handles, strict=True):
        if not any(handle in members for members in groups.values()):
            text.set_fontweight("bold")


@contextmanager
def quiet() -> Iterator[None]:
    """Draw without one warning for each character that no installed font has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _paler(colour: str, *, times: int) -> str:
    """The colour, moved towards white."""
    keep = 0.55**times
    return matplotlib.colors.to_hex([keep * part + 1 - keep for part in to_rgb(colour)])
