"""What explanations report, of one model and of several: every n is of what it names, and what is
not known is not claimed."""

import json

import numpy as np
import pandas as pd
import pytest

from pessimal.explaining import metrics as metrics_module
from pessimal.explaining.agreement import examples, representative
from pessimal.explaining.attribute import Attribute
from pessimal.explaining.explain import Explained
from pessimal.explaining.outcomes import outcomes, requests_for
from pessimal.explaining.perturbers import Perturbation, Status
from pessimal.explaining.results import (
    Resampling,
    compared_results,
    contested_outcomes,
    explained_results,
)
from pessimal.explaining.views import to_json, views
from pessimal.tables.comparisons import Comparison, Turn

OPTIONS = Resampling(replicates=100, permutations=100, confidence=0.95, seed=0)
NAMES = ("length", "tone", "care", "order", "ease")
PLACEBO = Attribute("placebo", "It says the same.", 1)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Vectors by the texts' letters, without a model."""
    monkeypatch.setattr(
        metrics_module,
        "embed",
        lambda texts: np.array([np.cos(np.arange(4) + len(t)) / 2 for t in texts]),
    )


def asked(n: int) -> list[Comparison]:
    return [
        Comparison(f"c{i}", (Turn("user", f"Why {i}?"),), (f"one {i}", f"two {i}"))
        for i in range(n)
    ]


def rewarded(n: int) -> dict:
    """Margins of 1, 2, 3, …: the last is the widest."""
    return {f"c{i}": (float(i + 1), 0.0) for i in range(n)}


def table(
    n,
    *,
    names=NAMES,
    model="m",
    who="rules",
    seeds=1,
    placebos=2,
    status=Status.changed,
    same=False,
):
    """Each attribute moves the reward by a share of its own; all placebo edits of a response have
    one text."""
    tables = []
    for perturber, attributes, count in (
        (who, [Attribute(name, f"It has {name}.", 1) for name in names], seeds),
        ("placebo", [PLACEBO], placebos),
    ):
        requests = requests_for(asked(n), rewarded(n), attributes, range(count), 0.0)
        made, new = [], []
        for request in requests:
            null = perturber == "placebo"
            has = null or status is Status.changed
            name, number = request.attribute.name, request.seed
            text = f"{request.text} {name}" + ("" if null or same else f" {number}")
            made.append(
                Perturbation(request, Status.changed if has else status, text if has else None)
            )
            own = rewarded(n)[request.comparison.key][request.response]
            size = (
                0.01
                if null
                else 0.4 + 0.9 * names.index(name) + 0.1 * int(request.comparison.key[1:])
            )
            new.append(own + size * (-1 if request.response == 0 else 1) if has else None)
        if made:
            tables.append(outcomes(model, rewarded(n), made, new, perturber=perturber, tie=0.0))
    whole = pd.concat(tables, ignore_index=True)
    known = whole["edited"].notna()
    for column, value in (("syntactic", 0.5), ("semantic", 0.1), ("locality", 1.0)):
        whole[column] = np.where(known, value, np.nan)
    along = known & (whole["attribute"] != "placebo")
    whole["complied"] = pd.Series([True if yes else None for yes in along], dtype=object)
    rng = np.random.default_rng(0)
    for name in names:
        whole[f"moved/{name}"] = np.where(
            known, (whole["attribute"] == name) + rng.normal(size=len(whole)), np.nan
        )
    return whole


def explained(rows: pd.DataFrame, n: int, **changed) -> Explained:
    usual = {
        "model": "m",
        "perturber": "rules",
        "rewards": rewarded(n),
        "comparisons": {c.key: c for c in asked(n)},
        "table": rows,
        "smallest": None,
        "largest": None,
        "too_long": (),
        "tie": 0.0,
    }
    return Explained(**usual | changed)


def report(rows, n, **changed):
    """Results by name."""
    return {r.name: r for r in explained_results(explained(rows, n, **changed), OPTIONS)}


def compared(*tables, labels=None):
    rows = pd.concat(tables, ignore_index=True)
    return {
        r.name: r
        for r in compared_results(
            rows, pd.DataFrame({"model": ["m"]}), OPTIONS, labels=labels or {}
        )
    }


def refused(rows, attribute):
    """The table as it is where no edit along an attribute came about."""
    rows = rows.copy()
    gone = rows["attribute"] == attribute
    rows.loc[gone, "status"] = "refused"
    rows.loc[gone, ["edited", "outcome"]] = None
    rows.loc[gone, ["new_reward", "new_margin", "change", "change_in_sd"]] = np.nan
    return rows


def test_without_a_placebo_nothing_is_tested():
    for results in (report(table(4, placebos=0), 4), compared(table(4, placebos=0))):
        assert results["sensitivity"].estimate.p is None
        assert any("placebo" in note for note in results["sensitivity"].notes)
    assert report(table(4), 4)["sensitivity"].estimate.p is not None


def shown(rows, n=3):
    return examples(rows, representative(rows, "m", perturber="rules"), perturber="rules", n=n)


def test_unranked_examples_lead_with_the_widest_margin_and_within_with_the_nearest_flip():
    assert list(dict.fromkeys(shown(table(4, names=NAMES[:3]))["margin"])) == [4, 3, 2]
    for _, rows in shown(table(4)).groupby("comparison"):
        assert rows["new_margin"].is_monotonic_increasing
    assert shown(table(4, status=Status.refused)).empty


def test_the_summary_is_strict_json_and_names_both_kinds_of_edits():
    results = report(refused(table(4), "tone"), 4)
    summary = {key: value for r in results.values() for key, value in r.summary.items()}
    json.dumps(summary, allow_nan=False)
    assert "flip_rate/tone" not in summary
    assert (summary["edits"], summary["placebo_edits"]) == (32, 16)
    assert summary["decided"] == 4


def test_compliance_is_of_the_edits_that_were_judged():
    rows = table(4)
    rows.loc[rows["attribute"] == "tone", "complied"] = False
    found = report(rows, 4)["metrics"].table.query("metric == 'complied' and not placebo")
    [row] = found[(found["side"] == "any") & (found["among"] == "all")].to_dict("records")
    assert (row["value"], row["n"], row["comparisons"]) == (0.8, 40, 4)
    assert 0 < row["low"] < 0.8 < row["high"] < 1


def test_the_contested_comparison_is_shown_with_both_models_edits():
    rows = pd.concat([table(4), table(4, model="n")], ignore_index=True)
    ranking = compared(table(4), table(4, model="n"))["contested"].table
    to_read = contested_outcomes(rows, ranking)
    assert set(to_read["model"]) == {"m", "n"}
    assert set(to_read["comparison"]) == {ranking["comparison"].iloc[0]}
    assert (to_read["attribute"] != "placebo").all()


def test_hostile_texts_can_be_stored_and_shown(tmp_path):
    rows = table(4)
    for place, text in enumerate(["\ud800", "<script>", "a\x00b", " ", "🦜" * 500]):
        rows.loc[rows.index[place], "edited"] = text
    found = explained(rows, 4)
    results = explained_results(found, OPTIONS)
    for result in results:
        result.table.to_parquet(tmp_path / f"{result.name}.parquet")
    assert "\ud800" not in to_json(views(shown(rows), found.comparisons))
