"""Changes responses by rule: deterministic, offline, English. The default.

Knows requests and the rules of `pessimal.explain.rules`. Does not know rewards. A rule only knows spellings: what it
makes better or worse is the wording, and where none fits it says so instead of writing nonsense.
"""

from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from pessimal.errors import ConfigError
from pessimal.explain import rules
from pessimal.explain.attribute import Attribute
from pessimal.explain.perturbation import Perturbation, Request, Status
from pessimal.explain.rules.draw import Draw, digest_of_sources
from pessimal.explain.rules.passage import Passage
from pessimal.explain.rules.registry import KNOWN, RULES, WHY_NOT
from pessimal.explain.rules.replacement import Change, replaced, spans_of
from pessimal.explain.rules.user_edits import TooSlowError, check_edits, edited

MOST_CHARACTERS = 50_000
"""Characters of a response that rules look at; the longest answers of language models are shorter."""


class Rules:
    """The perturber `rules`."""

    name = "rules"

    def provenance(self) -> dict:
        """The perturber, a digest of its rules and word lists, and the version of the engine of users' expressions."""
        return {"perturber": self.name, "rules": _digest(), "regex": metadata.version("regex")}

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order; each depends on its own request only.

        Raises:
            ConfigError: an attribute has neither rules nor edits of its own.
        """
        check(list({id(request.attribute): request.attribute for request in requests}.values()))
        return [_perturbed(request) for request in requests]


def check(attributes: Sequence[Attribute]) -> None:
    """Refuse attributes that cannot be changed by rule. To be called before any model is loaded.

    Raises:
        ConfigError: an attribute has neither rules nor edits of its own, or an edit is wrong.
    """
    for attribute in attributes:
        check_edits(attribute.name, "more", attribute.more)
        check_edits(attribute.name, "less", attribute.less)
        if attribute.name not in KNOWN and not (attribute.more or attribute.less):
            raise ConfigError(
                f"There are no rules for the attribute {attribute.name!r}; there are for {', '.join(sorted(KNOWN))}. "
                f"Write some into conf/contrast/{attribute.name}.yaml, e.g. `more: [{{append: ' Thank you.'}}]` and "
                "`less: [{find: '\\bplease\\b', put: ''}]`, or change it with a language model: perturber=llm"
            )


def _perturbed(request: Request) -> Perturbation:
    amount = request.attribute.amount(request.direction)
    if len(request.text) > MOST_CHARACTERS:
        return _none(request, f"the response is longer than {MOST_CHARACTERS:,} characters")
    if edits := getattr(request.attribute, amount.value):
        return _edited_by_user(request, edits)
    if request.attribute.name not in KNOWN:
        return _none(request, f"the attribute has no rules under `{amount.value}`")
    passage = Passage(request.text, request.comparison.prompt)
    if passage.why_not:
        return _none(request, passage.why_not)
    key = (request.attribute.name, amount)
    draw = Draw(request, perturber=Rules.name)
    changes = _changes(passage, draw, RULES[key].changing)
    if len(changes) < 2:
        changes += _changes(passage, draw, RULES[key].adding)
    if not changes:
        return _none(request, WHY_NOT.get(key, "no rule applies"))
    change = draw.pick(changes)
    text = replaced(passage.text, change.replacements)
    spans = spans_of(passage.text, change.replacements)
    note = (
        change.note
        if spans
        else f"{change.note}; nothing of the response was identified, it was only added to"
    )
    return Perturbation(request, Status.changed, text, spans, note)


def _changes(passage: Passage, draw: Draw, ways) -> list[Change]:
    """What the rules that apply make of a passage; each text once."""
    found: dict[str, Change] = {}
    for rule in ways:
        change = rule(passage, draw)
        if change is not None:
            text = replaced(passage.text, change.replacements)
            if text.strip() and text != passage.text:
                found.setdefault(text, change)
    return list(found.values())


def _edited_by_user(request: Request, edits) -> Perturbation:
    try:
        text, spans = edited(request.text, edits)
    except TooSlowError as error:
        return Perturbation(request, Status.failed, note=str(error))
    if text == request.text:
        return _none(request, "none of the attribute's own rules changes the response")
    if not text.strip():
        return _none(request, "the attribute's own rules leave nothing of the response")
    return Perturbation(request, Status.changed, text, spans, "the attribute's own rules")


def _none(request: Request, note: str) -> Perturbation:
    return Perturbation(request, Status.not_applicable, note=note)


@cache
def _digest() -> str:
    return digest_of_sources(Path(__file__), *Path(rules.__file__).parent.glob("*.py"))
