"""Does `explain` find what was planted? AUC of recovering each sibling's attribute, its sign, and the placebo's flips.

Run from the repository root, after `pessimal experiment=contrastive_explanations/explain`:

    python experiments/contrastive_explanations/calibrate.py [REGISTRY]

Prints Markdown. Reads the newest explanation by rules of every sibling that judges sentences.
"""

import sys
from pathlib import Path

import pandas as pd
import yaml

from pessimal.demo.recipes import Recipe
from pessimal.explain.calibration import held_slopes, mean_changes, placebo_null, recovery
from pessimal.explain.flip_rate import attribute_flip_rates
from pessimal.explain.slopes import slopes
from pessimal.tracking.registry import Registry

MODELS = Path("conf/model")
MEASURES = {
    "mean change of the edits asked for": mean_changes,
    "slope, all other attributes held": held_slopes,
}


def main() -> None:
    table, ties = read(Registry(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/registry")))
    truth = {model: planted(model) for model in dict.fromkeys(table["model"])}
    attributes = {model: next(iter(signs)) for model, signs in truth.items() if signs}
    changes = attribute_flip_rates(table).set_index(["model", "attribute"])["change"].sort_index()
    held = slopes(table).set_index(["model", "attribute"])["slope"].sort_index()
    print(
        "| model | planted | slope | next largest slope | mean change | next largest |\n|---|---|---|---|---|---|"
    )
    for model, attribute in attributes.items():
        line = f"| {model} | {attribute} ({truth[model][attribute]:+d})"
        for numbers in (held[model], changes[model].drop("placebo", errors="ignore")):
            others = numbers.drop(attribute)
            second = others.abs().idxmax()
            line += f" | {numbers[attribute]:+.2f} | {second} {others[second]:+.2f}"
        print(f"{line} |")
    print("\n| AUC by | " + " | ".join([*attributes, "all"]) + " |\n|---|" + "---|" * (len(attributes) + 1))
    for name, by in MEASURES.items():
        recovered = recovery(table, attributes, by=by).set_index("model")
        cells = [
            f"{row.auc:.3f} ({row.low:.3f} to {row.high:.3f})"
            for row in recovered.loc[[*attributes, "all"]].itertuples()
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(
        "\n| model | placebo flips | of | expected by its null | null interval | within |\n|---|---|---|---|---|---|"
    )
    for row in placebo_null(table, ties).itertuples():
        print(
            f"| {row.model} | {row.counterfactuals} | {row.n} | {row.expected:.1%} | {row.null_low:.1%} to {row.null_high:.1%} "
            f"| {'yes' if row.within else 'no'} |"
        )


def read(registry: Registry) -> tuple[pd.DataFrame, dict[str, float]]:
    """Outcomes of all such siblings, and the tie of each."""
    outcomes, ties = [], {}
    for folder, manifest in registry.latest("explanation"):
        what = manifest.summary
        if what["perturber"] == "rules" and planted(what["model"]) is not None:
            outcomes.append(pd.read_parquet(folder / "tables" / "outcomes.parquet"))
            ties[what["model"]] = what["tie"]
    if not outcomes:
        sys.exit(
            f"no explanation of a sibling that judges sentences in {registry.root}; type first: pessimal "
            "experiment=contrastive_explanations/explain"
        )
    return pd.concat(outcomes, ignore_index=True), ties


def planted(model: str) -> dict[str, int] | None:
    """Attribute and sign that were planted in a sibling that judges sentences; {} for the null, None for any other model."""
    file = MODELS / f"{model}.yaml"
    recipe = yaml.safe_load(file.read_text()).get("recipe") if file.is_file() else None
    if recipe is None or not (known := Recipe(**recipe)).judges_sentences:
        return None
    return known.planted_truth()["attributes"]


if __name__ == "__main__":
    main()
