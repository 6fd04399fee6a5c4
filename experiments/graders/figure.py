"""What real graders pay for without the answer: the figure of docs/grading.md.

    python experiments/graders/figure.py FOLDER FIGURE.svg

FOLDER is what `real.py` wrote.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("svg")
import matplotlib.pyplot as plt

from pessimal.plots.style import INK

TABLE = "paid_without_answer"


def main(folder: Path, file: Path) -> None:
    found = {}
    for one in sorted(folder.glob(f"*--{TABLE}.csv")):
        if one.read_text().strip():  # of what pays nothing but formats there is no table
            found[one.name.partition("--")[0]] = pd.read_csv(one).set_index("fault")["share"]
    shares = pd.DataFrame(found).T.astype(float)
    shares = shares[shares.count().sort_values(ascending=False, kind="stable").index]
    shares = shares.loc[shares.count(axis=1).sort_values(ascending=False, kind="stable").index]
    figure, axes = plt.subplots(figsize=(7.2, 0.36 * len(shares) + 1.5))
    axes.imshow(shares.fillna(0), cmap="Reds", vmin=0, vmax=1.4, aspect="auto")
    names = [name.replace("_", " ") for name in shares.columns]
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
    axes.set_yticks(range(len(shares)), shares.index, fontsize=7)
    for row in range(shares.shape[0]):
        for column in range(shares.shape[1]):
            if (share := shares.iloc[row, column]) > 0:
                axes.text(
                    column, row, f"{share:.0%}", ha="center", va="center", fontsize=6, color=INK
                )
    axes.set_title("paid without the answer: share of questions", fontsize=9, loc="left")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
