"""Perturbations written by a language model, in the two steps of Jiang et al. (2025): it names the
words of a response that bear on each attribute, then rewrites the response with these in view.

Knows what to ask and what to make of the answers. Does not know how a question travels
(`pessimal.explaining.chat`), nor which response a reward model prefers.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Interval

from pessimal.errors import ConfigError
from pessimal.explaining.attribute import OVERALL, PLACEBO, Attribute
from pessimal.explaining.chat.client import Answer, Came, Client, Plan, Question, digest_of
from pessimal.explaining.chat.endpoint import Endpoint, EndpointOptions
from pessimal.explaining.chat.prompts import identify, prompts_digest, rewrite, rewrite_plainly
from pessimal.explaining.perturbation import Perturbation, Request, Status

Spans = tuple[tuple[int, int], ...]
_CONTROL = (OVERALL, PLACEBO)
_SAME_LENGTH = (
    0.8  # least ratio of the words of a response and its paraphrase, the fewer over the more
)


@dataclass(kw_only=True)
class TwoSteps:
    """What every perturber that asks a language model does (see `Perturber`). A seed repeats both
    steps; the first is asked once for each response and seed, for all attributes together."""

    attributes: Sequence[Attribute]
    """All that will be asked for, so that what comes of one request does not depend on which others
    are made."""
    cache: Path | None
    """Folder of the answers; None keeps none."""
    attempts: Annotated[int, Interval(ge=1, le=1000)] = 3
    """Answers asked for, each with another seed, until one is of the asked shape."""
    min_locality: Annotated[float, Interval(ge=0, le=1)] = 0.0
    """Least share of an edit inside the words identified; below it the model is asked once more,
    and the more local of the two is kept. 0 never asks again."""
    allow_unanswered: bool = False
    """Publish also where questions got no answer, or one that was cut off."""
    plain: bool = False
    """One step instead of two, in plain words, and the reply is the text: for models too small to
    write a JSON object. It names no words, never says that a response cannot be changed so, and
    does not see the conversation."""

    name = ""

    def begin(self, transport) -> None:
        """Make the client. ConfigError for options that contradict one another."""
        if self.plain and self.min_locality:
            raise ConfigError(
                f"perturber.plain=true names no words, so "
                f"perturber.min_locality={self.min_locality:g} has nothing to hold "
                "edits against: leave one of them out"
            )
        self.attributes = tuple(each for each in self.attributes if each.name not in _CONTROL)
        self.chat = Client(
            transport,
            cache=self.cache,
            attempts=self.attempts,
            allow_unanswered=self.allow_unanswered,
        )
        self.greedy = transport.provenance()["temperature"] == 0

    def provenance(self) -> dict:
        """The model and how it is sampled, the wording of all prompts, the attributes, and the
        locality asked for."""
        described = [[attribute.name, attribute.description] for attribute in self.attributes]
        return {
            "perturber": self.name,
            "chat": self.chat.provenance(),
            "prompts": prompts_digest(),
            "attributes": digest_of(described),
            "min_locality": self.min_locality,
            **({"plain": True} if self.plain else {}),
        }

    def placebo(self) -> "TwoSteps":
        """The null, which is this model again: for `PLACEBO` it puts responses in other words, of
        the same meaning and length."""
        return self

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order. `OVERALL` makes a response better or worse in
        whatever way, `PLACEBO` puts it in other words; neither names words first.

        Raises:
            ConfigError: the endpoint takes no request at all.
            WorkError: too many failures in a row, or (unless `allow_unanswered`) questions without
                an answer; what was answered is in the cache.
        """
        made: dict[Request, Perturbation] = {}
        words: dict[Request, Spans | None] = {}
        firsts = {
            request: self._first_step(request) for request in requests if not self._repeats(request)
        }
        asked = [(request, question) for request, question in firsts.items() if question]
        answers = self.chat.complete([question for _, question in asked])
        named = dict(zip((request for request, _ in asked), answers, strict=True))
        for request in firsts:
            answer = named.get(request)
            if answer is None or answer.came is Came.answered:
                words[request] = None if self.plain else _spans(request, answer)
            else:
                note = f"step 1, naming the words: {answer.note}"
                made[request] = Perturbation(request, _status(answer), note=note)
        made |= self._rewrite(words)
        self.chat.check_answered()
        note = "at temperature 0 every seed gives the same text, which stands under seed 0"
        return [
            made.get(each) or Perturbation(each, Status.not_applicable, note=note)
            for each in requests
        ]

    def dry_run(self, requests: Sequence[Request]) -> Plan:
        """What `perturb` would take, without any call."""
        plan = Plan(getattr(self, "price_in", None), getattr(self, "price_out", None))
        for request in requests:
            if self._repeats(request):
                continue
            if question := self._first_step(request):
                plan.add(question, written=len(request.text))
            # The words of step 1, which step 2 will show, are not known yet.
            plan.add(self._second_step(request, (), again=False), written=len(request.text))
        return plan

    def _repeats(self, request: Request) -> bool:
        """Whether it is a second seed where nothing is drawn."""
        return request.seed > 0 and self.greedy

    def _first_step(self, request: Request) -> Question | None:
        """Step 1; None where there is nothing to ask."""
        if self.plain or request.attribute.name in _CONTROL or not request.text.strip():
            return None
        return identify(request, self.attributes)

    def _second_step(self, request: Request, spans: Spans | None, *, again: bool) -> Question:
        """Step 2, with the words of step 1; or the one step there is."""
        if self.plain:
            return rewrite_plainly(request, again=again)
        return rewrite(request, _words(request, spans), again=again)

    def _rewrite(self, words: dict[Request, Spans | None]) -> dict[Request, Perturbation]:
        """Step 2, and once more where the change is not of the kind that was asked for; the better
        of both is kept."""
        made = self._rewritten(words, again=False)
        fits = {request: self._fit(each) for request, each in made.items()}
        again = {
            request: words[request] for request, (share, least) in fits.items() if share < least
        }
        self.chat.usage["changes asked for once more"] += len(again)
        for request, second in self._rewritten(again, again=True).items():
            share, least = fits[request]
            reached = self._fit(second)[0] if second.status is Status.changed else -math.inf
            kept, best = (second, reached) if reached > share else (made[request], share)
            what = "same length" if request.attribute.name == PLACEBO else "locality"
            note = f"asked twice: {what} {share:.2f} at first, {best:.2f} in the end"
            note += f", below {least:g}" if best < least else ""
            made[request] = replace(kept, note="; ".join(filter(None, (kept.note, note))))
        return made

    def _rewritten(
        self, words: dict[Request, Spans | None], *, again: bool
    ) -> dict[Request, Perturbation]:
        asked = [self._second_step(request, spans, again=again) for request, spans in words.items()]
        answers = zip(words.items(), self.chat.complete(asked), strict=True)
        return {
            request: _perturbation(request, spans, answer) for (request, spans), answer in answers
        }

    def _fit(self, made: Perturbation) -> tuple[float, float]:
        """How far a change is of the asked kind, and the least that is enough: a paraphrase's share
        of the number of words, or another change's share within the words named."""
        if made.status is Status.changed and made.request.attribute.name == PLACEBO:
            fewer, more = sorted((len(made.request.text.split()), len(made.text.split())))
            return fewer / max(more, 1), _SAME_LENGTH
        if self.min_locality == 0 or made.status is not Status.changed or not made.spans:
            return 1.0, 0.0
        from pessimal.explaining.edits.distances import locality  # tokenizers come with it

        share = locality(made.request.text, made.text, made.spans)
        return (1.0, 0.0) if math.isnan(share) else (share, self.min_locality)


