"""Slopes by word frequency: planted ones come back, valence does not pass for frequency, and the published joins."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from pessimal.analysis.frequency import LEAST_ZIPF, frequency_slopes, published_frequency_slopes
from pessimal.analysis.words import as_published
from pessimal.errors import TableError

PAIRS = [("best", "worst")]
LETTERS = "bcdfghjklmnprtvw"
WORDS = [f"{a}o{b}o{c}" for a in LETTERS for b in LETTERS for c in "bdgkmpr"][:1600]


def planted(
    slope: float, *, seed: int = 0, noise: float = 0.5, hidden: float = 0.0
) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """1,600 words, 400 of them rated, good words more frequent; `hidden`: how much unrated words' valence is worth."""
    rng = np.random.default_rng(seed)
    feeling = rng.normal(scale=2, size=1600)
    zipf = pd.Series(np.clip(4.5 + 0.3 * feeling + rng.normal(scale=0.8, size=1600), 1.5, 7.5), index=WORDS)
    valence = pd.Series(
        np.where(np.abs(feeling[:400]) < 0.5, 1.0, np.round(feeling[:400])), index=WORDS[:400]
    )
    told = np.r_[valence.to_numpy(), hidden * feeling[400:]]
    rewards = {
        name: sign * told + slope * zipf.to_numpy() + rng.normal(scale=noise, size=1600)
        for name, sign in (("best", 1), ("worst", -1))
    }
    return pd.DataFrame(rewards, index=WORDS), zipf, valence


def rows(*arguments, **options) -> pd.DataFrame:
    return frequency_slopes(*arguments, pairs=PAIRS, **options).set_index(["words", "prompt"])


@pytest.mark.parametrize("slope", [0.0, 0.4])
def test_a_planted_slope_is_covered_as_often_as_the_intervals_say(slope):
    covered = {"rated": 0, "unrated": 0}
    for seed in range(60):
        table = rows(*planted(slope, seed=seed, hidden=1.0))
        for name in covered:
            row = table.loc[(name, "best × worst")]
            covered[name] += row["low"] <= slope <= row["high"]
    assert all(52 <= count <= 60 for count in covered.values()), covered


def test_one_frame_takes_valence_for_frequency_and_opposite_frames_do_not():
    table = rows(*planted(0.4, hidden=1.0))
    assert table.loc[("unrated", "best"), "low"] > 0.6
    assert table.loc[("unrated", "worst"), "high"] < 0.2
    row = table.loc[("unrated", "best × worst")]
    assert row["low"] < 0.4 < row["high"]
    assert row["slope"] == pytest.approx(table.loc["unrated"]["slope"][["best", "worst"]].mean())
    assert table["frames"].unique().tolist() == ["one", "opposite"]


def test_rated_words_are_controlled_for_valence_and_its_absolute_value():
    words, zipf, valence = planted(0.4)
    bent = words.assign(best=words["best"] + 0.7 * valence.abs().reindex(words.index).fillna(0))
    row = rows(bent, zipf, valence).loc[("rated", "best")]
    v = valence.to_numpy()
    design = np.column_stack([np.ones(400), zipf[:400], v, np.abs(v)])
    other = sm.OLS(bent["best"][:400].to_numpy(), design).fit(cov_type="HC3")
    reach = stats.t.ppf(0.975, 396) * other.bse[1]
    assert [row["slope"], row["low"], row["high"]] == pytest.approx(
        [other.params[1], other.params[1] - reach, other.params[1] + reach]
    )
    assert row["low"] < 0.4 < row["high"]
    assert row["n"] == row["stems"] == 400


def test_a_lexicon_of_good_words_only_needs_no_absolute_value():
    words, zipf, valence = planted(0.4)
    row = rows(words, zipf, valence[valence > 0]).loc[("rated", "best × worst")]
    assert row["low"] < 0.4 < row["high"]


def test_unrated_words_are_common_long_enough_and_in_no_lexicon():
    words, zipf, valence = planted(0.4)
    short = pd.DataFrame(9.0, index=["aa", "bb"], columns=["best", "worst"])
    with_short = pd.concat([words, short])
    more = pd.concat([zipf, pd.Series([7.0, 7.0], index=["aa", "bb"])])
    table = rows(with_short, more, valence)
    assert table.loc[("unrated", "best"), "n"] == (zipf[400:] >= LEAST_ZIPF).sum()
    allowed = pd.Index([*WORDS[:900], "aa"])
    assert (
        rows(with_short, more, valence, unrated=allowed).loc[("unrated", "best"), "n"]
        == (zipf[400:900] >= LEAST_ZIPF).sum()
    )
    assert rows(words, zipf, valence, least_zipf=0).loc[("unrated", "best"), "n"] == 1200


