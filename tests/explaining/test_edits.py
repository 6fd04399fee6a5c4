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
    " \n\t ",
    "\ud800",
    "I think \udfff is the best, because it is \ud83d good. You should use it.",
    "<script>alert('x')</script> is what you should use. It is very good.",
    "null\x00byte is the answer. You should\x00 use it.",
    "🙂 You should sleep well 🙂. It is very good for you! 🙂",
    "1. \n2. \n- \n# ",
    "```\nx = 1\n",
    "(" * 50 + "the" + ")" * 50,
    "the " * 5000,
    "a" * 90_000,
    "I can't. " * 1000,
    "Use `it`, I can't. " * 2500,
    "\r\nThe one.\r\n\r\n- The two is here, and it is good.\r\n",
    "THE BEST IS THE BEST. YOU SHOULD USE IT.",
    "The sun is up without a sound,\nand you can see it all around.",
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


def test_the_attributes_have_at_most_two_rules_each_way_and_none_that_only_adds_a_sentence():
    assert len(ATTRIBUTES) == 16
    for attribute in ATTRIBUTES.values():
        for rules in (attribute.more, attribute.less):
            assert 1 <= len(rules) <= 2
            assert not {rule.kind for rule in rules} & {"prepend", "append"}


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
    [
        "我认为你应该早点睡觉。",
        "Ich glaube, dass man also früh schlafen gehen sollte, weil der Körper Gewohnheiten mag!",
    ],
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
        ("Perhaps, it is. It is, perhaps, so.", {"swap": "perhaps:"}, "It is. It is so."),
        ("An unwise idea.", {"swap": "unwise: honest / true"}, "An honest idea."),
        ("unhappy and un-happy", {"swap": "happy: sad"}, "unhappy and un-happy"),
        ("It rains; it pours.", {"find": "; (it)", "put": r". \u1"}, "It rains. It pours."),
        ("One. The other.", {"find": r"\. (The)", "put": r", \l1"}, "One, the other."),
        ("a, b, c", {"find": ",", "put": ""}, "a b c"),
        ("Sorry. Rest. Sorry again.", {"drop": "^sorry"}, "Rest."),
        ("Rest. Sorry. Sorry.", {"drop": "sorry"}, "Rest."),
        ("- Sorry.\n- Rest.\n", {"drop": "sorry"}, "- Rest.\n"),
        ("- Rest.\n- Sorry.", {"drop": "sorry"}, "- Rest."),
        ("Sorry. Sorry.", {"drop": "sorry"}, "Sorry. Sorry."),
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


def test_most_is_drawn_by_the_seed():
    rule = Edit(swap="a: b", most=2)
    texts = {
        edited("a a a a a a", [rule], lambda n, seed=seed: Draw("x", n, seed=seed))[0]
        for seed in range(20)
    }
    assert len(texts) > 5
    assert {text.lower().count("b") for text in texts} == {2}


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
        ({"drop": "["}, "not a regular expression"),
        ({"find": "a", "put": r"\1"}, "names group 1"),
        ({"find": "a", "put": []}, "empty list"),
        ({"swap": "very"}, "write it as"),
        ({"swap": "a: b", "most": 0}, "most: 0"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(edit, said):
    with pytest.raises(ConfigError, match=said):
        Edit(**edit)


def test_an_attribute_without_rules_is_refused_before_any_model_is_loaded():
    with pytest.raises(
        ConfigError, match=r"no rules for the attribute 'mine'.*conf/contrast/mine.yaml"
    ):
        Rules(attributes=[Attribute("mine", "", 1)])
    found = Rules(attributes=list(ATTRIBUTES.values()))
    assert json.loads(json.dumps(found.provenance())) == found.provenance()
    assert found.placebo().name == "placebo"
