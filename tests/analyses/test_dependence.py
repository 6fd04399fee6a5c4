"""Candidates that are not independent: clusters of words, likeness in meaning, wider errors."""

import numpy as np
import pandas as pd
import pytest

from pessimal.analyses.framing import reversals
from pessimal.analyses.nulls import Statistic, intervals, p_values
from pessimal.analyses.ranks import dependence, ranked, spearman


def directions(words, *, dimensions: int = 20) -> np.ndarray:
    """Made-up meanings: a random direction for each word, the same whenever it is asked."""
    vectors = np.stack(
        [np.random.default_rng(list(word.encode())).normal(size=dimensions) for word in words]
    )
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def names(n: int) -> list[str]:
    """Words of unlike stems."""
    letters = "bcdfghjklmnpqrtvwxz"
    return [f"{letters[i % 19]}o{letters[i // 19 % 19]}u{letters[i // 361 % 19]}" for i in range(n)]


def test_spellings_and_words_of_a_stem_are_one_cluster_and_pieces_each_their_own():
    found = dependence([" love", "Love", "LOVED", "##ve", "##ve", "<0x0A>", " hate"], None)
    assert found.clusters.tolist() == [0, 0, 0, 1, 2, 3, 4]
    assert found.words.tolist() == [True, True, True, False, False, False, True]


def test_an_interval_counts_copies_of_a_word_once():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 300))
    words = names(300)
    once = intervals([spearman(ranked(x), ranked(y))], dependence(words, None))
    spellings = [*words, *(f" {word}" for word in words), *(word.upper() for word in words)]
    thrice = [ranked(np.tile(values, 3)) for values in (x, y)]
    found = intervals([spearman(*thrice)], dependence(spellings, None))
    independent = intervals([spearman(*thrice)], None)
    assert np.ravel(found) == pytest.approx(np.ravel(once), abs=1e-12)
    widths = [float((high - low)[0]) for _, low, high in (once, independent)]
    assert widths[1] == pytest.approx(widths[0] / 3**0.5, rel=0.1)


def test_unrelated_tastes_are_told_apart_no_more_often_than_by_chance():
    """Rewards of 600 words follow one of twenty directions each: hardly more than twenty independent
    numbers. Taken as independent, words say that most unrelated prompts have to do with one
    another."""
    words, rng = names(600), np.random.default_rng(0)
    vectors = directions(words)
    pairs = []
    for _ in range(60):
        both = vectors @ rng.normal(size=(20, 2)) + 0.3 * rng.normal(size=(600, 2))
        pairs.append(pd.DataFrame(both, words))
    outside = {}
    for name, meanings in (("alike", directions), ("independent", None)):
        table = reversals(pairs, meanings=meanings)
        assert table["low"].notna().all()
        outside[name] = (table["p"] <= 0.05).mean()
    assert outside["independent"] > 0.5
    assert outside["alike"] < 0.15


def test_the_interval_holds_its_estimate_where_words_differ_from_other_tokens():
    """Words are liked and disliked, ids are not: the influence values of words do not add up to
    0."""
    words, rng = names(400), np.random.default_rng(0)
    texts = [*words, *(f"<{i}>" for i in range(400))]
    x = np.concatenate([3 + directions(words) @ rng.normal(size=20), rng.normal(size=400)])
    y = np.concatenate([-x[:400], x[400:]]) + 0.1 * rng.normal(size=800)
    found = dependence(texts, directions)
    row = reversals([pd.DataFrame({"x": x, "y": y}, texts)], meanings=directions).iloc[0]
    assert row["low"] < row["reversal"] < row["high"]
    ranks = ranked(x), ranked(y)
    (rho,), (low,), (high,) = intervals([spearman(*ranks)], found)
    assert low < rho < high
    influence = spearman(*ranks).influence[:, None]
    summed, inflations = found.summed(influence, np.array([0.01]))
    assert inflations > 1.5
    assert summed.mean() == pytest.approx(0, abs=1e-9)


def test_p_and_interval_are_of_one_error():
    rng = np.random.default_rng(0)
    influence = rng.normal(size=200)
    for estimate in np.linspace(-0.3, 0.3, 13):
        statistic = Statistic(float(estimate), influence - influence.mean())
        p = p_values([statistic])[0]
        _, (low,), (high,) = intervals([statistic], confidence=0.95)
        assert (p <= 0.05) == (low > 0 or high < 0)
