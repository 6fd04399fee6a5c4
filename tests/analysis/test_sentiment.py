"""Slopes by valence: closed forms, statsmodels, leaving stems out by hand, and what opposite frames take out."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.multitest import multipletests

from pessimal.analysis.regression import classical, holm, interval, robust
from pessimal.analysis.sentiment import sentiment
from pessimal.analysis.words import as_published, stem_groups
from pessimal.errors import TableError


def made_up(count: int) -> list[str]:
    """Words of which no two share a stem: consonants and an o."""
    letters = "bcdfghjklmnpqrtvwxz"
    return [f"{a}o{b}o{c}" for a in letters for b in letters for c in letters if c not in "lstxz"][:count]


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


SIGNS = {"best": 1, "worst": -1}


# the regression itself


def random_design(n: int = 60, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(n), rng.normal(size=n), rng.uniform(size=n)])
    return design, design @ rng.normal(size=(3, 2)) + rng.normal(size=(n, 2)) * (1 + design[:, [1]] ** 2)


def test_with_a_group_a_row_the_errors_are_statsmodels_hc3():
    design, outcomes = random_design()
    fit = robust(design, outcomes, np.arange(60))
    for column in range(2):
        other = sm.OLS(outcomes[:, column], design).fit(cov_type="HC3")
        assert fit.coefficients[:, column] == pytest.approx(other.params)
        assert fit.errors[:, column] == pytest.approx(other.bse)
    assert fit.freedom == 57


def test_with_larger_groups_the_errors_are_those_of_refits_without_each():
    design, outcomes = random_design()
    groups = np.random.default_rng(2).integers(0, 15, size=60) * 2  # odd numbers are absent
    fit = robust(design, outcomes, groups)
    refits = np.stack(
        [np.linalg.lstsq(design[groups != g], outcomes[groups != g])[0] for g in np.unique(groups)]
    )
    assert fit.errors == pytest.approx(np.sqrt(np.square(refits - fit.coefficients).sum(axis=0)))
    assert fit.freedom == len(np.unique(groups)) - 3


def test_textbook_errors_and_intervals_are_statsmodels():
    design, outcomes = random_design()
    fit = classical(design, outcomes)
    other = sm.OLS(outcomes[:, 0], design).fit()
    assert fit.errors[:, 0] == pytest.approx(other.bse)
    low, high, p = interval(fit.coefficients[:, 0], fit.errors[:, 0], fit.freedom, confidence=0.9)
    assert np.column_stack([low, high]) == pytest.approx(other.conf_int(0.1))
    assert p == pytest.approx(other.pvalues)


def test_one_group_that_alone_decides_a_slope_is_refused():
    design = np.column_stack([np.ones(20), np.r_[np.zeros(19), 1.0]])
    with pytest.raises(TableError, match="One group of rows alone decides"):
        robust(design, np.random.default_rng(0).normal(size=(20, 1)), np.arange(20))


def test_dependent_columns_and_too_few_groups_are_refused():
    design = np.column_stack([np.ones(20), np.full(20, 2.0)])
    with pytest.raises(TableError, match="depend on one another"):
        robust(design, np.ones((20, 1)), np.arange(20))
    with pytest.raises(TableError, match="more than 2 groups of rows; given were 2"):
        robust(np.column_stack([np.ones(20), np.arange(20.0)]), np.ones((20, 1)), np.arange(20) % 2)


def test_holm_leaves_missing_values_out_of_the_count():
    corrected = holm(pd.Series([0.01, np.nan, 0.04, 0.03]))
    assert corrected.tolist() == pytest.approx([0.03, np.nan, 0.06, 0.06], nan_ok=True)
    assert holm(pd.Series([np.nan])).isna().all()


def test_holm_is_statsmodels():
    p = pd.Series(
        np.random.default_rng(0).uniform(size=40) ** 3, index=np.random.default_rng(1).permutation(40)
    )
    p.iloc[[3, 4]] = p.iloc[5]
    assert holm(p).tolist() == pytest.approx(multipletests(p, method="holm")[1])


# slopes


def test_exact_lines_give_exact_slopes():
    words, valence = words_and_lexicon(noise=0)
    slopes = sentiment(words, valence, signs=SIGNS).slopes.set_index(["prompt", "arm"])
    assert slopes["slope"].to_dict() == pytest.approx(
        {
            ("best", "positive"): 2,
            ("best", "negative"): 1,
            ("worst", "positive"): -2,
            ("worst", "negative"): -1,
        }
    )
    spread = words["best"].std(ddof=0)
    assert slopes.loc[("best", "positive"), "slope_sd"] == pytest.approx(2 / spread)
    assert slopes["level_sd"].tolist() == pytest.approx(
        [
            (sign * 3 - words[p].mean()) / spread
            for p, sign in (("best", 1), ("best", 1), ("worst", -1), ("worst", -1))
        ]
    )


def test_each_arm_is_statsmodels_on_its_own_words():
    words, valence = words_and_lexicon(noise=2.0)
    slopes = sentiment(words, valence).slopes.set_index(["prompt", "arm"])
    for arm, inside in (("positive", valence > 0), ("negative", valence < 0)):
        rows = valence[inside]
        other = sm.OLS(words.loc[rows.index, "best"].to_numpy(), sm.add_constant(rows.to_numpy())).fit(
            cov_type="HC3"
        )
        row = slopes.loc[("best", arm)]
        reach = stats.t.ppf(0.975, len(rows) - 2) * other.bse[1]
        assert [row["slope"], row["low"], row["high"]] == pytest.approx(
            [other.params[1], other.params[1] - reach, other.params[1] + reach]
        )
        assert row["n"] == row["stems"] == inside.sum()


def test_rewards_in_other_units_change_slopes_but_not_standardised_ones():
    words, valence = words_and_lexicon(noise=1.0)
    one, other = sentiment(words, valence).slopes, sentiment(1000 * words - 7, valence).slopes
    assert other["slope"].to_numpy() == pytest.approx(1000 * one["slope"].to_numpy())
    for column in ("slope_sd", "low_sd", "high_sd", "p", "level_sd"):
        assert other[column].to_numpy() == pytest.approx(one[column].to_numpy())


def test_words_of_one_stem_widen_the_interval():
    rng = np.random.default_rng(3)
    stems = made_up(40)
    valence = np.where(np.arange(40) < 20, 1, -1) * rng.integers(1, 5, size=40).astype(float)
    shift = rng.normal(size=40)
    forms = [stem + ending for ending in ("", "s", "ed", "ing") for stem in stems]
    assert len(np.unique(stem_groups(pd.Index(forms)))) == 40
    alone = [f"{word}" for word in made_up(400)[200:360]]
    rewards = np.tile(valence + shift, 4)
    extra = rng.normal(size=100)  # words in no lexicon
    unknown = made_up(600)[500:]
    dependent = sentiment(
        pd.DataFrame({"best": np.r_[rewards, extra]}, index=forms + unknown),
        pd.Series(np.tile(valence, 4), forms),
    ).slopes
    independent = sentiment(
        pd.DataFrame({"best": np.r_[rewards, extra]}, index=alone + unknown),
        pd.Series(np.tile(valence, 4), alone),
    ).slopes
    assert dependent["slope"].tolist() == pytest.approx(independent["slope"].tolist())
    assert (dependent["n"] == 80).all()
    assert (dependent["stems"] == 20).all()
    # Four copies of each word's error: twice the standard error, and a t with fewer degrees of freedom.
    ratio = (dependent["high"] - dependent["low"]) / (independent["high"] - independent["low"])
    assert ((ratio > 1.9) & (ratio < 2.5)).all()


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
    with pytest.raises(TableError, match="several rows"):
        sentiment(tokens, valence)


# asymmetry


def test_steeper_is_taken_in_the_frames_direction():
    words, valence = words_and_lexicon(noise=0.5)
    table = sentiment(words, valence, signs=SIGNS).asymmetry.set_index("prompt")
    assert table.loc["best", "steeper"] == pytest.approx(1, abs=0.2)
    assert table.loc["worst", "steeper"] == pytest.approx(table.loc["best", "steeper"])
    assert table.loc["worst", "difference"] == pytest.approx(-table.loc["best", "steeper"])
    assert table.loc["worst", ["low", "high"]].tolist() == pytest.approx(
        table.loc["best", ["low", "high"]].tolist()
    )
    assert table["sign_from"].tolist() == ["frame", "frame"]


def test_without_a_known_frame_the_slopes_say_which_way():
    words, valence = words_and_lexicon(noise=0.5)
    table = sentiment(words, valence).asymmetry
    assert table["sign"].tolist() == [1, -1]
    assert table["sign_from"].tolist() == ["slopes", "slopes"]


def test_opposite_frames_take_the_lexicons_own_asymmetry_out():
    words, valence = words_and_lexicon(noise=0.5)  # twice as steep above zero, under either prompt
    table = sentiment(words, valence, signs=SIGNS, pairs=[("best", "worst")]).asymmetry.set_index("prompt")
    row = table.loc["best × worst"]
    assert row["frames"] == "opposite"
    assert row["steeper"] == pytest.approx(0, abs=1e-12)
    assert table.loc["best", "p"] < 1e-6


def test_frames_each_steeper_on_their_own_side_show_in_opposite_frames():
    words, valence = words_and_lexicon(noise=0.3)
    mirrored, _ = words_and_lexicon(above=1.0, below=2.0, noise=0.3, seed=0)
    words["worst"] = -mirrored["best"] + np.random.default_rng(1).normal(scale=0.3, size=400)
    table = sentiment(words, valence, signs=SIGNS, pairs=[("best", "worst")]).asymmetry.set_index("prompt")
    assert table.loc["worst", "steeper"] < 0 < table.loc["best", "steeper"]
    half = (table.loc["best", "steeper"] - table.loc["worst", "steeper"]) / 2
    row = table.loc["best × worst"]
    assert row["steeper"] == pytest.approx(half)
    assert row["low"] < 1 < row["high"]
    assert set(sentiment(words, valence, pairs=[("best", "worst")]).slopes["prompt"]) == {"best", "worst"}


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
    row = sentiment(words, valence, signs={"best": 1}).asymmetry.iloc[0]
    assert row["steeper"] == pytest.approx(whole)
    assert row["high"] - row["steeper"] == pytest.approx(stats.t.ppf(0.975, 28) * error)


def test_intervals_of_the_asymmetry_cover_the_truth_as_often_as_they_say():
    covered = 0
    for seed in range(100):
        words, valence = words_and_lexicon(rated=60, noise=2.0, seed=seed)
        row = sentiment(words[["best"]], valence, signs=SIGNS).asymmetry.iloc[0]
        covered += row["low"] <= 1 <= row["high"]
    assert 88 <= covered <= 100


# curve, and what is refused


def test_the_curve_is_the_mean_of_each_valences_words():
    words, valence = words_and_lexicon(noise=1.0)
    curve = sentiment(words, valence).curve
    z = (words["best"] - words["best"].mean()) / words["best"].std(ddof=0)
    there = curve[curve["prompt"] == "best"].set_index("valence")
    for value in (-4, 1, 3):
        part = z[valence.index[valence == value]]
        assert there.loc[value, "z"] == pytest.approx(part.mean())
        assert there.loc[value, "n"] == len(part)
        assert there.loc[value, "error"] == pytest.approx(stats.sem(part))


def test_valences_between_whole_numbers_are_binned_and_zero_stands_alone():
    words, valence = words_and_lexicon(noise=1.0)
    valence = (valence / 4).mask(valence == 1, 0.0).mask(valence == 2, 0.31)
    curve = sentiment(words, valence).curve
    there = curve[curve["prompt"] == "best"].set_index("valence")["n"]
    assert there.index.to_numpy() == pytest.approx([-0.9, -0.7, -0.5, -0.3, 0, 0.3, 0.7, 0.9])
    assert there.loc[0.0] == (valence == 0).sum()
    assert there.sum() == len(valence)


def test_too_few_words_on_a_side_are_told_with_their_number():
    words, valence = words_and_lexicon()
    few = valence[(valence > 0) | (np.arange(len(valence)) < 8)]
    with pytest.raises(TableError, match=r"words with a negative valence were found; a slope needs 10"):
        sentiment(words, few)


def test_a_side_whose_words_all_have_one_valence_is_refused():
    words, valence = words_and_lexicon()
    with pytest.raises(TableError, match=r"every positive word has the valence 3.*lexicon_groups"):
        sentiment(words, valence.mask(valence > 0, 3.0))
