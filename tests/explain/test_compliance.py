"""What edits did: shares that complied, flips given that, and what else they moved."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from pessimal.errors import TableError
from pessimal.explain.attribute import Attribute
from pessimal.explain.compliance import clustered_share, compliance, flip_rates, off_target
from pessimal.explain.shares import share_interval

BASE = {
    "model": "m", "comparison": "c0", "response": 0, "side": "chosen", "attribute": "clarity", "direction": "worse",
    "seed": 0, "perturber": "rules", "edited": "text", "outcome": "SF", "complied": True,
}  # fmt: skip


def table(*rows: dict) -> pd.DataFrame:
    found = pd.DataFrame([BASE | row for row in rows])
    found["complied"] = found["complied"].astype(object)
    return found


def shared_by_two_models() -> pd.DataFrame:
    """Four comparisons: two edits complied, one did not, one was not judged, and one request came back empty."""
    rows = [
        {"comparison": "c0", "complied": True, "outcome": "CF"},
        {"comparison": "c1", "complied": True, "outcome": "tie"},
        {"comparison": "c2", "complied": False, "outcome": "SF"},
        {"comparison": "c3", "complied": None, "outcome": "CF"},
        {"comparison": "c4", "complied": None, "outcome": None, "edited": None},
    ]
    return table(*rows, *[{**row, "model": "other", "outcome": row["outcome"] and "SF"} for row in rows])


def test_a_perturbation_counts_once_however_many_models_it_serves():
    found = compliance(shared_by_two_models())
    assert found[["attribute", "side", "perturber"]].to_numpy().tolist() == [["clarity", "chosen", "rules"]]
    row = found.loc[0]
    assert (row["asked"], row["texts"], row["n"], row["comparisons"]) == (5, 4, 3, 3)
    assert row["share"] == pytest.approx(2 / 3)
    assert 0 < row["low"] < 2 / 3 < row["high"] < 1
    by_model = compliance(shared_by_two_models(), by=["model"])
    assert by_model["n"].tolist() == [3, 3]
    assert compliance(shared_by_two_models(), by=[]).loc[0, "n"] == 3


def test_groups_are_kept_apart_and_one_without_judgement_says_so():
    found = compliance(
        table({}, {"attribute": "x", "complied": None}, {"attribute": "x", "complied": None, "seed": 1})
    )
    assert found["attribute"].tolist() == ["clarity", "x"]
    assert found["n"].tolist() == [1, 0]
    assert found["texts"].tolist() == [1, 2]
    assert np.isnan(found.loc[1, "share"])


def test_what_is_missing_is_the_same_however_it_is_written():
    rows = table({}, {"model": "other"}, {"seed": 1}, {"seed": 1, "model": "other"})
    rows["complied"] = pd.Series([None, np.nan, True, np.bool_(True)], dtype=object)
    rows["edited"] = pd.Series([None, np.nan, "\ud800", "\ud800"], dtype=object)
    assert compliance(rows)[["asked", "texts", "n"]].to_numpy().tolist() == [[2, 1, 1]]


def test_hostile_keys_are_keys():
    keys = pd.Series(["\ud800", "\x00", "<script>", "", "\ud800"], dtype=object)
    rows = table(*[{"seed": seed, "complied": seed != 1} for seed in range(5)]).assign(comparison=keys)
    rows["model"] = keys
    assert compliance(rows).loc[0, ["n", "comparisons"]].tolist() == [5, 4]
    assert flip_rates(rows, by=["model"])["n"].tolist() == [2, 2, 0, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0]


def test_contradicting_judgements_of_one_perturbation_are_refused():
    with pytest.raises(TableError, match="different texts or judgements"):
        compliance(table({}, {"model": "other", "complied": False}))


def test_the_flip_rate_is_given_for_all_and_by_compliance():
    found = flip_rates(shared_by_two_models()).set_index(["model", "edits"])
    assert found.loc["m", "n"].to_dict() == {"all": 4, "complied": 2, "not complied": 1, "not judged": 1}
    assert found.loc["m", "share"].to_dict() == {
        "all": 0.5,
        "complied": 0.5,
        "not complied": 0,
        "not judged": 1,
    }
    assert found.loc[("m", "complied"), "ties"] == 0.5
    assert found.loc[("other", "all"), "share"] == 0


def test_a_model_without_edits_of_a_kind_has_its_row():
    found = flip_rates(table({}, {"model": "other", "complied": False})).set_index(["model", "edits"])
    assert len(found) == 8
    assert found.loc[("m", "not complied"), "n"] == 0
    assert np.isnan(found.loc[("m", "not complied"), "share"])
    assert found["n"].dtype.kind == "i"


def test_judgements_survive_as_numpy_booleans():
    rows = shared_by_two_models()
    rows["complied"] = pd.Series(
        [np.bool_(v) if v is not None else None for v in rows["complied"]], dtype=object
    )
    assert flip_rates(rows)["n"].tolist() == flip_rates(shared_by_two_models())["n"].tolist()


def test_a_share_has_its_interval_over_clusters():
    hits = pd.Series([True] * 30 + [False] * 70)
    apart = clustered_share(hits, pd.Series(range(100)), confidence=0.95)
    assert {name: apart[name] for name in ("n", "comparisons", "share")} == {
        "n": 100,
        "comparisons": 100,
        "share": 0.3,
    }
    exact = binomtest(30, 100).proportion_ci(method="exact")
    assert [apart["low"], apart["high"]] == pytest.approx([exact.low, exact.high], abs=2e-3)
    together = clustered_share(hits, pd.Series(range(100)) // 10, confidence=0.95)
    assert together["comparisons"] == 10
    wanted = share_interval(np.array([10] * 3 + [0] * 7), np.full(10, 10), confidence=0.95)
    assert (together["low"], together["high"]) == wanted
    assert together["high"] - together["low"] > 2.5 * (apart["high"] - apart["low"])


def test_rows_of_one_comparison_may_stand_apart_and_its_rate_takes_them_together():
    rows = table(
        *[{"comparison": f"c{n % 4}", "seed": n, "outcome": "CF" if n % 4 == 0 else "SF"} for n in range(12)]
    )
    row = flip_rates(rows, by=[], confidence=0.8).iloc[0]
    assert (row["low"], row["high"]) == share_interval(np.array([3, 0, 0, 0]), np.full(4, 3), confidence=0.8)
    alone = clustered_share(pd.Series([True, False]), pd.Series(["c", "c"]), confidence=0.95)
    assert (alone["low"], alone["high"]) == (0, 1)


ATTRIBUTES = [Attribute("clarity", "", 1), Attribute("verbosity", "", -1)]


def moved() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Chosen made worse: clarity less by 2, verbosity more by 3; a placebo; one request without a text."""
    outcomes = table(
        {"comparison": "c0"},
        {"comparison": "c1"},
        {"comparison": "c0", "attribute": "verbosity"},
        {"comparison": "c1", "attribute": "verbosity"},
        {"comparison": "c0", "attribute": "placebo"},
        {"comparison": "c1", "attribute": "verbosity", "seed": 1, "edited": None},
    )
    before = pd.DataFrame({"clarity": [0.0, 2, 0, 2, 0, 2], "verbosity": [5.0, 9, 5, 9, 5, 9], "flat": 1.0})
    change = pd.DataFrame(
        {"clarity": [-2.0, -2, -1, 1, 0.5, np.nan], "verbosity": [1.0, 1, 3, 3, 0, np.nan], "flat": 0.0}
    )
    return outcomes, before, before + change


