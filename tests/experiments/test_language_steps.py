"""The step between two language models as a reward, on probabilities whose answer is known."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import rel_entr

from experiments.inherited_values.language_steps import (
    analyse,
    divergence,
    implicit_reward,
    word_mwlr,
)
from pessimal.analyses.analysis import Options
from pessimal.analyses.base_models import reward_correlation
from pessimal.plots.draw import draw
from pessimal.tables.table_set import table_sets

OPTIONS = Options(top=5)
TOKENS = pd.Index(["love", " love", "war", "\n", "null"], name="text")


def of(probabilities, index=TOKENS):
    return pd.Series(np.log(probabilities), index=index)


P, Q = of([0.4, 0.3, 0.2, 0.05, 0.05]), of([0.2, 0.3, 0.1, 0.3, 0.1])


@pytest.fixture
def vocabulary():
    """Two distributions over 5,000 tokens."""
    rng = np.random.default_rng(0)
    index = pd.Index([f"t{i}" for i in range(5000)], name="text")
    return [
        of(weights / weights.sum(), index) for weights in np.exp(rng.normal(size=(2, 5000)) * 3)
    ]


def test_both_measures_are_what_their_formulas_say():
    table = implicit_reward(P, Q).set_index("text")
    assert table.loc["love", "implicit_reward"] == pytest.approx(np.log(0.2 / 0.4))
    assert table.loc["love", "mwlr"] == pytest.approx(0.3 * np.log(0.5))
    assert table.loc["\n", "mwlr"] == pytest.approx(0.175 * np.log(6))
    assert table.loc[" love", ["implicit_reward", "mwlr"]].tolist() == pytest.approx([0, 0])
    assert list(table.index) == list(TOKENS)


def test_weighted_ratios_add_up_to_half_the_difference_of_the_divergences_and_not_to_half_their_sum(
    vocabulary,
):
    p, q = (np.exp(values.to_numpy()) for values in vocabulary)
    forward, backward = rel_entr(q, p).sum(), rel_entr(p, q).sum()
    row = divergence(implicit_reward(*vocabulary)).iloc[0]
    assert row["kl_q_p"] == pytest.approx(forward)
    assert row["kl_p_q"] == pytest.approx(backward)
    assert row["sum_mwlr"] == pytest.approx((forward - backward) / 2)
    assert row["jeffreys"] == pytest.approx(forward + backward)
    assert abs(row["sum_mwlr"] - row["jeffreys"] / 2) > 1
    assert (row["mass_p"], row["mass_q"]) == pytest.approx((1, 1))
    assert row["n"] == 5000


def test_model_that_was_made_from_another_by_a_reward_gives_that_reward_back(vocabulary):
    """The policy that maximises reward less β KL to p is p · exp(reward / β), normalised."""
    log_p, beta = vocabulary[0], 0.7
    reward = np.random.default_rng(4).normal(size=5000)
    log_q = log_p + reward / beta
    log_q -= np.log(np.exp(log_q).sum())
    table = implicit_reward(log_p, log_q)
    found = beta * table["implicit_reward"].to_numpy()
    assert found - found.mean() == pytest.approx(reward - reward.mean(), abs=1e-9)
    rewards = pd.DataFrame({"planted": reward}, index=log_p.index)
    scores = table.set_index("text")[["implicit_reward", "mwlr"]]
    tau = reward_correlation(rewards, scores).set_index("score")["kendall"]
    assert tau["implicit_reward"] == pytest.approx(1)
    assert tau["mwlr"] < 0.9, "the weights mix what the models would say with what was rewarded"


def test_words_by_name_are_the_mean_and_the_sum_over_their_spellings():
    table = implicit_reward(P, Q)
    found = word_mwlr(table, ["War", "love", "peace", "Love"]).set_index("word")
    assert list(found.index) == ["war", "love"]
    assert found.loc["love", "tokens"] == 2
    one = 0.5 * (0.4 + 0.2) * (np.log(0.2) - np.log(0.4))  # 'love'; ' love' is as probable in both
    assert found.loc["love", ["mwlr", "mwlr_sum"]].tolist() == pytest.approx([one / 2, one])
    assert found.loc["love", ["log_p", "log_q", "implicit_reward"]].tolist() == pytest.approx(
        [np.log(0.7), np.log(0.5), np.log(0.5 / 0.7)]
    )
    assert found.loc["war", "mwlr"] == pytest.approx(0.15 * np.log(0.5))
    everything = word_mwlr(table, ["love", "war", "", "null"])
    assert everything["mwlr_sum"].sum() == pytest.approx(divergence(table)["sum_mwlr"].iloc[0])
    assert word_mwlr(table, ["peace"]).empty


def found(tables, options=OPTIONS):
    (one,) = table_sets(tables)
    assert not analyse.needs.missing(one, options)
    results = {result.name: result for result in analyse(one, options)}
    for result in results.values():
        assert len(result.headline.split()) <= 25
        assert {"prompt", "candidates"} <= set(result.table)
    return results, {name: result.table for name, result in results.items()}


def test_base_comes_before_the_chat_model_and_each_pair_has_its_measures(language, rewarded):
    results, tables = found([*language, *rewarded])
    pairs = ["base → third", "base → a-chat", "third → a-chat"]
    assert sorted(tables["implicit_reward"]["pair"].unique()) == sorted(pairs)
    apart = tables["language_divergence"].set_index("pair")
    assert apart.loc["base → a-chat", "n"] == 60
    assert apart.loc["base → third", "n"] == 59
    assert apart.loc["base → third", "mass_p"] < 1
    follows = tables["implicit_correlation"].set_index(["pair", "model", "measure"])
    row = follows.loc[("base → a-chat", "contrary", "implicit_reward")]
    assert results["implicit_correlation"].estimate.value == row["kendall"] < -0.9
    for name in ("implicit_reward", "implicit_correlation"):
        assert len(draw(results[name].plot, results[name].table)) == 3
