"""The perturbers `placebo` (another wording, the same meaning, hardly another length) and
`random`."""

import json
import re

import pytest

from pessimal.explaining.perturbers import Status
from pessimal.explaining.perturbers.rules import Placebo, RandomEdits, frequent_words
from scripted_server import CLARITY, PLACEBO, request

WORDS = " ".join(f"w{i}" for i in range(100))
USUAL = (
    "The color of apples, pears and plums is often red. It is not hard to grow them, for example "
    "in 3 pots. "
    "Do not water them too much; you don't need to."
)


def reworded(text, seed=0):
    return Placebo().perturb([request(PLACEBO, text=text, seed=seed)])[0]


def shuffled(text, seed=0, **options):
    return RandomEdits(**options).perturb([request(CLARITY, text=text, seed=seed)])[0]


def counts(found):
    return {
        kind: int(number)
        for number, kind in re.findall(r"(\d+) (deleted|swapped|replaced)", found.note)
    }


@pytest.mark.parametrize("perturber", [Placebo(), RandomEdits()])
def test_the_request_decides_and_nothing_else_that_is_asked(perturber):
    requests = [request(PLACEBO, text=USUAL, seed=seed) for seed in range(20)]
    together = perturber.perturb(requests)
    assert perturber.perturb(requests[::-1])[::-1] == together
    assert together[0].text != together[1].text
    assert len({found.text for found in together}) >= 6
    assert perturber.placebo().name == "placebo"
    assert json.loads(json.dumps(perturber.provenance())) == perturber.provenance()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Do not run.", "Don't run."),
        ("Buy apples, pears and plums.", "Buy apples, pears, and plums."),
        ("Take 3 eggs.", "Take three eggs."),
    ],
)
def test_a_placebo_says_the_same_otherwise(text, expected):
    assert expected in {reworded(text, seed).text for seed in range(20)}


@pytest.mark.parametrize("text", ["", "Canberra."])
def test_where_nothing_could_be_otherwise_it_says_so(text):
    found = reworded(text)
    assert (found.status, found.text) == (Status.not_applicable, None)
    assert found.note


@pytest.mark.parametrize(("share", "expected"), [(0.15, 15), (0.001, 1), (1, 100)])
def test_the_share_of_words_is_changed(share, expected):
    assert sum(counts(shuffled(WORDS, share=share)).values()) == expected


def test_words_are_deleted_swapped_and_replaced_by_frequent_ones():
    kinds = {kind for seed in range(20) for kind in counts(shuffled("one two three", seed))}
    assert kinds == {"deleted", "swapped", "replaced"}
    found = shuffled(WORDS, share=0.3)
    assert len(found.text.split()) == 100 - counts(found)["deleted"]
    new = [word for word in found.text.split() if not re.fullmatch(r"w\d+", word)]
    assert new
    assert set(new) <= set(frequent_words())


@pytest.mark.parametrize("text", ["Yes.", "a a a a", "\x00"])
def test_a_random_text_is_always_another_one_and_never_empty(text):
    for seed in range(40):
        found = shuffled(text, seed, share=1)
        assert (found.status, found.spans) == (Status.changed, None)
        assert found.text != text
        assert found.text.strip()
    assert shuffled(" \n\t").status is Status.not_applicable
