"""Language models beside rewards, on probabilities whose answer is known."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import kendalltau

from pessimal.analyses.analysis import Options
from pessimal.analyses.base_models import analyse
from pessimal.plots.draw import draw
from pessimal.tables.result import TESTED
from pessimal.tables.table_set import table_sets
from spoken_tables import TEXTS, distribution, made

OPTIONS = Options(top=5)


def found(tables, options=OPTIONS):
    (one,) = table_sets(tables)
    assert not analyse.needs.missing(one, options)
    results = {result.name: result for result in analyse(one, options)}
    for result in results.values():
        assert len(result.headline.split()) <= 25
        two = result.name == "language_axes"
        assert {*(("first", "second") if two else ("prompt",)), "candidates"} <= set(result.table)
    return results, {name: result.table for name, result in results.items()}


def test_tables_hold_what_scipy_finds_over_what_all_share(language, rewarded):
    results, tables = found([*language, *rewarded])
    table = tables["language_correlation"].set_index(["model", "language_model"])
    assert len(table) == 9
    assert (table["n"] == 59).all()
    rewards = {t.provenance.model: t.rows["reward"].to_numpy()[:59] for t in rewarded}
    logs = {t.provenance.model: t.rows["reward"].to_numpy()[:59] for t in language}
    result = results["language_correlation"]
    for (model, other), row in table.iterrows():
        assert row["kendall"] == pytest.approx(kendalltau(rewards[model], logs[other]).statistic)
        assert result.summary[f"greatest/language_kendall/{other}/{model}"] == row["kendall"]
    assert table.loc[("follower", "base"), "low"] > table.loc[("stranger", "base"), "high"]
    assert (
        result.estimate.value
        == result.weight - TESTED
        == table.loc[("follower", "base"), "kendall"]
    )
    assert len(draw(result.plot, result.table)) == 1


def test_two_prompts_have_the_ends_of_their_sum_and_difference(language):
    """Tables A4 and A5: best + worst and best − worst of log-probabilities, each model over its own
    tokens; one that has other candidates on the second prompt is left out."""
    best = [
        made(t.provenance.model, t.rows["reward"], texts=t.rows["text"], prompt="best")
        for t in language
    ]
    values = [distribution(seed) for seed in (3, 4)]
    worst = [made(n, v, prompt="worst") for n, v in zip(("a-chat", "base"), values, strict=True)]
    other = made(
        "third", distribution(5)[:59], texts=TEXTS[1:], prompt="worst", candidates_digest="x"
    )
    results, tables = found([*best, *worst, other])
    table = tables["language_axes"]
    assert set(table["model"]) == {"a-chat", "base"}
    assert set(zip(table["first"], table["second"], strict=True)) == {("best", "worst")}
    logs = {t.provenance.model: t.rows["reward"].to_numpy() for t in best}
    for (model, second), (axis, sign) in product(
        zip(("a-chat", "base"), values, strict=True), (("sum", 1), ("difference", -1))
    ):
        rows = table[(table["model"] == model) & (table["axis"] == axis)].set_index("end")
        expected = logs[model] + sign * second
        assert rows.loc["top", "text"].tolist() == [TEXTS[i] for i in np.argsort(-expected)[:5]]
        assert rows.loc["bottom", "value"].tolist() == pytest.approx(sorted(expected)[:5])
    assert len(draw(results["language_axes"].plot, table)) == 2
