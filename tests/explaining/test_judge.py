"""The judge: whether an edit moved what it was asked to move."""

import json
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import ConfigError
from pessimal.explaining.attribute import Amount, Attribute
from pessimal.explaining.detectors import DETECTORS, RuleJudge, split_sentences
from pessimal.explaining.judges import LikelihoodJudge
from pessimal.texts import strip_layout

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


@pytest.mark.parametrize("name", NAMES)
def test_an_edit_that_keeps_the_meaning_seldom_counts(verdicts, name):
    kept = verdicts.query("kind == 'placebo' and name == @name")["verdict"].dropna().astype(bool)
    assert kept.mean() <= 0.15 if len(kept) else name == "correctness"


def test_a_shift_in_one_sentence_of_many_is_still_seen():
    rest = "It opens at nine. The way there is short. Tickets are sold at the door. " * 3
    items = [
        (
            "Is the museum good?",
            f"{rest}The museum is the best in town.",
            f"{rest}The museum might perhaps be good, I guess.",
            attribute("assertiveness"),
            asked,
        )
        for asked in (Amount.less, Amount.more)
    ]
    assert RuleJudge().judge(items) == [True, False]


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


def test_a_pattern_that_is_none_is_the_users_mistake():
    with pytest.raises(ConfigError, match=r"detect='\('.*no regular expression"):
        RuleJudge().judge([("p", "a", "b", attribute("mine", detect="("), Amount.more)])


def test_hostile_texts_have_finite_amounts():
    found = RuleJudge().amounts(
        HOSTILE, ["\ud800 ?"] * len(HOSTILE), [attribute(name) for name in NAMES]
    )
    assert found.shape == (len(HOSTILE), 15)
    assert np.isfinite(found.to_numpy()).all()
    unknown = RuleJudge().amounts(HOSTILE, [""] * len(HOSTILE), [attribute("unheard-of")])
    assert unknown["unheard-of"].isna().all()
    assert RuleJudge().judge([]) == []


def test_sentences_end_at_full_stops_and_lines_and_not_in_lists_or_titles():
    text = "Dr. Lee came at 3.5 p.m. today. Well?\n1. Boil it.\n- Cool it\n\n!!!"
    assert split_sentences(text) == (
        "Dr. Lee came at 3.5 p.m. today.",
        "Well?",
        "1. Boil it.",
        "- Cool it",
    )
    assert [len(part.split()) for part in split_sentences("word " * 200)] == [80, 80, 40]


ANSWER = (
    "Boil it for seven minutes. Then Peter cools it in cold water, because that stops the cooking. "
    "Peel it under the tap. Is it too soft? Add 2 minutes next time."
)
LAYOUTS = {
    "lines": "\n".join,
    "paragraphs": "\n\n".join,
    "list": lambda parts: "\n".join(f"- {one}" for one in parts),
    "numbers": lambda parts: "\n".join(f"{i}. {one}" for i, one in enumerate(parts, 1)),
    "heading": lambda parts: "### Answer\n" + " ".join(parts),
    "bold heading": lambda parts: "**Answer:**\n\n" + " ".join(parts),
    "bold": lambda parts: " ".join("**{}** {}".format(*one.split(" ", 1)) for one in parts),
    "italics": lambda parts: " ".join(f"*{one}*" for one in parts),
    "quotation": lambda parts: "\n".join(f"> {one}" for one in parts),
    "table": lambda parts: "| do |\n| --- |\n" + "\n".join(f"| {one} |" for one in parts),
    "letters": lambda parts: "\n".join(map("{}) {}".format, "abcdefghij", parts)),
    "Roman numbers": lambda parts: "\n".join(
        map("{}. {}".format, ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"], parts)
    ),
    "arrows": lambda parts: "\n".join(f"➤ {one}" for one in parts),
    "boxes to tick": lambda parts: "\n".join(f"- [ ] {one}" for one in parts),
    "paragraphs of HTML": lambda parts: "".join(f"<p>{one}</p>" for one in parts),
    "line breaks of HTML": "<br>".join,
    "underlined heading": lambda parts: "Answer\n======\n\n" + " ".join(parts),
    "wrapped": lambda parts: textwrap.fill(" ".join(parts), 70),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_moves_markdown_alone(layout):
    parts = list(split_sentences(ANSWER))
    laid_out = LAYOUTS[layout](parts)
    content = [(name, way) for name in NAMES for way in Amount]
    asked = [*content, ("markdown", Amount.more), ("markdown", Amount.less)]
    items = [("How do I boil an egg?", ANSWER, laid_out, attribute(n), way) for n, way in asked]
    moved = [one for one, verdict in zip(asked, RuleJudge().judge(items), strict=True) if verdict]
    assert moved == [("markdown", Amount.more)]


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        ("# Eggs\n\n1. **Boil** it\n2. *Peel* it.\n\n---\n", "Boil it. Peel it."),
        ("# 42", "42"),
        ("Boil it.  Peel it.", "Boil it. Peel it."),
        ("**Paris**", "Paris"),
        ("2 * 3 * 4 and snake_case_name stay", "2 * 3 * 4 and snake_case_name stay"),
        ("I live in a house by the sea, which is far from\nParis. Good.", None),
        ("See [the page](http://a.b/c) now.", "See the page now."),
        ("```python\nx = 1\n```", "x = 1"),
        ("", ""),
    ],
)
def test_a_text_without_its_layout(text, prose):
    assert strip_layout(text) == (text.replace("\n", " ") if prose is None else prose)


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


@pytest.mark.parametrize("taste", [0.0, 50.0, -50.0])
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
