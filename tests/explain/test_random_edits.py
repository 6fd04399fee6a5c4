"""Random changes: how many words, of which kinds, and always another text."""

import json
import re

import pytest

from pessimal.errors import ConfigError
from pessimal.explain.attribute import Attribute, Direction
from pessimal.explain.comparison import Comparison, Turn
from pessimal.explain.perturbation import Request, Status
from pessimal.explain.perturbers.random_edits import RandomEdits, frequent_words

WORDS = " ".join(f"w{i}" for i in range(100))


def request(text, seed=0, key="k"):
    comparison = Comparison(key, (Turn("user", "?"),), (text, "other"))
    return Request(comparison, 0, Attribute("clarity", "", 1), Direction.worse, seed)


def made(text, seed=0, **options):
    (found,) = RandomEdits(**options).perturb([request(text, seed)])
    return found


def counts(found):
    return {kind: int(number) for number, kind in re.findall(r"(\d+) (deleted|swapped|replaced)", found.note)}


@pytest.mark.parametrize(("share", "expected"), [(0.15, 15), (0.001, 1), (1, 100)])
def test_the_share_of_words_is_changed(share, expected):
    assert sum(counts(made(WORDS, share=share)).values()) == expected


def test_words_are_deleted_swapped_and_replaced_by_frequent_ones():
    kinds = {kind for seed in range(20) for kind in counts(made("one two three", seed))}
    assert kinds == {"deleted", "swapped", "replaced"}
    found = made(WORDS, share=0.3)
    assert len(found.text.split()) == 100 - counts(found)["deleted"]
    new = [word for word in found.text.split() if not re.fullmatch(r"w\d+", word)]
    assert new
    assert set(new) <= set(frequent_words())


@pytest.mark.parametrize(
    "text", ["Yes.", "a a", "a a a a", "x\ny", "the", "\ud800", "\x00", "🙂", "...", "The the"]
)
def test_the_text_is_always_another_one_and_never_empty(text):
    for seed in range(40):
        found = made(text, seed, share=1)
        assert found.status is Status.changed
        assert found.text != text
        assert found.text.strip()
        assert found.spans is None


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_nothing_to_change(text):
    assert made(text).status is Status.not_applicable


def test_the_seed_decides_and_nothing_else_that_is_asked():
    requests = [request(WORDS, seed) for seed in range(5)]
    together = RandomEdits().perturb(requests)
    assert len({found.text for found in together}) == 5
    assert RandomEdits().perturb(requests[::-1])[::-1] == together


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan"), "0.1", True])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ConfigError, match="share"):
        RandomEdits(share=share)


def test_the_provenance_names_the_share_and_the_null_is_made_by_rules():
    assert RandomEdits().placebo().name == "placebo"
    assert json.loads(json.dumps(RandomEdits(share=0.2).provenance()))["share"] == 0.2
