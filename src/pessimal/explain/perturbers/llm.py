"""Perturbations written by a language model, in the two steps of Jiang et al. (2025): it names the words of a response
that bear on each attribute, then rewrites the response with these in view.

Knows what to ask and what to make of the answers. Does not know how a question travels (`pessimal.explain.chat`), nor
which response a reward model prefers.
"""

import math
from collections.abc import Sequence

from pessimal.errors import ConfigError
from pessimal.explain.attribute import PLACEBO, Attribute
from pessimal.explain.chat.client import Client
from pessimal.explain.chat.plan import Plan, Planned
from pessimal.explain.chat.prompts import OVERALL, identify, prompts_digest, rewrite
from pessimal.explain.chat.question import Answer, Came, Question, digest_of, sendable
from pessimal.explain.chat.words import NamedWords, find
from pessimal.explain.perturbation import Perturbation, Request, Status

_STATUS = {Came.refused: Status.refused, Came.malformed: Status.failed, Came.unanswered: Status.failed}
_CONTROL = (OVERALL, PLACEBO)


class Llm:
    """Asks a language model (see `Perturber`). A seed repeats both steps: its first step is asked once for each response
    and seed, for all attributes together."""

    name = "llm"

    def __init__(self, chat: Client, *, attributes: Sequence[Attribute], min_locality: float = 0.0):
        """
        Args:
            attributes: all that will be asked for; each response is asked about all of them at once, so that what comes
                of one request does not depend on which others are made.
            min_locality: where a smaller share of a change lies within the words of step 1, the change is asked for once
                more, with that said, and the more local of the two is kept; 0 never asks again.

        Raises:
            ConfigError: an impossible share, or two attributes of one name.
        """
        if not 0 <= min_locality <= 1:
            raise ConfigError(f"perturber.min_locality={min_locality}: a share, 0 to 1")
        self.attributes = tuple(attribute for attribute in attributes if attribute.name not in _CONTROL)
        names = [attribute.name for attribute in self.attributes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"attributes of the same name: {', '.join(twice)}. Give each a name of its own")
        self.chat, self.min_locality = chat, min_locality
        self.dropped = 0
        """Words named so far that do not occur in the response."""
        self._counted: set[tuple] = set()
        self.asked_again = 0
        """Changes asked for once more so far, because they lay elsewhere."""

    def provenance(self) -> dict:
        """The model and how it is sampled, the wording of all prompts, the attributes, and the locality asked for."""
        described = [[attribute.name, attribute.description] for attribute in self.attributes]
        return {
            "perturber": self.name,
            "chat": self.chat.provenance(),
            "prompts": prompts_digest(),
            "attributes": digest_of(described),
            "min_locality": self.min_locality,
        }

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order.

        Raises:
            ConfigError: an attribute that this was not made for; or the endpoint takes no request at all.
            WorkError: too many failures in a row; what was answered is in the cache.
        """
        self._check(requests)
        made: dict[int, Perturbation] = {}
        for index, request in enumerate(requests):
            if sendable(request.text) != request.text:
                note = "the response holds lone surrogates, which cannot be sent"
                made[index] = Perturbation(request, Status.failed, note=note)
        left = [index for index in range(len(requests)) if index not in made]
        found = self._identify([requests[index] for index in left])
        words: dict[int, NamedWords] = {}
        for index, step in zip(left, found, strict=True):
            if isinstance(step, Answer):
                note = f"step 1, naming the words: {step.note}"
                made[index] = Perturbation(requests[index], _STATUS[step.came], note=note)
            else:
                words[index] = step
        made |= self._rewrite(requests, words)
        return [made[index] for index in range(len(requests))]

    def dry_run(self, requests: Sequence[Request]) -> Plan:
        """What `perturb` would take, without any call."""
        self._check(requests)
        plan = Plan(kinds={"identify": Planned(), "rewrite": Planned()})
        sent = [request for request in requests if sendable(request.text) == request.text]
        plan.unsendable = len(requests) - len(sent)
        steps: dict[tuple, Answer | None] = {}
        for request in dict.fromkeys(sent):
            key, question = self._first_step(request)
            if question is not None and key not in steps:
                steps[key] = self._plan(plan, question, request.text)
        for request in dict.fromkeys(sent):
            key, question = self._first_step(request)
            answer = steps[key] if question is not None else None
            if answer is not None and answer.came is not Came.answered:
                continue  # such a request ends with step 1
            # Without an answer to step 1, the words that step 2 will show are not known yet.
            known = question is None or answer is not None
            words = self._found(request, answer).words
            self._plan(plan, self._second_step(request, words), request.text, known=known)
        return plan

    def summary(self) -> str:
        """What all requests so far took, in words."""
        text = self.chat.usage.sentence()
        text += f"; {self.dropped:,} named words did not occur in their response and were dropped"
        if self.min_locality > 0:
            text += f"; {self.asked_again:,} changes lay elsewhere and were asked for once more"
        return text

    def _check(self, requests: Sequence[Request]) -> None:
        known = {*_CONTROL, *(attribute.name for attribute in self.attributes)}
        if unknown := sorted({request.attribute.name for request in requests} - known):
            raise ConfigError(
                f"perturber {self.name}: {', '.join(unknown)} is asked for, and not among its attributes "
                f"({', '.join(sorted(known))}): give all attributes when it is made"
            )

    def _identify(self, requests: Sequence[Request]) -> list[NamedWords | Answer]:
        """Step 1 of each request: its words, or the answer that there are none."""
        steps = [self._first_step(request) for request in requests]
        questions = {key: question for key, question in steps if question is not None}
        answers = dict(zip(questions, self.chat.complete(list(questions.values())), strict=True))
        for key, answer in answers.items():
            # Once, however many batches of requests rest on it.
            if answer.came is Came.answered and key not in self._counted:
                self._counted.add(key)
                self.dropped += sum(find(key[0], named).dropped for named in answer.content.values())
        found: list[NamedWords | Answer] = []
        for request in requests:
            answer = answers.get(_key(request)) if request.attribute.name not in _CONTROL else None
            failed = answer is not None and answer.came is not Came.answered
            found.append(answer if failed else self._found(request, answer))
        return found

    def _first_step(self, request: Request):
        """Step 1 as a key and its question; None where there is nothing to ask."""
        if request.attribute.name in _CONTROL or not request.text.strip():
            return _key(request), None
        return _key(request), identify(
            request.comparison, request.response, self.attributes, seed=request.seed
        )

    def _found(self, request: Request, answer: Answer | None) -> NamedWords:
        if answer is None or request.attribute.name in _CONTROL:
            return NamedWords((), (), 0)
        return find(request.text, answer.content[request.attribute.name])

    def _second_step(self, request: Request, words: Sequence[str], *, elsewhere: bool = False) -> Question:
        return rewrite(
            request.comparison,
            request.response,
            request.attribute,
            request.direction,
            words=words,
            seed=request.seed,
            elsewhere=elsewhere,
        )

    def _rewrite(self, requests: Sequence[Request], words: dict[int, NamedWords]) -> dict[int, Perturbation]:
        """Step 2, and once more where the change lies elsewhere."""
        questions = [self._second_step(requests[index], found.words) for index, found in words.items()]
        answers = dict(zip(words, self.chat.complete(questions), strict=True))
        made = {
            index: _perturbation(requests[index], words[index], answer) for index, answer in answers.items()
        }
        locality = {index: self._locality(made[index]) for index in made}
        again = [index for index in made if locality[index] < self.min_locality]
        self.asked_again += len(again)
        questions = [
            self._second_step(requests[index], words[index].words, elsewhere=True) for index in again
        ]
        for index, answer in zip(again, self.chat.complete(questions), strict=True):
            second = _perturbation(requests[index], words[index], answer)
            reached = self._locality(second) if second.status is Status.changed else -math.inf
            kept, share = (second, reached) if reached > locality[index] else (made[index], locality[index])
            note = f"asked twice, since {locality[index]:.2f} of the first change lay in the words named"
            if share < self.min_locality:
                note += f"; still below {self.min_locality:g}"
            made[index] = Perturbation(
                kept.request, kept.status, kept.text, kept.spans, _joined(kept.note, note)
            )
        return made

    def _locality(self, made: Perturbation) -> float:
        """Share of a change within the words named; infinite where nothing can be asked of it."""
        if self.min_locality == 0 or made.status is not Status.changed or not made.spans:
            return math.inf
        from pessimal.explain.distances import locality

        share = locality(made.request.text, made.text, made.spans)
        return math.inf if math.isnan(share) else share

    def _plan(self, plan: Plan, question: Question, written: str, *, known: bool = True) -> Answer | None:
        """Add one question to a plan; its answer where that is in the cache. `known`: whether it is the very question
        that will be asked, and not one whose words are still to be named."""
        kind = plan.kinds[question.name]
        answer = self.chat.peek(question) if known else None
        asked = digest_of([question.messages, question.seed])
        if asked in plan.seen:
            return answer
        plan.seen.add(asked)
        if answer is not None:
            kind.cached += 1
        else:
            kind.add(question.messages, question.schema, len(written))
            plan.examples.setdefault(question.name, question.messages)
        return answer


def _key(request: Request) -> tuple:
    """What one first step is asked for; its first part is the response."""
    return request.text, (request.comparison.turns, request.seed)


def _perturbation(request: Request, found: NamedWords, answer: Answer) -> Perturbation:
    control = request.attribute.name in _CONTROL
    spans = None if control else found.spans
    dropped = f"{found.dropped} named words do not occur in the response" if found.dropped else ""
    if answer.came is not Came.answered:
        return Perturbation(request, _STATUS[answer.came], spans=spans, note=_joined(answer.note, dropped))
    if not answer.content["applicable"]:
        note = _joined("the language model says that this response cannot be changed so", dropped)
        return Perturbation(request, Status.not_applicable, spans=spans, note=note)
    text = answer.content["response"]
    if not text.strip() or text.strip() == request.text.strip():
        note = "the rewritten response is empty" if not text.strip() else "the text was not changed"
        return Perturbation(request, Status.failed, spans=spans, note=_joined(note, dropped))
    return Perturbation(request, Status.changed, text, spans, dropped)


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
