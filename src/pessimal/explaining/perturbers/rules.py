"""Changes responses by rule, deterministic and offline: along an attribute (`rules`, the default
and a smoke test), or without changing what they say (`placebo`, the null against which flips along
an attribute are held).

Knows requests, the edit language, and English spelling by the rules of `placebo.yaml`. Does not
know rewards. A rule only knows spellings: what it makes better or worse is the wording, and where
none fits it says so instead of adding a stock sentence. The placebo makes the same kinds of change
whatever is asked for, and changes the number of words by two at most.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from pessimal.errors import ConfigError
from pessimal.explaining.attribute import Attribute, Edit
from pessimal.explaining.edits import language
from pessimal.explaining.edits.language import Draw, Passage, Replacement
from pessimal.explaining.perturbers import Perturbation, Request, Status
from pessimal.tables.files import sha256_of

RULES = Path(__file__).with_name("placebo.yaml")
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


class Rules(OneByOne):
    """The perturber `rules`."""

    name = "rules"

    def __init__(self, *, attributes: Sequence[Attribute] = ()):
        """ConfigError where one of the attributes that edits will be asked for has no rules."""
        for attribute in attributes:
            if not (attribute.more or attribute.less):
                raise ConfigError(
                    f"There are no rules for the attribute {attribute.name!r}. Write some into "
                    f"conf/contrast/{attribute.name}.yaml, e.g. `more: [{{append: ' Thank "
                    "you.'}]` and `less: [{find: '\\bplease\\b', put: ''}]`, or change it with a "
                    "language model: perturber=llm"
                )

    def provenance(self) -> dict[str, Any]:
        """The perturber and what carries rules out; the rules themselves are a part of each
        attribute."""
        versions = {"version": language.VERSION, "regex": metadata.version("regex")}
        return {"perturber": self.name, **versions}

    def perturbed(self, request: Request) -> Perturbation:
        amount = request.attribute.amount(request.direction).value
        rules = getattr(request.attribute, amount)
        if not rules:
            return _unchanged(request, f"the attribute has no rules under `{amount}`")
        if why := language.why_untouched(request.text, english=request.attribute.english):
            return _unchanged(request, why)

        def draw(number: int) -> language.Draw:
            return language.Draw(self.name, *request.key, number, seed=request.seed)

        try:
            text, spans, note = language.edited(request.text, rules, draw)
        except language.TooSlowError as error:
            return Perturbation(request, Status.failed, note=str(error))
        if text == request.text:
            why = f"the rules under `{amount}` find nothing to change in the response"
            return _unchanged(request, why)
        if not text.strip():
            return _unchanged(request, f"the rules under `{amount}` leave nothing of the response")
        return Perturbation(request, Status.changed, text, spans, note)


def _unchanged(request: Request, why: str) -> Perturbation:
    return Perturbation(request, Status.not_applicable, note=why)


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
