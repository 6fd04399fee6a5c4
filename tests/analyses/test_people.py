"""Models against people: the published correlations where the data is, closed forms everywhere;
what match counts say of Elo scores, against maximum likelihood and ranks whose truth is known."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from scipy.stats import rankdata

from pessimal.analyses.analysis import Needs, Options
from pessimal.analyses.people import (
    POINTS,
    analyse,
    consensus_test,
    corrected_for_error,
    human_correlation,
    least_error,
    moderated,
    most_valued,
    rank_difference,
    rank_intervals,
    reliability,
    surely_apart,
    surest_interval,
)
from pessimal.errors import TableError
from pessimal.tables.states import States
from pessimal.tables.table_set import table_sets

PUBLISHED = [0.3227, 0.3144, 0.3281, 0.4493, 0.4702, 0.4580, 0.3803, 0.5465, 0.4998, 0.4268]


def test_the_published_scores_give_the_known_correlations(shared_data):
    file = shared_data / "eloeverything" / "greatest_one_word.csv"
    table = pd.read_csv(file, keep_default_na=False).set_index("name")
    result = human_correlation(table.iloc[:, 3:], table["elo_score"])
    assert result["spearman"].round(4).tolist() == PUBLISHED
    assert (result["n"] == 7530).all()
    assert ((result["high"] - result["low"]).between(0.02, 0.06)).all()


def test_the_published_scores_undervalue_what_they_are_known_to(shared_data):
    file = shared_data / "eloeverything" / "greatest_one_word.csv"
    table = pd.read_csv(file, keep_default_na=False).set_index("name")
    result = rank_difference(table.iloc[:, 3:], table["elo_score"], matches=table["elo_matches"])
    black = result.set_index("name").loc["Black people"]
    assert black[["human_rank", "model_rank", "difference"]].tolist() == [202.5, 6913.5, 6711]
    assert black["low"] > 5000
    ranks = table.iloc[:, 3:].rank(ascending=False)
    by_pandas = ranks.median(axis=1) - table["elo_score"].rank(ascending=False)
    assert result["difference"].to_numpy() == pytest.approx(by_pandas.to_numpy())
    published = ranks.assign(people=table["elo_score"].rank(ascending=False)).median(axis=1)
    assert (result["difference_published"] + result["human_rank"]).to_numpy() == pytest.approx(
        published
    )
    listed = most_valued(result, k=20).query("end == 'undervalued'")
    assert {"Black people", "Female body shape"} <= set(listed["name"])


def people_and_models(items: int = 300) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    names = [f"item {place}" for place in range(items)]
    elo = pd.Series(
        rng.normal(1200, 200, size=items).round(-1), index=names
    )  # rounded: people have ties
    noise = rng.normal(size=(items, 2))
    rewards = pd.DataFrame(
        elo.to_numpy()[:, None] + noise * [100, 400], index=names, columns=["near", "far"]
    )
    return rewards, elo


def test_correlations_are_scipys_and_lie_in_their_interval():
    rewards, elo = people_and_models()
    table = human_correlation(rewards, elo)
    for row in table.itertuples():
        assert row.spearman == pytest.approx(stats.spearmanr(rewards[row.model], elo).statistic)
        assert row.kendall == pytest.approx(stats.kendalltau(rewards[row.model], elo).statistic)
        assert row.low < row.spearman < row.high
        assert row.kendall_low < row.kendall < row.kendall_high
    assert list(table.columns)[:6] == ["model", "n", "spearman", "kendall", "low", "high"]


def test_correcting_for_peoples_error_gives_their_true_order_and_moves_the_interval_along():
    """Scores with half of their variance error: the correlation with the truth is back, and inside
    the interval."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=20_000)
    elo = pd.Series(true + rng.normal(size=20_000))
    rewards = pd.DataFrame({"m": true + rng.normal(size=20_000)})
    row = corrected_for_error(human_correlation(rewards, elo), 0.5).iloc[0]
    for end in ("", "_low", "_high"):
        plain = row["spearman"] if not end else row[end[1:]]
        assert row[f"spearman_corrected{end}"] == pytest.approx(plain * np.sqrt(2))
    truth = stats.spearmanr(rewards["m"], true).statistic
    assert row["spearman"] < row["high"] < truth - 0.1
    assert row["spearman_corrected"] == pytest.approx(truth, abs=0.02)


