"""Changes responses without changing what they say: the null against which flips along an attribute are held.

Knows requests and English spelling. Does not know attributes: it makes the same kinds of change whatever is asked for,
and changes the number of words by two at most.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from pessimal.explain.attribute import Attribute
from pessimal.explain.perturbation import Perturbation, Request, Status
from pessimal.explain.rules.draw import Draw, digest_of_sources
from pessimal.explain.rules.neutral import LAST_RESORT, VARIANTS
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.replacement import Change, Replacement, replaced, spans_of
from pessimal.explain.rules.rules import Rule

PLACEBO = Attribute(
    name="placebo",
    description="It says the same in other words: spelling, punctuation and function words are changed, nothing else.",
    polarity=1,
)
"""The attribute under which placebo changes stand in the tables."""
MOST_WORDS = 2
"""Words by which a response may become longer or shorter."""
MOST_CHARACTERS = 50_000
"""Characters of a response that rules look at."""
TOOLS = ("draw", "neutral", "passage", "replacement", "rules", "stop_words", "tables")
"""The files of `pessimal.explain.rules` that decide its texts; the rules of attributes do not."""


class Placebo:
    """The perturber `placebo`."""

    name = "placebo"

    def provenance(self) -> dict:
        """The perturber and a digest of its word lists."""
        return {"perturber": self.name, "rules": _digest()}

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order; each depends on its own request only."""
        return [_perturbed(request) for request in requests]


def _perturbed(request: Request) -> Perturbation:
    if len(request.text) > MOST_CHARACTERS:
        return _none(request, f"the response is longer than {MOST_CHARACTERS:,} characters")
    passage = Passage(request.text)
    if passage.why_not:
        return _none(request, passage.why_not)
    draw = Draw(request, perturber=Placebo.name)
    changes = _changes(passage, draw, VARIANTS)
    if len(changes) < 2:
        changes |= _changes(passage, draw, LAST_RESORT)
    if not changes:
        return _none(request, "no spelling, punctuation or function word that could as well be another")
    text, change = draw.pick(list(changes.items()))
    spans = spans_of(passage.text, change.replacements)
    return Perturbation(request, Status.changed, text, spans, change.note)


def _changes(passage: Passage, draw: Draw, variants: Sequence[Rule]) -> dict[str, Change]:
    """The changes that apply, by the text that they make."""
    changes: dict[str, Change] = {}
    for variant in variants:
        if change := variant(passage, draw):
            change = Change(_of_similar_length(passage.text, change.replacements), change.note)
            text = replaced(passage.text, change.replacements)
            if text != passage.text:
                changes.setdefault(text, change)
    return changes


def _of_similar_length(text: str, replacements: Sequence[Replacement]) -> tuple[Replacement, ...]:
    """From the first on, as many as keep the number of words within `MOST_WORDS`."""
    kept, grown = [], 0
    for each in replacements:
        words = len(each.put.split()) - len(text[each.start : each.end].split())
        if abs(grown + words) <= MOST_WORDS:
            kept.append(each)
            grown += words
    return tuple(kept)


def _none(request: Request, note: str) -> Perturbation:
    return Perturbation(request, Status.not_applicable, note=note)


@cache
def _digest() -> str:
    modules = (import_module(f"pessimal.explain.rules.{name}") for name in TOOLS)
    return digest_of_sources(Path(__file__), *(Path(module.__file__) for module in modules))
