"""A figure on disk, as SVG and PNG, the same bytes each time.

Knows files and matplotlib's ways of varying its output; knows nothing of what is drawn.
"""

import multiprocessing
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pessimal.figures.style import STYLE, quiet

FEW = 8
"""Up to so many figures are written faster than another process is started."""


def save_all(figures: Mapping[str, Figure], folder: Path) -> None:
    """Write every figure under its name, several at once where there are many and more than one core.

    The bytes are those of `save`. Measured on two cores, 65 figures with thirty clouds of 128,000 points: 42 s one after
    the other, 23 s by two processes.
    """
    processes = min(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8
    )
    if len(figures) <= FEW or processes == 1:
        for name, figure in figures.items():
            save(figure, folder, name)
        return
    # Spawned, not forked: the process that compares has threads of its own (W&B's, OpenBLAS's).
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for written in [pool.submit(save, figure, folder, name) for name, figure in figures.items()]:
            written.result()


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