def test_items_are_matched_by_name_not_by_place():
    rewards, elo = people_and_models()
    pd.testing.assert_frame_equal(
        human_correlation(rewards, elo[::-1]), human_correlation(rewards, elo)
    )
    pd.testing.assert_frame_equal(
        rank_difference(rewards, elo[::-1]), rank_difference(rewards, elo)
    )


def test_rank_difference_by_hand():
    names = ["a", "b", "c", "d"]
    elo = pd.Series([4.0, 3.0, 2.0, 2.0], index=names)
    rewards = pd.DataFrame(
        {"x": [1.0, 2.0, 3.0, 4.0], "y": [1.0, 2.0, 3.0, 4.0], "z": [4.0, 3.0, 2.0, 1.0]},
        index=names,
    )
    table = rank_difference(rewards, elo)
    assert table["name"].tolist() == names
    assert table["human_rank"].tolist() == [1, 2, 3.5, 3.5]
    assert table["model_rank"].tolist() == [4, 3, 2, 1]
    assert table["difference"].tolist() == [3, 1, -1.5, -2.5]


def test_the_published_way_counts_the_people_among_the_raters():
    names = ["a", "b", "c"]
    elo = pd.Series([3.0, 2.0, 1.0], index=names)
    rewards = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=names)
    assert rank_difference(rewards, elo)["difference"].tolist() == [2, 0, -2]
    assert rank_difference(rewards, elo, paper=True)["difference"].tolist() == [1, 0, -1]


def raters(
    items: int = 60, models: int = 10, *, seed: int = 0
) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """People and models that agree on most items; `loved` and `scorned` are where they part."""
    rng = np.random.default_rng(seed)
    elo = pd.Series(
        np.linspace(900, 1500, items), index=[f"item {place}" for place in range(items)]
    )
    elo = elo.rename({"item 4": "loved", f"item {items - 5}": "scorned"})
    rewards = pd.DataFrame({f"m{m}": elo + rng.normal(0, 60, size=items) for m in range(models)})
    rewards.loc["loved"] += 500
    rewards.loc["scorned"] -= 500
    rewards.loc["item 30"] += 150  # sure only where people's ranks are well known
    return rewards, elo, pd.Series(300, index=elo.index)


def test_the_models_interval_is_the_exact_one_of_a_median():
    """The 2nd and 9th of ten: with less than 2.5 % of chance on either side, and the 3rd would have
    more."""
    rewards, elo, _ = raters()
    ranks = np.sort(rewards.rank(ascending=False).to_numpy(), axis=1)
    table = rank_difference(rewards, elo)
    assert stats.binom.cdf(1, 10, 0.5) < 0.025 < stats.binom.cdf(2, 10, 0.5)
    assert (table["models_low"] + table["human_rank"]).tolist() == ranks[:, 1].tolist()
    assert (table["models_high"] + table["human_rank"]).tolist() == ranks[:, 8].tolist()
    assert rank_difference(rewards.iloc[:, :5], elo)["models_low"].isna().all()
    assert rank_difference(rewards.iloc[:, :5], elo, confidence=0.9)["models_low"].notna().all()
    assert rank_difference(rewards.iloc[:, :6], elo)["models_low"].notna().all()
    # All three on one side of the median has a chance of exactly 1/8 on either side.
    three = rank_difference(rewards.iloc[:, :3], elo, confidence=0.75)
    assert three["models_low"].notna().all()
    assert rank_difference(rewards.iloc[:, :3], elo, confidence=0.76)["models_low"].isna().all()


