"""Language models beside rewards, and the step between two of them, on probabilities whose answer is known."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import rel_entr
from scipy.stats import kendalltau, spearmanr

from pessimal.compare.analysis import Options
from pessimal.compare.base_models import (
    analyse,
    divergence,
    implicit_extremes,
    implicit_reward,
    reward_correlation,
)
from pessimal.errors import TableError
from pessimal.plots.draw import draw
from pessimal.tables import ModelDescription, ScoreProvenance, ScoreTable
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
    return [of(weights / weights.sum(), index) for weights in np.exp(rng.normal(size=(2, 5000)) * 3)]


def test_both_measures_are_what_their_formulas_say():
    table = implicit_reward(P, Q).set_index("text")
    assert table.loc["love", "implicit_reward"] == pytest.approx(np.log(0.2 / 0.4))
    assert table.loc["love", "mwlr"] == pytest.approx(0.3 * np.log(0.5))
    assert table.loc["\n", "mwlr"] == pytest.approx(0.175 * np.log(6))
    assert table.loc[" love", ["implicit_reward", "mwlr"]].tolist() == pytest.approx([0, 0])
    assert list(table.index) == list(TOKENS)


def test_changing_places_changes_signs_and_nothing_else(vocabulary):
    forth, back = implicit_reward(*vocabulary), implicit_reward(*vocabulary[::-1])
    for measure in ("implicit_reward", "mwlr"):
        assert np.allclose(forth[measure], -back[measure], rtol=0, atol=1e-15)


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
    tau = reward_correlation(rewards, scores, replicates=100).set_index("score")["kendall"]
    assert tau["implicit_reward"] == pytest.approx(1)
    assert tau["mwlr"] < 0.9, "the weights mix what the models would say with what was rewarded"


def test_some_of_the_tokens_bound_jeffreys_divergence_from_below(vocabulary):
    table = implicit_reward(*vocabulary)
    part = divergence(table.sample(1000, random_state=0)).iloc[0]
    assert part["mass_p"] < 0.9
    assert 0 < part["jeffreys"] < divergence(table)["jeffreys"].iloc[0]


def test_models_that_are_alike_are_no_way_apart():
    row = divergence(implicit_reward(P, P)).iloc[0]
    assert row[["kl_q_p", "kl_p_q", "jeffreys", "sum_mwlr"]].tolist() == [0, 0, 0, 0]


def test_improbable_token_leads_the_implicit_reward_and_not_the_weighted_one():
    index = pd.Index(["rare", "common", "other"], name="text")
    ends = implicit_extremes(implicit_reward(of([1e-9, 0.3, 0.7], index), of([1e-6, 0.6, 0.4], index)), k=1)
    top = ends[ends["end"] == "top"].set_index("measure")["text"]
    assert top.to_dict() == {"implicit_reward": "rare", "mwlr": "common"}
    assert ends[ends["end"] == "bottom"]["text"].tolist() == ["other", "other"]


def test_ends_say_where_the_cut_falls_among_equals():
    index = pd.Index(["a", "b", "c", "d"], name="text")
    table = implicit_reward(of([0.25] * 4, index), of([0.3, 0.3, 0.2, 0.2], index))
    ends = implicit_extremes(table, k=1)
    assert ends["tied"].all()
    assert ends["text"].tolist() == ["a", "c", "a", "c"]


def test_candidates_named_twice_stay_two_outcomes():
    index = pd.Index(["�", "�", "a"], name="text")
    table = implicit_reward(of([0.5, 0.2, 0.3], index), of([0.1, 0.6, 0.3], index))
    assert table["implicit_reward"].tolist() == pytest.approx([np.log(0.2), np.log(3), 0])


def test_other_order_is_put_right_and_other_candidates_are_refused():
    shuffled = implicit_reward(P, Q.sample(frac=1, random_state=0))
    pd.testing.assert_frame_equal(shuffled, implicit_reward(P, Q))
    with pytest.raises(TableError, match="same items"):
        implicit_reward(P, Q.drop("war"))


@pytest.mark.parametrize("wrong", [0.3, np.nan, -np.inf])
def test_rewards_are_not_taken_for_log_probabilities(wrong):
    broken = Q.copy()
    broken.iloc[2] = wrong
    with pytest.raises(TableError, match=r"no log-probabilities.*'war', model 2"):
        implicit_reward(P, broken)


def test_correlations_are_scipys_and_hold_the_truth_in_their_intervals():
    rng = np.random.default_rng(1)
    index = pd.Index([f"t{i}" for i in range(800)], name="text")
    log_p = pd.Series(rng.normal(-12, 3, 800), index=index)
    rewards = pd.DataFrame({"follows": log_p + rng.normal(0, 3, 800), "does not": rng.normal(size=800)})
    rewards["rounded"] = rewards["follows"].round(-1)  # ties
    scores = pd.DataFrame({"base": log_p, "other": rng.normal(size=800)}).sample(frac=1, random_state=0)
    table = reward_correlation(rewards, scores, replicates=500).set_index(["model", "score"])
    assert len(table) == 6
    for (model, score), row in table.iterrows():
        x, y = rewards[model], scores[score].reindex(index)
        assert row["kendall"] == pytest.approx(kendalltau(x, y).statistic)
        assert row["spearman"] == pytest.approx(spearmanr(x, y).statistic)
        assert row["low"] < row["kendall"] < row["high"]
        assert row["spearman_low"] < row["spearman"] < row["spearman_high"]
        assert row["n"] == 800
    # Bivariate normal with r = 1/√2 has tau = (2/π) arcsin r = 1/2.
    assert table.loc[("follows", "base"), "low"] < 0.5 < table.loc[("follows", "base"), "high"]
    assert table.loc[("does not", "base"), "low"] < 0 < table.loc[("does not", "base"), "high"]


def test_score_that_is_the_same_for_all_is_refused():
    rewards = pd.DataFrame({"m": [1.0, 2.0, 3.0]}, index=TOKENS[:3])
    with pytest.raises(TableError, match="same reward for every item"):
        reward_correlation(rewards, pd.DataFrame({"s": [-1.0] * 3}, index=TOKENS[:3]))


def test_tables_of_another_kind_are_refused():
    with pytest.raises(TableError, match="lacks log_p"):
        divergence(pd.DataFrame({"text": ["a"]}))
    with pytest.raises(TableError, match="k=0"):
        implicit_extremes(implicit_reward(P, Q), k=0)


# The analysis.

TEXTS = [f"t{i}" for i in range(60)]
OPTIONS = Options(replicates=200, top=5)


def made(
    model,
    rewards,
    *,
    score="log_probability",
    texts=TEXTS,
    prompt="greatest",
    wording="?",
    label=None,
    **identity,
):
    n = len(texts)
    rows = pd.DataFrame(
        {
            "candidate_id": range(n), "token": texts, "text": texts, "kind": "normal",
            "survives": pd.array([None] * n, dtype="boolean"), "reward": np.asarray(rewards, dtype=float),
            "certified": False,
        }
    )  # fmt: skip
    fields = {
        "candidates": "vocabulary",
        "candidates_digest": model,
        "mode": "ids",
        "source": "scan",
        "dtype": "float32",
    }
    return ScoreTable(
        ScoreProvenance(model=model, prompt=prompt, prompt_text=wording, score=score, **fields | identity),
        rows,
        ModelDescription(label=label),
        {"asked": "chat template" if "chat" in model else "plain text"},
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


def found(tables):
    (one,) = table_sets(tables)
    assert not analyse.needs.missing(one, OPTIONS)
    results = {result.name: result for result in analyse(one, OPTIONS)}
    for result in results.values():
        assert len(result.headline.split()) <= 25
        assert {"prompt", "candidates"} <= set(result.table)
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
    assert result.estimate.value == result.weight == table.loc[("follower", "base"), "kendall"]
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


def test_same_candidates_are_matched_by_id_twins_included():
    texts = ["�", "�", *TEXTS[:58]]
    pair = [made(n, distribution(i), texts=texts, candidates_digest="one") for i, n in enumerate("pq")]
    row = found(pair)[1]["language_divergence"].iloc[0]
    assert row["n"] == 60
    assert row["mass_p"] == pytest.approx(1)


def test_what_cannot_be_done_is_noted_and_the_rest_is_done(language, rewarded):
    results, tables = found(language[:1])
    assert list(tables) == ["language_extremes"]
    notes = " ".join(results["language_extremes"].notes)
    assert "one language model" in notes
    assert "no reward model" in notes

    other = [made(t.provenance.model, t.rows["reward"], wording="another question") for t in language[:2]]
    results, tables = found([*other, *rewarded])
    assert "something else" in results["language_extremes"].notes[0]
    assert len(results["language_extremes"].notes) == 1
    assert "language_correlation" not in tables
    assert "implicit_reward" in tables

    foreign = [made("foreign", distribution(0), texts=[f"x{i}" for i in range(60)])]
    results, _ = found([*foreign, *rewarded])
    assert "share 0 candidates" in results["language_extremes"].notes[0]


def test_every_prompt_has_its_rows(language, rewarded):
    results, tables = found([*language, made("base", distribution(1), prompt="best"), *rewarded])
    assert set(tables["language_extremes"]["prompt"]) == {"greatest", "best"}
    assert set(tables["language_correlation"]["prompt"]) == {"greatest"}
    assert any(note.startswith("best: no reward model") for note in results["language_extremes"].notes)


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


def test_label_of_a_reward_model_does_not_become_that_of_its_base(language):
    log_p = language[1].rows["reward"].to_numpy()
    results, _ = found([*language, made("base", log_p, score="reward", label="the reward model")])
    assert (
        "the reward model's rewards go furthest with or against the log-probabilities of base"
        in results["language_correlation"].headline
    )


def test_items_have_no_divergence():
    people = {"candidates": "people", "mode": "text", "candidates_digest": "one"}
    language = [made(name, distribution(seed) - 12, **people) for name, seed in (("p", 0), ("q", 1))]
    tables = found(language)[1]
    assert tables["language_extremes"]["probability"].max() < 1e-4
    assert "implicit_reward" in tables
    assert "language_divergence" not in tables
