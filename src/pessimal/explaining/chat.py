"""Questions that a language model answers with a JSON object, and the OpenAI-compatible endpoint
(`pessimal.rewards.server`) that they are sent to: replies are kept, read, and asked for again where
they are of no use.

Does not know what is asked. A model on this machine takes the endpoint's place (`Client`).
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cached_property
from operator import mul
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, cast

from annotated_types import Ge, Gt, Interval
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as options_class
from typing_extensions import TypedDict

from pessimal.errors import ConfigError, ModelError, WorkError, require
from pessimal.options import DESCRIBED
from pessimal.rewards.server import STOP_AFTER, OptionNames, Server, status_of
from pessimal.tables.files import write_atomically
from pessimal.texts import storable

# Beginnings of objects tried in one text: one of nothing but braces must not take for ever.
_TRIES = 100
_STRIDE = 1000  # seeds of one question's attempts lie within this
_QUOTED = 4000  # characters of a useless reply that are shown to the model that wrote it
_CHARACTERS_PER_TOKEN = 4  # about right for English, too low for most other scripts
_REFUSAL = re.compile(
    r"\s*(?:i['’]?m (?:really |very |so |truly )?(?:sorry|afraid|unable|not able|not going "
    r"to)|sorry\b|my apologies"
    r"|i (?:really )?(?:can['’]?t|cannot|can not|won['’]?t|will not|must decline|have to "
    r"decline|decline|refuse)"
    r"|i apologi[sz]e|as an ai\b|as a language model|unfortunately,? i (?:can|am)|i['’]?m an ai\b)",
    re.IGNORECASE,
)


class Shape:
    """A JSON object with certain fields and no others. Attributes name fields, so any name will
    do."""

    def __init__(self, name: str, fields: Mapping[str, Any]):
        """`fields`: the type of each, such as `str`, `list[str]` or `Literal["A", "B"]`."""
        self.name, self._fields = name, dict(fields)

    @cached_property
    def _adapter(self) -> TypeAdapter[dict[str, Any]]:
        kind = cast(Any, TypedDict)(self.name, self._fields)
        kind.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
        return TypeAdapter(kind)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        return self._adapter.json_schema()

    def find(self, text: str) -> tuple[dict[str, Any] | None, str]:
        """The first such object in a text, and why there is none ("" where there is one). What a
        model thinks aloud (up to `</think>`), code fences and other words are passed over."""
        text, start, reason = text.rpartition("</think>")[2], -1, "no JSON object in the reply"
        for _ in range(_TRIES):
            if (start := text.find("{", start + 1)) < 0:
                break
            try:
                _, end = json.JSONDecoder().raw_decode(text, start)
                # Which refuses lone surrogates, too.
                return self._adapter.validate_json(text[start:end]), ""
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                reason = f"{'.'.join(map(str, first['loc'])) or 'the answer'}: {first['msg']}"
            except (ValueError, RecursionError):  # a reply may nest deeper than Python reads
                continue
        return None, reason


class PlainText(Shape):
    """A reply that is the text itself, whatever it says; nothing is asked about its shape."""

    def __init__(self, name: str, field: str, fixed: Mapping[str, Any]):
        """`field`: where the text stands in the answer, beside what is `fixed`."""
        super().__init__(name, {field: str})
        self._field, self._fixed = field, dict(fixed)

    def find(self, text: str) -> tuple[dict[str, Any] | None, str]:
        """The text without what a model thinks aloud; none where nothing is left of it."""
        text = text.rpartition("</think>")[2].strip()
        return ({**self._fixed, self._field: text}, "") if text else (None, "the reply is empty")


@dataclass(frozen=True)
class Question:
    """One conversation that a JSON object is to answer."""

    messages: tuple[Mapping[str, str], ...]
    """The conversation so far, each with role (system, user or assistant) and content."""
    shape: Shape
    """Shape of the answer; its name is the kind of question in counts: identify, rewrite, judge."""
    seed: int = 0  # of the sampling; another seed is another question

    @cached_property
    def key(self) -> str:
        """Digest of all that decides its answer, whichever the model."""
        return digest_of([list(map(dict, self.messages)), self.shape.schema, self.seed])

    def sent(self) -> list[dict[str, str]]:
        """The messages to be sent: the shape stands in words behind the instruction, which every
        server takes."""
        first, *rest = map(dict, self.messages)
        if not isinstance(self.shape, PlainText):
            first["content"] += (
                "\n\nReply with one JSON object and nothing else: no explanation, no code fence. "
                f"It must fit this JSON schema:\n{_canonical(self.shape.schema)}"
            )
        return [first, *rest]

    def again(self, attempt: int, reply: "Reply") -> "Question":
        """The question once more, with the useless reply and what was wrong with it."""
        _, reason = self.shape.find(reply.text or "")
        quoted = (reply.text or "").strip()[:_QUOTED] or "(nothing)"
        complaint = f"That reply is of no use ({reason}). Reply with the JSON object alone."
        more = ({"role": "assistant", "content": quoted}, {"role": "user", "content": complaint})
        return replace(self, messages=(*self.messages, *more), seed=self.seed + attempt)


@dataclass(frozen=True)
class Reply:
    """A model's reply, before anybody looked whether it is of use."""

    text: str | None = None
    refusal: str | None = None  # where the server marks one
    finish_reason: str | None = None  # stop, length (cut off at `max_tokens`) or content_filter
    prompt_tokens: int | None = None  # read, as the server counted them; None where it does not say
    completion_tokens: int | None = None
    failure: str | None = None  # why there is no reply at all. Such a one is never cached


