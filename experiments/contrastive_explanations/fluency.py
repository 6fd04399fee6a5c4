"""Who writes edits that are fluent, do what was asked, and flip: rules, random words, and SmolLM2
on this machine.

    python experiments/contrastive_explanations/fluency.py [REGISTRY]

Prints the table of README.md from the newest explanations of wordy-bpe-0 by each, with
`judge=local` (its judgement is the column of SmolLM2) and `fluency=smollm2`. The detectors judge
the same edits again here.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.config.compose import configuration, plain
from pessimal.explaining.analyses.intervals import (
    cluster_index,
    clustered_share,
    draws,
    median_interval,
)
from pessimal.explaining.analyses.metrics import MAX_FLUENT_RATIO, RATIO
from pessimal.explaining.attribute import PLACEBO, Direction, read_attributes
from pessimal.explaining.judges.rules import RuleJudge
from pessimal.tables.comparisons import read_jsonl
from pessimal.tracking.registry import Registry

PERTURBERS = ("rules", "random", "local")
HEAD = (
    "edits by",
    "asked",
    "with a text",
    "words changed",
    "median ratio",
    "fluent",
    "complied (detectors)",
)
HEAD += ("complied (SmolLM2)", "flips", "fluent and complied (detectors)")


def share(hits: pd.Series, rows: pd.DataFrame) -> str:
    """Share, interval over comparisons and n, of the hits that are known."""
    known = hits.notna()
    if not known.any():
        return "–"
    n, _, value, low, high = clustered_share(
        hits[known].astype(bool), rows.loc[known, "comparison"], confidence=0.95
    )
    return f"{value:.0%} ({low:.0%}–{high:.0%}), n = {n}"


def line(name: str, rows: pd.DataFrame) -> str:
    """One row of the table."""
    made = rows[rows["edited"].notna()]
    cells = [name, len(rows), share(rows["edited"].notna(), rows)]
    if made.empty:
        return "| " + " | ".join(map(str, [*cells, *["–"] * (len(HEAD) - len(cells))])) + " |"
    clusters = sorted(set(made["comparison"]))
    weights = draws(len(clusters), replicates=1000, seed=0)
    index, ratios = cluster_index(made["comparison"], clusters), made[RATIO].to_numpy(dtype=float)
    low, high = median_interval(ratios, index, weights, confidence=0.95)
    fluent = made[RATIO] <= MAX_FLUENT_RATIO
    both = (fluent & made["detected"].eq(True)).where(made["detected"].notna())
    cells += [f"{made['syntactic'].mean():.2f}"]
    cells += [f"{np.median(ratios):.2f} ({low:.2f}–{high:.2f})"]
    cells += [
        share(hits, made)
        for hits in (made["detected"], made["complied"], made["outcome"] == "CF", both)
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def main(registry: str = "runs/registry") -> None:
    attributes = {
        one.name: one for one in read_attributes(plain(configuration("explain"))["contrast"])
    }
    newest = {
        manifest.name: folder
        for folder, manifest in Registry(Path(registry)).manifests("explanation")
    }
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for perturber in PERTURBERS:
        folder = newest[f"wordy-bpe-0--embedded--{perturber}"]
        table = pd.read_parquet(folder / "tables" / "outcomes.parquet")
        prompts = {one.key: one.prompt for one in read_jsonl(folder / "comparisons.jsonl")}
        along = table["edited"].notna() & (table["attribute"] != PLACEBO)
        items = [
            (
                prompts[row.comparison],
                row.original,
                row.edited,
                attributes[row.attribute],
                attributes[row.attribute].amount(Direction(row.direction)),
            )
            for row in table[along].itertuples()
        ]
        table["detected"] = pd.Series(
            RuleJudge().judge(items), index=table.index[along], dtype=object
        )
        for name, rows in table.groupby("attribute", sort=False):
            print(
                line(
                    f"{perturber}: {name}"
                    if name != PLACEBO
                    else f"{rows['perturber'].iloc[0]}: same meaning",
                    rows,
                )
            )
        print(line(f"**{perturber}, all**", table[table["attribute"] != PLACEBO]))


if __name__ == "__main__":
    main(*sys.argv[1:])
