"""Measures of wording that detectors share: syllables, sentence length, rarity, valence.

Knows words. Does not know attributes.
"""

import re
from functools import cache, lru_cache

import numpy as np

from pessimal.explain.detectors.reading import Reading

_VOWELS = re.compile(r"[aeiouy]+")
_SILENT_END = re.compile(r"(?:[^laeiouy]es|[^laeiouytd]ed|[^laeiouy]e)$")
RAREST = 1.0
"""Zipf frequency that words wordfreq does not know are given: one use in a hundred million words."""


def syllables(word: str) -> int:
    """Groups of vowels, less a silent end; at least 1. Right for about nine English words in ten."""
    plain = re.sub(r"[^a-z]", "", word.lower())
    return max(len(_VOWELS.findall(plain)) - bool(_SILENT_END.search(plain)), 1)


def words_a_sentence(reading: Reading) -> float:
    """Mean length of a sentence in words; 0 without sentences."""
    return len(reading.words) / max(len(reading.sentences), 1)


def syllables_a_word(reading: Reading) -> float:
    """Mean; 0 without words."""
    return sum(map(syllables, reading.words)) / max(len(reading.words), 1)


def grade(reading: Reading) -> float:
    """Years of school a reader needs (Kincaid et al. 1975); 0 without words."""
    if not reading.words:
        return 0.0
    return 0.39 * words_a_sentence(reading) + 11.8 * syllables_a_word(reading) - 15.59


def rarity(reading: Reading) -> float:
    """Mean number of powers of ten by which its words of four letters or more are rarer than one in a thousand."""
    rare = [max(6.0 - zipf(word), 0.0) for word in reading.words if len(word) > 3]
    return float(np.mean(rare)) if rare else 0.0


@lru_cache(maxsize=100_000)
def zipf(word: str) -> float:
    """Base-10 logarithm of its uses per billion words (wordfreq), at least `RAREST`."""
    import wordfreq  # reads 4 MB of frequencies

    return max(wordfreq.zipf_frequency(word, "en"), RAREST)


@lru_cache(maxsize=100_000)
def valence(sentence: str) -> float:
    """How positive a sentence is, from −1 to 1: VADER's compound score (Hutto & Gilbert 2014)."""
    return _vader().polarity_scores(sentence)["compound"]


@cache
def _vader():
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer  # brings in an HTTP client

    return SentimentIntensityAnalyzer()


def valences(reading: Reading) -> np.ndarray:
    """(sentences,)."""
    return np.array([valence(sentence) for sentence in reading.sentences])


def mean(values: np.ndarray) -> float:
    """0 without values, so that an empty response has an amount too."""
    return float(np.mean(values)) if len(values) else 0.0


def mean_and_worst(values: np.ndarray) -> float:
    """Half the mean, half the smallest: one bad sentence spoils a response, and more of them spoil it further."""
    return 0.5 * mean(values) + 0.5 * float(np.min(values)) if len(values) else 0.0
