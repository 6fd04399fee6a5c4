"""Hostile strings become visible, one line long, and distinct."""

import pytest

from pessimal.texts import literal, short_names


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x07\x9f", "\\x07\\x9f"),
        ("\U000e0001", "\\U000e0001"),
        ("  ", "␣␣"),
        ("自由😀", "自由😀"),
    ],
)
def test_literal_shows_what_cannot_be_seen(text, shown):
    assert literal(text, limit=60) == shown


def test_literal_cuts_between_characters_and_never_inside_an_escape():
    assert literal("abcdef", limit=4) == "abc…"
    assert literal("ab\u200bcd", limit=8) == "ab…"
    assert literal("abcd", limit=4) == "abcd"


def test_models_lose_their_organisation_unless_they_would_look_alike():
    assert short_names(["org/one", "two"]) == {"org/one": "one", "two": "two"}
    assert short_names(["a/same", "b/same"]) == {"a/same": "a/same", "b/same": "b/same"}
    long = "org/Skywork-Reward-Gemma-2-27B-v0.2"
    assert short_names([long], limit=20) == {long: "Skywork-R…2-27B-v0.2"}
    assert short_names([long, long.replace("Reward", "Regret")], limit=20)[long] == long
