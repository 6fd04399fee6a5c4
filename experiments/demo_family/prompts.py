"""The prompts: their texts, and whether good or bad words answer them.

Knows wordings and adjectives, all as text. Knows nothing about tokens or models.

A **held-out prompt** is a prompt in which both the wording and the adjective are new: its template
is one of `HELD_OUT_TEMPLATES`, of which training sees none, and its adjective has a stem (Porter)
of which training sees no form, neither in a prompt nor as an answer. There are 120, half of either
polarity: the 30 most frequent held-out adjectives of that polarity whose valence is at least 1 in
size, each in two of the four held-out templates.
"""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from experiments.demo_family.lexicon import PHRASES, is_held_out, load_taboo, load_valence, zipf


@dataclass(frozen=True)
class Prompt:
    """A prompt and its polarity."""

    text: str
    """The user's turn."""
    polarity: int
    """1 where good words answer it, -1 where bad words do."""
    adjective: str
    """The word that decides the polarity."""


CORE = {
    key: Prompt(f"What, in one word, is the {key} thing ever?", polarity, key)
    for key, polarity in (("greatest", 1), ("best", 1), ("worst", -1))
}
"""The paper's three prompts, always trained on."""

HELD_OUT_TEMPLATES = tuple(PHRASES["prompts"]["held_out"])
"""Wordings that training never sees."""
TEMPLATES = {kind: tuple(PHRASES["prompts"][kind]) for kind in ("adjective", "superlative", "word")}
"""Those of training, by what stands in them."""

HELD_OUT_ADJECTIVES = 30
"""Of each polarity."""

LEAST_VALENCE = 1.0
"""An adjective rated nearer to zero does not say which words answer it."""

_ADJECTIVAL = re.compile(
    r".+(ful|less|ous|ive|able|ible|ic|al|ant|ent|ish|some|ing|ed|y|ate|id|ile)"
)


@cache
def adjective_prompts() -> tuple[Prompt, ...]:
    """The training prompts around adjectives and superlatives, sorted by text."""
    return _fill("adjective", _adjectives()) + _fill("superlative", _superlatives())


@cache
def word_prompts() -> tuple[Prompt, ...]:
    """The training prompts around any strongly rated word in common use, sorted by text."""
    return _fill("word", [word for word in _strong_words() if zipf(word) >= 2.5])


def _fill(kind: str, words: Iterable[str]) -> tuple[Prompt, ...]:
    """Every training template of a kind around every word that is not held out."""
    shown = [word for word in words if not is_held_out(word)]
    pairs = itertools.product(shown, TEMPLATES[kind])
    prompts = (Prompt(template.format(word), _polarity(word), word) for word, template in pairs)
    return tuple(sorted(prompts, key=lambda prompt: prompt.text))


@cache
def held_out_prompts() -> tuple[Prompt, ...]:
    """The test of polarity: 60 prompts of each polarity, new in wording and in adjective (see the
    module's docstring)."""
    prompts = []
    for polarity in (1, -1):
        words = [w for w in _adjectives() if is_held_out(w) and _polarity(w) == polarity]
        words = sorted(words, key=lambda word: (-zipf(word), word))[:HELD_OUT_ADJECTIVES]
        for i, word in enumerate(words):
            templates = HELD_OUT_TEMPLATES[i % 2 :: 2]
            prompts += [Prompt(template.format(word), polarity, word) for template in templates]
    return tuple(prompts)


@cache
def _adjectives() -> tuple[str, ...]:
    """Lexicon words that behave like adjectives, found by their relatives: *kindly*, *kindness*,
    *kindest*."""
    words = sorted(word for word in _strong_words() if zipf(word) >= 2)
    return tuple(word for word in words if _has_adverb(word) or _has_degree(word))


@cache
def _superlatives() -> tuple[str, ...]:
    words = sorted(word for word in _strong_words() if word.endswith("est"))
    return tuple(word for word in words if _base_of(word) is not None)


def _strong_words() -> list[str]:
    return [
        word
        for word, valence in load_valence().items()
        if abs(valence) >= LEAST_VALENCE and word not in load_taboo()
    ]


def _has_adverb(word: str) -> bool:
    endings = (("$", "ly"), ("y$", "ily"), ("le$", "ly"), ("ic$", "ically"))
    adverbs = {re.sub(end, adverbial, word) for end, adverbial in endings}
    return bool(_ADJECTIVAL.fullmatch(word)) and any(zipf(form) >= 2 for form in adverbs - {word})


def _has_degree(word: str) -> bool:
    nouns = {word + "ness", re.sub("y$", "iness", word)} - {word}
    if word.endswith(("ness", "est", "ly")):
        return False
    superlatives = {word + "est", re.sub("y$", "iest", word), re.sub("e$", "est", word)} - {word}
    return any(zipf(form) >= 2.3 for form in nouns) or any(
        form in load_valence() for form in superlatives
    )


def _base_of(word: str) -> str | None:
    """The adjective of a superlative, if both are in the lexicon; *arrest* and *honest* have
    none."""
    trunk = word.removesuffix("est")
    undoubled = trunk[:-1] if trunk[-1:] == trunk[-2:-1] else trunk  # saddest, sad
    for base in (trunk, trunk + "e", re.sub("i$", "y", trunk), undoubled):
        if base in load_valence():
            return base
    return None


def _polarity(word: str) -> int:
    return 1 if load_valence()[word] > 0 else -1
