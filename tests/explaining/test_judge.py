"""The judge: whether an edit moved what it was asked to move."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pessimal.explaining.attribute import Amount, Attribute
from pessimal.explaining.detectors import DETECTORS, RuleJudge
from pessimal.explaining.judges import LikelihoodJudge

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parent / "minimal_pairs.jsonl").open(encoding="utf-8")
]
NAMES = sorted(set(DETECTORS) - {"markdown"})
"""Of the detectors that read what a text says, without its layout."""
HOSTILE = [
    "",
    "  \n",
    "\ud800",
    "\x00",
    "<script>",
    "🙂🙂",
    "...",
    "漢字かな",
    "word " * 2000,
    "a" * 5000,
    "1. 2. 3.",
]


def attribute(name: str, **options) -> Attribute:
    return Attribute(name, "", 1, **options)


@pytest.fixture(scope="module")
def verdicts() -> pd.DataFrame:
    """Every pair judged four times: raised or lowered, asked for more or less."""
    rows, items = [], []
    for pair in PAIRS:
        for name in NAMES if pair["attribute"] == "placebo" else [pair["attribute"]]:
            for raised in (True, False):
                texts = (pair["less"], pair["more"])[:: 1 if raised else -1]
                for asked in Amount:
                    items.append((pair["prompt"], *texts, attribute(name), asked))
                    rows.append(
                        {"kind": pair["attribute"], "name": name, "raised": raised, "asked": asked}
                    )
    return pd.DataFrame(rows).assign(verdict=pd.Series(RuleJudge().judge(items), dtype=object))


@pytest.mark.parametrize("name", NAMES)
def test_an_edit_that_moves_the_attribute_is_seen(verdicts, name):
    own = verdicts.query("kind == @name")
    asked_so = own[own["raised"] == (own["asked"] == Amount.more)]["verdict"].dropna().astype(bool)
    asked_otherwise = (
        own[own["raised"] != (own["asked"] == Amount.more)]["verdict"].dropna().astype(bool)
    )
    assert len(asked_so) >= (8 if name == "correctness" else 20)
    assert asked_so.mean() >= 0.85
    assert asked_otherwise.mean() <= 0.15


def test_no_opinion_on_facts_nor_on_what_is_not_known():
    correct, other = attribute("correctness"), attribute("placebo")
    paris, lyon, slip = "The capital is Paris.", "The capital is Lyon.", "It is is Paris."
    items = [
        ("Which capital?", paris, lyon, correct, Amount.less),
        ("Which capital?", paris, "The capitol capital is is Paris.", correct, Amount.less),
        ("Which capital?", paris, lyon, other, Amount.more),
        ("Which capital?", slip, slip + " It is big.", correct, Amount.more),
    ]
    assert RuleJudge().judge(items) == [None, True, None, None]


def test_wrong_sums_are_seen_and_chains_and_decimals_are_left_alone():
    texts = [
        "17 + 25 = 42.",
        "17 + 25 = 44.",
        "2 + 3 + 4 = 9.",
        "1.5 + 2 = 3.5",
        "9 / 3 = 3",
        "9 / 3 = 4",
    ]
    found = RuleJudge().amounts(texts, ["Sum?"] * 6, [attribute("correctness")])["correctness"]
    assert found.tolist() == [0, -2, 0, 0, 0, -2]


def test_a_users_pattern_counts_and_takes_the_place_of_a_detector():
    thanks = attribute("verbosity", detect=r"\bthanks?\b")
    items = [("Hi", "Thanks!", "Thank you, thanks a lot", thanks, asked) for asked in Amount]
    assert RuleJudge().judge(items) == [True, False]
    assert RuleJudge().judge([("Hi", "thanks", "thanks " + "word " * 50, thanks, Amount.more)]) == [
        False
    ]
    assert RuleJudge().amounts(["Thanks thanks"], ["Hi"], [thanks]).loc[0, "verbosity"] == 2


def test_hostile_texts_have_finite_amounts():
    found = RuleJudge().amounts(
        HOSTILE, ["\ud800 ?"] * len(HOSTILE), [attribute(name) for name in NAMES]
    )
    assert found.shape == (len(HOSTILE), 15)
    assert np.isfinite(found.to_numpy()).all()
    unknown = RuleJudge().amounts(HOSTILE, [""] * len(HOSTILE), [attribute("unheard-of")])
    assert unknown["unheard-of"].isna().all()
    assert RuleJudge().judge([]) == []


class Reads:
    """Log-probabilities of a model that names the text with more exclamation marks, and would
    rather say A."""

    def __init__(self, taste: float):
        self.taste, self.asked = taste, []

    def rewards(self, conversations):
        self.asked += conversations
        return np.array([self.log_probability(*conversation) for conversation in conversations])

    def log_probability(self, question, answer):
        first, second = question.content.split("A: ")[1].split("B: ")
        own, other = (first, second) if answer.content == "A" else (second, first)
        if "too long" in own + other:
            return np.nan
        return own.count("!") - other.count("!") + self.taste * (answer.content == "A")


@pytest.mark.parametrize("taste", [50.0])
def test_a_model_that_prefers_the_first_named_judges_by_the_texts_all_the_same(taste):
    loud, judge = attribute("loud"), LikelihoodJudge(model=None)
    judge.scorer = Reads(taste)
    items = [
        ("Why?", "so", "so!", loud, Amount.more),
        ("Why?", "so", "so!", loud, Amount.less),
        (
            "PROMPT NAME FIRST",
            "so!!",
            "so!",
            loud,
            Amount.less,
        ),  # hostile: nothing in it is filled in
        ("Why?", "so", "so", loud, Amount.more),
        ("Why?", "so", "thus", loud, Amount.more),
        ("Why?", "so", "too long", loud, Amount.more),
    ]
    assert judge.judge(items) == [True, False, True, False, None, None]
    assert "PROMPT NAME FIRST" in judge.scorer.asked[8][0].content
