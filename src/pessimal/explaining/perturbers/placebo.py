"""Changes responses without changing what they say: the null against which flips along an attribute
are held.

Knows requests, and English spelling by the rules of `placebo.yaml`. Does not know attributes: it
makes the same kinds of change whatever is asked for, and changes the number of words by two at
most.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pessimal.explaining.attribute import Edit
from pessimal.explaining.edits import language
from pessimal.explaining.edits.language import Draw, Passage, Replacement
from pessimal.explaining.perturbation import Perturbation, Request, Status
from pessimal.tables.files import sha256_of

RULES = Path(__file__).with_suffix(".yaml")
MOST_WORDS = 2
"""Words by which a response may become longer or shorter."""
DIGITS = dict(
    zip(("two", "three", "four", "five", "six", "seven", "eight", "nine"), "23456789", strict=True)
)
LAST_RESORT = (
    Edit(find=r"(?<=[.!?])  (?=[A-Z])", put=" "),
    Edit(find=r"(?<=[.!?]) (?=[A-Z])", put="  "),
)
"""Used where fewer than two of the others apply: two spaces behind a sentence are seldom seen
today."""


class OneByOne(ABC):
    """A perturber that changes one response after another and whose null is by rule, as it knows no
    meaning."""

    @abstractmethod
    def perturbed(self, request: Request) -> Perturbation:
        """What comes of one request."""

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order; each depends on its own request only."""
        return [self.perturbed(request) for request in requests]

    def placebo(self) -> "Placebo":
        """Edits by rule that keep the meaning."""
        return Placebo()


class Placebo(OneByOne):
    """The perturber `placebo`."""

    name = "placebo"

    def provenance(self) -> dict[str, Any]:
        """The perturber, a digest of its word lists, and the version of what carries them out."""
        return {"perturber": self.name, "rules": sha256_of(RULES), "version": language.VERSION}

    def perturbed(self, request: Request) -> Perturbation:
        if why := language.why_untouched(request.text, english=True):
            return Perturbation(request, Status.not_applicable, note=why)
        passage, draw = Passage(request.text), Draw(self.name, *request.key, seed=request.seed)
        changes = _changes(passage, draw, variants())
        if len(changes) < 2:
            changes |= _changes(passage, draw, LAST_RESORT)
        if not changes:
            why = "no spelling, punctuation or function word that could as well be another"
            return Perturbation(request, Status.not_applicable, note=why)
        text, pieces = draw.pick(list(changes.items()))
        spans = language.spans_of(request.text, pieces)
        return Perturbation(request, Status.changed, text, spans, "says the same in other words")


@cache
def variants() -> tuple[Edit, ...]:
    """The kinds of change, of which one that applies is drawn."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return tuple(edit for rule in rules for edit in _read(rule))


def _read(rule: dict[str, Any]) -> Iterator[Edit]:
    if words := rule.get("both_ways"):
        pairs = [[side.strip() for side in pair.split(":")] for pair in words.split("|")]
        back = " | ".join(f"{put.lower()}: {word}" for word, put in pairs)
        one_way = f"| {rule['one_way']}" if "one_way" in rule else ""
        yield Edit(swap=f"{words} {one_way}", most=rule.get("most"))
        yield Edit(swap=back, most=rule.get("most"))
    elif "{word}" in rule["find"] + rule["put"]:
        for word, digit in DIGITS.items():
            find, put = (
                rule[key].replace("{word}", word).replace("{digit}", digit)
                for key in ("find", "put")
            )
            yield Edit(find=find, put=put)
    else:
        yield Edit(find=rule["find"], put=rule["put"])


def _changes(passage: Passage, draw: Draw, kinds: Sequence[Edit]) -> dict[str, list[Replacement]]:
    """The changes that apply, by the text that they make; of their places, from the first on, as
    many as keep the number of words within `MOST_WORDS`."""
    changes: dict[str, list[Replacement]] = {}
    for edit in kinds:
        taken, growth = [], 0
        for each in draw.some(language.places(passage, edit, draw), edit.most):
            words = len(each.put.split()) - len(passage.text[each.start : each.end].split())
            if abs(growth + words) <= MOST_WORDS:
                taken.append(each)
                growth += words
        if (text := language.replaced(passage.text, taken)) != passage.text:
            changes.setdefault(text, taken)
    return changes