@dataclass(kw_only=True)
class Llm(TwoSteps, EndpointOptions):
    """A language model behind an OpenAI-compatible endpoint."""

    price_in: Annotated[float, Ge(0)] | None = None
    """Price of a million tokens that are sent, for the dry run."""
    price_out: Annotated[float, Ge(0)] | None = None
    """Price of a million tokens that come back."""

    name = "llm"

    def __post_init__(self):
        """ConfigError for an impossible option, or a key that is missing. Nothing is sent yet."""
        self.begin(Endpoint(self))


def _status(answer: Answer) -> Status:
    return Status.refused if answer.came is Came.refused else Status.failed


def _perturbation(request: Request, spans: Spans | None, answer: Answer) -> Perturbation:
    if answer.came is not Came.answered:
        return Perturbation(request, _status(answer), spans=spans, note=answer.note)
    if not answer.content["applicable"]:
        note = "the language model says that this response cannot be changed so"
        return Perturbation(request, Status.not_applicable, spans=spans, note=note)
    text = answer.content["response"]
    if text.strip() in ("", request.text.strip()):
        note = "the text was not changed" if text.strip() else "the rewritten response is empty"
        return Perturbation(request, Status.failed, spans=spans, note=note)
    return Perturbation(request, Status.changed, text, spans)


def _spans(request: Request, answer: Answer | None) -> Spans | None:
    """Where the words of step 1 stand; None for a control arm, which names none."""
    if request.attribute.name in _CONTROL:
        return None
    return find(request.text, answer.content[request.attribute.name]) if answer else ()


def _words(request: Request, spans: Spans | None) -> list[str]:
    return list(dict.fromkeys(request.text[start:end] for start, end in spans or ()))


def find(response: str, named: Sequence[str]) -> Spans:
    """Where words occur in a response: (start, end) in characters, in order, without overlap.

    A word stands for all its occurrences as a whole word; where it has none such, for all its
    occurrences ("cat" is not looked for in "category" where "cat" stands alone elsewhere). One that
    does not occur is passed over.
    """
    spans: list[tuple[int, int]] = []
    for word in {word for word in named if word.strip()}:
        quoted = re.escape(word)
        whole = rf"(?<!\w){quoted}" if word[0].isalnum() else quoted
        whole = rf"{whole}(?!\w)" if word[-1].isalnum() else whole
        found = [match.span() for match in re.finditer(whole, response)]
        spans += found or [match.span() for match in re.finditer(quoted, response)]
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
