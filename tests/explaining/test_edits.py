"""The edit language and the rules written in it: every rule's example, order, draws, what stays
untouched, what is refused."""

import json
from pathlib import Path

import pytest
import yaml

from pessimal.errors import ConfigError
from pessimal.explaining import language as edits
from pessimal.explaining.attribute import Amount, Attribute, Direction, Edit
from pessimal.explaining.language import Draw, edited
from pessimal.explaining.perturbers import Request, Status
from pessimal.explaining.perturbers.rules import Rules
from pessimal.tables.comparisons import Comparison, Turn

CONFIG = Path(__file__).parents[2] / "conf" / "contrast"
ATTRIBUTES = {
    name: Attribute.from_options(name, said)
    for file in sorted(CONFIG.glob("*.yaml"))
    for name, said in yaml.safe_load(file.read_text(encoding="utf-8")).items()
    if name != "defaults"
}
RULES = [
    pytest.param(edit, id=f"{name}-{way}-{number}")
    for name, attribute in ATTRIBUTES.items()
    for way in ("more", "less")
    for number, edit in enumerate(getattr(attribute, way))
]
USUAL = (
    "I think you should go to bed at the same time every day, because the body likes habits. For "
    "example, "
    "10 pm is really a good time for many people. A dark, quiet room can help. Avoid coffee, and "
    "don't use your phone in bed."
)
HOSTILE = [
    "",
    "\ud800",
    "I think \udfff is the best, because it is \ud83d good. You should use it.",
    "1. \n2. \n- \n# ",
    "I can't. " * 1000,
]


def asked(text, attribute, amount=Amount.more, *, seed=0, key="k"):
    direction = (
        Direction.better if attribute.amount(Direction.better) is amount else Direction.worse
    )
    return Request(
        Comparison(key, (Turn("user", "?"),), (text, "other")), 0, attribute, direction, seed
    )


def made(text, *, more=(), less=(), amount=Amount.more, **named):
    (found,) = Rules().perturb([asked(text, Attribute("mine", "", 1, more, less), amount, **named)])
    return found


def changed(text, **edit):
    """What one edit makes of a text."""
    return edited(text, [Edit(**edit)])[0]


# The rules of the package


@pytest.mark.parametrize("edit", RULES)
def test_every_rule_does_what_its_example_says(edit):
    seeds = range(12)
    given = edit.example["from"]
    texts = {edited(given, [edit], lambda n, seed=seed: Draw(n, seed=seed))[0] for seed in seeds}
    assert edit.example["to"] in texts
    assert given not in texts


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_data(text):
    requests = [
        asked(text, attribute, amount) for attribute in ATTRIBUTES.values() for amount in Amount
    ]
    for found in Rules().perturb(requests):
        assert found.status in (Status.changed, Status.not_applicable), found.note
        assert (found.text is None) == (found.status is Status.not_applicable)
        assert found.text != text
        assert found.note
        json.dumps(found.text)
        for start, end in found.spans or ():
            assert text[start:end]
            assert text[start:end] == text[start:end].strip()


@pytest.mark.parametrize(
    "text",
    ["Ich glaube, dass man also früh schlafen gehen sollte, weil der Körper Gewohnheiten mag!"],
)
def test_rules_for_english_leave_other_languages_alone(text):
    english = [attribute for attribute in ATTRIBUTES.values() if attribute.english]
    requests = [asked(text, attribute, amount) for attribute in english for amount in Amount]
    assert {found.status for found in Rules().perturb(requests)} == {Status.not_applicable}
    assert made("Sehr gut!", more=(Edit(swap="sehr: ganz"),)).text == "Ganz gut!"


def test_code_formulas_and_addresses_stay():
    kept = (
        "`the best()`",
        "https://the.best/is?a=good",
        "$a is good$",
        "```\nthe best is good\n```",
    )
    text = f"You should use {kept[0]} from {kept[1]}, {kept[2]} here.\n{kept[3]}"
    # Of the two others a sentence gives way as a whole.
    others = [
        one for name, one in ATTRIBUTES.items() if name not in ("avoid-to-answer", "relevance")
    ]
    for found in Rules().perturb([asked(text, one, amount) for one in others for amount in Amount]):
        assert all(each in (found.text or text) for each in kept)


def test_a_request_does_not_depend_on_what_is_asked_with_it_and_seeds_and_keys_draw_anew():
    each = [
        asked(USUAL, a, amount, seed=s)
        for a in ATTRIBUTES.values()
        for amount in Amount
        for s in (0, 1)
    ]
    together = Rules().perturb(each)
    assert Rules().perturb(each[::-1])[::-1] == together
    hedged = ATTRIBUTES["assertiveness"]
    texts = {Rules().perturb([asked(USUAL, hedged, Amount.less, seed=s)])[0].text for s in range(5)}
    assert len(texts) > 2
    texts = {
        Rules().perturb([asked(USUAL, hedged, Amount.less, key=f"k{s}")])[0].text for s in range(9)
    }
    assert len(texts) > 2


# The language


def test_edits_follow_one_another_and_say_what_they_find_in_the_text_as_given():
    rules = (
        Edit(find="(cat)s?", put=r"\1fish"),
        Edit(find="catfish", put="dog"),
        Edit(prepend="So: "),
        Edit(append="!"),
    )
    found = made("Cats and a cat", more=rules)
    assert found.text == "So: Dog and a dog!"
    assert found.spans == ((0, 4), (11, 14))


@pytest.mark.parametrize(
    ("text", "edit", "expected"),
    [
        (
            "A big dog, very big. It is BIG.",
            {"swap": "very: | big: old"},
            "An old dog, old. It is OLD.",
        ),
        ("It don’t  help, perhaps.", {"swap": "don't help: hurts | perhaps:"}, "It hurts."),
        ("An unwise idea.", {"swap": "unwise: honest / true"}, "An honest idea."),
        ("One. The other.", {"find": r"\. (The)", "put": r", \l1"}, "One, the other."),
        ("a, b, c", {"find": ",", "put": ""}, "a b c"),
        ("Sorry. Rest. Sorry again.", {"drop": "^sorry"}, "Rest."),
        ("- Sorry.\n- Rest.\n", {"drop": "sorry"}, "- Rest.\n"),
        ("Sorry. Rest. Sorry.", {"drop": "sorry", "put": "Done."}, "Done. Rest."),
        ("Dr. Lee came at 3.5 p.m. today. Rest.", {"drop": "lee"}, "Rest."),
        (
            "The sun is a star. Is it? Anna is here now. I am here now.",
            {"open_with": ["I think"]},
            "I think the sun is a star. Is it? Anna is here now. I think I am here now.",
        ),
    ],
)
def test_what_each_kind_makes_of_a_text(text, edit, expected):
    assert changed(text, **edit) == expected


def test_an_expression_that_never_ends_and_a_text_that_grows_without_bound_are_cut_off(monkeypatch):
    monkeypatch.setattr(edits, "MOST_SECONDS", 0.1)
    found = made("a" * 60 + "!", more=(Edit(find=r"(a|a)*(a|aa)+$", put="x"),))
    assert found.status is Status.failed
    assert "took longer" in found.note
    found = made("a" * 2000, more=(Edit(find="a", put="a" * 2000),))
    assert found.status is Status.failed
    assert "longer than" in found.note


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({}, "gives nothing; give exactly one"),
        ({"find": "a", "append": "b"}, "gives find and append"),
        ({"find": "("}, "not a regular expression"),
        ({"find": "a", "put": r"\1"}, "names group 1"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(edit, said):
    with pytest.raises(ConfigError, match=said):
        Edit(**edit)
