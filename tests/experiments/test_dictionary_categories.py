"""Median ranks by category: the published Big Two numbers, what their mixed model hides, and what
is left out."""

import zlib
from itertools import product
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import mixedlm

from experiments.inherited_values.category_model import (
    base_contrasts,
    category_model,
    model_contrasts,
)
from experiments.inherited_values.dictionaries import (
    ALL_BASES,
    ALL_CATEGORIES,
    Spelling,
    category_means,
    category_results,
    median_ranks,
    words_found,
)
from experiments.inherited_values.resampling import median_interval
from experiments.inherited_values.word_categories import read_dictionary
from pessimal.analyses.analysis import Options
from pessimal.plots.draw import draw
from pessimal.tables.published import read_factorial54

POSITIVE = ("best", "greatest", "good")


def polarity_of(prompts) -> dict[str, int]:
    return {prompt: 1 if prompt.split("_")[0] in POSITIVE else -1 for prompt in prompts}


@pytest.fixture(scope="module")
def big_two(shared_data: Path) -> tuple[pd.DataFrame, dict[str, int], dict[str, str]]:
    """Median ranks of the published scores, the frame of each prompt, the base of each model."""
    folder = shared_data / "big_two"
    rewards: dict[str, dict[str, pd.Series]] = {}
    for file in sorted(folder.glob("big2_rewards_*.parquet")):
        model = file.stem.removeprefix("big2_rewards_").replace("_", "/", 1)
        for table in read_factorial54(file, model=model):
            of_prompt = rewards.setdefault(table.provenance.prompt, {})
            of_prompt[table.provenance.model] = table.rows.set_index("text")["reward"]
    medians = median_ranks(rewards, read_dictionary(folder / "dict_big2_nouns.csv"))
    models = medians["model"].unique()
    bases = {model: "Gemma" if "gemma" in model.lower() else "Llama" for model in models}
    return medians, polarity_of(rewards), bases


def test_big_two_means_are_the_published_ones(big_two):
    medians, polarity, bases = big_two
    assert set(medians["words"]) == {263}, (
        "the published files hold 265 responses, of which two are in no category"
    )
    means = category_means(medians, polarity=polarity, bases=bases).set_index(
        ["framing", "base", "category"]
    )
    overall = means.xs((ALL_BASES, ALL_CATEGORIES), level=("base", "category"))
    assert overall[["mean", "sd"]].round(2).to_numpy().tolist() == [
        [131.78, 10.67],
        [126.09, 27.29],
    ]
    published = {
        ("positive", "Agency"): (132.46, 128.29),
        ("positive", "Communion"): (131.08, 135.27),
        ("negative", "Agency"): (97.46, 103.04),
        ("negative", "Communion"): (154.91, 149.01),
    }
    for (framing, category), (gemma, llama) in published.items():
        assert round(means.loc[(framing, "Gemma", category), "mean"], 2) == gemma
        assert round(means.loc[(framing, "Llama", category), "mean"], 2) == llama


def test_big_two_mixed_model_is_the_published_one_and_that_of_statsmodels(big_two):
    medians, polarity, bases = big_two
    terms = category_model(medians, polarity=polarity, bases=bases).set_index("term")
    three_way = terms.loc["base Llama × category Communion × framing negative"]
    assert (round(three_way["estimate"], 2), round(three_way["se"], 2)) == (-19.83, 2.50)
    assert round(terms.loc["base Llama × category Communion", "estimate"], 2) == 8.35
    assert round(terms.loc["category Communion × framing negative", "estimate"], 2) == 58.83

    table = medians.assign(
        base=medians["model"].map(bases),
        framing=medians["prompt"].map(polarity).map({1: "a", -1: "b"}),
    )
    fit = mixedlm("median_rank ~ base * category * framing", table, groups="model").fit(
        method=["powell", "lbfgs"]
    )
    assert terms["estimate"].to_numpy() == pytest.approx(fit.fe_params.to_numpy(), abs=1e-3)
    assert terms["se"].to_numpy() == pytest.approx(fit.bse_fe.to_numpy(), rel=1e-3)
    assert terms["p_value"].to_numpy() == pytest.approx(fit.pvalues[:-1].to_numpy(), abs=1e-3)
    assert terms["intercept_variance"].iloc[0] == pytest.approx(fit.cov_re.iloc[0, 0], rel=1e-2)
    assert not terms["singular"].any()


