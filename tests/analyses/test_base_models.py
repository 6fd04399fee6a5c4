"""Language models beside rewards, and the step between two of them, on probabilities whose answer
is known."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.special import rel_entr
from scipy.stats import kendalltau

from artifacts import score_table
from pessimal.analyses.analysis import Options
from pessimal.analyses.base_models import (
    analyse,
    divergence,
    implicit_reward,
    reward_correlation,
    word_mwlr,
)
from pessimal.errors import TableError
from pessimal.plots.draw import draw
from pessimal.tables.result import TESTED
from pessimal.tables.table_set import table_sets

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


@pytest.mark.parametrize("wrong", [0.3, np.nan, -np.inf])
def test_rewards_are_not_taken_for_log_probabilities(wrong):
    broken = Q.copy()
    broken.iloc[2] = wrong
    with pytest.raises(TableError, match=r"no log-probabilities.*'war', model 2"):
        implicit_reward(P, broken)


# The analysis.

TEXTS = [f"t{i}" for i in range(60)]
OPTIONS = Options(top=5)


def made(
    model, rewards, *, score="log_probability", texts=TEXTS, wording="?", label=None, **identity
):
    given = {"candidates_digest": model, "prompt_text": wording, "score": score} | identity
    asked = {"asked": "chat template" if "chat" in model else "plain text"}
    return score_table(
        texts, rewards, model=model, described={"label": label}, measured=asked, **given
    )


def distribution(seed, n=60):
    logits = np.random.default_rng(seed).normal(size=n) * 2
    return logits - np.log(np.exp(logits).sum())


@pytest.fixture
def language():
    tables = [made("a-chat", distribution(0)), made("base", distribution(1))]
    return [*tables, made("third", distribution(2)[:59], texts=TEXTS[:59])]


@pytest.fixture
def rewarded(language):
    log_p = language[1].rows["reward"].to_numpy()
    rng = np.random.default_rng(3)
    rewards = {
        "follower": log_p + rng.normal(size=60),
        "stranger": rng.normal(size=60),
        "contrary": log_p - language[0].rows["reward"].to_numpy(),
    }
    return [made(name, values, score="reward") for name, values in rewards.items()]


def found(tables, options=OPTIONS):
    (one,) = table_sets(tables)
    assert not analyse.needs.missing(one, options)
    results = {result.name: result for result in analyse(one, options)}
    for result in results.values():
        assert len(result.headline.split()) <= 25
        two = result.name == "language_axes"
        assert {*(("first", "second") if two else ("prompt",)), "candidates"} <= set(result.table)
    return results, {name: result.table for name, result in results.items()}


def test_tables_hold_what_scipy_finds_over_what_all_share(language, rewarded):
    results, tables = found([*language, *rewarded])
    table = tables["language_correlation"].set_index(["model", "language_model"])
    assert len(table) == 9
    assert (table["n"] == 59).all()
    rewards = {t.provenance.model: t.rows["reward"].to_numpy()[:59] for t in rewarded}
    logs = {t.provenance.model: t.rows["reward"].to_numpy()[:59] for t in language}
    result = results["language_correlation"]
    for (model, other), row in table.iterrows():
        assert row["kendall"] == pytest.approx(kendalltau(rewards[model], logs[other]).statistic)
        assert result.summary[f"greatest/language_kendall/{other}/{model}"] == row["kendall"]
    assert table.loc[("follower", "base"), "low"] > table.loc[("stranger", "base"), "high"]
    assert (
        result.estimate.value
        == result.weight - TESTED
        == table.loc[("follower", "base"), "kendall"]
    )
    assert len(draw(result.plot, result.table)) == 1


def test_extremes_name_each_models_own_likeliest(language, rewarded):
    results, tables = found([*language, *rewarded])
    ends = tables["language_extremes"]
    for table in language:
        rows = ends[(ends["model"] == table.provenance.model) & (ends["end"] == "top")]
        likeliest = table.rows.loc[table.rows["reward"].idxmax()]
        assert rows["text"].iloc[0] == likeliest["text"]
        assert rows["probability"].iloc[0] == pytest.approx(np.exp(likeliest["reward"]))
        assert (
            results["language_extremes"].summary[f"greatest/likeliest/{table.provenance.model}"]
            == likeliest["text"]
        )
    assert len(ends) == 3 * 2 * 5
    assert results["language_extremes"].notes == ()


def test_two_prompts_have_the_ends_of_their_sum_and_difference(language):
    """Tables A4 and A5: best + worst and best − worst of log-probabilities, each model over its own
    tokens; one that has other candidates on the second prompt is left out."""
    best = [
        made(t.provenance.model, t.rows["reward"], texts=t.rows["text"], prompt="best")
        for t in language
    ]
    values = [distribution(seed) for seed in (3, 4)]
    worst = [made(n, v, prompt="worst") for n, v in zip(("a-chat", "base"), values, strict=True)]
    other = made(
        "third", distribution(5)[:59], texts=TEXTS[1:], prompt="worst", candidates_digest="x"
    )
    results, tables = found([*best, *worst, other])
    table = tables["language_axes"]
    assert set(table["model"]) == {"a-chat", "base"}
    assert set(zip(table["first"], table["second"], strict=True)) == {("best", "worst")}
    logs = {t.provenance.model: t.rows["reward"].to_numpy() for t in best}
    for (model, second), (axis, sign) in product(
        zip(("a-chat", "base"), values, strict=True), (("sum", 1), ("difference", -1))
    ):
        rows = table[(table["model"] == model) & (table["axis"] == axis)].set_index("end")
        expected = logs[model] + sign * second
        assert rows.loc["top", "text"].tolist() == [TEXTS[i] for i in np.argsort(-expected)[:5]]
        assert rows.loc["bottom", "value"].tolist() == pytest.approx(sorted(expected)[:5])
    assert len(draw(results["language_axes"].plot, table)) == 2


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


def test_named_words_have_their_number_for_every_pair(language):
    results, tables = found(language, Options(words=["T3", "t5", "nowhere", "t59"]))
    named = tables["word_mwlr"].set_index(["pair", "word"])
    assert len(named) == 3 + 2 * 2, "the third has no t59"
    log = {t.provenance.model: t.rows.set_index("text")["reward"] for t in language}
    for (_, word), row in named.iterrows():
        p, q = (log[row[f"model_{name}"]][word] for name in "pq")
        assert (
            row["mwlr"] == row["mwlr_sum"] == pytest.approx((np.exp(p) + np.exp(q)) / 2 * (q - p))
        )
    assert "nowhere" in " ".join(results["language_extremes"].notes)
    assert len(draw(results["word_mwlr"].plot, results["word_mwlr"].table)) == 1
    assert "word_mwlr" not in found(language)[1]


def test_same_candidates_are_matched_by_id_twins_included():
    texts = ["�", "�", *TEXTS[:58]]
    pair = [
        made(n, distribution(i), texts=texts, candidates_digest="one") for i, n in enumerate("pq")
    ]
    row = found(pair)[1]["language_divergence"].iloc[0]
    assert row["n"] == 60
    assert row["mass_p"] == pytest.approx(1)


def test_what_cannot_be_done_is_noted_and_the_rest_is_done(language, rewarded):
    results, tables = found(language[:1])
    assert list(tables) == ["language_extremes"]
    notes = " ".join(results["language_extremes"].notes)
    assert "one language model" in notes
    assert "no reward model" in notes

    other = [
        made(t.provenance.model, t.rows["reward"], wording="another question") for t in language[:2]
    ]
    results, tables = found([*other, *rewarded])
    assert "something else" in results["language_extremes"].notes[0]
    assert len(results["language_extremes"].notes) == 1
    assert "language_correlation" not in tables
    assert "implicit_reward" in tables

    foreign = [made("foreign", distribution(0), texts=[f"x{i}" for i in range(60)])]
    results, _ = found([*foreign, *rewarded])
    assert "share 0 candidates" in results["language_extremes"].notes[0]


def test_reward_model_may_have_the_name_of_a_language_model(language, rewarded):
    named = made("base", rewarded[1].rows["reward"], score="reward", label="the reward model")
    _, tables = found([*language, *rewarded, named])
    table = tables["language_correlation"].set_index(["model", "language_model"])
    assert len(table) == 4 * 3
    logs = language[1].rows["reward"].to_numpy()[:59]
    truth = kendalltau(named.rows["reward"].to_numpy()[:59], logs).statistic
    assert table.loc[("base", "base"), "kendall"] == pytest.approx(truth)
    pair = tables["implicit_correlation"].set_index(["pair", "model", "measure"])
    assert ("base → third", "base", "mwlr") in pair.index
