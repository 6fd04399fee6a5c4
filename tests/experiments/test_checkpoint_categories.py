"""Median ranks of categories over training steps, on scores that move as planted."""

import numpy as np
import pandas as pd

from artifacts import score_table
from experiments.inherited_values.checkpoint_categories import step_results
from experiments.inherited_values.dictionaries import median_ranks
from pessimal.analyses.analysis import Options
from pessimal.plots.draw import draw
from pessimal.tables.table_set import TableSet, table_sets

RISING, FALLING, OTHERS = (
    [f"{kind}{chr(97 + i)}" for i in range(12)] for kind in ("up", "down", "side")
)
DICTIONARY = pd.DataFrame(
    {"category": ["rising"] * 12 + ["falling"] * 12, "word": [*RISING, *FALLING]}
)
STEPS = (1000, 2000, 9000, 10000)


def checkpoints(texts=(*RISING, *FALLING, *OTHERS), **strengths: float) -> TableSet:
    """Scores of each run at each step: words of the one kind rise with its strength, those of the
    other fall, with noise."""
    tables = []
    for seed, (run, strength) in enumerate(strengths.items()):
        rng = np.random.default_rng(seed)
        start = rng.normal(size=len(texts))
        sign = np.array([text.strip().lower().startswith("up") for text in texts], dtype=float)
        sign -= [text.startswith("down") for text in texts]
        for step in STEPS:
            scores = start + strength * sign * step / 5000 + rng.normal(0, 0.1, len(texts))
            tables.append(score_table(list(texts), scores, model=f"{run}@step-{step}", step=step))
    (whole,) = table_sets(tables)
    return whole


def results_of(tables: TableSet) -> dict:
    return {one.name: one for one in step_results(tables, Options(top=5), {"two": DICTIONARY})}


def test_categories_and_their_words_follow_what_training_did():
    tables = checkpoints(one=1.0, two=-1.0)
    results = results_of(tables)
    assert list(results) == ["checkpoint_categories", "checkpoint_category_words"]
    categories = results["checkpoint_categories"].table
    matrix = tables.matrix("greatest")
    expected = median_ranks({"greatest": {m: matrix[m] for m in matrix}}, DICTIONARY)
    expected[["run", "step"]] = expected["model"].str.split("@step-", expand=True)
    expected["step"] = expected["step"].astype(int)
    keys, numbers = ["run", "step", "category"], ["median_rank", "low", "high", "n", "words"]
    pd.testing.assert_frame_equal(
        categories.set_index(keys)[numbers].sort_index(),
        expected.set_index(keys)[numbers].sort_index(),
        check_dtype=False,
    )
    by_step = categories.set_index(["run", "category", "step"])["median_rank"]
    assert by_step["one", "rising", 10000] < by_step["one", "rising", 1000]
    assert by_step["two", "rising", 10000] > by_step["two", "rising", 1000]

    words = results["checkpoint_category_words"].table.query("run == 'one'")
    ranks = matrix.loc[[*RISING, *FALLING]].rank(ascending=False)
    apart = ranks["one@step-1000"] - ranks["one@step-10000"]
    assert words.set_index("word")["change"].to_dict() == apart.to_dict()
    assert (words["category"] == "rising").equals(words["word"].isin(RISING))
    assert words["change"].is_monotonic_decreasing
    for result in results.values():
        assert len(result.headline.split()) <= 25
        assert draw(result.plot, result.table)