def test_the_published_p_value_does_not_survive_taking_models_as_units(big_two):
    medians, polarity, bases = big_two
    row = category_model(medians, polarity=polarity, bases=bases).iloc[-1]
    assert row["p_value"] < 1e-12
    assert row["relabellings"] == comb(10, 4) == 210
    assert row["permutation_p"] == pytest.approx(16 / 210)
    own = (
        medians.assign(sign=medians["prompt"].map(polarity))
        .groupby(["model", "category", "sign"])["median_rank"]
        .mean()
    )
    own = own.unstack("category").eval("Communion - Agency").unstack("sign").eval("`-1` - `1`")
    llama, gemma = (
        [own[model] for model in own.index if bases[model] == base] for base in ("Llama", "Gemma")
    )
    t = stats.ttest_ind(llama, gemma)
    assert row["models_p"] == pytest.approx(t.pvalue)
    assert (row["models_low"], row["models_high"]) == pytest.approx(
        tuple(t.confidence_interval(0.95))
    )


def made_up(
    rng,
    *,
    models=8,
    prompts=6,
    slope=0.0,
    intercept=0.0,
    effect=0.0,
    categories=("a", "b"),
    noise=5.0,
) -> pd.DataFrame:
    """Median ranks: `slope`, `intercept` are how far models differ, `effect` what the second base
    adds to category b."""
    rows = []
    for m in range(models):
        own, tilt = rng.normal(0, intercept), rng.normal(0, slope)
        for p in range(prompts):
            sign = 1 if p % 2 else -1
            for c, category in enumerate(categories):
                mean = 100 + own + (tilt + effect * (m % 2)) * c * (sign < 0) + 20 * c * sign
                prompt = f"{'best' if sign > 0 else 'worst'}_{p}"
                rows.append((f"m{m}", prompt, category, mean + rng.normal(0, noise)))
    return pd.DataFrame(rows, columns=["model", "prompt", "category", "median_rank"])


def bases_of(table: pd.DataFrame) -> dict[str, str]:
    return {model: "xy"[int(model[1:]) % 2] for model in table["model"].unique()}


@pytest.mark.slow
def test_mixed_model_alone_takes_chance_for_an_effect_where_models_differ_and_permutation_does_not():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(40):
        table = made_up(rng, models=8, prompts=20, slope=10.0)
        row = category_model(
            table, polarity=polarity_of(table["prompt"]), bases=bases_of(table)
        ).iloc[-1]
        found.append(row[["p_value", "permutation_p", "models_p"]])
    rejected = (pd.DataFrame(found).astype(float) <= 0.05).mean()
    assert rejected["p_value"] > 0.25
    assert rejected["permutation_p"] <= 0.12
    assert rejected["models_p"] <= 0.12


@pytest.mark.parametrize("intercept", [0.0, 6.0])
def test_restricted_likelihood_is_that_of_balanced_analysis_of_variance(intercept):
    """Balanced and one category of everything: the intercept variance is (between − within) / n, or
    0."""
    table = made_up(np.random.default_rng(2), models=6, prompts=10, intercept=intercept)
    found = category_model(table, polarity=polarity_of(table["prompt"]))
    fit_rows = table.assign(sign=table["prompt"].map(polarity_of(table["prompt"])))
    cell = fit_rows.groupby(["category", "sign"])["median_rank"].transform("mean")
    residual = table["median_rank"] - cell
    n = len(table) / 6
    means = residual.groupby(table["model"]).mean()
    between = n * float((means**2).sum()) / 5
    within = float(((residual - table["model"].map(means)) ** 2).sum()) / (len(table) - 6 - 3)
    expected = max(0.0, (between - within) / n)
    assert found["intercept_variance"].iloc[0] == pytest.approx(expected, rel=1e-4, abs=1e-9)
    assert found["singular"].iloc[0] == (expected == 0)


# Contrasts within a category and a framing.