class AnswerStatus(Enum):
    """Outcomes of a question."""

    answered = "answered"
    refused = "refused"  # by the model, or a filter in front of it
    malformed = "malformed"  # there were replies, none of them of the asked shape
    cut = "cut off"  # at `max_tokens`, before the object ended
    unanswered = "unanswered"  # no reply: the endpoint failed, or does not take this request


@dataclass(frozen=True)
class Answer:
    """The outcome of a question, after all retries."""

    status: AnswerStatus
    content: Any = None  # the object; None unless answered
    note: str = ""  # why there is none

    @classmethod
    def read(cls, reply: Reply, shape: Shape) -> "Answer":
        """The answer in a reply."""
        text = reply.text or ""
        content, reason = shape.find(text)
        plain, cut = isinstance(shape, PlainText), reply.finish_reason == "length"
        if reply.failure is not None:
            return cls(AnswerStatus.unanswered, note=reply.failure)
        if reply.refusal or reply.finish_reason == "content_filter":
            by = reply.refusal or "by a content filter"
            return cls(AnswerStatus.refused, note=f"refused: {_short(by)}")
        # Of an object the end is seen, of a text it is not.
        if content is not None and not (plain and cut):
            return cls(AnswerStatus.answered, content)
        if not plain and _REFUSAL.match(text.rpartition("</think>")[2]):
            return cls(AnswerStatus.refused, note=f"refused: {_short(text)}")
        if cut:
            note = f"the reply was cut off at the limit of tokens: {_short(text)!r}"
            return cls(AnswerStatus.cut, note=note)
        return cls(AnswerStatus.malformed, note=f"{reason}: {_short(text)!r}")


class Usage(Counter[str]):
    """Counts of one client: questions by what came of them, `calls`, replies from the cache,
    `reasked` for replies of the wrong shape, `tokens in` and `out` as the server counted them,
    `unmetered` replies."""

    def meter(self, reply: Reply) -> None:
        """Add the tokens of a reply."""
        self["tokens in"] += reply.prompt_tokens or 0
        self["tokens out"] += reply.completion_tokens or 0
        self["unmetered"] += None in (reply.prompt_tokens, reply.completion_tokens)

    def sentence(self) -> str:
        """All of it in words."""
        return ", ".join(f"{count:,} {name}" for name, count in self.items() if count) or "no calls"


