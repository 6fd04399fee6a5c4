"""Placebo: another wording, the same meaning, and hardly another length."""

import pytest

from pessimal.explain.attribute import PLACEBO, Attribute, Direction
from pessimal.explain.comparison import Comparison, Turn
from pessimal.explain.perturbation import Request, Status
from pessimal.explain.perturbers.placebo import Placebo

USUAL = (
    "The color of apples, pears and plums is often red. It is not hard to grow them, for example in 3 pots. "
    "Do not water them too much; you don't need to."
)


def made(text, seed=0, key="k"):
    comparison = Comparison(key, (Turn("user", "?"),), (text, "other"))
    (found,) = Placebo().perturb([Request(comparison, 0, Attribute(PLACEBO, "", 1), Direction.worse, seed)])
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Do not run.", "Don't run."),
        ("I like that color.", "I like that colour."),
        ("I like that colour.", "I like that color."),
        ("Buy apples, pears and plums.", "Buy apples, pears, and plums."),
        ("Buy apples, pears, and plums.", "Buy apples, pears and plums."),
        ("For example, run.", "For instance, run."),
        ("Take three eggs.", "Take 3 eggs."),
        ("Take 3 eggs.", "Take three eggs."),
        ('He said "run" to me.', "He said 'run' to me."),
        ("Run.  Walk.", "Run. Walk."),
    ],
)
def test_it_says_the_same_otherwise(text, expected):
    assert expected in {made(text, seed).text for seed in range(20)}


@pytest.mark.parametrize("seed", range(30))
def test_the_number_of_words_stays_about_the_same(seed):
    found = made(USUAL * 3, seed)
    assert found.status is Status.changed
    assert abs(len(found.text.split()) - len((USUAL * 3).split())) <= 2
    assert found.spans


def test_there_are_several_variants_and_neighbouring_seeds_differ():
    assert made(USUAL, 0).text != made(USUAL, 1).text
    assert len({made(USUAL, seed).text for seed in range(20)}) >= 6


def test_the_same_request_gives_the_same_text():
    requests = [
        Request(
            Comparison(f"k{i}", (Turn("user", "?"),), (USUAL, "x")),
            0,
            Attribute(PLACEBO, "", 1),
            Direction.better,
            i,
        )
        for i in range(8)
    ]
    together = Placebo().perturb(requests)
    assert [Placebo().perturb([request])[0] for request in requests[::-1]] == together[::-1]


@pytest.mark.parametrize(
    "text", ["", " \n ", "Canberra.", "🙂", "\ud800", "我认为", "`do not`", "a" * 100_001]
)
def test_where_nothing_could_be_otherwise_it_says_so(text):
    found = made(text)
    assert found.status is Status.not_applicable
    assert found.text is None
    assert found.note


@pytest.mark.parametrize(
    "text", ["\udfff do not \x00 <script>do not</script>", "do not " * 10_000, "'" * 5000 + " is not"]
)
def test_hostile_texts_are_data(text):
    found = made(text)
    assert found.status in (Status.changed, Status.not_applicable)
    assert found.text != text