def test_big_two_contrasts_of_bases_are_the_published_means(big_two):
    medians, polarity, bases = big_two
    found = base_contrasts(medians, polarity=polarity, bases=bases)
    cells = found.set_index(["framing", "category"])["estimate"].round(2).to_dict()
    # Llama less Gemma, of the published mean median ranks, which are rounded
    assert cells == pytest.approx(
        {
            ("positive", "Agency"): 128.29 - 132.46,
            ("positive", "Communion"): 135.27 - 131.08,
            ("negative", "Agency"): 103.04 - 97.46,
            ("negative", "Communion"): 149.01 - 154.91,
        },
        abs=0.011,
    )
    assert set(zip(found["base"], found["reference"], strict=True)) == {("Llama", "Gemma")}
    assert (found[["n", "models", "prompts", "relabellings"]] == [270, 10, 27, comb(10, 4)]).all(
        axis=None
    )
    assert (found["mixed_p_adjusted"] < 0.01).all(), "as published, prompts count as independent"
    assert (found["p_adjusted"] > 0.5).all(), "ten models do not carry it"
    for row in found.to_dict("records"):
        cell = medians[(medians["category"] == row["category"])]
        cell = cell[cell["prompt"].map(polarity) == (1 if row["framing"] == "positive" else -1)]
        one, other = (
            cell.loc[cell["model"].map(bases) == b, "median_rank"] for b in ("Llama", "Gemma")
        )
        p = stats.ttest_ind(one, other, equal_var=False).pvalue
        assert row["welch_p"] == pytest.approx(p)
        assert row["welch_p_bonferroni"] == pytest.approx(4 * p)
        means = cell.groupby("model")["median_rank"].mean()
        t = stats.ttest_ind(
            means[means.index.map(bases) == "Llama"], means[means.index.map(bases) == "Gemma"]
        )
        interval = t.confidence_interval(0.95)
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
        assert row["p"] == pytest.approx(t.pvalue, abs=0.06)


def test_a_lineage_is_relabelled_as_one_and_counts_by_its_models():
    """Three lineages of 3, 1 and 1 models, two bases: by hand."""
    means = {"a1": 1.0, "a2": 2.0, "a3": 3.0, "b": 9.0, "c": 5.0}
    table = pd.DataFrame(
        [
            (model, prompt, category, mean * (category == "x") + noise)
            for model, mean in means.items()
            for prompt, noise in (("p", 0.0), ("q", 0.1))
            for category in "xy"
        ],
        columns=["model", "prompt", "category", "median_rank"],
    )
    bases = {model: "one" if model == "b" else "two" for model in means}
    lineages = dict.fromkeys(["a1", "a2", "a3"], "a")
    found = base_contrasts(table, polarity={"p": 1, "q": 1}, bases=bases, lineages=lineages)
    row = found.set_index("category").loc["x"]
    # "two" less "one": a + c against b; b + c against a; a + b against c.
    others = [11 / 4 - 9, 14 / 2 - 2, 15 / 4 - 5]
    assert row["estimate"] == pytest.approx(others[0])
    assert (row["lineages"], row["models"], row["relabellings"]) == (3, 5, 3)
    assert row["p"] == pytest.approx(sum(abs(d) >= abs(others[0]) for d in others) / 3)


def test_a_contrast_is_the_coefficient_of_a_model_that_has_its_cell_as_reference():
    table = made_up(
        np.random.default_rng(3), models=7, categories=("a", "b", "c"), intercept=5.0, effect=9.0
    )
    polarity, bases = polarity_of(table["prompt"]), bases_of(table)
    found = base_contrasts(table, polarity=polarity, bases=bases).set_index(["category", "framing"])
    for category, framing in product("abc", ("positive", "negative")):
        first = table.assign(
            category=table["category"].replace(category, " ")
        )  # first in order of name
        signs = (
            polarity
            if framing == "positive"
            else {prompt: -sign for prompt, sign in polarity.items()}
        )
        term = category_model(first, polarity=signs, bases=bases).set_index("term").loc["base y"]
        row = found.loc[(category, framing)]
        assert row["mixed_se"] == pytest.approx(term["se"], rel=1e-6)
        assert (row["mixed_low"], row["mixed_high"]) == pytest.approx(
            (term["low"], term["high"]), abs=1e-5
        )
        assert row["mixed_p"] == pytest.approx(term["p_value"], rel=1e-5)
        assert row["estimate"] == pytest.approx(term["estimate"])
        assert (row["low"], row["high"], row["p"]) == pytest.approx(
            (term["models_low"], term["models_high"], term["permutation_p"])
        )
    assert found["p_adjusted"].min() == pytest.approx(min(1, 6 * found["p"].min()))


