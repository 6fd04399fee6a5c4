"""Changes responses by the rules of their attribute: deterministic, offline. The default, and a
smoke test.

Knows requests and the edit language. Does not know rewards. A rule only knows spellings: what it
makes better or worse is the wording, and where none fits it says so instead of adding a stock
sentence.
"""

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from pessimal.errors import ConfigError
from pessimal.explaining.attribute import Attribute
from pessimal.explaining.edits import language as edits
from pessimal.explaining.perturbation import OneByOne, Perturbation, Request, Status


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
                    f"you.'}}]` and `less: "
                    "[{find: '\\bplease\\b', put: ''}]`, or change it with a language model: "
                    "perturber=llm"
                )

    def provenance(self) -> dict:
        """The perturber and what carries rules out; the rules themselves are a part of each
        attribute."""
        engine = edits.digest_of_sources(Path(__file__), Path(edits.__file__))
        return {"perturber": self.name, "engine": engine, "regex": metadata.version("regex")}

    def perturbed(self, request: Request) -> Perturbation:
        amount = request.attribute.amount(request.direction).value
        rules, status = getattr(request.attribute, amount), Status.not_applicable
        note = f"the attribute has no rules under `{amount}`"
        if rules:
            note = edits.why_untouched(request.text, english=request.attribute.english)
        if note:
            return Perturbation(request, status, note=note)

        def draw(number: int) -> edits.Draw:
            return edits.Draw(self.name, *request.named, number, seed=request.seed)

        try:
            text, spans, note = edits.edited(request.text, rules, draw)
        except edits.TooSlowError as error:
            return Perturbation(request, Status.failed, note=str(error))
        if text == request.text:
            return Perturbation(
                request,
                status,
                note=f"the rules under `{amount}` find nothing to change in the response",
            )
        if not text.strip():
            return Perturbation(
                request, status, note=f"the rules under `{amount}` leave nothing of the response"
            )
        return Perturbation(request, Status.changed, text, spans, note)
