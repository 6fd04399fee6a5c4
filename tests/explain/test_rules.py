"""Rules: every attribute both ways, what stays untouched, what is said where none applies."""

import json

import pytest

from pessimal.explain.attribute import Amount, Attribute, Direction
from pessimal.explain.comparison import Comparison, Turn
from pessimal.explain.perturbation import Request, Status
from pessimal.explain.perturbers.rules import Rules
from pessimal.explain.rules.registry import KNOWN, RULES

PROMPT = "How can I sleep better at night?"
USUAL = (
    "I think you should go to bed at the same time every day, because the body likes habits. For example, "
    "10 pm is really a good time for many people. A dark, quiet room can help. Avoid coffee, and don't use your phone in bed."
)
SLIPS = "You should of definately went to bed early. It don't help the the body to drink an coffee."
RARE_WORDS = "Numerous individuals require assistance; they could utilise additional vegetables in order to obtain sleep."
HOSTILE = [
    "\ud800",
    "I think \udfff is the best, because it is \ud83d good. You should use it.",
    "<script>alert('x')</script> is what you should use. It is very good.",
    "null\x00byte is the answer. You should\x00 use it.",
    "🙂",
    "🙂 You should sleep well 🙂. It is very good for you! 🙂",
    "*",
    "1.",
    "1. \n2. \n- \n# ",
    "```\nx = 1\n",
    "```python\nprint('the best is the best')\n```",
    "(" * 50 + "the" + ")" * 50,
    "the " * 5000,
    "a" * 90_000,
    "I can't. " * 2000,
    "\r\nThe one.\r\n\r\n- The two is here, and it is good.\r\n",
    "Ich glaube, dass man früh schlafen gehen sollte, weil der Körper Gewohnheiten mag.",
    "我认为你应该早点睡觉。",
    "THE BEST IS THE BEST. YOU SHOULD USE IT.",
]


def attribute(name, polarity=1):
    return Attribute(name, "", polarity)


def asked(text, name, amount, *, seed=0, prompt=PROMPT, key="k", response=0):
    """The request that needs more or less of an attribute of polarity 1."""
    direction = Direction.better if amount is Amount.more else Direction.worse
    pair = (text, "other") if response == 0 else ("other", text)
    return Request(Comparison(key, (Turn("user", prompt),), pair), response, attribute(name), direction, seed)


def one(*given, **named):
    (perturbation,) = Rules().perturb([asked(*given, **named)])
    return perturbation


def texts(text, name, amount, seeds=range(12), **named):
    return {one(text, name, amount, seed=seed, **named).text for seed in seeds}


def test_the_fifteen_attributes_have_rules_both_ways():
    assert len(KNOWN) == 15
    assert set(RULES) == {(name, amount) for name in KNOWN for amount in Amount}
    assert all(ways.changing for ways in RULES.values())


@pytest.mark.parametrize(("name", "amount"), sorted(RULES, key=str))
def test_every_attribute_changes_a_text_it_is_meant_for(name, amount):
    text = {"correctness": SLIPS, "complexity": RARE_WORDS}.get(name, USUAL)
    if (name, amount) == ("informativeness", Amount.more):
        text = RARE_WORDS
    if amount is Amount.less and name == "correctness":
        text = USUAL
    if amount is Amount.more and name == "complexity":
        text = USUAL
    perturbation = one(text, name, amount)
    assert perturbation.status is Status.changed, perturbation.note
    assert perturbation.text != text
    assert perturbation.text.strip()
    assert perturbation.note
    for start, end in perturbation.spans:
        assert 0 <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()


@pytest.mark.parametrize(
    "name", sorted(KNOWN - {"correctness", "complexity", "coherence", "informativeness", "verbosity"})
)
@pytest.mark.parametrize("amount", Amount)
def test_neighbouring_seeds_differ(name, amount):
    assert one(USUAL, name, amount, seed=0).text != one(USUAL, name, amount, seed=1).text


def test_the_polarity_decides_which_way_better_is():
    request = asked(USUAL, "verbosity", Amount.more)
    worse_if_more = Request(request.comparison, 0, attribute("verbosity", -1), Direction.better, 0)
    (perturbation,) = Rules().perturb([worse_if_more])
    assert len(perturbation.text) < len(USUAL)
    assert len(one(USUAL, "verbosity", Amount.more).text) > len(USUAL)


def test_a_request_does_not_depend_on_what_is_asked_with_it():
    requests = [
        asked(USUAL, name, amount, seed=seed) for name, amount in sorted(RULES, key=str) for seed in (0, 1)
    ]
    together = Rules().perturb(requests)
    assert Rules().perturb(requests[::-1])[::-1] == together
    assert [Rules().perturb([request])[0] for request in requests] == together


def test_requests_with_other_keys_are_drawn_anew():
    found = {one(USUAL, "sensitivity", Amount.more, key=f"k{i}").text for i in range(20)}
    assert len(found) > 3


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_data(text):
    requests = [asked(text, name, amount, seed=1, prompt=text or "x") for name, amount in RULES]
    for perturbation in Rules().perturb(requests):
        assert perturbation.status in (Status.changed, Status.not_applicable)
        assert (perturbation.text is None) == (perturbation.status is Status.not_applicable)
        assert perturbation.text != text
        assert perturbation.note
        json.dumps(perturbation.text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("我认为你应该早点睡觉。", "no English words"),
        (HOSTILE[16], "does not read as English"),
        ("x y " * 60_000, "longer than"),
        ("```\nx = the_best\n```", "code"),
    ],
)
def test_it_says_why_a_text_cannot_be_changed(text, said):
    perturbation = one(text, "engagement", Amount.more)
    assert perturbation.status is Status.not_applicable
    assert said in perturbation.note
    assert perturbation.text is None
    assert perturbation.spans is None


def test_what_has_no_slip_cannot_be_made_more_correct():
    perturbation = one("The cat sat on the mat.", "correctness", Amount.more)
    assert perturbation.status is Status.not_applicable
    assert "facts cannot be checked by rule" in perturbation.note


def test_code_and_addresses_stay():
    text = "You should use `the best()` from https://the.best/is?a=good here.\n```\nthe best is good\n```"
    for name, amount in RULES:
        if (name, amount) == ("avoid-to-answer", Amount.more):
            continue
        for seed in range(4):
            found = one(text, name, amount, seed=seed).text
            if found is not None and "best()" in found:
                assert "`the best()`" in found
                assert "https://the.best/is?a=good" in found
                assert "the best is good\n```" in found


@pytest.mark.parametrize(("name", "amount"), sorted(RULES, key=str))
@pytest.mark.parametrize("text", [USUAL, SLIPS, RARE_WORDS], ids=("usual", "slips", "rare"))
def test_spaces_and_capitals_are_right_afterwards(name, amount, text):
    for found in texts(text, name, amount) - {None}:
        assert found == found.strip()
        assert "  " not in found
        assert " ," not in found
        assert " ." not in found
        assert ",," not in found
        first = next(character for character in found if character.isalpha())
        assert first.isupper()


def test_the_provenance_is_json_and_stays():
    assert json.loads(json.dumps(Rules().provenance())) == Rules().provenance()
    assert len(Rules().provenance()["rules"]) == 64
