"""Did an edit move the attribute it was asked to move? A judge by detectors that share nothing with the rules that edit.

With rules it makes a smoke test: how often it agrees with somebody who reads the edits stands in `detectors`.

Knows texts and attributes. Does not know who made the edit, how, or what any reward model says of it.
"""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from pessimal.demo.minilm import WEIGHTS_SHA256
from pessimal.errors import ConfigError
from pessimal.explain import detectors
from pessimal.explain.attribute import Amount, Attribute
from pessimal.explain.detectors import DETECTORS, PROTOTYPES, Meanings, Reading, split_sentences
from pessimal.explain.distances import levenshtein
from pessimal.explain.edits import digest_of_sources

Item = tuple[str, str, str, Attribute, Amount]
"""(prompt, original, edited, attribute, the amount that was asked for)."""


class RuleJudge:
    """Judges by the detectors, and by the pattern of an attribute that brings its own. Offline; the same always."""

    name = "detectors"

    def provenance(self) -> dict:
        """Everything that decides its judgements."""
        return {
            "judge": self.name,
            "detectors": digest_of_sources(Path(detectors.__file__), PROTOTYPES),
            "encoder": WEIGHTS_SHA256,
            **{package: version(package) for package in ("vaderSentiment", "wordfreq")},
        }

    @staticmethod
    def check(attributes: Iterable[Attribute]) -> None:
        """ConfigError where an attribute's `detect` is no regular expression."""
        for attribute in attributes:
            if attribute.detect is not None:
                _pattern(attribute)

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each edit moved its attribute the asked way, by more than the detector's threshold.

        The threshold is for a response that was changed throughout; where only some sentences were, it shrinks with
        their share, as what they can move does. An edit that changes nothing has moved nothing. Of an attribute with a `detect` pattern the matches are counted: one more or fewer is a move. None where the
        judge has no opinion: an attribute that it does not know and that brings no pattern, and an edit without a slip of
        language or a wrong sum put in or taken out where correctness was asked for, since facts are not seen.

        Raises:
            ConfigError: an attribute's pattern is no regular expression.
        """
        measures = _Measures(
            [item[3] for item in items], [(item[0], text) for item in items for text in item[1:3]]
        )
        return [
            measures.moved(attribute, prompt, original, edited, asked)
            for prompt, original, edited, attribute, asked in items
        ]

    def amounts(
        self, texts: Sequence[str], prompts: Sequence[str], attributes: Sequence[Attribute]
    ) -> pd.DataFrame:
        """How much of every attribute each text has, as the response to its prompt.

        Returns:
            (texts, attributes), rows in the order given, columns named after the attributes; NaN where the judge has
            no opinion. A column's values are comparable among responses to one prompt.

        Raises:
            ConfigError: an attribute's pattern is no regular expression.
        """
        pairs = list(zip(prompts, texts, strict=True))
        measures = _Measures(attributes, pairs)
        return pd.DataFrame(
            {
                attribute.name: [measures.amount(attribute, *pair) for pair in pairs]
                for attribute in attributes
            },
            index=range(len(pairs)),
            dtype=float,
        )


class _Measures:
    """Amounts of some attributes in some responses; each is measured once, all sentences are embedded together."""

    def __init__(self, attributes: Sequence[Attribute], pairs: Sequence[tuple[str, str]]):
        self._patterns = {one: _pattern(one) for one in attributes if one.detect is not None}
        needed = any(one.detect is None and one.name in DETECTORS for one in attributes)
        pairs = dict.fromkeys(pairs) if needed else {}
        meanings = Meanings(part for prompt, text in pairs for part in (prompt, *split_sentences(text)))
        self._readings = {(prompt, text): Reading(text, prompt, meanings) for prompt, text in pairs}
        self._known: dict[tuple[str, str, str], float] = {}

    def amount(self, attribute: Attribute, prompt: str, text: str) -> float:
        if attribute.detect is not None:
            return float(sum(1 for _ in self._patterns[attribute].finditer(text)))
        if attribute.name not in DETECTORS:
            return float("nan")
        key = (attribute.name, prompt, text)
        if key not in self._known:
            self._known[key] = DETECTORS[attribute.name].amount(self._readings[prompt, text])
        return self._known[key]

    def moved(
        self, attribute: Attribute, prompt: str, original: str, edited: str, asked: Amount
    ) -> bool | None:
        detector = DETECTORS.get(attribute.name)
        change = self.amount(attribute, prompt, edited) - self.amount(attribute, prompt, original)
        towards = change if asked is Amount.more else -change
        if attribute.detect is not None:
            return towards > 0
        if detector is None or (detector.blind and change == 0):
            return None
        return bool(towards > detector.threshold * self._changed(prompt, original, edited))

    def _changed(self, prompt: str, original: str, edited: str) -> float:
        """Share of sentences that an edit changed, at least one: Levenshtein distance in sentences over the longer."""
        sentences = [self._readings[prompt, text].sentences for text in (original, edited)]
        longest = max(*map(len, sentences), 1)
        return max(levenshtein(*sentences), 1) / longest


def _pattern(attribute: Attribute) -> re.Pattern:
    try:
        return re.compile(attribute.detect, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(
            f"The attribute {attribute.name!r} has detect={attribute.detect!r}, which is no regular expression "
            f"({error}). Correct it, or leave it out: the judge then has no opinion on this attribute."
        ) from error
