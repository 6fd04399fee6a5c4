"""How a response is worded: clarity, complexity, verbosity.

Knows readings. Clarity and complexity share what makes a text readable, so they are near opposites by construction.
"""

import re

import numpy as np

from pessimal.explain.detectors.reading import Reading
from pessimal.explain.detectors.words import grade, rarity

_VAGUE = re.compile(
    r"\b(?:things?|stuff|something|somehow|somewhere|someone|whatever|whatnot|kind of|sort of|and so on|etc|"
    r"the (?:former|latter)|aforementioned|this or that|one way or another|it all|thingy|various|certain|aspects?)\b",
    re.IGNORECASE,
)
_NESTED = re.compile(
    r"[(;—–]|,\s*(?:which|who|whom|whose|where|whereby|although|though|notwithstanding|insofar|inasmuch|albeit|thus|"
    r"thereby|whilst|given that|being)\b|\b(?:of which|in which|to which|by which|for which|whereof|therein)\b",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"\b(?:basically|actually|really|very|literally|in order to|due to the fact that|it is (?:important|worth) "
    r"(?:to note|noting)(?: that)?|as (?:i )?(?:mentioned|said|stated)|in other words|that is to say|at the end of the "
    r"day|needless to say|it should be (?:noted|mentioned)|for all intents and purposes|the fact that|when it comes to|"
    r"in terms of|as a matter of fact|what i mean|to put it|once again|again|simply|just|quite|each and every|"
    r"first and foremost|at this point in time|of course|as you know)\b",
    re.IGNORECASE,
)


def complexity(reading: Reading) -> float:
    """School years a reader needs (Flesch–Kincaid), over ten; powers of ten of rarity (wordfreq); nesting a sentence."""
    nested = reading.count(_NESTED) / max(len(reading.sentences), 1)
    return grade(reading) / 10 + rarity(reading) + 0.3 * nested


def clarity(reading: Reading) -> float:
    """Less of complexity and of words that name nothing, half a point for each tenth of the words."""
    return -complexity(reading) - 5 * reading.rate(_VAGUE)


def verbosity(reading: Reading) -> float:
    """Natural logarithm of words, the share of words said before, fillers for each ten words, and how much sentences
    repeat what another sentence said (mean of each one's highest cosine with an earlier one)."""
    words = reading.words
    if not words:
        return 0.0
    said_before = 1 - len(set(words)) / len(words)
    return (
        float(np.log(len(words))) + said_before + 10 * reading.rate(_FILLER) * 0.3 + 0.5 * _repeated(reading)
    )


def _repeated(reading: Reading) -> float:
    vectors = reading.vectors
    if len(vectors) < 2:
        return 0.0
    earlier = np.tril(vectors @ vectors.T, k=-1)  # (sentences, sentences); 0 where not earlier
    return float(earlier[1:].max(axis=1).mean())
