"""What the pages of explanations say: every n is of what it names, and what is not known is not told."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pessimal.contrast.attribute import Attribute
from pessimal.contrast.comparison import Comparison, Turn
from pessimal.contrast.outcomes import outcomes, requests_for
from pessimal.contrast.perturbation import Perturbation, Status
from pessimal.tasks.findings import explain_claims as claims
from pessimal.tasks.findings import explain_quality
from pessimal.tasks.findings.explain import Explained, explain_contents
from pessimal.tasks.findings.explanations import explanations_contents

CONFIG = SimpleNamespace(
    replicates=100, permutations=100, confidence=0.95, seed=0, examples=3, comparisons=SimpleNamespace(name="own")
)  # fmt: skip
NAMES = ("length", "tone", "care", "order", "ease")
PLACEBO = Attribute("placebo", "It says the same.", 1)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Vectors by the texts' letters, without a model."""
    monkeypatch.setattr(
        explain_quality, "embed", lambda texts: np.array([np.cos(np.arange(4) + len(t)) / 2 for t in texts])
    )


def asked(n: int) -> list[Comparison]:
    return [Comparison(f"c{i}", (Turn("user", f"Why {i}?"),), (f"one {i}", f"two {i}")) for i in range(n)]


def rewarded(n: int) -> dict:
    """Margins of 1, 2, 3, …: the last is the widest."""
    return {f"c{i}": (float(i + 1), 0.0) for i in range(n)}


def table(n, *, names=NAMES, model="m", who="rules", seeds=1, placebos=2, status=Status.changed, same=False):
    """Each attribute moves the reward by a share of its own; all placebo edits of a response have one text."""
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
            made.append(Perturbation(request, Status.changed if has else status, text if has else None))
            own = rewarded(n)[request.comparison.key][request.response]
            size = 0.01 if null else 0.4 + 0.9 * names.index(name) + 0.1 * int(request.comparison.key[1:])
            new.append(own + size * (-1 if request.response == 0 else 1) if has else None)
        if made:
            tables.append(
                outcomes(model, asked(n), rewarded(n), made, new, perturber=perturber, tie=0.0).table
            )
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
    names = [name for name in dict.fromkeys(rows["attribute"]) if name != "placebo"]
    empty = pd.DataFrame(np.nan, index=rows.index, columns=names)
    usual = {
        "model": "m", "perturber": "rules", "description": {}, "comparisons": {c.key: c for c in asked(n)},
        "attributes": {name: Attribute(name, "It is so.", 1) for name in names}, "detected": (empty, empty),
        "table": rows, "smallest": None, "largest": None, "decided": [f"c{i}" for i in range(n)], "undecided": (),
        "too_long": (), "left_out": {}, "reward_sd": 1.5, "tie": 0.0, "noise": 0.0, "path": "full-forward", "trust": {},
    }  # fmt: skip
    return Explained(**usual | changed)


def page(rows, n, **changed):
    contents = explain_contents(explained(rows, n, **changed), CONFIG)
    return contents, " ".join(
        f"{s.sentence} " + " ".join(f"{e.title}: {e.sentence}" for e in s.entries) for s in contents.sections
    )


def compared(*tables):
    rows = pd.concat(tables, ignore_index=True)
    contents = explanations_contents(
        rows, {c.key: c for c in asked(9)}, pd.DataFrame({"model": ["m"]}), CONFIG
    )
    return contents, " ".join(
        f"{s.sentence} " + " ".join(f"{e.title}: {e.sentence}" for e in s.entries) for s in contents.sections
    )


def test_two_models_by_different_perturbers_have_no_agreement_and_no_strange_columns():
    contents, told = compared(table(4), table(4, model="n", who="other"))
    assert [s.title for s in contents.sections[:2]] == [
        "1 model · edits by rules",
        "1 model · edits by other",
    ]
    assert "How alike" not in told
    for stem in ("flip_rates_by_model_rules", "flip_rates_by_model_other"):
        assert len(contents.figures[stem].axes[0].get_xticks()) == 1


