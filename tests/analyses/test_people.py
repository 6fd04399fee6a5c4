"""Models against people: the published correlations and items where the data is, closed forms
everywhere."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from pessimal.analyses.analysis import Options
from pessimal.analyses.people import analyse, human_correlation, most_valued, rank_difference
from pessimal.errors import TableError
from pessimal.tables.score_table import States
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
    result = rank_difference(table.iloc[:, 3:], table["elo_score"])
    black = result.set_index("name").loc["Black people"]
    assert black[["human_rank", "model_rank", "difference"]].tolist() == [202.5, 6913.5, 6711]
    assert black["lower_quartile"] > 5000
    ranks = table.iloc[:, 3:].rank(ascending=False)
    by_pandas = ranks.median(axis=1) - table["elo_score"].rank(ascending=False)
    assert result["difference"].to_numpy() == pytest.approx(by_pandas.to_numpy())
    published = ranks.assign(people=table["elo_score"].rank(ascending=False)).median(axis=1)
    as_published = rank_difference(table.iloc[:, 3:], table["elo_score"], paper=True)
    assert as_published["model_rank"].to_numpy() == pytest.approx(published)
    listed = most_valued(result, k=20)
    assert {"Black people", "Female body shape"} <= set(
        listed.query("end == 'undervalued'")["name"]
    )
    # The test leaves out none of the farthest.
    order = np.argsort(result["difference"].to_numpy(), kind="stable")
    assert listed["end"].value_counts().to_dict() == {"overvalued": 20, "undervalued": 20}
    assert listed["name"][:20].tolist() == result["name"].iloc[order[:20]].tolist()


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
        assert row.low < row.spearman < row.high
    assert list(table.columns)[:5] == ["model", "n", "spearman", "low", "high"]


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


def raters(items: int = 60, models: int = 10, *, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """People and models that agree on most items; `loved` and `scorned` are where they part."""
    rng = np.random.default_rng(seed)
    elo = pd.Series(
        np.linspace(900, 1500, items), index=[f"item {place}" for place in range(items)]
    )
    elo = elo.rename({"item 4": "loved", f"item {items - 5}": "scorned"})
    rewards = pd.DataFrame({f"m{m}": elo + rng.normal(0, 60, size=items) for m in range(models)})
    rewards.loc["loved"] += 500
    rewards.loc["scorned"] -= 500
    return rewards, elo


def test_the_test_is_students_of_the_models_ranks_less_peoples_and_corrected_over_items():
    rewards, elo = raters()
    table = rank_difference(rewards, elo)
    apart = rewards.rank(ascending=False).sub(elo.rank(ascending=False), axis=0)
    t = apart.mean(axis=1) / (apart.std(axis=1) / np.sqrt(10))
    assert table["t"].to_numpy() == pytest.approx(t.to_numpy())
    assert table["p"].to_numpy() == pytest.approx(2 * stats.t.sf(t.abs(), 9))
    corrected = multipletests(table["p"], method="fdr_bh")[1]
    assert table["p_corrected"].to_numpy() == pytest.approx(corrected)
    for name, q in (("lower_quartile", 0.25), ("upper_quartile", 0.75)):
        assert table[name].to_numpy() == pytest.approx(apart.quantile(q, axis=1).to_numpy())


def test_the_planted_items_are_listed_first_and_chance_is_not():
    rewards, elo = raters()
    listed = most_valued(rank_difference(rewards, elo), k=5)
    assert listed.loc[listed["rank"] == 1, ["end", "name"]].to_numpy().tolist() == [
        ["overvalued", "loved"],
        ["undervalued", "scorned"],
    ]
    assert (listed["p_corrected"] <= 0.05).all()
    rng = np.random.default_rng(1)
    noise = pd.DataFrame(rng.normal(size=(200, 2)))
    noise[1] = -noise[0] + 0.1 * rng.normal(size=200)
    assert most_valued(rank_difference(noise, pd.Series(rng.normal(size=200)))).empty


def test_random_heads_of_a_model_are_on_its_own_states_and_against_its_own_rewards():
    rewards, elo = raters(models=3)
    rng = np.random.default_rng(0)
    a, b, c = rewards
    states = {model: rng.normal(size=(len(rewards), 1, 4)) for model in (c, b)}
    heads = {model: lambda items, own=own: own for model, own in states.items()}
    table = human_correlation(rewards, elo, heads=heads).set_index("model")["heads_within"]
    assert np.isnan(table[a])
    for model in (b, c):
        alone = human_correlation(rewards[[model]], elo, heads={model: heads[model]})
        assert table[model] == pytest.approx(alone["heads_within"][0])
    assert table[b] != pytest.approx(table[c], rel=1e-3)


# analyse

ITEMS = 120
VALUE = np.linspace(-2, 2, ITEMS)
NAMES = ["null", "<b>", *(f"thing {place}" for place in range(2, ITEMS))]
ELO = pd.DataFrame({"elo": 1200 + 100 * VALUE, "elo_matches": 400}, index=NAMES)
OPTIONS = Options(top=3)
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
    assert {"prompt", "n", "spearman", "low", "high", "candidates"} <= set(table)
    estimate = results["human_correlation"].estimate
    assert (estimate.value, estimate.n) == (table.loc["near", "spearman"], ITEMS)
    assert estimate.low < estimate.value < estimate.high
    lines = results["rank_difference"].plot.data
    assert list(dict.fromkeys(lines["rater"])) == ["people", "near", "between", "far"]
    assert lines.groupby("rater")["ρ"].first()["near"] == table.loc["near", "spearman"]
    first = lines[lines["group"] == "people's first ten"]
    assert first["name"].nunique() == 10
    taus = results["people_agreement"].table.set_index(["model_a", "model_b"])["kendall"]
    assert len(taus) == 6
    assert taus["near", "people"] == taus[:, "people"].max()
    assert {"name", "human_rank", "difference", "turned"} <= set(results["rank_difference"].table)


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
        assert listed.loc["overvalued", "upper_quartile"] < 0
        assert listed.loc["undervalued", "lower_quartile"] > 0
    assert abs(results["valued"].estimate.value) > 0.9


@pytest.mark.parametrize("prompt", ["worst"])
def test_where_bad_words_answer_the_lowest_correlation_agrees_most(table_set, prompt):
    factors = {"adjective": ["best", "worst"], "superlative": ["ever", "time"]}
    results = by_name(analyse(asked(table_set, {prompt: -1}, factors=factors), OPTIONS))
    assert results["human_correlation"].estimate.value < -0.9
    taus = results["people_agreement"].table.set_index(["model_a", "model_b"])["kendall"]
    assert (taus[:, "people"] < 0).all()  # of rewards as they are, not turned
    assert list(dict.fromkeys(results["rank_difference"].plot.data["rater"]))[1] == "near"
    wrong = by_name(analyse(asked(table_set, {prompt: 1}, factors=factors), OPTIONS))
    assert "disagree with people" in wrong["human_correlation"].headline
    assert wrong["rank_difference"].table["turned"].all()


@pytest.mark.parametrize("column", ["elo"])
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
    assert rows["p_corrected"]["born"] > 0.2 > 0.01 > rows["p_corrected"]["taught"]
    assert set(rows["states"]) == {"base"}
    assert (
        "1 of 2 models agrees with people more than random output layers do, taught most"
        in result.headline
    )
    assert result.estimate.p == rows["p_corrected"]["taught"]
    assert result.estimate.heads == rows["random_head"]["taught"]
    alone = [one for one in tables.tables if one.provenance.model == "born"]
    (one,) = table_sets(alone, made.reading)
    assert (
        "no model is found to agree" in by_name(analyse(one, OPTIONS))["human_correlation"].headline
    )
    paper = by_name(analyse(tables, replace(OPTIONS, paper=True)))["human_correlation"]
    assert paper.table["random_head"].isna().all()
    assert "random output layers" not in paper.headline
