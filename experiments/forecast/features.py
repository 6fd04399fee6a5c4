"""What is looked at of an answer, the planted reward, and the forecast from answers."""

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from pessimal.analyses.forecast import drift
from pessimal.analyses.optimised import Optimising
from pessimal.api.compare import read_options
from pessimal.config.compose import configuration

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
QUESTION = set(WORD.findall("what, in one word, is the greatest thing ever?"))
OPTIONS = read_options(configuration("compare", {}))
VALENCE = OPTIONS.lexicons["AFINN-111"]


def words(text: str) -> list[str]:
    return WORD.findall(text.lower().replace("’", "'"))


def planted(texts: Sequence[str]) -> np.ndarray:
    """Likes long answers and capitals, dislikes apostrophes."""
    return np.array(
        [
            0.1 * len(text)
            + 0.5 * sum(c.isupper() for c in text)
            - 1.5 * bool(re.search("['’]", text))
            for text in texts
        ]
    )


def has(pattern: str) -> Callable[[str], float]:
    return lambda text: float(bool(re.search(pattern, text)))


def zipf(text: str) -> float:
    found = OPTIONS.word_frequencies.zipf(words(text))
    return float(np.nanmean(found)) if np.isfinite(found).any() else np.nan


FEATURES: dict[str, Callable[[str], float]] = {
    "characters": len,
    "words": lambda text: len(words(text)),
    "longest word": lambda text: max(map(len, words(text)), default=0),
    "capitals": lambda text: sum(c.isupper() for c in text),
    "begins with a capital": has(r"^\s*[A-Z]"),
    "two words with a capital": has(r"\b[A-Z]\w*\W+(?:\w+\W+)*[A-Z]"),
    "apostrophe": has(r"['’]"),
    "comma": has(","),
    "full stop": has(r"\."),
    "quotation mark": has(r"[\"“”]"),
    "colon, dash or bracket": has(r"[:;()\-–—]"),
    "digit": has(r"\d"),
    "begins with The": has(r"^\W*[Tt]he\b"),
    "begins with That": has(r"^\W*[Tt]hat\b"),
    "begins with There": has(r"^\W*[Tt]here\b"),
    "begins with This or It": has(r"^\W*([Tt]his|[Ii]t)\b"),
    "begins with A or An": has(r"^\W*[Aa]n?\b"),
    "first person": has(r"(?i)\b(i|i'm|i'd|i’m|my|me|we|our|let's|let)\b"),
    "says is": has(r"(?i)\bis\b|['’]s\b"),
    "says not or no": has(r"(?i)\b(no|not|never|nothing)\b|n['’]t\b"),
    "says would or could": has(r"(?i)\b(would|could|might|may|should)\b|['’]d\b"),
    "words of the question": lambda text: sum(w in QUESTION for w in words(text)),
    "says great or greatest": has(r"(?i)\bgreat"),
    "valence, AFINN": lambda text: sum(VALENCE.get(w, 0.0) for w in words(text)),
    "positive word": has(
        r"(?i)\b(love|life|joy|beaut|perfect|best|good|excellent|wonder|happ|amaz)"
    ),
    "mean Zipf frequency": zipf,
    "of or in": has(r"(?i)\b(of|in)\b"),
    "mean length of words": lambda text: float(np.mean([len(w) for w in words(text)] or [0])),
    "begins with One": has(r"^\W*[Oo]ne\b"),
    "begins with I": has(r"^\W*I\b"),
    "begins with In": has(r"^\W*[Ii]n\b"),
    "begins with a word of no list": has(
        r"^\W*(?![Tt]he\b|[Tt]hat\b|[Tt]here\b|[Tt]his\b|[Ii]t\b|[Aa]n?\b|[Oo]ne\b|I\b|[Ii]n\b)\w"
    ),
    "says thing or word": has(r"(?i)\b(things?|words?)\b"),
    "says a, an or the": has(r"(?i)\b(an?|the)\b"),
    "word of 8 letters or more": has(r"\w{8}"),
    "vowels, share of letters": lambda text: (
        sum(c in "aeiou" for c in text.lower()) / max(1, sum(c.isalpha() for c in text))
    ),
}


def table(texts: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: np.array([of(t) for t in texts], dtype=float) for name, of in FEATURES.items()}


def of_drawn(texts: Sequence[str], rewards: np.ndarray) -> tuple[Optimising, pd.DataFrame]:
    """The policy by answers that it wrote, and the drift that is forecast from them."""
    counts, of = Counter(texts), dict(zip(texts, rewards, strict=True))
    kept = [text for text in counts if np.isfinite(of[text])]
    drawn = np.array([counts[text] for text in kept], dtype=float)
    before = Optimising(np.log(drawn / drawn.sum()), np.array([of[t] for t in kept]), drawn)
    return before, drift(before, table(kept), confidence=0.95)
