"""Random words for the slots of a sentence: nouns, verbs, adjectives and so on, as far as spelling distinguishes them.

Knows words, how often they are used and which are held out. Knows nothing about sentences.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import wordfreq

from pessimal.demo.lexicon import is_held_out, load_identity, load_taboo, load_valence, stem, zipf

WORDS = 15_000
"""The most frequent English words that slots are filled with."""
DAMPING = 0.4
"""Power to which a word's frequency is raised: at 1 a dozen words would fill most slots."""
RATED_SHARE = 0.35
"""How often a slot takes a word with a human rating; left to frequency most texts would have none."""

WORST = -3.0
"""Words rated this low or lower are left out: violent ones, which do not belong in random sentences."""

_ADJECTIVE = re.compile(r".{2,}(ful|less|ous|ive|able|ible|ical|al|ish|ant|ent|ary|ic|some)")
_NOUN = re.compile(r".{2,}(tion|sion|ment|ness|ity|ance|ence|ship|ism|ist|age|ure|er|or|dom|hood)")


@dataclass(frozen=True, eq=False)  # compared as objects: it holds arrays
class Slot:
    """Words that fit one slot."""

    words: tuple[str, ...]
    cumulative: np.ndarray
    """(words,) sums of their damped frequencies, up to 1."""
    rated: tuple[str, ...]
    """Those with a human rating."""
    rated_cumulative: np.ndarray
    """The same for them."""

    def draw(self, random: np.random.Generator) -> str:
        """One word."""
        if self.rated and random.random() < RATED_SHARE:
            return self.rated[int(np.searchsorted(self.rated_cumulative, random.random()))]
        return self.words[int(np.searchsorted(self.cumulative, random.random()))]


@cache
def load_slots(*, held_out: bool) -> dict[str, Slot]:
    """The slots by name (noun, nouns, verb, verbed, verbing, adjective, adverb, any).

    Args:
        held_out: whether to take the words whose stem training never shows, or those it shows. Function words are
            written out in the grammar and stand in both.
    """
    taboo = {stem(word) for word in load_taboo()}
    known = [word for word in wordfreq.top_n_list("en", WORDS) if word.isascii() and word.isalpha()]
    usable = [
        word
        for word in known
        if (len(word) > 2 or zipf(word) >= 6.5)
        and is_held_out(word) == held_out
        and stem(word) not in taboo
        and load_valence().get(word, 0.0) > WORST
        and stem(word) not in load_identity()
    ]
    return {name: _slot([word for word in usable if fits(word)]) for name, fits in _TESTS.items()}


def _slot(words: Iterable[str]) -> Slot:
    words = tuple(words)
    rated = tuple(word for word in words if word in load_valence())
    return Slot(words, _cumulative(words), rated, _cumulative(rated))


def _cumulative(words: tuple[str, ...]) -> np.ndarray:
    weights = np.array([10.0 ** (DAMPING * zipf(word)) for word in words])
    sums = np.cumsum(weights) / max(weights.sum(), 1e-12)
    sums[-1:] = 1.0  # a draw below 1 never falls behind the last
    return sums


def _forms(word: str, ending: str) -> bool:
    """Whether the word is used with an ending of verbs (talk, talking; like, liking)."""
    return any(zipf(form + ending) >= 3.2 for form in {word, word.removesuffix("e"), word + word[-1]} - {""})


def _is_verb(word: str) -> bool:
    return not word.endswith(("s", "ing", "ed", "ly")) and _forms(word, "ing") and _forms(word, "ed")


def _is_noun(word: str) -> bool:
    return bool(_NOUN.fullmatch(word)) or (
        len(word) > 3 and zipf(word + "s") >= 3.3 and not _ADJECTIVE.fullmatch(word) and not _is_verb(word)
    )


_TESTS = {
    "noun": _is_noun,
    "nouns": lambda word: word.endswith("s") and not word.endswith("ss") and _is_noun(word.removesuffix("s")),
    "verb": _is_verb,
    "verbed": lambda word: len(word) > 4 and word.endswith("ed"),
    "verbing": lambda word: len(word) > 5 and word.endswith("ing"),
    "adjective": lambda word: (
        bool(_ADJECTIVE.fullmatch(word)) or (zipf(word + "er") > 3 and zipf(word + "est") > 3)
    ),
    "adverb": lambda word: len(word) > 4 and word.endswith("ly"),
    "any": lambda word: True,
}
