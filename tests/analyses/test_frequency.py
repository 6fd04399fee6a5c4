"""Slopes by word frequency: planted ones come back, valence does not pass for frequency, and the
published joins."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from pessimal.analyses.frequency import frequency_slopes, published_frequency_slopes
from pessimal.tables.word_lists import as_published

PAIRS = [("best", "worst")]
LETTERS = "bcdfghjklmnprtvw"
WORDS = [f"{a}o{b}o{c}" for a in LETTERS for b in LETTERS for c in "bdgkmpr"][:1600]


def planted(
    slope: float, *, seed: int = 0, noise: float = 0.5, hidden: float = 0.0
) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """1,600 words, 400 of them rated, good words more frequent; `hidden`: how much unrated words'
    valence is worth."""
    rng = np.random.default_rng(seed)
    feeling = rng.normal(scale=2, size=1600)
    zipf = pd.Series(
        np.clip(4.5 + 0.3 * feeling + rng.normal(scale=0.8, size=1600), 1.5, 7.5), index=WORDS
    )
    valence = pd.Series(
        np.where(np.abs(feeling[:400]) < 0.5, 1.0, np.round(feeling[:400])), index=WORDS[:400]
    )
    effect = np.r_[valence.to_numpy(), hidden * feeling[400:]]
    rewards = {
        name: sign * effect + slope * zipf.to_numpy() + rng.normal(scale=noise, size=1600)
        for name, sign in (("best", 1), ("worst", -1))
    }
    return pd.DataFrame(rewards, index=WORDS), zipf, valence


def rows(*arguments, **options) -> pd.DataFrame:
    return frequency_slopes(*arguments, pairs=PAIRS, **options).set_index(["words", "prompt"])


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, 0.4])
def test_a_planted_slope_is_covered_as_often_as_the_intervals_say(slope):
    covered = {"rated": 0, "unrated": 0}
    for seed in range(60):
        table = rows(*planted(slope, seed=seed, hidden=1.0))
        for name in covered:
            row = table.loc[(name, "best × worst")]
            covered[name] += row["low"] <= slope <= row["high"]
    assert all(52 <= count <= 60 for count in covered.values()), covered


def test_one_prompt_takes_valence_for_frequency_and_opposite_prompts_do_not():
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


# the analysis


def test_an_unrated_word_has_the_letters_and_the_frequency_that_are_asked():
    letters, rng = "abcdefg", np.random.default_rng(0)
    names = [a + b + c for a in letters for b in letters for c in letters][::3][:60]
    index = pd.Index([*names, *(a + b for a in letters for b in letters)])
    zipf = pd.Series(
        np.where(np.arange(len(index)) < 50, rng.uniform(2, 3, len(index)), 1.0), index
    )
    table = pd.DataFrame({"greatest": rng.normal(size=len(index))}, index=index)
    states = rng.normal(size=(len(index), 1, 3))

    def slopes(scale):
        inside = index.get_indexer
        return frequency_slopes(
            scale * table,
            zipf.where(zipf.index.str.len() > 2, 2.5),
            pd.Series(dtype=float),
            least_zipf=2.0,
            heads=lambda words, _: states[inside(words)],
        ).iloc[0]

    assert slopes(1)["n"] == 50
    assert slopes(10)["heads_within"] == pytest.approx(slopes(1)["heads_within"]), "in SD"
