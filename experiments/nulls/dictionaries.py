"""Do the contrasts of dictionary categories reject too often? Made-up median ranks of models that
differ, but not by base.

    PYTHONPATH=. python experiments/nulls/dictionaries.py

Ten models, five of each base, the 54 prompts, two categories. A model takes to a category in its
own way, under each framing and each adjective (standard deviations 15 and 6 ranks; the noise of one
prompt is 5), whatever its base. Then the same with the lineages of the ten published models: what a
model takes to, it shares with those that were trained from it or beside it. `model_contrasts` is asked whether two models differ over other
adjectives than the six that were asked: a true difference of 0 over adjectives.
"""

from itertools import product

import numpy as np
import pandas as pd

from experiments.inherited_values.category_model import (
    base_contrasts,
    category_model,
    model_contrasts,
)

ADJECTIVES = {"best": 1, "greatest": 1, "good": 1, "worst": -1, "bad": -1, "terrible": -1}
PROMPTS = [
    "_".join(key)
    for key in product(ADJECTIVES, ("ever", "world", "time"), ("one", "single", "please"))
]
POLARITY = {prompt: ADJECTIVES[prompt.split("_")[0]] for prompt in PROMPTS}
BASES = {f"model-{number}": "AB"[number % 2] for number in range(10)}
OF_MODEL, OF_ADJECTIVE, NOISE = 15.0, 6.0, 5.0


LINEAGES = dict(zip(BASES, (0, 1, 0, 1, 0, 1, 2, 3, 4, 5), strict=True))
"""Two of three models each, one of either base; four models by themselves."""
SHARED = (0.5, 0.9)
"""Of the variance between models what those of a lineage share."""


def medians(rng: np.random.Generator, *, of_model: float, shared: float = 0.0) -> pd.DataFrame:
    """Median ranks of models × prompts × two categories, as `dictionaries.median_ranks` gives
    them."""
    rows = []
    of_lineage = rng.normal(size=(6, 2, 2)) if shared else np.zeros((6, 2, 2))
    for model, category in product(BASES, ("Agency", "Communion")):
        together = of_lineage[LINEAGES[model], int(category == "Agency")]
        draws = np.sqrt(shared) * together + np.sqrt(1 - shared) * rng.normal(size=2)
        own = dict(zip((1, -1), of_model * draws, strict=True))
        moods = dict(zip(ADJECTIVES, OF_ADJECTIVE * rng.normal(size=len(ADJECTIVES)), strict=True))
        rows += [
            {
                "model": model,
                "prompt": prompt,
                "category": category,
                "median_rank": 130
                + own[POLARITY[prompt]]
                + moods[prompt.split("_")[0]]
                + NOISE * rng.normal(),
            }
            for prompt in PROMPTS
        ]
    return pd.DataFrame(rows)


def exam(runs: int = 200) -> pd.DataFrame:
    """Test, and its share of p < .05."""
    found: dict[str, list[float]] = {}
    for run in range(runs):
        table = medians(np.random.default_rng([0, run]), of_model=OF_MODEL)
        contrasts = base_contrasts(table, polarity=POLARITY, bases=BASES, permutations=500)
        terms = category_model(table, polarity=POLARITY, bases=BASES, permutations=500)
        terms = terms[terms["base"] != ""]
        alike = medians(np.random.default_rng([1, run]), of_model=0.0)
        pairs = model_contrasts(
            alike[alike["model"].isin(["model-0", "model-1"])], polarity=POLARITY
        )
        for name, p in {
            "dictionary_contrasts, p (models relabelled)": contrasts["p"],
            "dictionary_contrasts, any p_adjusted": contrasts["p_adjusted"].min(),
            "dictionary_contrasts, mixed_p": contrasts["mixed_p"],
            "dictionary_contrasts, welch_p (published)": contrasts["welch_p"],
            "dictionary_mixed_model, terms of base: p_value (published)": terms["p_value"],
            "dictionary_mixed_model, terms of base: permutation_p": terms["permutation_p"],
            "model_contrasts, p": pairs["p"],
            "model_contrasts, welch_p (published)": pairs["welch_p"],
        }.items():
            found.setdefault(name, []).append(float(np.mean(np.atleast_1d(p) < 0.05)))
    return pd.DataFrame({"type I": {name: np.mean(shares) for name, shares in found.items()}})


def with_lineages(runs: int = 150) -> pd.DataFrame:
    """Share of p < .05 where models of a lineage are alike, by what is relabelled."""
    found: dict[tuple[float, str], list[float]] = {}
    known = {model: str(lineage) for model, lineage in LINEAGES.items()}
    for shared, run in product(SHARED, range(runs)):
        rng = np.random.default_rng([2, int(10 * shared), run])
        table = medians(rng, of_model=OF_MODEL, shared=shared)
        for name, lineages in (("models", None), ("lineages", known)):
            contrasts = base_contrasts(
                table, polarity=POLARITY, bases=BASES, lineages=lineages, permutations=500
            )
            outside = (contrasts["low"] > 0) | (contrasts["high"] < 0)
            found.setdefault((shared, f"p, {name} relabelled"), []).append(
                float((contrasts["p"] < 0.05).mean())
            )
            found.setdefault((shared, f"95 % interval, {name} as units"), []).append(
                float(outside.mean())
            )
    means = pd.Series({key: np.mean(shares) for key, shares in found.items()})
    return means.unstack(0)


if __name__ == "__main__":
    print(exam().round(3).to_string())
    print(with_lineages().round(3).to_string())