def test_without_a_single_edit_everything_goes_through_and_nothing_is_said_to_be_tried(tmp_path):
    contents, told = page(table(4, status=Status.not_applicable, placebos=0), 4)
    assert not contents.figures
    assert "no comparison was tried" in told
    assert "There is no edit to judge." in told
    assert "no opinion" not in told
    assert not any(name.startswith("coverage") for name in contents.summary)
    contents.write(tmp_path)
    assert (tmp_path / "contents.json").is_file()
    _, told = page(table(4, status=Status.refused), 4)
    assert "0 edits, and 16 placebo edits" in told
    _, told = compared(table(4, status=Status.refused))
    assert "no comparison was tried" in told


def test_coverage_counts_comparisons_and_not_seeds():
    _, told = page(table(4, seeds=3), 4)
    assert "Of 4 decided comparisons at least one edit flips (mean over 3 seeds)" in told
    assert "Of 12" not in told
    rows = table(4)
    rows.loc[(rows["comparison"] == "c0") & (rows["perturber"] == "rules"), "status"] = "failed"
    gone = rows["status"] == "failed"
    rows.loc[gone, ["edited", "outcome"]] = None
    rows.loc[gone, ["new_reward", "new_margin", "change", "change_in_sd"]] = np.nan
    assert "Of 4 decided comparisons (1 without any edit" in page(rows, 4)[1]


def test_only_what_has_a_ranking_is_called_representative():
    contents, told = page(table(4), 4)
    assert "The 3 most representative comparisons" in told
    for rows, n, reason in (
        (table(4, names=NAMES[:3]), 4, "5 are needed"),
        (table(1), 1, "only one comparison"),
    ):
        contents, told = page(rows, n)
        assert "representative comparison" not in told
        assert "τ" not in told
        assert f"no ranking: {reason}" in told or (reason in told and "no ranking: 3 attributes" in told)
        assert contents.tables["representatives"][0]["tau"].isna().all()
    shown = json.loads(page(table(4, names=NAMES[:3]), 4)[0].files["views/examples.json"])["views"]
    assert [view["margin"] for view in shown] == [4, 3, 2]


def test_edits_are_shown_in_the_order_that_is_told():
    contents, told = page(table(4), 4)
    assert "by the margin after the edit, the lowest first" in told
    assert "move it most come first" not in told
    for view in json.loads(contents.files["views/examples.json"])["views"]:
        margins = [change["margin"] for change in view["changes"]]
        assert margins == sorted(margins)


def test_ties_and_their_bound_are_told():
    rows = table(4)
    first = rows.index[0]
    rows.loc[first, "outcome"] = "tie"
    _, told = page(rows, 4, tie=0.25)
    assert "below −0.250" in told
    assert "1 of 40 edits, and 0 of 16 placebo edits" in told


def test_equal_texts_are_told_where_edits_are_counted():
    _, told = page(table(4, seeds=2, same=True), 4)
    assert "n = 16, 8 different texts" in told
    assert "of 16 edits, 8 different texts, 4 comparisons" in told
    assert "40 of them repeat a text that another seed gave" in told
    assert "different texts" not in page(table(4, placebos=1), 4)[1]


def test_a_pair_of_models_is_told_once_and_a_missing_interval_has_its_reason():
    _, told = compared(table(1), table(1, model="n"))
    assert "nan" not in told
    assert "Most alike" not in told
    assert "1 comparison: too few for an interval" in told
    contents, told = compared(table(4), table(4, model="n"), table(4, model="o"))
    assert "Most alike" in told
    assert contents.summary == {"models": 3, "edits": 40, "placebo_edits": 16}
    assert "4 comparisons, 40 edits." in told


