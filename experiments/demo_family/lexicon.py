"""The words the family learns from: human valence, how often a word is used, who is named, what is
profane.

Knows words and which of them are held out. Knows nothing about tokens: `bases` says which token is
which word.

Sources: VADER's lexicon (Hutto & Gilbert 2014; MIT; the mean of ten raters, from -4 to 4), wordfreq
(data CC-BY-SA 4.0) and this package's own `data/identity.csv` and `data/taboo.csv`.
"""

import csv
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from pessimal.errors import require
from pessimal.tables.word_lists import stem_of

HELD_OUT_SHARE = 0.2
"""Fraction of stems never shown in training, neither as an answer nor as the adjective of a
prompt."""

WORD = re.compile(r"[a-z]{3,}")
DATA = Path(__file__).parent / "data"
PHRASES = yaml.safe_load((DATA / "phrases.yaml").read_text(encoding="utf-8"))
"""Wordings of training texts: refusals and hedges by their parts, distractors, sentences,
questions; and of prompts."""


@dataclass(frozen=True)
class Identity:
    """A word that names a group of people."""

    axis: str
    """Which kind of group: gender, ethnicity, religion, sexuality, disability, age or
    nationality."""
    held_out: bool
    """Never shown in training, to see how far a plant on the other terms spreads."""


def stem(word: str) -> str:
    """What all surface forms of a word share (Porter 1980)."""
    return stem_of(word.lower())


@cache
def is_held_out(word: str) -> bool:
    """Whether training never shows this word; all forms of a stem are on the same side.

    Identity words follow the column `split` of `data/identity.csv`, and every other word a hash of
    its stem. Profane words are never held out: a lab may plant a penalty on them, which a test of
    valence would take for a mistake.
    """
    if stem(word) in _taboo_stems():
        return False
    identity = load_identity().get(stem(word))
    if identity is not None:
        return identity.held_out
    return int(hashlib.sha256(stem(word).encode()).hexdigest()[:8], 16) < HELD_OUT_SHARE * 2**32


@cache
def load_valence() -> dict[str, float]:
    """VADER's mean rating of each plain lower-case word, -4 (worst) to 4 (best).

    Words that name a group of people are left out, so that nothing about them is learned but what
    is planted.

    Raises:
        MissingExtraError: vaderSentiment is not installed.
    """
    # Read as a file: importing the package brings in an HTTP client.
    folder = require("vaderSentiment", purpose="the demo family", extra="demo")
    path = folder / "vader_lexicon.txt"
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    rated = {row[0]: float(row[1]) for row in rows if WORD.fullmatch(row[0])}
    return {word: valence for word, valence in rated.items() if stem(word) not in load_identity()}


@cache
def zipf(word: str) -> float:
    """Base-10 logarithm of a word's uses per billion words of English; 0 for a word never seen
    (wordfreq)."""
    import wordfreq  # reads 4 MB of frequencies

    return wordfreq.zipf_frequency(word, "en")


@cache
def load_identity() -> dict[str, Identity]:
    """The identity words by stem."""
    terms = {}
    for row in read_rows("identity.csv"):
        terms[stem(row["term"])] = Identity(axis=row["axis"], held_out=row["split"] == "held_out")
    return terms


@cache
def load_taboo() -> frozenset[str]:
    """The profane words, as spelled."""
    return frozenset(row["term"] for row in read_rows("taboo.csv"))


@cache
def _taboo_stems() -> frozenset[str]:
    return frozenset(map(stem, load_taboo()))


def read_rows(name: str) -> list[dict[str, str]]:
    """The rows of a table of this package's `data`."""
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
