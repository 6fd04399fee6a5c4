"""Positive words against negative ones: independent U, stems as units, and how often
intervals hold."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analyses.sentiment import lexicon_groups

LETTERS = "bcdfghjklmnpqrtvwxz"
MADE_UP = [f"{a}o{b}o{c}" for a in LETTERS for b in LETTERS for c in "bdgkmnpr"]
"""No two share a stem: consonants and an o."""


def given(*, positive=60, negative=90, rest=100, shift=0.8, seed=0, ties=False):
    """Words × prompts and a lexicon of signs; `worst` is the mirror image of `best`."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(MADE_UP)[: positive + negative + rest]
    sign = np.array([1.0] * positive + [-1.0] * negative + [0.0] * rest)
    best = rng.normal(size=len(names)) + shift * (sign > 0) + 5
    best = best.round(0 if ties else 12)
    words = pd.DataFrame({"best": best, "worst": -best}, index=pd.Index(names, name="word"))
    return words, pd.Series(sign * 1.0, index=names)


@pytest.mark.parametrize("ties", [False, True])
def test_the_probability_is_mann_whitneys_u(ties):
    words, lexicon = given(ties=ties)
    table = lexicon_groups(words, lexicon).set_index("prompt")
    above, below = words["best"][lexicon > 0], words["best"][lexicon < 0]
    u = stats.mannwhitneyu(above, below).statistic
    assert table.loc["best", "auc"] == pytest.approx(u / (60 * 90))
    assert table.loc["worst", "auc"] == pytest.approx(1 - table.loc["best", "auc"])
    equal = (above.to_numpy()[:, None] == below.to_numpy()).mean()
    assert (equal > 0.05) == ties
    assert table.loc["best", ["positive", "negative", "stems"]].tolist() == [60, 90, 150]


def by_pairs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x[:, None] > y).astype(float) + (x[:, None] == y) / 2


def inflected(
    *, stems_up=40, stems_down=50, share=0.9, shift=0.0, rng
) -> tuple[pd.DataFrame, pd.Series]:
    """Three forms a stem, alike in reward; the last five stems have a form of the other sign
    each."""
    roots = rng.permutation(MADE_UP)[: stems_up + stems_down]
    rows = []
    for place, root in enumerate(roots):
        up = place < stems_up
        own = rng.normal()
        for form, ending in enumerate(["", "ed", "ing"]):
            sign = 1 if up else -1
            if place >= len(roots) - 5 and form == 2:
                sign = -sign
            reward = np.sqrt(share) * own + np.sqrt(1 - share) * rng.normal() + shift * (sign > 0)
            rows.append((root + ending, sign, reward))
    table = pd.DataFrame(rows, columns=["word", "sign", "best"]).set_index("word")
    return table[["best"]], table["sign"].astype(float)


def test_words_of_one_stem_are_one_unit_across_both_groups():
    words, lexicon = inflected(rng=np.random.default_rng(3))
    row = lexicon_groups(words, lexicon).iloc[0]
    assert row["stems"] == 90
    up, down = (words.loc[lexicon == sign, "best"] for sign in (1, -1))
    wins = by_pairs(up.to_numpy(), down.to_numpy())
    roots = [index.str.replace("(ed|ing)$", "", regex=True) for index in (up.index, down.index)]
    first = pd.Series(wins.mean(axis=1) - wins.mean()).groupby(roots[0].to_numpy()).sum()
    second = pd.Series(wins.mean(axis=0) - wins.mean()).groupby(roots[1].to_numpy()).sum()
    both = pd.concat([first, second], axis=1).fillna(0)
    sums = both[0] / len(up) + both[1] / len(down)
    variance = 90 / 89 * (sums**2).sum()
    auc = wins.mean()
    width = np.log(row["auc_high"] / (1 - row["auc_high"])) - np.log(
        row["auc_low"] / (1 - row["auc_low"])
    )
    assert width / 2 / stats.t.ppf(0.975, 89) == pytest.approx(
        np.sqrt(variance) / (auc * (1 - auc))
    )


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    """1,500 data sets would take a minute; 150 separate 95 % from the 75 % that words as units
    give."""
    rng = np.random.default_rng(5)
    truth = stats.norm.cdf(
        0.8 / np.sqrt(2)
    )  # five words of 135 share a stem with the other group: .001 off
    held, held_without = 0, 0
    for _ in range(150):
        words, lexicon = inflected(share=0.95, shift=0.8, rng=rng)
        row = lexicon_groups(words, lexicon).iloc[0]
        held += row["auc_low"] <= truth <= row["auc_high"]
        apart = words.set_axis(MADE_UP[: len(words)]), lexicon.set_axis(MADE_UP[: len(words)])
        row = lexicon_groups(*apart).iloc[0]
        held_without += row["auc_low"] <= truth <= row["auc_high"]
    assert 0.90 <= held / 150 <= 0.99
    assert held_without / 150 < 0.85
