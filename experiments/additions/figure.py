"""What every token adds to real answers, of one model's scans: the figure of docs/additions.md.

    python experiments/additions/figure.py REGISTRY MODEL FIGURE.svg [N]

Prints what `compare` says of it, with the first N contexts, and with 3.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("svg")
import matplotlib.pyplot as plt

from pessimal.analyses.additions import Additions, additions, effects, halves
from pessimal.plots.style import INK, RULE
from pessimal.tables import read_score_table
from pessimal.texts import literal

NAMED = 2
COLUMNS = ["rank", "text", "effect", "low", "high", "p_corrected", "raised", "worth", "certified"]


def read(registry: Path, model: str, n: int | None) -> Additions:
    """The newest table of each context, in order of name, of the first `n`."""
    folders = sorted(registry.glob(f"score-table/{model}--*--after*"))
    tables = [read_score_table(max(folder.glob("v*"))) for folder in folders]
    return additions([table for table in tables if table.provenance.mode == "ids"][:n])


def draw(one: Additions, model: str, file: Path) -> None:
    """Mean additions in the order of rank, with the first, the last and the end of turn named."""
    table = effects(one)
    figure, axes = plt.subplots(figsize=(6.4, 3.1))
    axes.axhline(0, color=RULE, lw=0.8)
    shown = np.unique(np.geomspace(1, len(table), 700).astype(int)) - 1  # as many as can be seen
    axes.plot(shown + 1, table["effect"].iloc[shown], ".", ms=4, color="#3b6ea8")
    end = table.index[table["candidate_id"].eq(one.end)]
    named = [*range(NAMED), *end, len(table) - 1]
    for place, row in enumerate(table.loc[named].itertuples()):
        above = place < NAMED
        where = (10, 10 * place) if above else (-10, 10 if place == NAMED else 0)
        axes.annotate(
            f"{literal(row.text)} ({row.raised:.0%} raised)",
            (row.rank, row.effect),
            xytext=where,
            textcoords="offset points",
            ha="left" if above else "right",
            va="center",
            fontsize=7,
            color=INK,
        )
    axes.set_xscale("log")
    axes.set_xlabel(f"rank of {len(table):,} tokens behind {len(one.deltas)} answers", fontsize=8)
    axes.set_ylabel("added to the reward (SD of answers)", fontsize=8)
    axes.set_title(model, fontsize=9, loc="left")
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})


def main(registry: Path, model: str, file: Path, n: int | None = None) -> None:
    one = read(registry, model, n)
    for some in (3, len(one.deltas)):
        part = read(registry, model, some)
        rounded = {name: round(float(value), 3) for name, value in halves(part).items()}
        print(f"{model}, {some} answers, {part.deltas.shape[1]:,} tokens: {rounded}")
        print(effects(part)[COLUMNS].head(5).round(3).to_string(index=False))
    table = effects(one)
    print(table[COLUMNS].tail(3).round(3).to_string(index=False))
    print(table.loc[table["candidate_id"].eq(one.end), COLUMNS].round(3).to_string(index=False))
    draw(one, model, file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), *map(int, sys.argv[4:]))
