"""What a response does about the request: avoid-to-answer, helpfulness, relevance.

Knows readings.
"""

import re

import numpy as np

from pessimal.explain.detectors.content import specifics
from pessimal.explain.detectors.embedding_axis import lean
from pessimal.explain.detectors.reading import Reading
from pessimal.explain.detectors.words import mean

_REFUSED = re.compile(
    r"\b(?:i|we)(?: am| are|'m|'re)?(?: \w+){0,2} (?:can't|cannot|can not|won't|unable|not able|not allowed|"
    r"not permitted|not comfortable|not going|refuse|decline|prefer not|rather not|have to pass|must decline|"
    r"will not|do not have|don't have)\b"
    r"|\bas an ai\b|\bagainst my\b|\bnot (?:something|a topic) (?:that )?(?:i|we)\b|\bbeyond my\b|\bno comment\b"
    r"|\b(?:ask|consult|contact|speak to) (?:somebody|someone|anybody|anyone) else\b|\b(?:change|drop) the subject\b"
    r"|\b(?:talk|chat) about something else\b|\bi(?:'m| am) (?:not sure|sorry)\b|\bi (?:do not|don't) know\b",
    re.IGNORECASE,
)
_USABLE = re.compile(
    r"^\s*(?:\d{1,2}[.)]|[-*•])\s|\b(?:for example|for instance|such as|first(?:ly)?|then|next|finally|step|try|use|"
    r"you can|you could|make sure|because|recommend\w*|suggest\w*|tips?|here (?:is|are)|the answer is|instead|"
    r"let me know|happy to|glad to|hope this helps|feel free)\b",
    re.IGNORECASE,
)


def avoid_to_answer(reading: Reading) -> float:
    """Evasive against answering in meaning (half-distances between the poles), the share of sentences that refuse in
    so many words, and how little the sentence nearest to the prompt is about it."""
    near = float(np.max(reading.vectors @ reading.asked)) if len(reading.vectors) else 0.0
    return mean(lean(reading.vectors, "avoid-to-answer")) + reading.share(_REFUSED) - 0.5 * near


def helpfulness(reading: Reading) -> float:
    """Useful against useless in meaning (half-distances between the poles), the share of sentences with steps,
    examples, reasons or offers less those that refuse, cosine with the prompt, and how many specifics there are (natural
    logarithm, a fifth of it)."""
    return (
        mean(lean(reading.vectors, "helpfulness"))
        + 0.5 * reading.share(_USABLE)
        - reading.share(_REFUSED)
        + mean(reading.vectors @ reading.asked)
        + 0.2 * float(np.log1p(specifics(reading)))
    )


def relevance(reading: Reading) -> float:
    """Cosine of the sentences with the prompt: half the mean, half the mean of the lower half, where digressions are."""
    if not len(reading.vectors):
        return 0.0
    near = np.sort(reading.vectors @ reading.asked)
    return 0.5 * float(near.mean()) + 0.5 * float(near[: (len(near) + 1) // 2].mean())