def test_two_models_are_compared_prompt_by_prompt():
    rng = np.random.default_rng(6)
    table = made_up(rng, models=3, prompts=10, intercept=8.0)
    polarity = {
        prompt.replace("_", ""): sign for prompt, sign in polarity_of(table["prompt"]).items()
    }
    table["prompt"] = table["prompt"].str.replace("_", "")  # each a unit of its own
    found = model_contrasts(table, polarity=polarity)
    assert len(found) == 2 * 2 * 3
    for row in found.to_dict("records"):
        cell = table[
            (table["category"] == row["category"])
            & (table["prompt"].map(polarity) == (1 if row["framing"] == "positive" else -1))
        ]
        one, other = (
            cell[cell["model"] == row[k]].set_index("prompt")["median_rank"]
            for k in ("model", "reference")
        )
        t = stats.ttest_rel(one, other)
        interval = t.confidence_interval(0.95)
        assert (row["n"], row["estimate"]) == (5, pytest.approx((one - other).mean()))
        assert (row["low"], row["high"], row["p"]) == pytest.approx(
            (interval.low, interval.high, t.pvalue)
        )
        assert row["welch_p"] == pytest.approx(stats.ttest_ind(one, other, equal_var=False).pvalue)
    assert found["welch_p_fdr"].to_numpy() == pytest.approx(
        stats.false_discovery_control(found["welch_p"])
    )
    single = model_contrasts(table[table["prompt"].isin(["best1", "worst0"])], polarity=polarity)
    assert single[["low", "p", "p_adjusted", "welch_p"]].isna().all(axis=None)
    assert single["estimate"].notna().all()


WORDS = [f"w{place}" for place in range(30)]
DICTIONARY = pd.DataFrame(
    {"category": ["a"] * 15 + ["b"] * 15 + ["few"], "word": [*WORDS, "lonely"]}
)


def rewards_of(rng, *, texts=None) -> pd.Series:
    texts = texts or [*WORDS, "lonely", "other"]
    return pd.Series(rng.normal(size=len(texts)), index=pd.Index(texts, name="text"))


def test_ranks_are_among_the_words_every_model_has_one_a_word():
    rng = np.random.default_rng(0)
    one = rewards_of(rng, texts=[*WORDS, "lonely", "w9x", *(f" {word.upper()}" for word in WORDS)])
    two = rewards_of(rng, texts=WORDS[1:])
    found = median_ranks({"best": {"m1": one, "m2": two}}, DICTIONARY)
    assert set(found["words"]) == {29}
    assert found.groupby("category")["n"].first().to_dict() == {"a": 14, "b": 15}
    by_word = one.groupby(one.index.str.strip().str.lower()).mean()
    ranks = by_word[WORDS[1:]].rank(ascending=False)
    row = found[(found["model"] == "m1") & (found["category"] == "a")].iloc[0]
    assert row["median_rank"] == ranks[WORDS[1:15]].median()
    assert row["low"] <= row["median_rank"] <= row["high"]
    counts = words_found({"best": {"m1": one, "m2": two}}, DICTIONARY).set_index("category")
    assert counts.loc["a"].to_dict() == {
        "words": 15,
        "wildcards": 0,
        "entries_found": 14,
        "found": 14,
        "used": 14,
    }
    assert counts.loc["few", ["found", "used"]].tolist() == [0, 0]


def test_a_wildcard_finds_every_word_that_begins_so_and_says_how_many():
    care = ["safe", "safety", "safely", "safeguard", "kind", "kindness", "care"]
    harm = ["harm", "harmful", "harmed", "harming", "war", "kill"]
    own = {"m": [*care, " Safes", *harm, "safe.txt"], "n": [*care, "safes", *harm, "warlike"]}
    rewards = {model: pd.Series(np.arange(15.0), index=texts) for model, texts in own.items()}
    listed = {
        "care": ["Safe*", "safety", "kind*", "peace*"],
        "harm": ["harm*", "war*", "kill", "kind*"],
    }
    in_full = {"care": [*care[:6], "safes"], "harm": [*harm, "kind", "kindness"]}
    wild, plain = (
        pd.Series(each, name="word").rename_axis("category").explode().reset_index()
        for each in (listed, in_full)
    )
    counts = words_found({"best": rewards}, wild).set_index("category")
    assert counts.columns.tolist() == ["words", "wildcards", "entries_found", "found", "used"]
    # safety once, although two entries find it; warlike and safe.txt are not in both models
    assert counts.loc[["care", "harm"]].to_numpy().tolist() == [[4, 3, 3, 7, 7], [4, 3, 4, 8, 8]]
    pd.testing.assert_frame_equal(
        median_ranks({"best": rewards}, wild), median_ranks({"best": rewards}, plain)
    )


@pytest.mark.parametrize("n", [7, 20])
def test_interval_of_a_median_reaches_its_level(n):
    values = np.arange(1.0, n + 1)[None]
    (low,), (high,) = median_interval(values, confidence=0.95)
    place = int(low)
    assert high == n + 1 - place
    assert 1 - 2 * stats.binom.cdf(place - 1, n, 0.5) >= 0.95, "exact coverage"
    assert 1 - 2 * stats.binom.cdf(place, n, 0.5) < 0.95, "no wider than it must be"
    assert np.isnan(median_interval(values[:, :5], confidence=0.95)).all()


