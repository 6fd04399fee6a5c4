"""Does `explain` find what was planted? AUC of recovering each sibling's attribute, its sign, and
the placebo's flips.

Run from the repository root, after `pessimal experiment=contrastive_explanations/explain`:

    python -m experiments.contrastive_explanations.calibrate [REGISTRY] [PERTURBER]

Prints Markdown. Reads the newest explanation by PERTURBER (rules, where none is given) of every
sibling that judges sentences.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.demo_family.recipes import SENTENCE_LABS, parse_recipe
from pessimal.tracking.registry import Registry

MODELS = Path("conf/model")
MOVED = "moved/"
DRAWS, CONFIDENCE = 1000, 0.95


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/registry")
    perturber = sys.argv[2] if len(sys.argv) > 2 else "rules"
    table = read(Registry(root), perturber)
    truth = {model: planted(model) for model in dict.fromkeys(table["model"])}
    plants = {model: next(iter(signs)) for model, signs in truth.items() if signs}
    measures = {
        "slope, all other attributes held": slope_sums,
        "mean change of the edits asked for": mean_sums,
    }

    print(
        "| model | planted | slope | next largest slope | mean change | next largest |\n|"
        + "---|" * 6
    )
    for model, attribute in plants.items():
        line = f"| {model} | {attribute} ({truth[model][attribute]:+d})"
        for sums in measures.values():
            names, parts = sums(table[table["model"] == model])
            numbers = pd.Series(sizes(parts, np.ones((1, len(parts))))[0], names).drop(
                "", errors="ignore"
            )
            others = numbers.drop(attribute, errors="ignore")
            second = others.abs().idxmax()
            line += f" | {numbers.get(attribute, np.nan):+.2f} | {second} {others[second]:+.2f}"
        print(f"{line} |")

    print("\n| AUC by | " + " | ".join([*plants, "all"]) + " |\n|---|" + "---|" * (len(plants) + 1))
    for name, sums in measures.items():
        print(f"| {name} | " + " | ".join(recovery(table, plants, sums)) + " |")

    print(
        "\n| model | placebo flips | of | expected by its null | null interval | within |\n|"
        + "---|" * 6
    )
    for model, own in table[table["attribute"] == "placebo"].groupby("model", sort=False):
        flips, n, expected, low, high = placebo_null(own)
        within = "yes" if low <= flips / n <= high else "no"
        print(f"| {model} | {flips} | {n} | {expected:.1%} | {low:.1%} to {high:.1%} | {within} |")


def read(registry: Registry, perturber: str) -> pd.DataFrame:
    """The edits of all such siblings that came about, and the tie of each model."""
    outcomes = []
    for folder, manifest in registry.latest("explanation"):
        said = manifest.summary
        if said["perturber"] == perturber and planted(said["model"]) is not None:
            outcomes.append(
                pd.read_parquet(folder / "tables" / "outcomes.parquet").assign(tie=said["tie"])
            )
    if not outcomes:
        sys.exit(
            f"no explanation by {perturber} of a sibling that judges sentences in {registry.root}; "
            f"type first: pessimal "
            "experiment=contrastive_explanations/explain"
        )
    table = pd.concat(outcomes, ignore_index=True)
    return table[table["outcome"].notna()]


def planted(model: str) -> dict[str, int] | None:
    """Attribute and sign that were planted in a sibling that judges sentences; {} for the null,
    None for any other model."""
    known = (MODELS / f"{model}.yaml").is_file() and model.partition("-")[0] in SENTENCE_LABS
    if not known:
        return None
    return parse_recipe(model).planted_truth()["attributes"]


# Both measures are least squares, so that a bootstrap over comparisons only adds up their sums of
# products again. Each returns the attributes, and (comparisons, k, k + 1): by comparison the
# products of the regressors with one another, and in the last column with the change.


def mean_sums(rows: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """Mean change of the margin, in standard deviations of the reward, by the attribute that an
    edit was asked for: of edits that make the chosen response worse or the rejected one better by
    polarity, as published."""
    against = (rows["side"] == "chosen") == (rows["direction"] == "worse")
    rows = rows[against & (rows["attribute"] != "placebo")]
    names = list(dict.fromkeys(rows["attribute"]))
    asked = (rows["attribute"].to_numpy()[:, None] == np.array(names, dtype=object)).astype(float)
    return names, _products(asked, rows["change_in_sd"].to_numpy(float), rows["comparison"])


def slope_sums(rows: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """Change of the edited reward on what all detectors saw move, in standard deviations; see
    `pessimal.explaining.flips.slopes`."""
    names = [
        column for column in rows if column.startswith(MOVED) and rows[column].fillna(0).ne(0).any()
    ]
    design = np.column_stack([np.ones(len(rows)), rows[names].fillna(0.0).to_numpy(float)])
    # The margin falls where the preferred response loses, or the other gains.
    change = np.where(rows["side"] == "chosen", 1.0, -1.0) * rows["change_in_sd"].to_numpy(float)
    return ["", *(name.removeprefix(MOVED) for name in names)], _products(
        design, change, rows["comparison"]
    )


def _products(design: np.ndarray, change: np.ndarray, comparisons: pd.Series) -> np.ndarray:
    index = pd.factorize(comparisons, sort=True)[0]
    sums = np.zeros((index.max() + 1, design.shape[1], design.shape[1] + 1))
    np.add.at(sums, index, design[:, :, None] * np.column_stack([design, change])[:, None, :])
    return sums


def sizes(parts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(draws, k): the coefficients where comparison c counts weights[d, c] times."""
    whole = np.tensordot(weights, parts, 1)
    return (np.linalg.pinv(whole[..., :-1]) @ whole[..., -1:])[..., 0]


