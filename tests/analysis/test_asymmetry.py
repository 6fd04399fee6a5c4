"""Over models: words that all of them see are a sample too, and their error is in the interval and in p."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analysis.asymmetry import asymmetry_across_models
from pessimal.analysis.regression import holm
from pessimal.analysis.sentiment import Sentiment, sentiment
from pessimal.errors import TableError


def made_up(count: int) -> list[str]:
    """Words of which no two share a stem: consonants and an o."""
    letters = "bcdfghjklmnpqrtvwxz"
    return [f"{a}o{b}o{c}" for a in letters for b in letters for c in letters if c not in "lstxz"][:count]


def over(found: dict[str, Sentiment], **options) -> pd.DataFrame:
    asymmetry = pd.concat(
        [each.asymmetry.assign(model=model, lexicon="L") for model, each in found.items()],
        ignore_index=True,
    )
    influences = {(model, "L"): each.influence for model, each in found.items()}
    return asymmetry_across_models(asymmetry, influences, **options)


def as_models(rewards: pd.DataFrame, valence: pd.Series) -> pd.DataFrame:
    """Each column of rewards as one model's under the prompt `best`; one fit for all, as their words are the same."""
    found = sentiment(rewards, valence, signs=dict.fromkeys(rewards, 1))
    asymmetry = found.asymmetry.assign(model=list(rewards), lexicon="L", prompt="best")
    influences = {(model, "L"): found.influence[[model]].set_axis(["best"], axis=1) for model in rewards}
    return asymmetry_across_models(asymmetry, influences)


def rewards_of(
    side: int, *, models: int = 10, shared: float = 1.0, own: float = 0.1, extra: float = 0.0, seed: int = 0
) -> tuple[pd.DataFrame, pd.Series]:
    """`side` words a side, of slope 1 (and `extra` above zero), with noise that all models share and noise of each."""
    rng = np.random.default_rng(seed)
    words = made_up(2 * side + 100)
    valence = np.concatenate([np.resize([1.0, 2, 3, 4], side), -np.resize([1.0, 2, 3, 4], side)])
    told = np.append(valence + extra * np.maximum(valence, 0), np.zeros(100))
    noise = shared * rng.normal(size=(len(words), 1)) + own * rng.normal(size=(len(words), models))
    columns = [f"model {i}" for i in range(models)]
    return pd.DataFrame(told[:, None] + noise, index=words, columns=columns), pd.Series(
        valence, words[: 2 * side]
    )


@pytest.mark.parametrize("side", [11, 60])
def test_noise_that_all_models_share_raises_no_false_alarm(side):
    """With the spread between models alone p was below .05 in over nine of ten."""
    rows = [as_models(*rewards_of(side, seed=seed)).iloc[0] for seed in range(80)]
    assert np.mean([row["p"] < 0.05 for row in rows]) < 0.12
    assert np.mean([row["low"] <= 0 <= row["high"] for row in rows]) > 0.88
    alone = [2 * stats.t.sf(abs(row["mean"]) / row["error_models"], 9) < 0.05 for row in rows]
    assert np.mean(alone) > 0.7


def test_models_that_differ_are_in_the_error_as_well():
    """Hardly any noise of words; each model has an asymmetry of its own, of mean 0."""
    rng, false = np.random.default_rng(7), 0
    for seed in range(70):
        rewards, valence = rewards_of(20, models=6, shared=0.05, own=0.05, seed=seed)
        rewards.iloc[:20] += np.outer(valence.iloc[:20], rng.normal(scale=0.3, size=6))
        false += as_models(rewards, valence).loc[0, "p"] < 0.05
    assert false < 9


def test_a_real_asymmetry_is_found():
    found = [as_models(*rewards_of(60, extra=1.0, seed=seed)).iloc[0] for seed in range(20)]
    assert sum(row["p"] < 0.05 for row in found) >= 19
    assert all(row["mean"] > 0 and row["above"] == 10 for row in found)


def test_the_words_error_is_that_of_refits_without_each_stem_in_models_of_other_vocabularies():
    rng = np.random.default_rng(3)
    stems = made_up(30)
    every = [*stems, *(stem + "ing" for stem in stems)]
    valence = pd.Series(np.r_[rng.integers(1, 6, 30), -rng.integers(1, 6, 30)].astype(float), every)
    words = {}
    for model, lost in (("a", 0), ("b", 7), ("c", 11)):
        own = [word for word in every if not word.startswith(tuple(stems[lost : lost + 4]) if lost else "-")]
        rewards = valence[own].to_numpy() + rng.normal(size=len(own))
        words[model] = pd.DataFrame({"best": rewards}, index=own)
    found = {model: sentiment(each, valence, signs={"best": 1}) for model, each in words.items()}

    def steeper(table: pd.DataFrame, without: str | None) -> float:
        kept = [word for word in table.index if without is None or not word.startswith(without)]
        value, y = valence[kept].to_numpy(), table.loc[kept, "best"].to_numpy()
        arms = (np.polyfit(value[arm], y[arm], 1)[0] for arm in (value > 0, value < 0))
        return (next(arms) - next(arms)) / table["best"].std(ddof=0)

    whole = np.mean([steeper(each, None) for each in words.values()])
    out = [np.mean([steeper(each, stem) for each in words.values()]) for stem in stems]
    row = over(found).iloc[0]
    assert row["mean"] == pytest.approx(whole)
    assert row["error_words"] == pytest.approx(np.sqrt(np.sum((np.array(out) - whole) ** 2)))
    assert row["stems"] == 30
    between = stats.sem([steeper(each, None) for each in words.values()])
    assert row["error_models"] == pytest.approx(between)
    total = between**2 + row["error_words"] ** 2
    fewest = min(each.asymmetry["stems"][0] for each in found.values())
    assert fewest == 26
    freedom = total**2 / (between**4 / 2 + row["error_words"] ** 4 / (fewest - 2))
    assert row["freedom"] == pytest.approx(freedom)
    assert row["p"] == pytest.approx(2 * stats.t.sf(abs(whole) / np.sqrt(total), freedom))
    assert row["high"] - row["mean"] == pytest.approx(stats.t.ppf(0.975, freedom) * np.sqrt(total))


