"""What single rules do to single sentences."""

import pytest

from pessimal.explain.attribute import Amount, Attribute, Direction
from pessimal.explain.comparison import Comparison, Turn
from pessimal.explain.perturbation import Request
from pessimal.explain.perturbers.rules import Rules

PROMPT = "Which is the largest planet?"


def made(text, name, amount, prompt=PROMPT):
    """The texts of twelve seeds."""
    direction = Direction.better if amount == "more" else Direction.worse
    comparison = Comparison("k", (Turn("user", prompt),), (text, "other"))
    requests = [Request(comparison, 0, Attribute(name, "", 1), direction, seed) for seed in range(12)]
    assert requests[0].attribute.amount(direction) is Amount(amount)
    return {perturbation.text for perturbation in Rules().perturb(requests)}


@pytest.mark.parametrize(
    ("name", "amount", "text", "expected"),
    [
        ("assertiveness", "more", "I think that the sun is, perhaps, a star.", "The sun is a star."),
        ("assertiveness", "more", "It might help to rest.", "It will help to rest."),
        ("assertiveness", "less", "The sun is a star.", "The sun is perhaps a star."),
        (
            "avoid-to-answer",
            "less",
            "I'm sorry, but I can't say. Jupiter is the largest.",
            "Jupiter is the largest.",
        ),
        ("avoid-to-answer", "less", "I'm sorry, but I can't help with that.", "I can help with that."),
        ("harmlessness", "more", "A stupid idea.", "An unwise idea."),
        ("informativeness", "less", "It has moons (about 95).", "It has moons."),
        (
            "informativeness",
            "more",
            "Look at planets at night.",
            "Look at planets (for example Mars, Jupiter and Saturn) at night.",
        ),
        ("informativeness", "more", "Wait three days.", "Wait three days (72 hours)."),
        (
            "informativeness",
            "more",
            "It is 42.195 kilometres long.",
            "It is 42.195 kilometres (about 26 miles) long.",
        ),
        ("informativeness", "more", "Wait two to three days.", None),
        ("neutrality", "more", "Obviously, it is a terrible idea.", "It is a disputed idea."),
        ("verbosity", "less", "It is very big in order to shine.", "It is big to shine."),
        ("complexity", "more", "Many people use it.", "Multitudinous individuals utilise it."),
        ("complexity", "less", "They utilise an additional method.", "They use a more way."),
        ("correctness", "more", "It recieve the the light.", "It receive the the light."),
        ("correctness", "more", "It recieve the the light.", "It recieve the light."),
        ("correctness", "more", "They was here.", "They were here."),
        ("correctness", "less", "It is big.", "It is not big."),
        ("correctness", "less", "The sun are big.", "The sun is big."),
        ("engagement", "less", "It is fun!", "It is fun."),
        ("engagement", "less", "You can see your star.", "One can see one's star."),
        (
            "appropriateness",
            "less",
            "You are going to like many people.",
            "You are gonna like a shitload of dudes.",
        ),
        ("coherence", "less", "It shines because it is hot.", "It shines although it is hot."),
    ],
)
def test_words_are_changed_as_meant(name, amount, text, expected):
    assert expected in made(text, name, amount)


def test_a_refusal_takes_the_place_of_the_whole_answer_code_included():
    found = made("Jupiter is it. It is big. It has moons.\n```\nx\n```", "avoid-to-answer", "more")
    assert "I'm sorry, but I can't help with that." in found


def test_a_refusal_is_not_refused_again():
    assert made("I'm sorry, but I can't help with that.", "avoid-to-answer", "more") == {None}


def test_the_sentence_that_has_nothing_to_do_with_the_prompt_goes():
    text = "Jupiter is the largest planet. My aunt sells tea."
    assert made(text, "relevance", "more") >= {"Jupiter is the largest planet."}
    assert all("Jupiter is the largest planet." in each for each in made(text, "relevance", "more"))


def test_what_is_put_in_is_on_something_else():
    for found in made("Jupiter is the largest planet. It has many moons.", "relevance", "less"):
        assert found.count(".") >= 2
        assert found != "Jupiter is the largest planet. It has many moons."


def test_sentences_change_places_whole():
    text = "Jupiter shines at night. Saturn has rings. Mars looks red."
    shuffled = [each for each in made(text, "coherence", "less") if len(each) == len(text)]
    assert shuffled
    for found in shuffled:
        assert sorted(found.rstrip(".").split(". ")) == sorted(text.rstrip(".").split(". "))
        assert not found.startswith("Jupiter")


def test_numbers_become_others_and_those_of_a_list_stay():
    found = made("1. It has 95 moons.\n2. It takes 12 years.", "correctness", "less")
    changed = [each for each in found if "95" not in each]
    assert changed
    for each in changed:
        assert each.startswith("1. It has ")
        assert "\n2. It takes " in each


def test_an_offer_stands_on_its_own_line_behind_a_list():
    found = made("- Jupiter\n- Saturn", "helpfulness", "more")
    assert any(each.startswith("- Jupiter\n- Saturn\n\n") for each in found)


def test_what_only_is_added_names_no_words_of_the_response():
    comparison = Comparison("k", (Turn("user", PROMPT),), ("Jupiter.", "x"))
    (found,) = Rules().perturb([Request(comparison, 0, Attribute("sensitivity", "", 1), Direction.better)])
    assert found.spans == ()
    assert "Jupiter." in found.text
    assert "only added to" in found.note


def test_a_sentence_goes_on_in_the_next_line_of_a_poem():
    text = "The sun is up without a sound,\nand you can see it all around."
    assert made(text, "coherence", "more") == {None}
    assert all("\nAnd" not in each for each in made(text, "coherence", "less"))
    assert made(text, "avoid-to-answer", "more") >= {"I'm sorry, but I can't help with that."}