def recovery(table: pd.DataFrame, plants: Mapping[str, str], sums) -> list[str]:
    """AUC of each model and of all, with its interval over comparisons: the share of the other
    attributes whose size is smaller than the planted one's (ties half). 1: the planted one moves
    the model most; .5: no better than chance. The pairs of all models are pooled; attributes are
    compared within a model only."""
    found, pairs, cells = [], [], []
    for model, attribute in plants.items():
        names, parts = sums(table[table["model"] == model])
        drawn = np.random.default_rng(0).multinomial(
            len(parts), np.full(len(parts), 1 / len(parts)), DRAWS
        )
        weights = np.vstack([np.ones(len(parts)), drawn])  # the first row is the estimate
        own = np.abs(sizes(parts, weights))[:, [i for i, name in enumerate(names) if name]]
        won, others = wins(own, [name for name in names if name].index(attribute))
        found.append(won)
        pairs.append(others)
        cells.append(_with_interval(won / others))
    return [*cells, _with_interval(sum(found) / sum(pairs))]


def wins(sizes: np.ndarray, index: int) -> tuple[np.ndarray, int]:
    """How many attributes are smaller than the one at `index` (ties half), by row, and of how
    many."""
    own, others = sizes[:, [index]], np.delete(sizes, index, axis=1)
    return (others < own).sum(axis=1) + (others == own).sum(axis=1) / 2, others.shape[1]


def _with_interval(aucs: np.ndarray) -> str:
    low, high = np.quantile(aucs[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return f"{aucs[0]:.3f} ({low:.3f} to {high:.3f})"


def placebo_null(rows: pd.DataFrame) -> tuple[int, int, float, float, float]:
    """Flips by the placebo, of how many, their expected share and the interval of it if its edits
    were undirected noise.

    Under the null a comparison's changes of the margin (all of its placebo rows together) turned
    round would have been seen as often. Each comparison then gives either the flips that it gave,
    or those of m − Δm < −tie, with equal chance, and the number of flips is a sum of such
    independent numbers: its distribution is computed exactly, by convolution.
    """
    turned = rows["margin"] - rows["change"] < -rows["tie"]
    seen = rows["outcome"] == "CF"
    counts = (
        pd.DataFrame({"seen": seen, "turned": turned}).groupby(rows["comparison"].to_numpy()).sum()
    )
    chances = flips_by_chance(counts.to_numpy())
    tail = (1 - CONFIDENCE) / 2 + 1e-12
    low = np.flatnonzero(np.cumsum(chances) > tail)[0]
    high = np.flatnonzero(np.cumsum(chances[::-1])[::-1] > tail)[-1]
    n = len(rows)
    return int(seen.sum()), n, counts.to_numpy().sum() / 2 / n, low / n, high / n


def flips_by_chance(counts: np.ndarray) -> np.ndarray:
    """(most + 1,): the chance of 0, 1, … flips if each row of (clusters, 2) gives one or the other
    number."""
    chances = np.ones(1)
    for one, other in counts.tolist():
        step = np.zeros(max(one, other) + 1)
        step[one] += 0.5
        step[other] += 0.5
        chances = np.convolve(chances, step)
    return chances


if __name__ == "__main__":
    main()
