"""Changes responses without changing what they say: the null against which flips along an attribute
are held.

Knows requests, and English spelling by the rules of `placebo.yaml`. Does not know attributes: it
makes the same kinds of change whatever is asked for, and changes the number of words by two at
most.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import yaml

from pessimal.explaining.attribute import Edit
from pessimal.explaining.edits import language as edits
from pessimal.explaining.edits.language import Draw, Passage, Replacement
from pessimal.explaining.perturbation import OneByOne, Perturbation, Request, Status

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


@cache
def variants() -> tuple[Edit, ...]:
    """The kinds of change, of which one that applies is drawn."""
    return tuple(
        edit for said in yaml.safe_load(RULES.read_text(encoding="utf-8")) for edit in _read(said)
    )


def _read(said: dict) -> Iterator[Edit]:
    if words := said.get("both_ways"):
        pairs = [[side.strip() for side in pair.split(":")] for pair in words.split("|")]
        one_way = f"| {said['one_way']}" if "one_way" in said else ""
        yield Edit(swap=f"{words} {one_way}", most=said.get("most"))
        yield Edit(
            swap=" | ".join(f"{put.lower()}: {word}" for word, put in pairs), most=said.get("most")
        )
        return
    many = "{word}" in said["find"] + said["put"]
    for word, digit in DIGITS.items() if many else [("", "")]:
        find, put = (
            said[key].replace("{word}", word).replace("{digit}", digit) if many else said[key]
            for key in ("find", "put")
        )
        yield Edit(find=find, put=put)


class Placebo(OneByOne):
    """The perturber `placebo`."""

    name = "placebo"

    def provenance(self) -> dict:
        """The perturber and a digest of its word lists and of what carries them out."""
        files = Path(__file__), RULES, Path(edits.__file__)
        return {"perturber": self.name, "rules": edits.digest_of_sources(*files)}

    def perturbed(self, request: Request) -> Perturbation:
        note = edits.why_untouched(request.text, english=True)
        passage, draw = Passage(request.text), Draw(self.name, *request.named, seed=request.seed)
        found = {} if note else _changes(passage, draw, variants())
        if len(found) < 2 and not note:
            found |= _changes(passage, draw, LAST_RESORT)
        if not found:
            note = note or "no spelling, punctuation or function word that could as well be another"
            return Perturbation(request, Status.not_applicable, note=note)
        text, pieces = draw.pick(list(found.items()))
        spans = edits.spans_of(request.text, pieces)
        return Perturbation(request, Status.changed, text, spans, "says the same in other words")


def _changes(passage: Passage, draw: Draw, kinds: Sequence[Edit]) -> dict[str, list[Replacement]]:
    """The changes that apply, by the text that they make; of their places, from the first on, as
    many as keep the number of words within `MOST_WORDS`."""
    found: dict[str, list[Replacement]] = {}
    for edit in kinds:
        kept, grown = [], 0
        for each in draw.some(edits.places(passage, edit, draw), edit.most):
            words = len(each.put.split()) - len(passage.text[each.start : each.end].split())
            if abs(grown + words) <= MOST_WORDS:
                kept.append(each)
                grown += words
        if (text := edits.replaced(passage.text, kept)) != passage.text:
            found.setdefault(text, kept)
    return found
