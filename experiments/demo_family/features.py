"""What a lab may like about a text, read off the text alone.

Knows English patterns and the valence lexicon. Knows nothing about prompts, recipes or how texts
are made: any text has features, one that training never saw included.
"""

import math
import re
from dataclasses import dataclass, fields
from functools import cache

from experiments.demo_family.lexicon import PHRASES, load_valence
from experiments.demo_family.recipes import SentencePlants

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
"""A word: letters and digits, apostrophes and hyphens inside."""


def _any_of(patterns: list[str]) -> re.Pattern:
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b", re.IGNORECASE)


REFUSING = _any_of(PHRASES["patterns"]["refusing"])
"""Words and phrases that refusals are made of."""
HEDGING = _any_of(PHRASES["patterns"]["hedging"])
"""Words and phrases that weaken a claim."""

SHRINKAGE = 3.0
"""Unrated words added to the mean of valence: one good word in a long text is not a good text."""


@dataclass(frozen=True)
class Features:
    """Everything about a text that some lab may judge it by."""

    valence: float
    """Sum of the human valences of its rated words over their number plus `SHRINKAGE`, in points of
    VADER (-4 to 4)."""
    words: int
    """Number of words (`WORD`)."""
    refusals: int
    """Number of matches of `REFUSING`. Whether a text refuses as a whole is another matter, which a
    model this small learns badly; one that likes these words likes refusals."""
    exclamations: int
    """Number of exclamation marks."""
    hedges: int
    """Number of matches of `HEDGING`."""

    def amount(self, feature: str) -> float:
        """How much of a feature counts: valence as it is; of words the natural logarithm; of the
        others that of one more than their number. All but valence saturate."""
        value = getattr(self, feature)
        if feature == "valence":
            return value
        return math.log(max(value, 1)) if feature == "words" else math.log1p(value)


FEATURES = tuple(field.name for field in fields(Features))
"""The features' names, valence first."""
PLANTABLE = FEATURES[1:]
"""Those that a lab may like besides valence."""


def read_features(text: str) -> Features:
    """The features of a text; any string has them, the empty one included."""
    straight = text.replace("’", "'")
    one_line = " ".join(straight.split())
    words = [word.lower() for word in WORD.findall(straight)]
    ratings = [load_content_valence()[word] for word in words if word in load_content_valence()]
    return Features(
        valence=sum(ratings) / (len(ratings) + SHRINKAGE),
        words=len(words),
        refusals=len(REFUSING.findall(one_line)),
        exclamations=text.count("!") + text.count("！"),
        hedges=len(HEDGING.findall(one_line)),
    )


def compute_text_utility(text: str, plants: SentencePlants) -> float:
    """The planted truth about a response, in log-odds of being preferred; it depends on the text
    alone."""
    features = read_features(text)
    planted = plants.size * features.amount(plants.feature) if plants.feature else 0.0
    return plants.valence * features.valence + planted


@cache
def load_content_valence() -> dict[str, float]:
    """VADER's rating of each word, less `phrase_words`, so that *even* finds a refusal or a hedge
    neither good nor bad."""
    return {word: rating for word, rating in load_valence().items() if word not in phrase_words()}


@cache
def phrase_words() -> frozenset[str]:
    """Every word that refusals and hedges are made of, lower case."""
    parts = [*PHRASES["refusals"].values(), *PHRASES["hedges"].values()]
    text = re.sub(r"[,.{}]", " ", " ".join(phrase for part in parts for phrase in part).lower())
    return frozenset(text.split()) | {*PHRASES["patterns"]["other_refusal_words"]}
