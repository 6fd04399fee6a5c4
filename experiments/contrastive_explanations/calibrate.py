"""Does `explain` find what was planted? AUC of recovering each sibling's attribute, its sign, and the placebo's flips.

Run from the repository root, after `pessimal experiment=contrastive_explanations/explain`:

    python experiments/contrastive_explanations/calibrate.py [REGISTRY]

Prints Markdown. Reads every explanation of a sibling that judges sentences, the newest of each name.
"""

import sys
from pathlib import Path

import pandas as pd
import yaml

from pessimal.contrast.calibration import placebo_null, recovery
from pessimal.contrast.sensitivity import sensitivity
from pessimal.demo.recipes import Recipe
from pessimal.tracking.registry import Registry

MODELS = Path("conf/model")


def main() -> None:
    registry = Registry(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/registry"))
    outcomes, ties = [], {}
    for folder, manifest in registry.latest("explanation"):
        if planted(manifest.summary["model"]) is not None:
            outcomes.append(pd.read_parquet(folder / "tables" / "outcomes.parquet"))
            ties[manifest.summary["model"]] = manifest.summary["tie"]
    if not outcomes:
        sys.exit(f"no explanation of a sibling that judges sentences in {registry.root}; type first: pessimal "
                 "experiment=contrastive_explanations/explain")  # fmt: skip
    table = pd.concat(outcomes, ignore_index=True)
    truth = {model: planted(model) for model in dict.fromkeys(table["model"])}
    found = sensitivity(table).set_index(["model", "perturber", "attribute"])
    aucs = recovery(table, {model: next(iter(signs)) for model, signs in truth.items() if signs})
    print("| model | planted | AUC (95 %) | mean Δm of it, SD | next largest | flip rate |")
    print("|---|---|---|---|---|---|")
    for row in aucs.itertuples():
        told = f"| {row.model} | {row.planted or ''} | {row.auc:.3f} ({row.low:.3f} to {row.high:.3f}, {row.perturber})"
        if row.model in truth:
            own = found.loc[(row.model, row.perturber, row.planted)]
            others = found.loc[(row.model, row.perturber)].drop(index=row.planted)
            second = others["change"].abs().idxmax()
            told += f" | {own['change']:+.2f} | {second} {others.loc[second, 'change']:+.2f} | {own['flip_rate']:.0%} of {own['n']:.0f}"
        print(f"{told} |")
    print(
        "\n| model | placebo flips | of | expected by its null | null interval | within |\n|---|---|---|---|---|---|"
    )
    for row in placebo_null(table, ties).itertuples():
        print(
            f"| {row.model} | {row.counterfactuals} | {row.n} | {row.expected:.1%} | {row.null_low:.1%} to {row.null_high:.1%} "
            f"| {'yes' if row.within else 'no'} |"
        )


def planted(model: str) -> dict[str, int] | None:
    """Attribute and sign that were planted in a sibling that judges sentences; {} for the null, None for any other model."""
    file = MODELS / f"{model}.yaml"
    recipe = yaml.safe_load(file.read_text()).get("recipe") if file.is_file() else None
    if recipe is None or not (known := Recipe(**recipe)).judges_sentences:
        return None
    return known.planted_truth()["attributes"]


if __name__ == "__main__":
    main()