def test_peoples_interval_is_of_their_rank_alone_and_the_joint_one_holds_both():
    rewards, elo, matches = raters()
    table = rank_difference(rewards, elo, matches=matches)
    likely = rank_intervals(elo, matches)
    assert (table["model_rank"] - table["people_high"]).to_numpy() == pytest.approx(
        likely["low"].to_numpy()
    )
    assert (table["model_rank"] - table["people_low"]).to_numpy() == pytest.approx(
        likely["high"].to_numpy()
    )
    below, above = table["difference"] - table["low"], table["high"] - table["difference"]
    for side, half in (("low", below), ("high", above)):
        people = (table["difference"] - table[f"people_{side}"]).abs()
        models = (table["difference"] - table[f"models_{side}"]).abs()
        assert half.to_numpy() == pytest.approx(np.sqrt(people**2 + models**2).to_numpy())


def test_the_joint_interval_holds_the_true_difference():
    """Models drawn from a population, people's scores from their matches: the truth is known for
    both."""
    rng = np.random.default_rng(0)
    items, inside = 400, []
    true = pd.Series(rng.normal(1200, 120, size=items))
    liked = 0.6 * true + rng.normal(0, 100, size=items)
    matches = pd.Series(rng.integers(30, 500, size=items))
    population = np.stack(
        [rankdata(-(liked + rng.normal(0, 60, size=items))) for _ in range(2000)], axis=1
    )
    difference = np.median(population, axis=1) - rankdata(-true)
    for _ in range(5):
        rewards = pd.DataFrame({f"m{m}": liked + rng.normal(0, 60, size=items) for m in range(10)})
        elo = true + least_error(matches) * rng.normal(size=items)
        table = rank_difference(rewards, elo, matches=matches, draws=300)
        inside.append(((table["low"] <= difference) & (difference <= table["high"])).mean())
    assert 0.93 < np.mean(inside) < 0.99


def test_only_items_whose_difference_is_sure_are_listed():
    rewards, elo, matches = raters()
    table = rank_difference(rewards, elo, matches=matches)
    listed = most_valued(table, k=5)
    assert listed.loc[listed["rank"] == 1, ["end", "name"]].to_numpy().tolist() == [
        ["overvalued", "loved"],
        ["undervalued", "scorned"],
    ]
    low, high = surest_interval(listed)
    assert ((low > 0) | (high < 0)).all()
    few = most_valued(rank_difference(rewards, elo, matches=pd.Series(9, index=elo.index)), k=5)
    assert len(few) < len(listed), "with nine matches each, people's ranks are hardly known"


# items called over- or undervalued


