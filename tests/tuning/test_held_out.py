"""The comparison on held-out prompts: other prompts and starts, one budget, paired, and honest
about what it rests on."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from toy_study import preparing

from pessimal.tuning.held_out import ALL, compare, differences
from pessimal.tuning.study import planned_searches


def by_start(prompt, seed, search):
    return len(prompt) - search.momentum + np.random.default_rng(seed).normal()


def test_both_search_held_out_prompts_from_the_same_unseen_starts_at_one_budget(spec):
    models = []
    table = compare(spec, {"search.momentum": 0.2}, preparing(by_start, models))
    assert list(table["prompt"].unique()) == ["noon", "night", "day"]
    assert len(table) == 3 * 4
    assert table["difference"].to_numpy() == pytest.approx(0.7)
    defaults, tuned = models
    assert [model.options.momentum for model in models] == [0.9, 0.2]
    assert defaults.calls == tuned.calls
    assert {budget for _, _, budget in tuned.calls} == {100}
    in_trials = planned_searches(["dawn"], seed=spec.seed, count=100, held_out=False)
    assert not {seed for _, seed, _ in tuned.calls} & {seed for _, seed in in_trials}


def test_defaults_that_were_best_are_not_run_twice(spec):
    models = []
    table = compare(spec, {"search.momentum": 0.9}, preparing(by_start, models))
    assert [len(model.calls) for model in models] == [12]
    overall = differences(table).iloc[-1]
    assert (overall["difference"], overall["ties"], overall["starts"]) == (0, 12, 12)


def rows(values: dict[str, list[float]]) -> pd.DataFrame:
    flat = [
        (prompt, seed, value) for prompt, own in values.items() for seed, value in enumerate(own)
    ]
    table = pd.DataFrame(flat, columns=["prompt", "seed", "difference"])
    return table.assign(
        tuned=table["difference"] + 3, defaults=3.0, tuned_seconds=2.0, defaults_seconds=1.0
    )


def test_the_mean_rests_on_prompts_and_a_prompts_own_row_on_its_starts():
    random = np.random.default_rng(0)
    values = {name: list(random.normal(size=8) + 2 * random.normal()) for name in "abcdef"}
    table = differences(rows(values)).set_index("prompt")
    means = np.array([np.mean(own) for own in values.values()])
    low, high = stats.ttest_1samp(means, 0).confidence_interval()
    overall = table.loc[ALL]
    assert (overall["n"], overall["starts"]) == (6, 48)
    assert overall[["difference", "low", "high"]].tolist() == pytest.approx(
        [means.mean(), low, high]
    )
    flips = np.array(np.meshgrid(*[[1, -1]] * 6)).reshape(6, -1)  # all 64 patterns of signs
    assert overall["p"] == pytest.approx(np.mean(abs(means @ flips) >= abs(means.sum()) - 1e-12))
    own = stats.ttest_1samp(values["a"], 0).confidence_interval()
    assert table.loc["a", ["low", "high"]].tolist() == pytest.approx([own.low, own.high])
    # Taking 48 starts for 48 independent ones would promise far more.
    pooled = stats.ttest_1samp(np.concatenate(list(values.values())), 0).confidence_interval()
    assert overall["high"] - overall["low"] > 1.5 * (pooled.high - pooled.low)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    random, held = np.random.default_rng(1), 0
    for _ in range(200):
        values = {name: list(0.3 + random.normal() + random.normal(size=4)) for name in "abcdef"}
        overall = differences(rows(values)).iloc[-1]
        held += overall["low"] <= 0.3 <= overall["high"]
    assert 0.90 <= held / 200 <= 0.985


def test_one_prompt_speaks_of_itself_only():
    assert differences(rows({"a": [1.0, 2.0, 3.0]})).iloc[-1]["n"] == 3
    assert np.isnan(differences(rows({"a": [1.0]})).iloc[-1]["low"])
