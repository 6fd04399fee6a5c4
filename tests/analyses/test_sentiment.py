"""Slopes by valence: closed forms, statsmodels, leaving stems out by hand, what opposite prompts
take out."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from pessimal.analyses.sentiment import sentiment
from pessimal.tables.word_lists import as_published


def made_up(count: int) -> list[str]:
    """Words of which no two share a stem: consonants and an o."""
    letters = "bcdfghjklmnpqrtvwxz"
    return [f"{a}o{b}o{c}" for a in letters for b in letters for c in letters if c not in "lstxz"][
        :count
    ]


def words_and_lexicon(
    *, rated: int = 200, above: float = 2.0, below: float = 1.0, noise: float = 0.3, seed: int = 0
) -> tuple[pd.DataFrame, pd.Series]:
    """400 words, half of them rated; `best` at these slopes and `worst` its mirror image."""
    rng = np.random.default_rng(seed)
    words = made_up(400)
    valence = pd.Series(
        rng.choice([-4, -3, -2, -1, 1, 2, 3, 4], size=rated).astype(float), index=words[:rated]
    )
    effect = np.where(valence > 0, above * valence, below * valence)
    best = 3 + rng.normal(scale=noise, size=400)
    best[:rated] += effect
    return pd.DataFrame({"best": best, "worst": -best}, index=words), valence


POLARITY = {"best": 1, "worst": -1}


# slopes


def test_each_arm_is_statsmodels_on_its_own_words():
    words, valence = words_and_lexicon(noise=2.0)
    slopes = sentiment(words, valence).slopes.set_index(["prompt", "arm"])
    for arm, inside in (("positive", valence > 0), ("negative", valence < 0)):
        rows = valence[inside]
        other = sm.OLS(
            words.loc[rows.index, "best"].to_numpy(), sm.add_constant(rows.to_numpy())
        ).fit(cov_type="HC3")
        row = slopes.loc[("best", arm)]
        reach = stats.t.ppf(0.975, len(rows) - 2) * other.bse[1]
        assert [row["slope"], row["low"], row["high"]] == pytest.approx(
            [other.params[1], other.params[1] - reach, other.params[1] + reach]
        )
        assert row["n"] == row["stems"] == inside.sum()


def test_a_zero_is_in_neither_arm_and_negative_as_published():
    words, valence = words_and_lexicon(noise=1.0)
    valence.iloc[:30] = 0.0
    below, above = int((valence < 0).sum()), int((valence > 0).sum())
    assert sentiment(words, valence).slopes["n"].tolist() == [above, below] * 2
    published = sentiment(words, valence, paper=True).slopes
    assert published["n"].tolist() == [above, below + 30] * 2


def test_the_published_way_counts_spellings_and_loses_leading_spaces():
    words, valence = words_and_lexicon(noise=1.0)
    spaced = words.set_axis([f" {word}" for word in words.index])
    capitals = words.set_axis([word.title() for word in words.index]) + 0.5
    tokens = as_published(pd.concat([words, spaced, capitals]))
    slopes = sentiment(tokens, valence, paper=True).slopes.set_index(["prompt", "arm"])
    positive = valence[valence > 0]
    assert slopes.loc[("best", "positive"), "n"] == 2 * len(positive)
    rewards = pd.concat([words, capitals + 0])["best"].to_numpy()
    names = [*words.index, *words.index]
    frame = pd.DataFrame({"reward": rewards, "valence": valence.reindex(names).to_numpy()}).query(
        "valence > 0"
    )
    other = sm.OLS(frame["reward"].to_numpy(), sm.add_constant(frame["valence"].to_numpy())).fit()
    row = slopes.loc[("best", "positive")]
    assert [row["slope"], row["low"], row["high"], row["p"]] == pytest.approx(
        [other.params[1], *other.conf_int()[1], other.pvalues[1]]
    )


# asymmetry


def test_opposite_prompts_take_the_lexicons_own_asymmetry_out():
    words, valence = words_and_lexicon(noise=0.5)  # twice as steep above zero, under either prompt
    table = sentiment(
        words, valence, polarity=POLARITY, pairs=[("best", "worst")]
    ).asymmetry.set_index("prompt")
    row = table.loc["best × worst"]
    assert row["frames"] == "opposite"
    assert row["steeper"] == pytest.approx(0, abs=1e-12)
    assert table.loc["best", "p"] < 1e-6


def test_the_asymmetrys_error_is_that_of_refits_without_each_stem_in_both_arms():
    rng = np.random.default_rng(5)
    stems = made_up(30)
    index = [*stems, *(stem + "ing" for stem in stems)]
    valence = pd.Series(np.r_[rng.integers(1, 6, 30), -rng.integers(1, 6, 30)].astype(float), index)
    shift = np.tile(rng.normal(size=30), 2)
    words = pd.DataFrame({"best": valence.to_numpy() + shift + rng.normal(size=60)}, index=index)

    def difference(kept: np.ndarray) -> float:
        above, below = kept & (valence > 0).to_numpy(), kept & (valence < 0).to_numpy()
        return (
            np.polyfit(valence[above], words["best"][above], 1)[0]
            - np.polyfit(valence[below], words["best"][below], 1)[0]
        )

    groups = np.tile(np.arange(30), 2)
    whole = difference(np.ones(60, dtype=bool))
    error = np.sqrt(sum((difference(groups != g) - whole) ** 2 for g in range(30)))
    row = sentiment(words, valence, polarity={"best": 1}).asymmetry.iloc[0]
    assert row["steeper"] == pytest.approx(whole)
    assert row["high"] - row["steeper"] == pytest.approx(stats.t.ppf(0.975, 28) * error)


# the analysis