# Wildcards.


# Log-probabilities.


def test_a_word_is_as_probable_as_its_spellings_together_and_the_published_way_counts_one_of_them():
    texts = [*WORDS, " W0", "W0"]
    values = pd.Series(np.log(np.linspace(0.001, 0.03, 32)), index=texts)
    rewards, exact = {"best": {"m": values}}, Spelling(exact=True, added=True)
    found = median_ranks(rewards, DICTIONARY, spelling=Spelling(added=True)).set_index("category")
    together = (
        pd.Series(np.exp(values.to_numpy()), index=[t.strip().lower() for t in texts])
        .groupby(level=0)
        .sum()
    )
    assert found.loc["a", "median_rank"] == together.rank(ascending=False)[WORDS[:15]].median()
    alone = median_ranks(rewards, DICTIONARY, spelling=exact).set_index("category")
    assert alone.loc["a", "median_rank"] == values[WORDS].rank(ascending=False)[WORDS[:15]].median()
    mean = median_ranks(rewards, DICTIONARY).set_index("category")
    assert (
        len(
            {
                found.loc["b", "median_rank"],
                alone.loc["b", "median_rank"],
                mean.loc["b", "median_rank"],
            }
        )
        > 1
    )
    capital = {"best": {"m": values.rename({word: word.upper() for word in WORDS[:20]})}}
    assert words_found(capital, DICTIONARY, exact)["found"].sum() == 10


# The analysis.

SIGNS = {"best": 1, "good": 1, "greatest": 1, "worst": -1, "bad": -1}
THINGS = [f"word{i}" for i in range(40)]
CARE = pd.DataFrame({"category": ["care"] * 20 + ["harm"] * 20, "word": THINGS})
OPTIONS = Options(permutations=200)


def analyse(tables, options=OPTIONS, dictionary=CARE) -> list:
    return category_results(tables, options, {"Foundations": dictionary})


def asked(models: int, prompts) -> dict[str, pd.DataFrame]:
    """Rewards that rise along the words where good words answer, and fall where bad ones do."""
    found = {}
    for prompt in prompts:
        sign = -1 if prompt.startswith(("worst", "bad")) else 1
        columns = {}
        for i in range(models):
            rng = np.random.default_rng(zlib.crc32(f"{i} {prompt}".encode()))
            columns[f"m{i}"] = sign * np.linspace(-1, 1, 42) + rng.normal(0, 0.8, 42)
        found[prompt] = pd.DataFrame(columns, index=["", " ", *THINGS])
    return found


def results_of(tables, options=OPTIONS) -> dict:
    return {result.name: result for result in analyse(tables, options)}


def test_the_analysis_finds_which_category_comes_first_and_whether_the_base_matters(table_set):
    described = {f"m{i}": {"base": "oak" if i % 2 else "elm"} for i in range(6)}
    tables = table_set(asked(6, ("greatest", "best", "worst")), described=described, polarity=SIGNS)
    found = results_of(tables)
    assert set(found) == {
        "dictionary_words",
        "median_ranks",
        "dictionary_means",
        "dictionary_mixed_model",
        "dictionary_contrasts",
    }
    for result in found.values():
        assert {"dictionary", "candidates"} <= set(result.table)
        assert len(result.headline.split()) <= 25
    assert set(found["median_ranks"].table["framing"]) == {"positive", "negative"}
    assert "base oak × category harm × framing negative" in set(
        found["dictionary_mixed_model"].table["term"]
    )
    means = (
        found["dictionary_means"]
        .table.query("base == 'all bases'")
        .set_index(["framing", "category"])["mean"]
    )
    assert means["positive", "harm"] < means["positive", "care"], (
        "rewards rise along the list; rank 1 is the highest"
    )
    assert means["negative", "harm"] > means["negative", "care"]
    estimate = found["dictionary_means"].estimate
    assert estimate.value == pytest.approx(
        max(abs(means[f, "harm"] - means[f, "care"]) for f in ("positive", "negative"))
    )
    assert estimate.low < estimate.value < estimate.high
    assert estimate.n == 6
    for name in ("dictionary_means", "dictionary_mixed_model", "dictionary_contrasts"):
        assert len(draw(found[name].plot, found[name].table)) == 1
