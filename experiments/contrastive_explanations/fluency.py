"""Who writes edits that are fluent, do what was asked, and flip: rules, random words, and SmolLM2
on this machine.

    python experiments/contrastive_explanations/fluency.py [REGISTRY]

Prints the table of README.md from the newest explanations of wordy-bpe-0 by each, with
`judge=local` (its judgement is the column of SmolLM2) and `fluency=smollm2`. The detectors judge
the same edits again here.
"""

import sys
from pathlib import Path

import pandas as pd

from pessimal.config.compose import configuration, plain
from pessimal.explaining.attribute import PLACEBO, Direction, read_attributes
from pessimal.explaining.detectors import RuleJudge
from pessimal.explaining.metrics import MAX_FLUENT_RATIO, RATIO, share_interval
from pessimal.tables.comparisons import read_jsonl
from pessimal.tracking.registry import Registry

PERTURBERS = ("rules", "random", "local")
HEAD = ("edits by", "asked", "with a text", "words changed", "median ratio", "fluent")
HEAD += ("complied (detectors)", "complied (SmolLM2)", "flips", "fluent and complied (detectors)")


def share(hits: pd.Series, rows: pd.DataFrame) -> str:
    """Share, interval over comparisons and n, of the hits that are known."""
    known = hits.notna()
    if not known.any():
        return "–"
    counted = hits[known].astype(float)
    groups = counted.groupby(rows["comparison"])
    low, high = share_interval(groups.sum(), groups.size(), confidence=0.95)
    return f"{counted.mean():.0%} ({low:.0%}–{high:.0%}), n = {len(counted)}"


def line(name: str, rows: pd.DataFrame) -> str:
    """One row of the table."""
    made = rows[rows["edited"].notna()]
    cells = [name, len(rows), share(rows["edited"].notna(), rows)]
    if made.empty:
        return "| " + " | ".join(map(str, [*cells, *["–"] * (len(HEAD) - len(cells))])) + " |"
    fluent = made[RATIO] <= MAX_FLUENT_RATIO
    both = (fluent & made["detected"].eq(True)).where(made["detected"].notna())
    cells += [f"{made['syntactic'].mean():.2f}"]
    cells += [f"{made[RATIO].median():.2f}"]
    counted = (made["detected"], made["complied"], made["outcome"] == "CF", both)
    cells += [share(hits, made) for hits in counted]
    return "| " + " | ".join(map(str, cells)) + " |"


def main(registry: str = "runs/registry") -> None:
    listed = read_attributes(plain(configuration("explain"))["contrast"])
    attributes = {attribute.name: attribute for attribute in listed}
    manifests = Registry(Path(registry)).manifests("explanation")
    newest = {manifest.name: folder for folder, manifest in manifests}
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for perturber in PERTURBERS:
        folder = newest[f"wordy-bpe-0--embedded--{perturber}"]
        table = pd.read_parquet(folder / "tables" / "outcomes.parquet")
        prompts = {one.key: one.prompt for one in read_jsonl(folder / "comparisons.jsonl")}
        along = table["edited"].notna() & (table["attribute"] != PLACEBO)
        items = []
        for row in table[along].itertuples():
            attribute = attributes[row.attribute]
            amount = attribute.amount(Direction(row.direction))
            items.append((prompts[row.comparison], row.original, row.edited, attribute, amount))
        judged = RuleJudge().judge(items)
        table["detected"] = pd.Series(judged, index=table.index[along], dtype=object)
        for name, rows in table.groupby("attribute", sort=False):
            title = f"{perturber}: {name}"
            if name == PLACEBO:
                title = f"{rows['perturber'].iloc[0]}: same meaning"
            print(line(title, rows))
        print(line(f"**{perturber}, all**", table[table["attribute"] != PLACEBO]))


if __name__ == "__main__":
    main(*sys.argv[1:])