def test_what_was_left_out_is_told_in_the_singular_too():
    rows = table(1, names=("length",), placebos=0)
    _, told = page(rows, 1, too_long=("x",), undecided=("y",), left_out={"with an empty text": 2})
    assert "1 comparison in which" in told
    assert "along 1 attribute: 2 edits." in told
    assert "Left out: 1 comparison as a tie (margin up to 0.00); 1 as longer than the model reads;" in told
    assert "2 with an empty text" in told


def test_flips_and_changes_are_two_families_of_tests():
    row = {"flip_rate": 0.5, "change": -1.0, "n": 4, "counterfactuals": 2, "comparisons": 2}
    own = pd.DataFrame([row | {"attribute": "a", "flip_q": 0.01, "change_q": 0.5},
                        row | {"attribute": "b", "flip_q": np.nan, "change_q": 0.02}])  # fmt: skip
    told = claims.sensitive(own, own.iloc[:0], table(2), confidence=0.95)
    assert "by more flips 1 of 1 attribute (a), by another change of the margin 1 of 2 attributes (b)" in told


def test_without_a_placebo_no_test_is_told():
    for _, told in (page(table(4, placebos=0), 4), compared(table(4, placebos=0))):
        assert "Nothing is tested: there is no placebo" in told
        assert "Benjamini" not in told
        assert "grey band" not in told
        assert "keep the meaning" not in told


def test_the_placebos_smallness_is_told():
    assert "not more than any edit would. The slopes tell length apart" in page(table(4), 4)[1]


def test_the_summary_is_strict_json_and_names_both_kinds_of_edits():
    rows = table(4)
    gone = rows["attribute"] == "tone"
    rows.loc[gone, "status"] = "refused"
    rows.loc[gone, ["edited", "outcome"]] = None
    rows.loc[gone, ["new_reward", "new_margin", "change", "change_in_sd"]] = np.nan
    summary = page(rows, 4)[0].summary
    json.dumps(summary, allow_nan=False)
    assert "flip_rate/tone" not in summary
    assert (summary["edits"], summary["placebo_edits"]) == (32, 16)


def test_shares_of_what_complied_have_their_n_and_interval():
    rows = table(4)
    rows.loc[rows["attribute"] == "tone", "complied"] = False
    told = explain_quality.complied(rows, confidence=0.95)
    assert "80% (" in told
    assert "of 40 edits of 4 comparisons" in told
    assert "n = 32) of those that did;" in told
    assert "n = 8) of those that did not" in told


def test_medians_that_stay_are_not_said_to_fall():
    found = pd.DataFrame(
        {"tokens": [5, 16], "tokens_before": [5, 16], "exact": [True, True], "minimal": True}
    )
    told = claims.smallest(found)
    assert "none needs fewer" in told
    assert "falls" not in told
    assert "others" not in told
    found = found.assign(tokens=[4, 10], exact=[True, False])
    told = claims.smallest(found)
    assert "falls from 10.5 to 7" in told
    assert "In 1 other, of too many changes" in told
    assert "stays at 3" in claims.largest(pd.DataFrame({"tokens": [3], "tokens_before": [3]}))


def test_slopes_say_why_they_have_no_interval_or_no_number():
    _, told = page(table(4), 4)
    assert "There are no intervals: 4 comparisons are too few for 5 attributes" in told
    contents, told = page(table(9), 9)
    assert "told from 0 (q < .05)" in told
    assert "nan" not in told
    assert math.isfinite(contents.summary["slope/length"])
    contents, told = page(table(1, placebos=1, names=NAMES[:2]).iloc[:2], 1)
    assert "Not known: 2 edits cannot tell 2 attributes apart" in told
    assert "slopes" not in contents.figures


def test_hostile_texts_are_shown_as_data():
    rows = table(4)
    for place, text in enumerate(["\ud800", "<script>", "a\x00b", " ", "🦜" * 500]):
        rows.loc[rows.index[place], "edited"] = text
    contents, _ = page(rows, 4)
    assert "\ud800" not in contents.files["views/examples.json"]
