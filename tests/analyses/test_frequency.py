"""Slopes by word frequency: planted ones come back, valence does not pass for frequency, and the
published joins."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from pessimal.analyses import Options
from pessimal.analyses.frequency import (
    LEAST_ZIPF,
    analyse,
    frequency_slopes,
    published_frequency_slopes,
)
from pessimal.statistics import holm
from pessimal.tables.result import HOLDS
from pessimal.tables.word_lists import Frequencies, as_published

PAIRS = [("best", "worst")]
POLARITY = {"best": 1, "worst": -1}
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


def three_models(*, hidden: float = 0.0) -> tuple[dict[str, pd.DataFrame], Options]:
    """`cedar` with a planted slope beside two without; and options that know the words."""
    words, zipf, valence = planted(0.0, hidden=hidden)
    slopes = {"alder": 0.0, "cedar": 0.5, "oak": 0.0}
    matrices = {
        prompt: pd.DataFrame(
            {m: words[prompt] + slope * zipf for m, slope in slopes.items()}
        ).rename(index=" {}".format)
        for prompt in words
    }
    listed = Frequencies(
        "a list", pd.DataFrame({"word": WORDS, "per_million": 10 ** (zipf.to_numpy() - 3)})
    )
    return matrices, Options(lexicons={"L": valence}, frequencies=listed)


def test_the_heaviest_certain_slope_is_the_headlines(table_set):
    matrices, options = three_models(hidden=1.0)
    (result,) = analyse(table_set(matrices, polarity=POLARITY), options)
    table = result.table.set_index(["words", "model", "prompt"])
    for words in ("rated", "unrated"):
        row = table.loc[(words, "cedar", "best × worst")]
        assert row["low"] < 0.5 < row["high"]
        assert row["p_corrected"] < 1e-6
        assert table.loc[(words, "oak", "best × worst"), "p_corrected"] > 0.05
    for _, family in result.table.groupby(["words", "prompt"]):
        assert (family["p_corrected"] == holm(family["p"])).all(), "corrected over models"
    rated = table.loc[("rated", "cedar", "best × worst")]
    assert (result.estimate.value, result.estimate.n) == (rated["slope_sd"], 400)
    assert "steepest, cedar" in result.headline
    assert "1 of 3 models" in result.headline
    assert HOLDS < result.weight < HOLDS + 1
    assert (
        result.summary["frequency/unrated/cedar"]
        == table.loc[("unrated", "cedar", "best × worst"), "slope"]
    )
    assert set(result.table["unit"]) == {"Zipf unit"}


def test_of_one_prompt_slopes_are_biased_and_weigh_half(table_set):
    matrices, options = three_models(hidden=1.0)
    (both,) = analyse(table_set(matrices, polarity=POLARITY), options)
    (one,) = analyse(table_set({"best": matrices["best"]}, polarity=POLARITY), options)
    assert set(one.table["frames"]) == {"one"}
    assert HOLDS < one.weight < both.weight
    assert one.plot.where == {"frames": "one"}


def test_pieces_and_words_of_any_lexicon_are_not_unrated(table_set):
    matrices, options = three_models()
    pieces = {
        p: m.rename(index=lambda text: text.strip() if text.strip() in WORDS[1000:] else text)
        for p, m in matrices.items()
    }
    other = replace(options, lexicons={**options.lexicons, "Other": pd.Series(1.0, WORDS[400:700])})
    (result,) = analyse(table_set(pieces, polarity=POLARITY), other)
    zipf = other.frequencies.zipf(WORDS)
    n = result.table.query("words == 'unrated'")["n"]
    assert set(n) == {(zipf[700:1000] >= LEAST_ZIPF).sum()}


def test_as_published_the_unit_is_the_logarithms_and_no_prompts_are_paired(table_set):
    matrices, options = three_models()
    bare = {p: m.rename(index=str.strip) for p, m in matrices.items()}
    (result,) = analyse(
        table_set(bare, polarity=POLARITY, paper=True), replace(options, paper=True)
    )
    assert set(result.table["frames"]) == {"one"}
    assert set(result.table["words"]) == {"rated"}
    cedar = result.table.set_index(["model", "prompt"]).loc[("cedar", "best")]
    assert cedar["slope"] * np.log(10) == pytest.approx(0.5, abs=0.1)
    assert cedar["unit"] == "unit of ln per million"
