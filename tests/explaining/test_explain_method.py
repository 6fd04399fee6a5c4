"""`explain` on objects in memory: a model that likes length, and a perturber that adds and takes
out words."""

import numpy as np
import pytest

from pessimal.errors import InputError
from pessimal.explaining import distances
from pessimal.explaining.attribute import Amount, Attribute
from pessimal.explaining.explain import explain, pair
from pessimal.explaining.perturbers import Perturbation, Status
from pessimal.explaining.results import Resampling, explained_results, pair_results, smallest_edits
from pessimal.tables.comparisons import Comparison, Turn

BREVITY = Attribute("brevity", "It is short.", 1, detect=r"$^")
CALM = Attribute("calm", "It does not shout.", 1, detect=r"!")
OPTIONS = Resampling(replicates=100, permutations=5000)


class Words:
    """Rewards are numbers of words, with a little for dots; over 60 words are too many."""

    def __init__(self):
        self.asked = []

    def rewards(self, conversations):
        texts = [conversation[-1].content for conversation in conversations]
        self.asked += texts
        return np.array(
            [np.nan if len(t.split()) > 60 else len(t.split()) + 0.01 * t.count(".") for t in texts]
        )


class Editor:
    """Less brevity: five words more; more brevity: five words less. Calm: marks, which the model
    does not mind."""

    name = "editor"

    def __init__(self, *, null=True, status=Status.changed):
        self.null, self.status, self.requests = null, status, []

    def perturb(self, requests):
        self.requests += requests
        return [self._made(request) for request in requests]

    def _made(self, request):
        if self.status is not Status.changed:
            return Perturbation(request, self.status, note="no rule")
        words, amount = request.text.split(), request.attribute.amount(request.direction)
        match request.attribute.name:
            case "brevity":
                words = words + ["well"] * 5 if amount is Amount.less else words[:-5] or ["no"]
            case "calm":
                words = [*words[:-1], words[-1] + ("!" if amount is Amount.less else ";")]
            case "placebo":
                words = [*words[:-1], words[-1] + "," * (1 + request.seed)]
            case _:
                words = [*words, *(["better"] * 9 if request.direction.value == "better" else [])]
        text = " ".join(words)
        return (
            Perturbation(request, Status.changed, text)
            if text != request.text
            else Perturbation(request, Status.failed)
        )

    def placebo(self):
        return self if self.null else None


def comparisons(n=12):
    return [
        Comparison(
            f"c{i}",
            (Turn("user", f"Why {i}?"),),
            (" ".join(["so"] * (10 + i % 5)), " ".join(["as"] * 8)),
        )
        for i in range(n)
    ]


def made(perturber=None, n=12, **options):
    return explain(
        Words(), comparisons(n), [BREVITY, CALM], perturber or Editor(), model="wordy", **options
    )


def explain_pair(prompt, chosen, rejected, attributes):
    """One preference explained, as `pessimal.explain` does it."""
    return explain(
        Words(),
        [pair(prompt, chosen, rejected)],
        attributes,
        Editor(),
        model="wordy",
        measured=False,
        placebos=0,
    )


def by_name(found):
    return {result.name: result for result in explained_results(found, OPTIONS)}


def test_a_taste_against_polarity_is_named_and_its_flips_are_counted():
    results = by_name(made())
    rates = results["sensitivity"].table.set_index(["attribute", "liked"])
    assert rates.loc[("brevity", "more"), "flip_rate"] == 0
    assert rates.loc[("brevity", "less"), "flip_rate"] > 0.5
    assert rates.loc[("calm", "more"), "flip_rate"] == rates.loc[("calm", "less"), "flip_rate"] == 0
    assert rates.loc[("brevity", "less"), "p_corrected"] < 0.05
    assert "less brevity" in results["sensitivity"].headline
    one_way = by_name(made(both_ways=False))["sensitivity"].table
    assert set(one_way["liked"]) == {"more", ""}


def test_published_numbers_are_those_of_edits_against_polarity():
    both, one = by_name(made()), by_name(made(both_ways=False))
    for name in ("metrics", "representatives"):
        assert both[name].table.equals(one[name].table)


def test_without_a_null_of_the_same_kind_nothing_is_tested_and_a_note_says_why():
    found = by_name(made(Editor(null=False)))["sensitivity"]
    assert found.table["p_corrected"].isna().all()
    assert any("placebo" in note for note in found.notes)
    other = Editor()
    other.name = "rule maker"
    editor = Editor()
    editor.placebo = lambda: other
    found = by_name(made(editor))["sensitivity"]
    assert found.table["p_corrected"].isna().all()
    assert any("rule maker" in note for note in found.notes)
    assert (found.table["attribute"] == "placebo").any()  # shown all the same


def test_what_cannot_be_read_or_is_tied_is_left_out_and_alone_is_an_error():
    long = Comparison("long", (Turn("user", "Why?"),), ("so " * 70, "as"))
    tied = Comparison("tied", (Turn("user", "Why?"),), ("so so", "as as"))
    found = explain(Words(), [long, tied, *comparisons(3)], [BREVITY], Editor())
    assert (found.too_long, found.undecided, len(found.decided)) == (("long",), ["tied"], 3)
    with pytest.raises(InputError, match="are ties"):
        explain(Words(), [tied], [BREVITY], Editor())
    with pytest.raises(InputError, match="longer than"):
        explain(Words(), [long], [BREVITY], Editor())


def test_smallest_flips_flip_and_largest_changes_hold():
    found = made(tie=0.001)
    scorer = Words()
    for row in found.smallest.itertuples():
        a, b = scorer.rewards(
            [
                [Turn("assistant", text)]
                for text in (
                    row.smallest,
                    found.comparisons[row.comparison].responses[1 - row.response],
                )
            ]
        )
        assert (a - b if row.side == "chosen" else b - a) == pytest.approx(row.new_margin)
        assert row.new_margin < -0.001
        assert row.tokens <= row.tokens_before
    assert (found.largest["new_margin"] > 0.001).all()
    assert (found.largest["tokens"] >= found.largest["tokens_before"]).all()


def test_one_pair_is_answered_without_what_needs_more(monkeypatch):
    monkeypatch.setattr(distances, "_encoded", lambda *a, **k: pytest.fail("texts were embedded"))
    found = explain_pair("Why?", "as " * 8, "so " * 10, [BREVITY, CALM])
    results = {result.name: result for result in pair_results(found)}
    result = results["pair"]
    assert result.estimate.value == 2
    assert result.estimate.low is None
    assert "given as rejected" in result.headline
    assert len(result.headline.split()) <= 25
    assert result.table.iloc[0][["attribute", "liked"]].tolist() == ["brevity", "less"]
    assert result.table.iloc[0]["words"] == 0  # five more in one response, five fewer in the other
    edits = smallest_edits(found)
    assert (edits["new_margin"] < 0).all()
    assert edits["tokens"].is_monotonic_increasing
    for name in ("chosen", "rejected"):
        with pytest.raises(InputError, match=f"{name} is empty"):
            pair(**{"prompt": "Why?", "chosen": "a", "rejected": "b", name: " "})
    with pytest.raises(InputError, match="same text"):
        pair("Why?", "a", "a")