def test_words_of_unknown_frequency_take_no_part():
    words, zipf, valence = planted(0.4)
    zipf.iloc[:50] = np.nan
    table = rows(words, zipf.iloc[:1000], valence)
    assert table.loc[("rated", "best"), "n"] == 350
    assert table.loc[("unrated", "best"), "n"] == (zipf[400:1000] >= LEAST_ZIPF).sum()


def test_forms_of_a_stem_count_as_one_observation_for_the_error():
    words, zipf, _ = planted(0.4)
    copied = pd.concat(
        [part.set_axis([w + end for w in WORDS]) for end, part in (("", words), ("s", words), ("ed", words))]
    )
    frequencies = pd.concat([zipf.set_axis([w + end for w in WORDS]) for end in ("", "s", "ed")])
    once = rows(words, zipf, pd.Series(dtype=float)).loc[("unrated", "best")]
    thrice = rows(copied, frequencies, pd.Series(dtype=float)).loc[("unrated", "best")]
    assert thrice["n"] == 3 * once["n"]
    assert thrice["stems"] == once["stems"]
    assert [thrice["slope"], thrice["low"], thrice["high"]] == pytest.approx(
        [once["slope"], once["low"], once["high"]]
    )


def test_standardised_slopes_are_over_the_spread_of_all_words_under_one_prompt():
    words, zipf, valence = planted(0.4)
    table = rows(words, zipf, valence)
    spread = words.std(ddof=0)
    for name in ("rated", "unrated"):
        assert table.loc[(name, "best"), "slope_sd"] == pytest.approx(
            table.loc[(name, "best"), "slope"] / spread["best"]
        )
        both = table.loc[(name, "best × worst")]
        assert both["slope_sd"] == pytest.approx(both["slope"] / spread.mean())


def test_without_a_lexicon_there_are_no_rated_words():
    words, zipf, _ = planted(0.4)
    table = frequency_slopes(words, zipf, pd.Series(dtype=float))
    assert set(table["words"]) == {"unrated"}
    assert set(table["frames"]) == {"one"}


def test_too_few_words_are_told_with_their_numbers():
    words, zipf, valence = planted(0.4)
    with pytest.raises(TableError, match=r"rated 20, unrated 0\); a slope needs 30"):
        frequency_slopes(words, zipf.iloc[:20], valence)


# as published


def test_the_published_regression_multiplies_rows_and_keeps_case_variants():
    words, zipf, valence = planted(0.4)
    capitals = words.set_axis([word.title() for word in WORDS]) + 0.1
    spaced = words.set_axis([f" {word}" for word in WORDS])
    tokens = as_published(pd.concat([words, capitals, spaced]))
    once = 10 ** (zipf - 3)
    per_million = pd.concat([once, once.iloc[:100] / 10, pd.Series([0.0], index=[WORDS[0]])])
    table = published_frequency_slopes(tokens, per_million, valence).set_index("prompt")
    assert (table["n"] == 2 * (400 + 100)).all()
    part = pd.concat([words.iloc[:400], capitals.set_axis(WORDS).iloc[:400]]).rename_axis("word")
    joined = part.join(per_million[per_million > 0].rename("f"))
    design = sm.add_constant(np.column_stack([np.log(joined["f"]), valence.reindex(joined.index)]))
    other = sm.OLS(joined["best"].to_numpy(), design).fit()
    row = table.loc["best"]
    assert [row["slope"], row["low"], row["high"], row["p"]] == pytest.approx(
        [other.params[1], *other.conf_int()[1], other.pvalues[1]]
    )
    assert row["slope"] * np.log(10) == pytest.approx(0.4, abs=0.2)
    assert set(table["words"]) == {"rated"}
    assert set(table["frames"]) == {"one"}


def test_published_joins_that_leave_nothing_say_why():
    words, zipf, valence = planted(0.4)
    tokens = as_published(words.set_axis([f" {word}" for word in WORDS]))
    with pytest.raises(TableError, match="lose tokens with a leading space"):
        published_frequency_slopes(tokens, zipf, valence)
