"""Rank correlation of scores with people's valence: the number itself, its interval, and language
models beside rewards."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from artifacts import score_table
from pessimal.analyses.analysis import Options
from pessimal.analyses.nulls import heads_on_ranks
from pessimal.analyses.valence import analyse, valence_agreement
from pessimal.tables.table_set import Reading, table_sets
from pessimal.tables.word_lists import stem_groups


def words(n):
    """Words of stems of their own."""
    letters = [chr(ord("a") + i) for i in range(26)]
    return pd.Index(
        [f"q{letters[i // 676]}{letters[i // 26 % 26]}{letters[i % 26]}x" for i in range(n)]
    )


def test_it_is_spearmans_rho_over_the_shared_words():
    rng = np.random.default_rng(0)
    valence = pd.Series(rng.integers(-5, 6, 400).astype(float), index=words(400))
    scores = pd.DataFrame(
        {"greatest": valence + rng.normal(0, 3, 400), "worst": -valence}, index=words(400)
    )
    found = valence_agreement(scores.iloc[50:], valence.iloc[:350]).set_index("prompt")
    expected = stats.spearmanr(scores["greatest"].iloc[50:350], valence.iloc[50:350]).statistic
    assert found.loc["greatest", "spearman"] == pytest.approx(expected)
    assert found.loc["worst", "spearman"] == pytest.approx(-1)
    assert (found["n"] == 300).all()


def test_words_of_one_stem_widen_the_interval():
    rng = np.random.default_rng(1)
    names = [
        f"{word}{end}"
        for word in ("walk", "talk", "jump", "help", "want", "look", "call", "play")
        for end in ("", "s", "ed", "ing")
    ] + list(words(60))
    valence = pd.Series(np.r_[np.repeat(rng.normal(size=8), 4), rng.normal(size=60)], index=names)
    scores = pd.DataFrame(
        {"greatest": valence + np.r_[np.repeat(rng.normal(0, 2, 8), 4), rng.normal(0, 2, 60)]}
    )
    found = valence_agreement(scores, valence).iloc[0]
    assert found["stems"] < found["n"]
    alone = stats.norm.ppf(0.975) * np.sqrt(1 / found["n"])
    assert found["high"] - found["low"] > alone


def test_random_heads_take_words_of_one_stem_for_one():
    rng = np.random.default_rng(0)
    index = pd.Index([word + end for word in words(40) for end in ("", "s")])
    scores = pd.DataFrame({"greatest": rng.normal(size=80)}, index=index)
    valence, states = pd.Series(rng.normal(size=80), index=index), rng.normal(size=(80, 1, 3))
    [row] = valence_agreement(scores, valence, heads=lambda *_: states).itertuples()
    groups = stem_groups(index)
    assert groups.max() == 39
    heads = heads_on_ranks(scores.to_numpy(), valence.to_numpy(), groups, [states])
    assert row.heads_within == pytest.approx(heads.band[0])


def test_no_agreement_is_rejected_as_often_as_it_should_be():
    rng, hits = np.random.default_rng(2), 0
    valence = pd.Series(rng.integers(-5, 6, 300).astype(float), index=words(300))
    for _ in range(200):
        scores = pd.DataFrame({"greatest": rng.standard_t(3, 300)}, index=words(300))
        hits += valence_agreement(scores, valence).iloc[0]["p"] < 0.05
    assert 3 <= hits <= 20


def test_a_language_model_is_set_beside_rewards_by_what_it_says_more_of():
    """Either prompt makes a word likely by how common it is; the difference is the valence. Pieces
    of words count for nothing."""
    rng, index = np.random.default_rng(3), words(300)
    valence = pd.Series(rng.integers(-5, 6, 300).astype(float), index=index)
    common, noise = rng.normal(0, 20, 300), rng.normal(0, 1, 300)
    texts = [*(f" {word}" for word in index), "piece"]
    tables = [
        score_table(
            texts,
            [*(common + sign * (valence + noise)), sign * 99.0],
            model="spoken",
            prompt=prompt,
            score="log_probability",
        )
        for prompt, sign in (("greatest", 1), ("worst", -1))
    ] + [
        score_table(index, sign * valence, model="judged", prompt=prompt)
        for prompt, sign in (("greatest", 1), ("worst", -1))
    ]
    reading = Reading(polarity={"greatest": 1, "worst": -1})
    agreement, ends = analyse(
        table_sets(tables, reading)[0], Options(lexicons={"lexicon": valence}, meanings=None)
    )
    found = agreement.table.set_index(["model", "prompt"])["spearman"]
    expected = stats.spearmanr(valence + noise, valence).statistic
    assert found["spoken", "greatest − worst"] == pytest.approx(expected)
    assert abs(found["spoken", "greatest"]) < 0.4
    assert found["judged", "greatest − worst"] == pytest.approx(1)
    best = (valence + noise).idxmax()
    spoken = ends.table[ends.table["model"] == "spoken"].set_index(["end", "rank"])["word"]
    assert spoken["top", 1] == best
    assert "piece" not in set(spoken)
    assert 'spoken finds positive words likelier on "greatest" than on' in agreement.headline
    assert f"Highest is {best}, lowest" in agreement.headline
    assert ": ρ 0." in agreement.headline
    assert len(agreement.headline.split()) <= 25