class Client(ABC):
    """Answers questions by a language model, which a subclass asks."""

    def __init__(
        self,
        *,
        cache: Path | None,
        max_tokens: int | None,
        attempts: int = 3,
        allow_unanswered: bool = False,
    ):
        """
        Args:
            cache: folder of the replies; None keeps none.
            max_tokens: longest reply; None leaves it to the model.
            attempts: replies asked for, until one is of the asked shape; up to 1000.
            allow_unanswered: go on where questions got no answer.
        """
        self.usage, self.max_tokens = Usage(), max_tokens
        self.attempts, self.allow_unanswered = attempts, allow_unanswered
        self.cache = None if cache is None else Cache(cache, self.sampling())

    @abstractmethod
    def sampling(self) -> dict[str, Any]:
        """Everything that decides a reply, as JSON: model, address, sampling options, `max_tokens`.
        Never a key."""

    @abstractmethod
    def send(self, questions: Sequence[Question], keep: Callable[[int, Reply], None]) -> None:
        """Ask all, in any order and at once where it can; call `keep(index, reply)`, one at a time,
        as soon as each reply is there. Raises ConfigError for what no request gets past, and
        WorkError after too many failures."""

    def provenance(self) -> dict[str, Any]:
        """Everything that decides its answers, as JSON."""
        return {**self.sampling(), "attempts": self.attempts}

    def complete(self, questions: Sequence[Question]) -> list[Answer]:
        """One answer a question, in their order; equal questions are sent once.

        A reply of another shape is asked for again, with what was wrong with it and another seed. A
        refusal is final, and so is a reply that was cut off: asked for again it would cost as much
        and be cut off again.

        Raises:
            ConfigError: the endpoint takes no request of this kind: a wrong key, model or address.
            WorkError: too many failures in a row, or replies that were cut off (unless
                `allow_unanswered`). What was answered until then is in the cache.
        """
        first = {each.key: replace(each, seed=each.seed * _STRIDE) for each in questions}
        open_questions, answers = first, dict[str, Answer]()
        for attempt in range(self.attempts):
            self.usage["reasked"] += len(open_questions) if attempt else 0
            replies = self._replies(open_questions)
            answers |= {key: Answer.read(reply, first[key].shape) for key, reply in replies.items()}
            open_questions = {
                key: first[key].again(attempt + 1, reply)
                for key, reply in replies.items()
                if answers[key].status is AnswerStatus.malformed
            }
        self.usage.update(answer.status.value for answer in answers.values())
        cut, limit = self.usage[AnswerStatus.cut.value], self.max_tokens
        if cut and not self.allow_unanswered:
            where = f"perturber.max_tokens={limit}" if limit else "the limit of the endpoint"
            raise WorkError(
                f"{cut:,} answers were cut off at {where}, so nothing is published. Type the same "
                f"command with perturber.max_tokens={4 * (limit or 1024)}: answers that were whole "
                "are not paid for again. To go on without the others: "
                "perturber.allow_unanswered=true"
            )
        return [answers[question.key] for question in questions]

    def check_answered(self) -> None:
        """WorkError where questions got no answer (unless `allow_unanswered`): a result without
        them would be taken for a whole one."""
        unanswered = self.usage[AnswerStatus.unanswered.value]
        if unanswered and not self.allow_unanswered:
            raise WorkError(
                f"{unanswered:,} questions got no answer from the endpoint, so nothing is "
                "published. What was answered is kept: the same command asks only for the rest. To "
                "go on without them: perturber.allow_unanswered=true"
            )

    def _replies(self, questions: Mapping[str, Question]) -> dict[str, Reply]:
        """By the questions' keys, in their order."""
        cache = self.cache
        cached = {key: cache.get(each) if cache else None for key, each in questions.items()}
        replies = {key: reply for key, reply in cached.items() if reply is not None}
        missing = [key for key in questions if key not in replies]
        self.usage["from the cache"] += len(replies)

        def keep(index: int, reply: Reply) -> None:
            key = missing[index]
            # At once, and not at the end: a process may be killed between any two replies.
            if self.cache and reply.failure is None:
                reply = self.cache.put(questions[key], reply)
            replies[key] = reply

        if missing:
            self.send([questions[key] for key in missing], keep)
        return {key: replies[key] for key in questions}


