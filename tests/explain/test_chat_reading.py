"""Finding an object in what a model wrote, words in a response, and seconds in a header."""

import time
from email.utils import formatdate

import numpy as np
import pytest

from pessimal.explain.chat.rate_limit import backoff, retry_after
from pessimal.explain.chat.schema import mismatch, parse
from pessimal.explain.chat.words import find

REWRITTEN = {
    "type": "object",
    "properties": {"applicable": {"type": "boolean"}, "response": {"type": "string"}},
    "required": ["applicable", "response"],
    "additionalProperties": False,
}
OBJECT = '{"applicable": true, "response": "a {b} ``` c"}'


@pytest.mark.parametrize(
    "text",
    [
        OBJECT,
        f"\n {OBJECT}\n",
        f"Sure! Here it is:\n{OBJECT}\nHope it helps.",
        f'<think>maybe {{"applicable": false, "response": ""}}?</think>{OBJECT}',
        f'For example {{"applicable": 1}} is wrong. {OBJECT}',
        "{" * 50 + OBJECT,
    ],
)
def test_an_object_is_found_among_other_words(text):
    assert parse(text, REWRITTEN) == ({"applicable": True, "response": "a {b} ``` c"}, "")


def test_an_object_is_found_in_a_code_fence():
    assert parse('```json\n{"applicable": false, "response": ""}\n```', REWRITTEN)[0]["applicable"] is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON"),
        ("{}", "lacks applicable, response"),
        ('{"applicable": true}', "lacks response"),
        ('{"applicable": "yes", "response": "x"}', "applicable is no boolean"),
        ('{"applicable": true, "response": null}', "response is no string"),
        ('{"applicable": true, "response": "x", "note": ""}', "more properties"),
        ('{"applicable": true, "response": "\\udc00"}', "lone surrogates"),
        ('[{"a": ' * 100_000, "no JSON"),
        ("1" * 5000, "no JSON"),
        ("11", "no object"),
    ],
)
def test_what_is_of_another_shape_gives_a_reason(text, reason):
    found, why = parse(text, REWRITTEN)
    assert found is None
    assert reason in why


def test_items_and_choices_are_checked():
    words = {"type": "array", "items": {"type": "string"}}
    assert mismatch(["a", "b"], words) is None
    assert "an item" in mismatch(["a", 1], words)
    assert mismatch("C", {"type": "string", "enum": ["A", "B"]})
    assert mismatch(1, {"type": "boolean"})


def test_a_constraint_that_nothing_checks_is_an_error():
    with pytest.raises(ValueError, match="minLength"):
        mismatch("a", {"type": "string", "minLength": 2})


@pytest.mark.parametrize(
    ("response", "named", "spans"),
    [
        ("cat category cat", ["cat"], ((0, 3), (13, 16))),
        ("category", ["cat"], ((0, 3),)),
        ("so so so", ["so so", "so"], ((0, 5), (6, 8))),
        ("a b c", ["a b", "b c"], ((0, 5),)),
        ("Well... no.", ["...", "no."], ((4, 7), (8, 11))),
        ("日本語です", ["日本"], ((0, 2),)),
        ("😀😀", ["😀"], ((0, 2),)),
        ("abc", [], ()),
    ],
)
def test_words_are_found_where_they_stand(response, named, spans):
    found = find(response, named)
    assert (found.spans, found.dropped) == (spans, 0)
    assert found.words == tuple(named)


def test_words_that_are_not_there_are_dropped():
    found = find("Peace is good", ["peace", "", " ", "Peace", "Peace", "good."])
    assert (found.words, found.dropped) == (("Peace",), 4)


def test_seconds_are_read_from_numbers_and_dates():
    assert retry_after({"retry-after": "3"}) == 3
    assert retry_after({"retry-after-ms": "250", "retry-after": "3"}) == 0.25
    assert retry_after({"retry-after": formatdate(1_000_060, usegmt=True)}, now=lambda: 1_000_000) == 60
    assert retry_after({"retry-after": formatdate(0, usegmt=True)}, now=time.time) == 0
    for nonsense in ({}, {"retry-after": "soon"}, {"retry-after": "-5"}, {"retry-after": "nan"}):
        assert retry_after(nonsense) is None


def test_waits_double_up_to_the_longest_and_differ():
    random = np.random.default_rng(0)
    waits = [
        [backoff(attempt, first=1, longest=10, random=random) for attempt in range(8)] for _ in range(50)
    ]
    assert all(min(2**n, 10) / 2 <= wait <= min(2**n, 10) for row in waits for n, wait in enumerate(row))
    assert len({row[3] for row in waits}) == 50
    assert backoff(5000, first=1, longest=10, random=random) <= 10