def noisy(
    models: int, noise: float, *, items: int = 300, seed: int = 0
) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Models that value every item as people truly do, but for noise (in SD of the true strengths);
    Elo and matches."""
    rng = np.random.default_rng([models, items, seed])
    matches = pd.Series(rng.lognormal(np.log(300), 0.6, size=items).astype(int).clip(9))
    true = rng.normal(size=items)
    elo = 1200 + 120 * true + least_error(matches) * rng.normal(size=items)
    return (
        pd.DataFrame(true[:, None] + noise * rng.normal(size=(items, models))).add_prefix("m"),
        elo,
        matches,
    )


@pytest.mark.parametrize("models", [2, 3, 6, 10])
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0, 10.0])
def test_noise_alone_makes_no_item_over_or_undervalued(models, noise):
    """Once 3–31 % of such items were called from six models, and 17–98 % from fewer."""
    tables = [
        rank_difference(rewards, elo, matches=matches, draws=100)
        for rewards, elo, matches in (noisy(models, noise, seed=seed) for seed in range(5))
    ]
    assert np.mean([surely_apart(table).mean() for table in tables]) <= 0.01
    uncorrected = np.mean([(table["p"] <= 0.05).mean() for table in tables])
    assert 0.01 < uncorrected < 0.075


def test_an_item_that_models_value_otherwise_is_found_among_noisy_ones():
    for models in (3, 10):
        rewards, elo, matches = noisy(models, 0.5)
        loved, scorned = elo.sort_values().index[[149, 150]]  # in people's middle
        rewards.loc[loved] += 4  # SD of the true strengths
        rewards.loc[scorned] -= 4
        table = rank_difference(rewards, elo, matches=matches, draws=100)
        called = table.index[surely_apart(table)]
        assert {loved, scorned} <= set(called)
        assert len(called) <= 4
        assert table.loc[loved, "t"] < 0 < table.loc[scorned, "t"]


def test_of_one_model_or_of_copies_no_item_is_called_but_the_farthest_are_listed():
    rewards, elo, matches = noisy(1, 3.0)
    for copies in (rewards, rewards.assign(again=rewards["m0"])):
        table = rank_difference(copies, elo, matches=matches, draws=100)
        assert table[["t", "p", "p_adjusted"]].isna().all(axis=None)
        assert not surely_apart(table).any()
        assert most_valued(table, k=3)["rank"].tolist() == [1, 2, 3, 1, 2, 3]


def test_models_that_agree_on_nothing_say_nothing():
    rng = np.random.default_rng(1)
    rewards = pd.DataFrame(rng.normal(size=(200, 2)))
    rewards[1] = -rewards[0] + 0.1 * rng.normal(size=200)
    assert (consensus_test(rewards, pd.Series(rng.normal(size=200)))["p"] == 1).all()


def test_variances_are_drawn_together_as_far_as_they_are_alike():
    rng = np.random.default_rng(0)
    true = 2.0 * 8 / rng.chisquare(8, size=20_000)  # a prior of 8 degrees of freedom around 2
    seen = true * rng.chisquare(3, size=20_000) / 3
    variance, freedom = moderated(seen, 3)
    assert freedom == pytest.approx(11, rel=0.06)
    assert variance == pytest.approx((8 * 2 + 3 * seen) / 11, rel=0.06)
    same, freedom = moderated(np.array([2.0, 2.1, 1.9, 2.0]), 5)
    assert freedom == np.inf
    assert same.tolist() == [2.0] * 4


# Elo


def crowd(items: int = 1500, *, seed: int = 0) -> tuple[np.ndarray, pd.Series, pd.Series]:
    """True strengths, scores as uncertain as their matches leave them at best, and the matches."""
    rng = np.random.default_rng(seed)
    matches = pd.Series(rng.lognormal(np.log(150), 1, size=items).astype(int).clip(5))
    true = rng.normal(1200, 120, size=items)
    return true, pd.Series(true + least_error(matches) * rng.normal(size=items)), matches


def test_the_least_error_is_that_of_maximum_likelihood_against_equal_opponents():
    """400 matches, half of them won: the standard error of a logistic regression, in Elo points."""
    fitted = sm.Logit(np.tile([0.0, 1.0], 200), np.ones(400)).fit(disp=False)
    assert least_error(pd.Series([400])).iloc[0] == pytest.approx(POINTS * fitted.bse[0], rel=1e-6)


def test_reliability_is_the_squared_correlation_of_scores_with_the_truth():
    true, elo, matches = crowd(20_000)
    assert reliability(elo, matches) == pytest.approx(np.corrcoef(true, elo)[0, 1] ** 2, abs=0.01)


def test_true_ranks_lie_in_their_interval_as_often_as_promised_at_the_ends_too():
    covered = []
    for seed in range(4):
        true, elo, matches = crowd(seed=seed)
        table = rank_intervals(elo, matches, seed=seed, draws=400)
        rank = rankdata(-true)
        inside = (table["low"] <= rank) & (rank <= table["high"])
        at_ends = (table["rank"] <= 50) | (table["rank"] > 1450)
        covered.append([inside.mean(), inside[at_ends].mean()])
    everywhere, ends = np.mean(covered, axis=0)
    assert 0.935 < everywhere < 0.965
    assert 0.91 < ends < 0.98  # adding the error to the scores once more: .84


# analyse

ITEMS = 120
VALUE = np.linspace(-2, 2, ITEMS)
NAMES = ["null", "<b>", *(f"thing {place}" for place in range(2, ITEMS))]
ELO = pd.DataFrame({"elo": 1200 + 100 * VALUE, "elo_matches": 400}, index=NAMES)
OPTIONS = Options(replicates=200, top=3)
POLARITY = {"greatest": 1, "best": 1, "worst": -1}


def by_name(results) -> dict:
    return {result.name: result for result in results}


def scans(
    prompts: dict[str, int], *, noise: dict[str, float], outliers: bool = False
) -> dict[str, pd.DataFrame]:
    """Rewards that follow people's order, turned round where the sign is −1, with as much noise for
    each model."""
    liked = VALUE.copy()
    if outliers:  # the second from below by people, and the last but one
        liked[1], liked[-2] = 2.5, -2.5
    rng = np.random.default_rng(0)
    return {
        prompt: pd.DataFrame(
            {m: sign * (liked + scale * rng.normal(size=ITEMS)) for m, scale in noise.items()},
            index=NAMES,
        )
        for prompt, sign in prompts.items()
    }


def asked(
    table_set, prompts: dict[str, int], *, people=ELO, outliers: bool = False, noise=None, **reading
):
    noise = noise or {"near": 0.2, "far": 2.0, "between": 0.8}
    rewards = scans(prompts, noise=noise, outliers=outliers)
    return table_set(
        rewards, candidates="things", people=people, **{"polarity": POLARITY} | reading
    )


def test_the_model_that_was_made_to_agree_is_in_the_headline(table_set):
    results = by_name(analyse(asked(table_set, {"greatest": 1}), OPTIONS))
    assert list(results) == ["human_correlation", "people_agreement", "rank_difference", "valued"]
    table = results["human_correlation"].table.set_index("model")
    assert {"prompt", "n", "spearman", "kendall", "low", "high", "candidates"} <= set(table)
    assert (table["spearman_corrected"] > table["spearman"]).all()
    estimate = results["human_correlation"].estimate
    assert (estimate.value, estimate.n) == (table.loc["near", "spearman"], ITEMS)
    assert estimate.low < estimate.value < estimate.high
    lines = results["rank_difference"].plot.data
    assert list(dict.fromkeys(lines["rater"])) == ["people", "near", "between", "far"]
    assert lines.groupby("rater")["ρ"].first()["near"] == table.loc["near", "spearman"]
    first = lines[lines["group"] == "people's first ten"]
    assert first[~first["behind"]]["name"].nunique() == 10
    assert (
        first[first["behind"] & (first["rater"] == "people")]["rank"].between(11, ITEMS).sum() > 20
    )
    taus = results["people_agreement"].table.set_index(["model_a", "model_b"])["kendall"]
    assert len(taus) == 6
    assert taus["near", "people"] == pytest.approx(table.loc["near", "kendall"])
    assert {"name", "human_rank", "difference", "difference_published", "turned"} <= set(
        results["rank_difference"].table
    )


def test_items_on_which_models_and_people_differ_are_listed_whichever_end_is_asked_for(table_set):
    models = dict.fromkeys((f"m{i}" for i in range(6)), 0.1)
    tables = asked(table_set, {"greatest": 1, "worst": -1}, outliers=True, noise=models)
    results = by_name(analyse(tables, OPTIONS))
    turned = results["rank_difference"].table.groupby("prompt")["turned"].first()
    assert turned.to_dict() == {"greatest": False, "worst": True}
    for prompt in ("greatest", "worst"):
        listed = (
            results["valued"].table.query(f"prompt == '{prompt}' and rank == 1").set_index("end")
        )
        assert listed["name"].to_dict() == {"overvalued": NAMES[1], "undervalued": NAMES[-2]}
        assert listed.loc["overvalued", "high"] < 0 < listed.loc["undervalued", "low"]
    assert abs(results["valued"].estimate.value) > 0.9
    assert results["rank_difference"].estimate.value == pytest.approx(2 / ITEMS, abs=0.1)


@pytest.mark.parametrize("prompt", ["worst", "worst_ever"])
def test_where_bad_words_answer_the_lowest_correlation_agrees_most(table_set, prompt):
    factors = {"adjective": ["best", "worst"], "superlative": ["ever", "time"]}
    results = by_name(analyse(asked(table_set, {prompt: -1}, factors=factors), OPTIONS))
    assert results["human_correlation"].estimate.value < -0.9
    assert list(dict.fromkeys(results["rank_difference"].plot.data["rater"]))[1] == "near"
    wrong = by_name(analyse(asked(table_set, {prompt: 1}, factors=factors), OPTIONS))
    assert "disagree with people" in wrong["human_correlation"].headline
    assert wrong["rank_difference"].table["turned"].all()


def test_where_the_polarity_is_not_known_or_as_published_nothing_is_turned(table_set):
    unknown = by_name(analyse(asked(table_set, {"oddest": -1}), OPTIONS))
    assert not unknown["rank_difference"].table["turned"].any()
    assert "agrees" not in unknown["human_correlation"].headline
    published = by_name(analyse(asked(table_set, {"worst": -1}), replace(OPTIONS, paper=True)))
    table = published["rank_difference"].table
    assert not table["turned"].any()
    assert (table["difference"] == table["difference_published"]).all()
    assert published["human_correlation"].estimate.value < -0.9


def test_models_without_elo_are_left_out_and_named(table_set):
    with_elo, bare = (
        table_set({"greatest": rewards}, candidates="things", people=people, polarity=POLARITY)
        for rewards, people in (
            (scans({"greatest": 1}, noise={"near": 0.2})["greatest"], ELO),
            (scans({"greatest": 1}, noise={"far": 2.0})["greatest"], None),
        )
    )
    (both,) = table_sets([*with_elo.tables, *bare.tables], with_elo.reading)
    found, alone = by_name(analyse(both, OPTIONS)), by_name(analyse(with_elo, OPTIONS))
    assert found["human_correlation"].table.equals(alone["human_correlation"].table)
    assert found["rank_difference"].table.equals(alone["rank_difference"].table)
    assert "greatest: no Elo in the scores of far" in found["human_correlation"].notes
    assert "rated" in Needs(elo=True).missing(bare, OPTIONS)
    assert not analyse.needs.missing(both, OPTIONS)


@pytest.mark.parametrize("column", ["elo", "elo_matches"])
def test_tables_that_give_the_items_other_people_are_refused(table_set, column):
    other = (
        ELO.assign(elo=2400 - 3 * np.arange(ITEMS))
        if column == "elo"
        else ELO.assign(elo_matches=399)
    )
    sets = [
        table_set(scans({"greatest": 1}, noise={model: 0.2}), candidates="things", people=people)
        for model, people in (("near", ELO), ("far", other))
    ]
    (both,) = table_sets([*sets[0].tables, *sets[1].tables])
    with pytest.raises(
        TableError, match=r"120 of 120 items another Elo.*models=\[far\], then models=\[near\]"
    ):
        analyse(both, OPTIONS)


def test_a_head_that_nobody_trained_is_not_said_to_agree(table_set):
    """The base's states say what people like; one model is a head that nobody trained on them, the
    other knows more of people than the states do."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(ITEMS, 4))
    known = 0.5 * VALUE + base[:, 0]
    people = ELO.assign(elo=1200 + 100 * known)
    rewards = pd.DataFrame(
        {"born": base @ [0.8, 1, 0.3, 0.5], "taught": known + 0.2 * rng.normal(size=ITEMS)},
        index=NAMES,
    )
    states = States("base", "org/base", 4, 1, pd.DataFrame(base.astype(np.float16), index=NAMES))
    made = table_set({"greatest": rewards}, candidates="things", people=people, polarity=POLARITY)
    (tables,) = table_sets([replace(one, states=states) for one in made.tables], made.reading)
    result = by_name(analyse(tables, OPTIONS))["human_correlation"]
    rows = result.table.set_index("model")
    assert (rows["low"] > 0.2).all()  # how much: both
    assert rows["random_head_holm"]["born"] > 0.2 > 0.01 > rows["random_head_holm"]["taught"]
    assert set(rows["states"]) == {"base"}
    assert "1 of 2 models agree with people by themselves; most, taught" in result.headline
    assert result.estimate.p == rows["random_head_holm"]["taught"]
    assert result.estimate.heads
    alone = [one for one in tables.tables if one.provenance.model == "born"]
    (one,) = table_sets(alone, made.reading)
    assert (
        "no model is found to agree" in by_name(analyse(one, OPTIONS))["human_correlation"].headline
    )
    paper = by_name(analyse(tables, replace(OPTIONS, paper=True)))["human_correlation"]
    assert paper.table["random_head"].isna().all()
    assert "random heads" not in paper.headline
