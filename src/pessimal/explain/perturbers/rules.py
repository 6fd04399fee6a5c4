"""Changes responses by the rules of their attribute: deterministic, offline. The default, and a smoke test.

Knows requests and the edit language. Does not know rewards. A rule only knows spellings: what it makes better or worse is the
wording, and where none fits it says so instead of adding a stock sentence.
"""

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from pessimal.errors import ConfigError
from pessimal.explain import edits
from pessimal.explain.attribute import Attribute
from pessimal.explain.perturbation import Perturbation, Request, Status
from pessimal.explain.perturbers.placebo import Placebo


class Rules:
    """The perturber `rules`."""

    name = "rules"

    def __init__(self, *, attributes: Sequence[Attribute] = ()):
        """ConfigError where one of the attributes that edits will be asked for has no rules."""
        for attribute in attributes:
            if not (attribute.more or attribute.less):
                raise ConfigError(
                    f"There are no rules for the attribute {attribute.name!r}. Write some into "
                    f"conf/contrast/{attribute.name}.yaml, e.g. `more: [{{append: ' Thank you.'}}]` and `less: "
                    "[{find: '\\bplease\\b', put: ''}]`, or change it with a language model: perturber=llm"
                )

    def provenance(self) -> dict:
        """The perturber and what carries rules out; the rules themselves are a part of each attribute."""
        engine = edits.digest_of_sources(Path(__file__), Path(edits.__file__))
        return {"perturber": self.name, "engine": engine, "regex": metadata.version("regex")}

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order; each depends on its own request only."""
        return [self._perturbed(request) for request in requests]

    def placebo(self) -> Placebo:
        """Who makes the null edits by the same means."""
        return Placebo()

    def _perturbed(self, request: Request) -> Perturbation:
        attribute, amount = request.attribute, request.attribute.amount(request.direction).value
        if not (rules := getattr(attribute, amount)):
            note = f"the attribute has no rules under `{amount}`"
        else:
            note = edits.why_untouched(request.text, english=attribute.english)
        if note:
            return Perturbation(request, Status.not_applicable, note=note)
        try:
            text, spans, note = edits.edited(
                request.text,
                rules,
                lambda number: edits.Draw(self.name, *request.named, number, seed=request.seed),
            )
        except edits.TooSlowError as error:
            return Perturbation(request, Status.failed, note=str(error))
        if text == request.text or not text.strip():
            does = "find nothing to change in" if text == request.text else "leave nothing of"
            note = f"the rules under `{amount}` {does} the response"
            return Perturbation(request, Status.not_applicable, note=note)
        return Perturbation(request, Status.changed, text, spans, note)
