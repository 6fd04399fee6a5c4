"""Do the contrasts of dictionary categories reject too often? Made-up median ranks of models that
differ, but not by base.

    python experiments/nulls/dictionaries.py

Ten models, five of each base, the 54 prompts, two categories. A model takes to a category in its
own way, under each framing and each adjective (standard deviations 15 and 6 ranks; the noise of one
prompt is 5), whatever its base. `model_contrasts` is asked whether two models differ over other
adjectives than the six that were asked: a true difference of 0 over adjectives.
"""

from itertools import product

import numpy as np
import pandas as pd

from pessimal.analyses.category_model import base_contrasts, category_model, model_contrasts

ADJECTIVES = {"best": 1, "greatest": 1, "good": 1, "worst": -1, "bad": -1, "terrible": -1}
PROMPTS = [
    "_".join(key)
    for key in product(ADJECTIVES, ("ever", "world", "time"), ("one", "single", "please"))
]
POLARITY = {prompt: ADJECTIVES[prompt.split("_")[0]] for prompt in PROMPTS}
BASES = {f"model-{number}": "AB"[number % 2] for number in range(10)}
OF_MODEL, OF_ADJECTIVE, NOISE = 15.0, 6.0, 5.0


def medians(rng: np.random.Generator, *, of_model: float) -> pd.DataFrame:
    """Median ranks of models × prompts × two categories, as `dictionaries.median_ranks` gives
    them."""
    rows = []
    for model, category in product(BASES, ("Agency", "Communion")):
        own = dict(zip((1, -1), of_model * rng.normal(size=2), strict=True))
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


if __name__ == "__main__":
    print(exam().round(3).to_string())