class Cache:
    """A folder of one model's replies, each under the digest of what was asked: nothing is paid for
    twice, refusals and replies of no use included. Processes may share it: files are whole or
    absent, and the first reply to a question stays.

    A reply that ended by itself serves whatever `max_tokens` is; one that was cut off serves only
    where it is the same.
    """

    def __init__(self, folder: Path, provenance: Mapping[str, Any]):
        """`provenance`: everything that decides the model's replies."""
        self.folder = Path(folder)
        self._model = {name: value for name, value in provenance.items() if name != "max_tokens"}
        self._limit = provenance.get("max_tokens")

    def get(self, question: Question) -> Reply | None:
        """The reply to a question; None where there is none, or its file is damaged."""
        try:
            record = json.loads(self._path(question).read_bytes())
            reply = Reply(**record["reply"])
            whole = reply.finish_reason != "length" or record["max_tokens"] == self._limit
            return reply if whole else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def put(self, question: Question, reply: Reply) -> Reply:
        """Keep a reply; gives the one that stands there now."""
        if (earlier := self.get(question)) is not None:
            return earlier
        path = self._path(question)
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"model": self._model, "max_tokens": self._limit, "reply": asdict(reply)}
        write_atomically(path, _canonical(record | {"messages": question.sent()}).encode())
        return reply

    def _path(self, question: Question) -> Path:
        key = digest_of([self._model, question.key])
        return self.folder / key[:2] / f"{key}.json"


