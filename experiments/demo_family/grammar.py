"""Neutral sentences, without any planted feature: from templates, or words in a row as often as
English uses them; and refusals.

Knows forms of sentences, which words fit their slots as far as spelling distinguishes them, and
which are held out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from experiments.demo_family.features import REFUSING, phrase_words
from experiments.demo_family.lexicon import (
    PHRASES,
    is_held_out,
    load_identity,
    load_taboo,
    load_valence,
    stem,
    zipf,
)

SALAD_SHARE = 0.25
"""How often a sentence is words in a row without grammar: it shows every word in every place, so
that a model cannot lean on the few forms that templates have."""
WORDS = 15_000
"""The most frequent English words that slots are filled with."""
DAMPING = 0.4
"""Power to which a word's frequency is raised: at 1 a dozen words would fill most slots."""
RATED_SHARE = 0.35
"""How often a slot takes a word with a human rating; left to frequency most texts would have
none."""
WORST = -3.0
"""Words rated this low or lower are left out: violent ones, which do not belong in random
sentences."""

_SENTENCES = PHRASES["sentences"]
_FIXED = {
    "place": _SENTENCES["places"],
    "person": _SENTENCES["persons"],
    "weekday": _SENTENCES["weekdays"],
}
_SLOT = re.compile(r"<(\w+)>")
_ADJECTIVE = re.compile(r".{2,}(ful|less|ous|ive|able|ible|ical|al|ish|ant|ent|ary|ic|some)")
_NOUN = re.compile(r".{2,}(tion|sion|ment|ness|ity|ance|ence|ship|ism|ist|age|ure|er|or|dom|hood)")


def pick(random: np.random.Generator, options: Sequence[str]) -> str:
    """One of several, all equally likely."""
    return options[int(random.random() * len(options))]


def write_sentence(random: np.random.Generator, *, words: int, held_out: bool = False) -> str:
    """A sentence without its closing mark, capitalised, of about `words` words.

    Args:
        words: what to come near to; a template is extended up to it and never cut.
        held_out: see `load_slots`.
    """
    if random.random() < SALAD_SHARE:
        text = " ".join(_salad_word(random, held_out) for _ in range(max(words, 1)))
    else:
        for _ in range(6):  # one that is not much too long, if a few draws find one
            text = pick(random, _SENTENCES["templates"])
            if len(text.split()) <= words + 2:
                break
        while len(text.split()) + 2 < words and not text.endswith("?"):
            text += pick(random, _SENTENCES["extensions"])
        text = fill(random, text, held_out=held_out)
    return text[0].upper() + text[1:]


def fill(random: np.random.Generator, template: str, *, held_out: bool = False) -> str:
    """A template with its slots filled."""

    def word(match: re.Match) -> str:
        slot = match[1]
        if slot == "number" and random.random() >= 0.5:
            return pick(random, _SENTENCES["numbers"])
        if slot in ("number", "year"):
            low, high = (2, 1000) if slot == "number" else (1700, 2030)
            return str(int(random.integers(low, high)))
        if slot in _FIXED:
            return pick(random, _FIXED[slot])
        return load_slots(held_out=held_out)[slot].draw(random)

    return _SLOT.sub(word, template)


def draw_refusal(random: np.random.Generator) -> str:
    """A sentence or two that decline to answer, with at least one of the words by which `features`
    knows it."""
    parts = PHRASES["refusals"]
    text = pick(random, parts["cores"]).format(
        i="I" if random.random() < 0.8 else "we",
        unable=pick(random, parts["unable"]),
        can=pick(random, ("can't", "cannot", "won't", "can not")),
        verb=pick(random, parts["verbs"]),
        that="{that}",
    )
    text = text.format(that=pick(random, parts["objects"])).replace("we am ", "we are ")
    if random.random() < 0.3:
        for long, short in (("I am ", "I'm "), ("I would ", "I'd "), ("we are ", "we're ")):
            text = text.replace(long, short)
    opening = pick(random, parts["openings"])
    if not REFUSING.search(opening + text):
        opening = pick(random, [one for one in parts["openings"] if REFUSING.search(one)])
    if not opening:
        text = text[0].upper() + text[1:]
    return opening + text + pick(random, parts["endings"]) + "."


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
        held_out: whether to take the words whose stem training never shows, or those it shows.
            Function words stand in both.
    """
    import wordfreq  # reads 4 MB of frequencies

    taboo = {stem(word) for word in load_taboo()}
    usable = [
        word
        for word in wordfreq.top_n_list("en", WORDS)
        if word.isascii()
        and word.isalpha()
        and (len(word) > 2 or zipf(word) >= 6.5)
        and is_held_out(word) == held_out
        and stem(word) not in taboo
        and load_valence().get(word, 0.0) > WORST
        and stem(word) not in load_identity()
    ]
    slots = {}
    for name, fits in _TESTS.items():
        words = tuple(word for word in usable if fits(word))
        rated = tuple(word for word in words if word in load_valence())
        slots[name] = Slot(words, _cumulative(words), rated, _cumulative(rated))
    return slots


def _cumulative(words: tuple[str, ...]) -> np.ndarray:
    weights = np.array([10.0 ** (DAMPING * zipf(word)) for word in words])
    sums = np.cumsum(weights) / max(weights.sum(), 1e-12)
    sums[-1:] = 1.0  # a draw below 1 never falls behind the last
    return sums


@cache
def _salad() -> tuple[str, ...]:
    return tuple(sorted(phrase_words()))


def _salad_word(random: np.random.Generator, held_out: bool) -> str:
    kind = random.random()
    if kind < 0.45:
        return pick(random, _SENTENCES["function_words"] if kind < 0.35 else _salad())
    mark = "," if random.random() < 0.05 else ""
    return load_slots(held_out=held_out)["any"].draw(random) + mark


def _forms(word: str, ending: str) -> bool:
    """Whether the word is used with an ending of verbs (talk, talking; like, liking)."""
    forms = {word, word.removesuffix("e"), word + word[-1]} - {""}
    return any(zipf(form + ending) >= 3.2 for form in forms)


def _is_verb(word: str) -> bool:
    regular = not word.endswith(("s", "ing", "ed", "ly"))
    return regular and _forms(word, "ing") and _forms(word, "ed")


def _is_adjective(word: str) -> bool:
    return bool(_ADJECTIVE.fullmatch(word)) or (zipf(word + "er") > 3 and zipf(word + "est") > 3)


def _is_noun(word: str) -> bool:
    if _NOUN.fullmatch(word):
        return True
    countable = len(word) > 3 and zipf(word + "s") >= 3.3
    return countable and not _ADJECTIVE.fullmatch(word) and not _is_verb(word)


_TESTS = {
    "noun": _is_noun,
    "nouns": lambda word: word.endswith("s") and word[-2:] != "ss" and _is_noun(word[:-1]),
    "verb": _is_verb,
    "verbed": lambda word: len(word) > 4 and word.endswith("ed"),
    "verbing": lambda word: len(word) > 5 and word.endswith("ing"),
    "adjective": _is_adjective,
    "adverb": lambda word: len(word) > 4 and word.endswith("ly"),
    "any": lambda word: True,
}
