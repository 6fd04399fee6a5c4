"""Changes responses by the rules of their attribute: deterministic, offline. The default, and a
smoke test.

Knows requests and the edit language. Does not know rewards. A rule only knows spellings: what it
makes better or worse is the wording, and where none fits it says so instead of adding a stock
sentence.
"""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from pessimal.errors import ConfigError
from pessimal.explaining.attribute import Attribute
from pessimal.explaining.edits import language
from pessimal.explaining.perturbation import Perturbation, Request, Status
from pessimal.explaining.perturbers.placebo import OneByOne


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
