"""Changes responses by the rules of their attribute: deterministic, offline. The default, and a smoke test.

Knows requests and the edit language. Does not know rewards. A rule only knows spellings: what it makes better or worse is the
wording, and where none fits it says so instead of adding a stock sentence.
"""

from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from pessimal.errors import ConfigError
from pessimal.explain import edits
from pessimal.explain.attribute import Attribute
from pessimal.explain.perturbation import Perturbation, Request, Status
from pessimal.explain.perturbers.placebo import Placebo

MOST_CHARACTERS = 50_000
"""Characters of a response that rules look at; the longest answers of language models are shorter."""


class Rules:
    """The perturber `rules`."""

    name = "rules"

    def __init__(self, *, attributes: Sequence[Attribute] = ()):
        """
        Args:
            attributes: all that edits will be asked for.

        Raises:
            ConfigError: one of them has no rules.
        """
        check(attributes)

    def provenance(self) -> dict:
        """The perturber and what carries rules out; the rules themselves are a part of each attribute."""
        return {"perturber": self.name, "engine": _digest(), "regex": metadata.version("regex")}

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order; each depends on its own request only.

        Raises:
            ConfigError: an attribute has no rules.
        """
        check([request.attribute for request in requests])
        return [_perturbed(request) for request in requests]

    def placebo(self) -> Placebo:
        """Who makes the null edits by the same means."""
        return Placebo()


def check(attributes: Sequence[Attribute]) -> None:
    """Refuse attributes that cannot be changed by rule. To be called before any model is loaded.

    Raises:
        ConfigError: an attribute has no rules, neither for more nor for less of it.
    """
    for attribute in attributes:
        if not (attribute.more or attribute.less):
            raise ConfigError(
                f"There are no rules for the attribute {attribute.name!r}. Write some into conf/contrast/{attribute.name}.yaml, "
                "e.g. `more: [{append: ' Thank you.'}]` and `less: [{find: '\\bplease\\b', put: ''}]`, or change it with a "
                "language model: perturber=llm"
            )


def _perturbed(request: Request) -> Perturbation:
    attribute, amount = request.attribute, request.attribute.amount(request.direction)
    rules = getattr(attribute, amount.value)
    if len(request.text) > MOST_CHARACTERS:
        return _none(request, f"the response is longer than {MOST_CHARACTERS:,} characters")
    if not rules:
        return _none(request, f"the attribute has no rules under `{amount.value}`")
    if attribute.english and (why_not := edits.why_not_english(request.text)):
        return _none(request, why_not)
    named = (Rules.name, request.comparison.key, request.response, attribute.name, request.direction.value)
    try:
        text, spans, note = edits.edited(
            request.text, rules, lambda number: edits.Draw(*named, number, seed=request.seed)
        )
    except edits.TooSlowError as error:
        return Perturbation(request, Status.failed, note=str(error))
    if text == request.text:
        return _none(request, f"the rules under `{amount.value}` find nothing to change in the response")
    if not text.strip():
        return _none(request, f"the rules under `{amount.value}` leave nothing of the response")
    return Perturbation(request, Status.changed, text, spans, note)


def _none(request: Request, note: str) -> Perturbation:
    return Perturbation(request, Status.not_applicable, note=note)


@cache
def _digest() -> str:
    return edits.digest_of_sources(Path(__file__), Path(edits.__file__))