def test_moves_are_in_standard_deviations_of_the_originals_towards_what_was_asked():
    found = off_target(*moved(), ATTRIBUTES).set_index(["asked", "detector"])
    clarity, verbosity = np.std([0, 2], ddof=1), np.std([5, 9], ddof=1)
    assert found.loc[("clarity", "clarity"), "mean"] == pytest.approx(2 / clarity)
    assert found.loc[("clarity", "verbosity"), "mean"] == pytest.approx(-1 / verbosity)
    assert found.loc[("verbosity", "verbosity"), "mean"] == pytest.approx(3 / verbosity)
    assert found.loc[("verbosity", "clarity"), "mean"] == pytest.approx(0)
    assert found.loc[("verbosity", "clarity"), "low"] < 0 < found.loc[("verbosity", "clarity"), "high"]
    assert found.loc[("placebo", "clarity"), "mean"] == pytest.approx(0.5 / clarity)
    assert found.query("on_target").index.tolist() == [("clarity", "clarity"), ("verbosity", "verbosity")]


def test_unknown_moves_are_not_numbers():
    found = off_target(*moved(), ATTRIBUTES).set_index(["asked", "detector"])
    assert found.loc[("clarity", "flat")][["mean", "low", "high"]].isna().all()
    assert np.isnan(found.loc[("placebo", "clarity"), "low"])
    assert found.loc[("placebo", "clarity"), ["n", "comparisons"]].tolist() == [1, 1]


def test_a_second_model_with_the_same_edits_changes_nothing_off_target():
    outcomes, before, after = moved()
    twice = pd.concat([outcomes, outcomes.assign(model="other")], ignore_index=True)
    doubled = off_target(
        twice, *[pd.concat([one, one], ignore_index=True) for one in (before, after)], ATTRIBUTES
    )
    pd.testing.assert_frame_equal(doubled, off_target(outcomes, before, after, ATTRIBUTES))


def test_rows_that_do_not_match_and_columns_that_lack_are_refused():
    outcomes, before, after = moved()
    with pytest.raises(TableError, match="reset_index"):
        off_target(outcomes, before.iloc[:3], after, ATTRIBUTES)
    with pytest.raises(TableError, match="lacks complied"):
        compliance(outcomes.drop(columns="complied"))
    with pytest.raises(TableError, match="CF, SF or tie"):
        flip_rates(table({"outcome": "flip"}))
    with pytest.raises(TableError, match="confidence"):
        compliance(outcomes, confidence=95)
