"""A figure on disk, as SVG and PNG, the same bytes each time.

Knows files and matplotlib's ways of varying its output; knows nothing of what is drawn.
"""

from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pessimal.figures.style import STYLE, quiet


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `folder/name.svg` and `folder/name.png`; return both paths, the SVG first.

    Deterministic on one machine and one matplotlib: no dates, no version, no random ids. The SVG keeps text as
    text; a glyph no installed font has is an empty box in the PNG only, without a warning per token.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vector, raster = folder / f"{name}.svg", folder / f"{name}.png"
    with quiet(), matplotlib.rc_context({**STYLE, "svg.hashsalt": f"pessimal {name}"}):
        FigureCanvasAgg(figure).draw()
        figure.set_layout_engine("none")  # each drawing would move the layout a little more: keep this one
        figure.savefig(vector, metadata={"Date": None, "Creator": None})
        figure.savefig(raster, metadata={"Software": None})
    return [vector, raster]
