"""What a response says: informativeness, correctness, coherence.

Knows readings. Has no knowledge of the world: of correctness it sees the language and the sums, not the facts.
"""

import itertools
import re

import numpy as np

from pessimal.explain.detectors.reading import Reading
from pessimal.explain.detectors.words import mean, zipf

_NUMBER = re.compile(
    r"\d+(?:[.,:]\d+)*|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|"
    r"hundred|thousand|million|billion|once|twice|half|third|quarter)\b",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"(?<![\w'’])[a-z]{3,}(?![\w'’])")
_NAME = re.compile(r"(?<![.!?:\n\"“] )(?<!^)\b(?!I\b)[A-Z][\w'-]+")
_REASON = re.compile(
    r"\b(?:because|since|therefore|due to|as a result|for example|for instance|such as|including|e\.g|namely|"
    r"which means|leads? to|caus(?:e[sd]?|ing)|percent|called|named|in \d{4})\b|%",
    re.IGNORECASE,
)
_CONNECTIVE = re.compile(
    r"^(?:however|therefore|thus|then|next|first(?:ly)?|second(?:ly)?|third(?:ly)?|finally|also|moreover|furthermore|"
    r"besides|in addition|as a result|consequently|for example|for instance|because|so|but|and|meanwhile|afterwards?|"
    r"after that|still|nevertheless|instead|this|these|that|those|it|they|he|she|such|similarly|in short|since)\b",
    re.IGNORECASE,
)
_ORDER = (
    r"^\W*(?:first(?:ly)?|to begin|to start|start by|begin by)\b",
    r"^\W*(?:second(?:ly)?|then|next|after(?: that|wards?)?)\b",
    r"^\W*(?:third(?:ly)?)\b",
    r"^\W*(?:finally|lastly|in the end|in conclusion|to sum up|in summary)\b",
)
_ORDER = tuple(re.compile(pattern, re.IGNORECASE) for pattern in _ORDER)
_SUM = re.compile(
    r"(?<![\d.])(?<![-+*/×÷−])(?<![-+*/×÷−] )(\d{1,9}) *([-+*/×÷−]|plus|minus|times|divided by) *(\d{1,9}) *(?:=|is|equals) *(\d{1,12})(?!\d|\.\d)"
)
_SLIP = re.compile(
    r"\b(\w+) \1\b(?<!that that)(?<!had had)|\b(?:he|she|it) (?:have|do|go|are|were)\b|\b(?:they|we|you) (?:is|was|has)\b|"
    r"\b(?:more|most) \w+(?:er|est)\b|\b(?:could|should|would) of\b|\ba (?=[aeio])\w+|\ban (?=[bcdfgjklmnpqrstvwxz])\w{2,}|"
    r"\b(?:didn't|doesn't|did|does) \w+(?:ed|es)\b|\bi (?:is|are|has)\b",
    re.IGNORECASE,
)


def specifics(reading: Reading) -> int:
    """Numbers, names, reasons and examples."""
    return reading.count(_NUMBER) + reading.count(_NAME) + reading.count(_REASON)


def informativeness(reading: Reading) -> float:
    """Natural logarithms of how many specifics there are (numbers, names, reasons, examples) and, at half weight, how much
    different content (distinct words, each weighing as many powers of ten as it is rarer than one in a hundred); and the
    mean weight of a word, so that filler takes away."""
    weights = {word: max(7.0 - zipf(word), 0.0) for word in sorted(set(reading.words))}
    dense = sum(weights[word] for word in reading.words) / max(len(reading.words), 1)
    return float(np.log1p(specifics(reading)) + 0.5 * np.log1p(sum(weights.values())) + 0.5 * dense)


def correctness(reading: Reading) -> float:
    """Less a slip (doubled words, agreement, articles), a lower-case word nobody writes, and two a wrong sum. A count, no
    rate: more sentences of whatever kind correct nothing. Blind to facts: an edit that moves none of these may have made a true text false, and the judge then has no
    opinion. Cosine with the prompt was tried for facts: right on 4 of 7 pairs, and misled by answers that echo the
    question, so it is not used."""
    plain = _PLAIN.findall(reading.text)
    unknown = sum(zipf(word) <= 2.0 for word in plain)
    slips = reading.count(_SLIP) + unknown + 2 * sum(map(_wrong, _SUM.findall(reading.text)))
    return -float(slips)


def coherence(reading: Reading) -> float:
    """Mean cosine of each sentence with the one before it (the prompt before the first) and with what was said so far,
    the share of later sentences that open with a connective or a pronoun, less marks of order that run backwards and a
    first sentence that opens by referring back."""
    if not reading.sentences:
        return 0.0
    vectors = np.vstack([reading.asked, reading.vectors])
    before = np.einsum("ij,ij->i", vectors[1:], vectors[:-1])
    so_far = np.cumsum(vectors, axis=0)[:-1]
    so_far /= np.linalg.norm(so_far, axis=1, keepdims=True)
    context = np.einsum("ij,ij->i", vectors[1:], so_far)
    opens = [bool(_CONNECTIVE.search(one)) for one in reading.sentences]
    order = [rank for one in reading.sentences for rank, mark in enumerate(_ORDER) if mark.search(one)]
    backwards = sum(later < earlier for earlier, later in itertools.pairwise(order))
    return 0.5 * mean(before) + 0.5 * mean(context) + 0.3 * mean(opens[1:]) - 0.3 * backwards - 0.1 * opens[0]


def _wrong(found: tuple[str, str, str, str]) -> bool:
    left, sign, right, result = int(found[0]), found[1], int(found[2]), int(found[3])
    if sign in ("+", "plus"):
        return left + right != result
    if sign in ("-", "−", "minus"):
        return left - right != result
    if sign in ("*", "×", "times"):
        return left * right != result
    return right != 0 and left != right * result
