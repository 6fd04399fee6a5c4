"""Entries that stand for every word that begins as they do: what they match, and that it is found quickly."""

import time

from pessimal.analysis.wildcards import is_wildcard, matches


def test_a_wildcard_matches_words_that_begin_as_it_does():
    words = [
        "safe",
        "safety",
        "unsafe",
        "saf",
        "safeguard",
        "safe-keeping",
        "safe's",
        "harm",
        "harmony",
        "säfe",
    ]
    found = matches(["safe*", "harm", "peace*", "harm*"], words)
    assert found == {
        "safe*": ["safe", "safe's", "safe-keeping", "safeguard", "safety"],
        "harm": ["harm"],
        "peace*": [],
        "harm*": ["harm", "harmony"],
    }


def test_what_begins_so_and_is_not_one_word_is_not_matched():
    words = [
        "safe.txt",
        "safe_mode",
        "safe haven",
        "safe2",
        "safe-",
        "safe\n",
        "safe(",
        "safe-2",
        "safety first",
    ]
    assert matches(["safe*"], words) == {"safe*": []}


def test_a_wildcard_may_begin_with_anything_and_a_plain_entry_be_a_phrase():
    words = ["common good", "common goodness", "l'amour", "zzz", "\U0010ffff"]
    assert matches(["common good*", "common good", "l'am*", "zz*"], words) == {
        "common good*": ["common good", "common goodness"],
        "common good": ["common good"],
        "l'am*": ["l'amour"],
        "zz*": ["zzz"],
    }


def test_only_an_asterisk_at_the_end_makes_a_wildcard():
    assert [is_wildcard(entry) for entry in ("safe*", "safe", "sa*fe")] == [True, False, False]


def test_many_wildcards_over_a_large_vocabulary_take_under_a_second():
    letters = "abcdefghijklmnop"
    words = [a + b + c + d for a in letters for b in letters for c in letters for d in letters]
    entries = [f"{word[:3]}*" for word in words[::32]]
    begun = time.perf_counter()
    found = matches(entries, words)
    assert time.perf_counter() - begun < 1
    assert all(len(own) == 16 for own in found.values())
