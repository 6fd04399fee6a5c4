"""Perturbations written by a language model, in the two steps of Jiang et al. (2025): it names the
words of a response that bear on each attribute, then rewrites the response with these in view.

Knows what to ask and what to make of the answers. Does not know how a question travels
(`pessimal.explaining.chat`), nor which response a reward model prefers.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Interval
from pydantic.dataclasses import dataclass

from pessimal.explaining.attribute import OVERALL, PLACEBO, Attribute
from pessimal.explaining.chat import (
    Answer,
    AnswerStatus,
    Client,
    DryRun,
    Endpoint,
    EndpointOptions,
    Question,
    digest_of,
)
from pessimal.explaining.perturbers import Perturbation, Request, Status
from pessimal.explaining.perturbers.prompts import (
    identify,
    prompts_digest,
    rewrite,
    rewrite_plainly,
)
from pessimal.options import DESCRIBED

Spans = tuple[tuple[int, int], ...]
_CONTROL = (OVERALL, PLACEBO)
_SAME_LENGTH = 0.8
"""Least ratio of the words of a response and its paraphrase, the fewer over the more."""


@dataclass(kw_only=True, config=DESCRIBED)
class TwoSteps:
    """Steps of every perturber that asks a language model (see `Perturber`). A seed repeats both
    steps; the first is asked once for each response and seed, for all attributes together."""

    attributes: Sequence[Attribute]
    """All that will be asked for, so that what comes of one request does not depend on which others
    are made."""
    cache: Path | None
    """Folder of the answers; None keeps none."""
    attempts: Annotated[int, Interval(ge=1, le=1000)] = 3
    """Answers asked for, each with another seed, until one is of the asked shape."""
    allow_unanswered: bool = False
    """Publish also where questions got no answer, or one that was cut off."""
    plain: bool = False
    """One step instead of two, in plain words, and the reply is the text: for models too small to
    write a JSON object. It names no words, never says that a response cannot be changed so, and
    does not see the conversation."""

    name = ""

    def begin(self, make_client: Callable[..., Client]) -> None:
        """Make the client."""
        self.attributes = tuple(each for each in self.attributes if each.name not in _CONTROL)
        names = ("cache", "attempts", "allow_unanswered")
        self.chat = make_client(self, **{name: getattr(self, name) for name in names})
        self.greedy = self.chat.sampling()["temperature"] == 0

    def provenance(self) -> dict[str, Any]:
        """The model and how it is sampled, the wording of all prompts, and the attributes."""
        described = [[attribute.name, attribute.description] for attribute in self.attributes]
        return {
            "perturber": self.name,
            "chat": self.chat.provenance(),
            "prompts": prompts_digest(),
            "attributes": digest_of(described),
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
        results: dict[Request, Perturbation] = {}
        spans: dict[Request, Spans | None] = {}
        first = {each: self._first_step(each) for each in requests if not self._repeats(each)}
        questions = {request: question for request, question in first.items() if question}
        answers = self.chat.complete(list(questions.values()))
        answered = dict(zip(questions, answers, strict=True))
        for request in first:
            answer = answered.get(request)
            if answer is None or answer.status is AnswerStatus.answered:
                spans[request] = None if self.plain else _spans(request, answer)
            else:
                note = f"step 1, naming the words: {answer.note}"
                results[request] = Perturbation(request, _status(answer), note=note)
        results |= self._rewrite(spans)
        self.chat.check_answered()
        note = "at temperature 0 every seed gives the same text, which stands under seed 0"
        unchanged = partial(Perturbation, status=Status.not_applicable, note=note)
        return [results.get(request) or unchanged(request) for request in requests]

    def dry_run(self, requests: Sequence[Request]) -> DryRun:
        """Calls and tokens that `perturb` would take, without any call."""
        dry_run = DryRun(getattr(self, "price_in", None), getattr(self, "price_out", None))
        for request in requests:
            if self._repeats(request):
                continue
            if question := self._first_step(request):
                dry_run.add(question, written=len(request.text))
            # The words of step 1, which step 2 will show, are not known yet.
            dry_run.add(self._second_step(request, (), again=False), written=len(request.text))
        return dry_run

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

    def _rewrite(self, spans: dict[Request, Spans | None]) -> dict[Request, Perturbation]:
        """Step 2; of a paraphrase of another length once more, and the closer one is kept."""
        results = self._rewritten(spans, again=False)
        texts = [change for change in results.values() if change.text is not None]
        other = [change.request for change in texts if _length_ratio(change) < _SAME_LENGTH]
        again = {request: spans[request] for request in other}
        self.chat.usage["changes asked for once more"] += len(again)
        for request, second in self._rewritten(again, again=True).items():
            better = max(results[request], second, key=_length_ratio)
            note = f"asked twice: the lengths are {_length_ratio(better):.2f} of one another"
            results[request] = replace(better, note="; ".join(filter(None, (better.note, note))))
        return results

    def _rewritten(
        self, spans: dict[Request, Spans | None], *, again: bool
    ) -> dict[Request, Perturbation]:
        questions = [self._second_step(request, of, again=again) for request, of in spans.items()]
        answers = zip(spans.items(), self.chat.complete(questions), strict=True)
        return {request: _perturbation(request, of, answer) for (request, of), answer in answers}


@dataclass(kw_only=True, config=DESCRIBED)
class Llm(TwoSteps, EndpointOptions):
    """A language model behind an OpenAI-compatible endpoint."""

    price_in: Annotated[float, Ge(0)] | None = None
    """Price of a million tokens that are sent, for the dry run."""
    price_out: Annotated[float, Ge(0)] | None = None
    """Price of a million tokens that come back."""

    name = "llm"

    def __post_init__(self) -> None:
        """ConfigError for an impossible option, or a key that is missing. Nothing is sent yet."""
        self.begin(Endpoint)


def _length_ratio(change: Perturbation) -> float:
    """The words of a paraphrase and of its response, the fewer over the more; 1 for other changes,
    whose length is their own, and 0 without a text."""
    if change.request.attribute.name != PLACEBO:
        return 1.0
    fewer, more = sorted((len(change.request.text.split()), len((change.text or "").split())))
    return fewer / max(more, 1)


def _status(answer: Answer) -> Status:
    return Status.refused if answer.status is AnswerStatus.refused else Status.failed


def _perturbation(request: Request, spans: Spans | None, answer: Answer) -> Perturbation:
    if answer.status is not AnswerStatus.answered:
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


def find(response: str, words: Sequence[str]) -> Spans:
    """Where words occur in a response: (start, end) in characters, in order, without overlap.

    A word stands for all its occurrences as a whole word; where it has none such, for all its
    occurrences ("cat" is not looked for in "category" where "cat" stands alone elsewhere). One that
    does not occur is passed over.
    """
    spans: list[tuple[int, int]] = []
    for word in {word for word in words if word.strip()}:
        quoted = re.escape(word)
        whole = rf"(?<!\w){quoted}" if word[0].isalnum() else quoted
        whole = rf"{whole}(?!\w)" if word[-1].isalnum() else whole
        places = list(re.finditer(whole, response)) or re.finditer(quoted, response)
        spans += [match.span() for match in places]
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
