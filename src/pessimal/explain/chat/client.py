"""A chat: questions go through a transport, replies are kept, read, and asked for again where they are of no use.

Knows replies and their shape. Does not know how a question travels, nor what it is about.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pessimal.errors import ConfigError
from pessimal.explain.chat.cache import Cache
from pessimal.explain.chat.question import Answer, Came, Question, Reply, Transport, digest_of
from pessimal.explain.chat.schema import parse
from pessimal.explain.chat.usage import Usage

_STRIDE = 1000  # seeds of one question's attempts lie within this
_REFUSAL = re.compile(
    r"\s*(?:i['’]?m (?:really |very |so |truly )?(?:sorry|afraid|unable|not able|not going to)|sorry\b|my apologies"
    r"|i (?:really )?(?:can['’]?t|cannot|can not|won['’]?t|will not|must decline|have to decline|decline|refuse)"
    r"|i apologi[sz]e|as an ai\b|as a language model|unfortunately,? i (?:can|am)|i['’]?m an ai\b)",
    re.IGNORECASE,
)


class Client:
    """Answers questions over a transport."""

    def __init__(self, transport: Transport, *, usage: Usage, cache: Cache | None, attempts: int = 3):
        """
        Args:
            usage: where the transport counts, too.
            cache: None keeps nothing.
            attempts: replies asked for, each with another seed, until one is of the asked shape.
        """
        if not 1 <= attempts <= _STRIDE:
            raise ConfigError(
                f"perturber.attempts={attempts}: replies asked for until one is of use, 1 to {_STRIDE}"
            )
        self.transport, self.usage, self.cache, self.attempts = transport, usage, cache, attempts

    def provenance(self) -> dict:
        """What decides its answers, as JSON."""
        return {**self.transport.provenance(), "attempts": self.attempts}

    def complete(self, questions: Sequence[Question]) -> list[Answer]:
        """One answer a question, in their order; equal questions are sent once.

        A refusal is final. A reply of another shape is asked for again with the next seed, which is counted.

        Raises:
            ConfigError: the endpoint takes no request of this kind: a wrong key, model or address.
            WorkError: too many failures in a row. What was answered until then is in the cache.
        """
        keys = [digest_of([list(map(dict, q.messages)), q.schema, q.seed]) for q in questions]
        answers: dict[str, Answer] = {}
        open_ = dict(zip(keys, questions, strict=True))
        for attempt in range(self.attempts):
            asked = {key: _attempt(question, attempt) for key, question in open_.items()}
            replies = self._replies(asked)
            for key, reply in replies.items():
                answers[key] = read(reply, asked[key].schema)
            open_ = {key: question for key, question in open_.items() if answers[key].came is Came.malformed}
            self.usage.malformed += len(open_)
        for answer in answers.values():
            self.usage.refusals += answer.came is Came.refused
            self.usage.unanswered += answer.came is Came.unanswered
            self.usage.failures += answer.came in (Came.malformed, Came.unanswered)
        return [answers[key] for key in keys]

    def peek(self, question: Question) -> Answer | None:
        """Its answer by the cache alone; None where a call would be needed."""
        for attempt in range(self.attempts):
            reply = self._kept(_attempt(question, attempt))
            if reply is None:
                return None
            answer = read(reply, question.schema)
            if answer.came is not Came.malformed:
                break
        return answer

    def _kept(self, question: Question) -> Reply | None:
        return self.cache.get(self.transport.provenance(), question) if self.cache else None

    def _replies(self, asked: dict[str, Question]) -> dict[str, Reply]:
        replies = {key: self._kept(question) for key, question in asked.items()}
        missing = [key for key, reply in replies.items() if reply is None]
        self.usage.cached += len(asked) - len(missing)

        def keep(index: int, reply: Reply) -> None:
            key = missing[index]
            if self.cache and reply.failure is None:
                # At once, and not at the end: a process may be killed between any two replies.
                reply = self.cache.put(self.transport.provenance(), asked[key], reply)
            replies[key] = reply

        if missing:
            self.transport.send([asked[key] for key in missing], keep)
        return replies


def read(reply: Reply, schema: Any) -> Answer:
    """The answer in a reply."""
    if reply.failure is not None:
        return Answer(Came.unanswered, note=reply.failure)
    if reply.refusal:
        return Answer(Came.refused, note=f"the model refused: {_short(reply.refusal)}")
    if reply.finish_reason == "content_filter":
        return Answer(Came.refused, note="a content filter stopped the reply")
    content, reason = parse(reply.text or "", schema)
    if content is not None:
        return Answer(Came.answered, content)
    if _REFUSAL.match((reply.text or "").rpartition("</think>")[2]):
        return Answer(Came.refused, note=f"the model refused: {_short(reply.text)}")
    if reply.finish_reason == "length":
        reason += "; it was cut off at the limit of tokens"
    return Answer(Came.malformed, note=f"{reason}: {_short(reply.text or '')!r}")


def _attempt(question: Question, attempt: int) -> Question:
    return replace(question, seed=question.seed * _STRIDE + attempt)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:117] + "..."