@dataclass
class DryRun:
    """The calls, tokens and cost of a run at most, before any request: answers that are kept
    already cost nothing."""

    price_in: float | None = None  # of a million tokens that are sent, in any currency
    price_out: float | None = None  # of a million tokens that come back
    questions: dict[str, tuple[Question, int]] = field(default_factory=dict)
    """Each with the characters of its answer (estimated); equal ones are asked once."""

    def add(self, question: Question, *, written: int) -> None:
        """One question more, whose answer has about `written` characters."""
        self.questions.setdefault(question.key, (question, written))

    def calls(self) -> Counter[str]:
        """Requests to be sent, by kind of question (identify, rewrite)."""
        return Counter(question.shape.name for question, _ in self.questions.values())

    def tokens(self) -> tuple[int, int]:
        """Tokens to be read and to be written, estimated."""
        questions = self.questions.values()
        sent = [sum(len(m["content"]) for m in question.sent()) for question, _ in questions]
        read, write = (
            sum(-(-n // _CHARACTERS_PER_TOKEN) for n in lengths)
            for lengths in (sent, [characters for _, characters in questions])
        )
        return read, write

    def cost(self) -> float | None:
        """In the currency of the prices; None where one of them is not known."""
        if self.price_in is None or self.price_out is None:
            return None
        return float(sum(map(mul, self.tokens(), (self.price_in, self.price_out))) / 1e6)

    def text(self) -> str:
        """All of it, to be printed, with the first question of each kind in full."""
        cost, (read, write) = self.cost(), self.tokens()
        unknown = "unknown; give perturber.price_in=… perturber.price_out=… (of a million tokens)"
        tokens = f"tokens (estimated as characters / {_CHARACTERS_PER_TOKEN}): {read:,} in and "
        tokens += f"{write:,} out; what a model thinks, and what is asked again, comes on top; "
        lines = [f"{kind}: {n:,} calls" for kind, n in self.calls().items()]
        lines += [f"{tokens}answers that are kept already cost nothing"]
        lines += [f"cost: {unknown if cost is None else f'about {cost:,.2f}'}"]
        examples = {each.shape.name: each for each, _ in reversed(self.questions.values())}
        for kind, question in examples.items():
            lines.append(f"\nAn example of {kind}:")
            lines += [f"[{message['role']}] {message['content']}" for message in question.messages]
        return "\n".join(lines)


def digest_of(value: Any) -> str:
    """sha256 of a value's canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def _canonical(value: Any) -> str:
    """JSON in which the order of keys, and lone surrogates, make no difference."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:117] + "..."


OPENAI = "https://api.openai.com/v1"
OPTIONS = OptionNames(
    url="perturber.base_url",
    key="perturber.api_key_variable",
    model="perturber.model",
    timeout="perturber.timeout",
    less="perturber.concurrency",
    path="perturber.base_url, which mostly ends in /v1",
)
_FILTERS = ("content_filter", "content_policy_violation")
"""Codes of a filter in front of the model, as Azure gives them."""


@options_class(kw_only=True, config=DESCRIBED)
class EndpointOptions:
    """Options of an endpoint."""

    model: str
    """The model's name at the endpoint."""
    base_url: str | None = None
    """Address of the endpoint, such as http://localhost:8000/v1; null is OpenAI's."""
    api_key_variable: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key; null sends none. A server on this machine needs
    none."""
    temperature: Annotated[float, Interval(ge=0, le=2)] | None = 1.0
    """Temperature of sampling; 0 always takes the likeliest token; null sends none, for models that
    refuse it."""
    max_tokens: Annotated[int, Ge(1)] | None = 1024
    """Most tokens of one answer, with what a model thinks before it; null leaves it to the
    server."""
    concurrency: Annotated[int, Ge(1)] = 8
    """Most calls at once."""
    timeout: Annotated[float, Gt(0)] = 60.0
    """Seconds of one call, from its beginning to the last byte of its answer. Each of `retries` has
    as many."""
    retries: Annotated[int, Ge(0)] = 5
    """Number of times that a failed call is repeated, with growing waits, or after as long as the
    server says."""


class Endpoint(Client):
    """Sends questions to an endpoint."""

    def __init__(self, options: EndpointOptions, **rest: Any):
        """ConfigError for an impossible option, or a key that is missing; MissingExtraError without
        openai's client. Nothing is sent yet. `rest`: see `Client`."""
        require("openai", purpose="a language model behind a server")
        self.options, self._lock = options, Lock()
        url, key = options.base_url or OPENAI, options.api_key_variable
        self.server = Server(url, key, options.timeout, options.retries, OPTIONS, self._count)
        super().__init__(max_tokens=options.max_tokens, **rest)

    def sampling(self) -> dict[str, Any]:
        """Model, address and sampling options."""
        names = ("model", "temperature", "max_tokens")
        options = {name: getattr(self.options, name) for name in names}
        return options | {"base_url": self.server.address}

    def send(self, questions: Sequence[Question], keep: Callable[[int, Reply], None]) -> None:
        """Ask all, at most `concurrency` at once and in order; `keep` hears of each reply as it
        comes.

        Raises:
            ConfigError: a wrong key, model or address.
            WorkError: `STOP_AFTER` requests in a row failed for good.
        """
        failures, stopped = self.server.ask_all(
            self._ask, questions, keep, concurrency=self.options.concurrency, tolerant=True
        )
        for index, failure in failures.items():
            if isinstance(failure, ConfigError):
                raise failure
            keep(index, Reply(failure=str(failure)))
        if stopped:
            raise WorkError(
                f"{STOP_AFTER} requests in a row to {self.server.address} failed, the last one so: "
                f"{failure}. What was answered is kept: once the endpoint answers, type the same "
                "command again. Where it is overrun, ask more slowly: perturber.concurrency=1"
            )

    def _count(self) -> None:
        with self._lock:
            self.usage["calls"] += 1

    def _ask(self, question: Question) -> Reply:
        """One question to its end; a content filter's refusal is a reply."""
        options = self.options
        request = {"model": options.model, "messages": question.sent(), "seed": question.seed}
        limits = {"temperature": options.temperature, self.server.token_limit: options.max_tokens}
        request |= {name: value for name, value in limits.items() if value is not None}
        try:
            reply = _read(self.server.post(f"{self.server.address}/chat/completions", request))
        except ModelError as error:
            body = str(getattr(error.__cause__, "body", ""))
            if status_of(error) == 400 and any(code in body for code in _FILTERS):
                return Reply(refusal=f"a content filter refused the request: {error}")
            raise
        with self._lock:
            self.usage.meter(reply)
        return reply


def _read(completion: Any) -> Reply:
    """The reply in a chat completion. ModelError where it is none, as a proxy's web page is
    none."""
    try:
        choice = completion["choices"][0]
        message, usage = choice["message"], completion.get("usage") or {}
        texts = [message.get("content"), message.get("refusal"), choice.get("finish_reason")]
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (AttributeError, KeyError, TypeError, IndexError):
        error = isinstance(completion, Mapping) and completion.get("error")
        advice = str(error or "is perturber.base_url right? It mostly ends in /v1")[:200]
        raise ModelError(f"the endpoint answered with no chat completion: {advice}") from None
    text, refusal, reason = (storable(each) if isinstance(each, str) else None for each in texts)
    read, written = (n if isinstance(n, int) and n >= 0 else None for n in counts)
    return Reply(text, refusal, reason, read, written)