def test_the_influence_is_in_the_frames_direction_and_of_half_sums_too():
    rewards, valence = rewards_of(20, models=1)
    words = pd.DataFrame({"best": rewards["model 0"], "worst": -rewards["model 0"]})
    words["worst"] += np.random.default_rng(1).normal(size=len(words))
    found = sentiment(words, valence, signs={"best": 1, "worst": -1}, pairs=[("best", "worst")])
    assert list(found.influence) == list(found.asymmetry["prompt"])
    assert len(found.influence) == 40, "words in no arm move nothing"
    spread = np.sqrt(np.square(found.influence).sum())
    reach = (found.asymmetry["high_sd"] - found.asymmetry["steeper_sd"]) / stats.t.ppf(0.975, 18)
    assert spread.to_numpy() == pytest.approx(reach.to_numpy())
    mirrored = sentiment(-words[["best"]], valence, signs={"best": -1}).influence["best"]
    assert mirrored.to_numpy() == pytest.approx(found.influence["best"].to_numpy())


def test_as_published_the_error_over_words_is_of_whole_stems_still():
    rewards, valence = rewards_of(30, models=2)
    twice = pd.concat([rewards, rewards + 1e-9])  # a second spelling of each word tells nothing new
    found = {
        model: sentiment(twice[[model]].set_axis(["best"], axis=1), valence, signs={"best": 1}, paper=True)
        for model in rewards
    }
    once = as_models(rewards, valence).iloc[0]
    row = over(found).iloc[0]
    assert row["mean"] == pytest.approx(once["mean"], rel=1e-3)
    assert row["error_words"] == pytest.approx(once["error_words"], rel=0.02)
    textbook = found["model 0"].asymmetry.iloc[0]
    words = sentiment(rewards[["model 0"]], valence, signs={"model 0": 1}).asymmetry.iloc[0]
    assert textbook["high"] - textbook["low"] < 0.8 * (words["high"] - words["low"])


def test_where_one_stem_decides_a_published_slope_there_is_no_interval_over_words():
    rewards, valence = rewards_of(12, models=2)
    valence[:] = np.r_[[1.0] * 11, 2.0, -np.arange(1, 13)]
    found = {
        model: sentiment(rewards[[model]].set_axis(["best"], axis=1), valence, signs={"best": 1}, paper=True)
        for model in rewards
    }
    assert found["model 0"].influence is None
    assert np.isfinite(found["model 0"].asymmetry["p"]).all()
    row = over(found).iloc[0]
    assert np.isfinite(row["mean"])
    assert row[["error_words", "freedom", "low", "high", "p", "p_holm"]].isna().all()


def three(values: list[float], prompt: str = "best") -> pd.DataFrame:
    models = [f"model {i}" for i in range(len(values))]
    return pd.DataFrame(
        {"model": models, "lexicon": "L", "prompt": prompt, "stems": 50, "steeper_sd": values}
    )


def still(table: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """Words that move nothing."""
    moves = pd.DataFrame(0.0, index=["love"], columns=table["prompt"].unique())
    return dict.fromkeys(zip(table["model"], table["lexicon"], strict=True), moves)


def test_where_words_move_nothing_the_test_is_scipys_over_models():
    values = [0.3, 0.1, -0.05, 0.22, 0.4, 0.15]
    table = pd.concat([three(values), three([-0.9 * v for v in values], "worst")])
    result = asymmetry_across_models(table, still(table), confidence=0.9)
    row, test = result.iloc[0], stats.ttest_1samp(values, 0)
    assert row["p"] == pytest.approx(test.pvalue)
    assert row["freedom"] == pytest.approx(5)
    assert [row["low"], row["high"]] == pytest.approx(list(test.confidence_interval(0.9)))
    assert result["p_holm"].tolist() == pytest.approx(holm(result["p"]).tolist())
    assert row["p_holm"] == pytest.approx(2 * test.pvalue)
    assert result["above"].tolist() == [5, 1]
    assert result["n"].tolist() == [6, 6]


def test_one_model_has_no_interval_and_what_cannot_be_told_is_refused():
    table = three([0.3])
    row = asymmetry_across_models(table, still(table)).iloc[0]
    assert row["mean"] == 0.3
    assert row[["error_models", "low", "high", "p", "p_holm"]].isna().all()
    with pytest.raises(TableError, match="Model 'model 0' has two rows"):
        asymmetry_across_models(pd.concat([table, table]), still(table))
    with pytest.raises(
        TableError, match=r"No influences of model 'model 0' with lexicon 'L'.*Sentiment\.influence"
    ):
        asymmetry_across_models(table, {})
