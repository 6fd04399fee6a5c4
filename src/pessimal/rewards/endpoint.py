"""A server that scores texts, as a reward: vLLM, SGLang, OpenRLHF, a reranker, or a chat that is
asked to judge.

Knows how conversations become requests, and answers rewards. Does not know the shapes of either
(`wires`).
"""

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.conversation import Conversation
from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.base import Report, TextReward
from pessimal.rewards.callable import about_texts, read_tokenizer
from pessimal.rewards.formats import Templated, takes_pairs
from pessimal.rewards.question import FEW, QuestionOptions, judge_question, read_answer, sum_answers
from pessimal.rewards.rendering import messages_of, plain_prompt, rendered
from pessimal.rewards.server import RequestFailure, ServerOptions
from pessimal.rewards.spec import ModelSpec
from pessimal.rewards.wires import APIS, TOP, Input, Wire, recognised
from pessimal.texts import storable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

SAMPLE = 16
"""Conversations that a judge is asked anew where all its rewards are known."""
HIDDEN = 64
"""Outputs from which on they are a hidden state, and no reward's."""
Inputs = Callable[[Conversation], list[Input]]
Reader = Callable[[list[Any]], np.ndarray]


@options_dataclass
class EndpointSpec(ModelSpec):
    """A server that scores texts."""

    kind: str = "endpoint"
    endpoint: ServerOptions = field(default_factory=ServerOptions)
    judge: QuestionOptions = field(default_factory=QuestionOptions)
    output: Any = None
    """Number of the output that is the reward, of a server that gives several, counted from 0."""

    def check(self) -> None:
        super().check()
        if not self.endpoint.url:
            raise ConfigError(
                "model.kind=endpoint needs an address: model.endpoint.url=http://HOST:PORT"
            )
        if self.endpoint.api == "chat":
            self.judge.check_answers()

    def derive_name(self) -> str:
        return (self.endpoint.served or "endpoint").split("/")[-1]

    def open(self, folder: Path | None, *, cache: str) -> "EndpointReward":
        """The server, and the tokenizer whose vocabulary is scanned."""
        return open_endpoint(self, read_tokenizer(self))


@dataclass(frozen=True)
class Cost:
    """What asking a server will take."""

    requests: int
    tokens: int | None
    """Sent; None where no tokenizer is known."""
    dollars: float | None
    """None where there is no price, or tokens cannot be counted."""
    seconds: float | None
    """None where no request was timed."""

    def __str__(self) -> str:
        parts = (
            f"{self.requests:,} requests",
            self.tokens is not None and f"{self.tokens:,} tokens",
            self.dollars is not None and f"${self.dollars:,.2f}",
            self.seconds is not None and f"about {self.seconds:,.0f} s",
        )
        return ", ".join(part for part in parts if part)


@dataclass
class AnswerShare:
    """How likely a judge's answers are, all of them together, as far as its server says."""

    questions: list[tuple[float, float]] = field(default_factory=list)
    """Probability of those that the server gives, and the most of the others."""
    minimum: tuple[float, str] = (math.inf, "")
    """Smallest probability on any question, and the likeliest other
    token."""
    reported: bool = False

    def add(self, top: list[tuple[str, float]], answers: Sequence[str]) -> None:
        """Count a question with the likeliest tokens that the server gave."""
        shares = sum_answers(top, answers)
        instead = next((token for token, _ in top if token not in answers), "")
        self.minimum = min(self.minimum, (sum(shares), instead))
        self.questions.append(shares)

    def take(self) -> dict[str, Any]:
        """The most that the answers may have together, as a table records it of a local judge; it
        begins anew then."""
        mean = float(np.sum(self.questions) / len(self.questions))
        minimum, instead = self.minimum
        self.questions.clear()
        self.minimum = (math.inf, "")
        return {"answers": {"mean": mean, "least": minimum, "instead": storable(instead)}}

    def report(self, address: str) -> None:
        """Log the mean, once; warned of below .5, or where it is unknown."""
        if self.reported or not self.questions:
            return
        self.reported = True
        (known, more), level = np.mean(self.questions, axis=0), logging.INFO
        share = f"have a probability of {known + more:.2g} together"
        if known + more < FEW:
            level = logging.WARNING
            share += (
                f": it mostly says something else, such as {self.minimum[1]!r}. Give the spellings "
                "that it uses, or what stands before its answer: model.judge.begin=TEXT (of a "
                "model that thinks first, an empty thought)"
            )
        elif known < FEW:
            level = logging.WARNING
            share = (
                f"have an unknown probability together ({known:.2g} to {known + more:.2g}): "
                f"the server gives the {TOP} likeliest tokens alone"
            )
        n = len(self.questions)
        _log.log(level, "%s: the judge's answers %s (n = %d)", address, share, n)


@dataclass(frozen=True)
class EndpointReward(TextReward):
    """A server that gives rewards of conversations. Keeps nothing:
    `pessimal.scoring.texts.KeptRewards` does, by content."""

    spec: EndpointSpec
    wire: Wire
    inputs: Inputs
    """What is sent for a conversation: one input, or two where a judge compares in both orders."""
    read: Reader
    """Rewards (n,) of the inputs of one request; NaN where the server gives none."""
    batch_size: int
    """Conversations a request."""
    answers: AnswerShare = field(default_factory=AnswerShare)
    """Of a judge; else of no question."""

    @property
    def typed(self) -> str:
        """Its address."""
        return str(self.spec.endpoint.url)

    @property
    def origin(self) -> str:
        """`server:NAME@ADDRESS`."""
        return f"server:{self.spec.endpoint.served or self.name}@{self.spec.endpoint.url}"

    @property
    def is_pinned(self) -> bool:
        """False: a server may give other rewards at any time."""
        return False

    timed: dict[Conversation, float] = field(default_factory=dict)
    """Rewards of the batch that was timed, until they are asked for."""

    def cost(
        self,
        conversations: Sequence[Conversation],
        *,
        again: Sequence[Conversation] = (),
        timed: bool = False,
    ) -> Cost:
        """Requests, tokens, dollars and seconds that the rewards of conversations take, and of some
        of them `again`. `timed` sends the first batch, whose rewards are kept, and takes the others
        to be as fast; a server gets faster once it is warm."""
        batches = [
            b
            for c in (conversations, again)
            for start in self._starts(c)
            for b in self._batch(c, start)
        ]
        requests = sum(len(self.wire.requests(batch)) for batch in batches)
        tokens = self.wire.tokens([each for batch in batches for each in batch])
        price, seconds = self.spec.endpoint.price, None
        if timed and conversations:
            started, first = time.perf_counter(), self._batch(conversations, 0)
            values = self._score(first).tolist()
            self.timed.update(zip(conversations[: self.batch_size], values, strict=True))
            once = (time.perf_counter() - started) / sum(len(self.wire.requests(b)) for b in first)
            seconds = once * math.ceil(requests / self.spec.endpoint.concurrency)
        dollars = None if price is None or tokens is None else price * tokens / 1e6
        return Cost(requests, tokens, dollars, seconds)

    def rewards(
        self,
        conversations: Sequence[Conversation],
        *,
        report: Report | None = None,
        again: bool = False,
    ) -> np.ndarray:
        """Rewards float64 (n,). Several requests at once; batches are reported as they come, in any
        order.

        Raises:
            ConfigError: a wrong key, model or API; several outputs, and none chosen.
            ModelError: an answer is of no use, or some rewards are no numbers.
            WorkError: requests failed for good. In each case what was answered was reported.
        """
        rewards = np.full(len(conversations), np.nan)

        def known(rows: Sequence[int], values: Sequence[float]) -> None:
            rewards[rows] = values
            if report:
                pairs = zip(rows, values, strict=True)
                report({i: float(v) for i, v in pairs if math.isfinite(v)}, len(conversations))

        paid = (
            {}
            if again
            else {i: self.timed[c] for i, c in enumerate(conversations) if c in self.timed}
        )
        if paid:
            known(list(paid), list(paid.values()))
        rows = [i for i in range(len(conversations)) if i not in paid]
        left = [conversations[i] for i in rows]
        starts = self._starts(left)

        def keep(number: int, values: np.ndarray) -> None:
            known(rows[starts[number] : starts[number] + len(values)], values.tolist())

        batches = (self._batch(left, start) for start in starts)
        failures, _ = self.wire.server.ask_all(
            self._score, batches, keep, concurrency=self.spec.endpoint.concurrency
        )
        self.answers.report(self.wire.address)
        _raise_first(list(failures.values()), len(starts))
        missing = np.flatnonzero(~np.isfinite(rewards))
        if len(missing):
            response = conversations[missing[0]][-1].content
            raise ModelError(
                f"{self.wire.address} gives no number for {len(missing)} of {len(conversations)} "
                f"conversations, the first ending in {response[:60]!r}: "
                f"{self._cause(everywhere=len(missing) == len(rewards))}"
            )
        return rewards

    def describe_answers(self, conversations: Sequence[Conversation]) -> dict[str, Any]:
        """The probabilities of a judge's answers, as a table records them, on what was asked since
        this was called before, else on a few of these conversations; empty for a classifier."""
        if self.wire.api != "chat":
            return {}
        if not self.answers.questions:  # all was kept of an earlier start
            for start in self._starts(conversations[:SAMPLE]):
                self._score(self._batch(conversations, start))
        return self.answers.take()

    def _starts(self, conversations: Sequence[Conversation]) -> range:
        return range(0, len(conversations), self.batch_size)

    def _batch(self, conversations: Sequence[Conversation], start: int) -> list[list[Input]]:
        """The requests of one batch: one; where a judge is asked in both orders, two."""
        rows = [
            self.inputs(conversation)
            for conversation in conversations[start : start + self.batch_size]
        ]
        return [list(order) for order in zip(*rows, strict=True)]

    def _score(self, orders: list[list[Input]]) -> np.ndarray:
        """Rewards (n,) of one batch: of two orders half the difference, since the second is the
        opponent's."""
        first, *second = [self.read(inputs) for inputs in orders]
        return (first - second[0]) / 2 if second else first

    def _cause(self, *, everywhere: bool) -> str:
        """Why the server gave no number, to some conversations or to all, and what to type."""
        if self.wire.api == "chat":
            return (
                f"no positive, or no negative, answer of the judge is among the {TOP} likeliest "
                "first tokens, which is all that the server gives, and a number for it would be "
                "invented. Give more spellings (model.judge.positive, model.judge.negative), or "
                "load the judge here: model.kind=judge model.path=DIR_OR_ID"
            )
        served = self.spec.endpoint.served or "NAME"
        if self.wire.nulls and everywhere:
            return (
                "it wrote null each time, so the model that is served gives no score: a language "
                "model without a score head, perhaps. Serve a reward model as a classifier (vLLM: "
                f"vllm serve {served} --convert classify), or ask the language model to judge: "
                f"model.endpoint.api=chat model.endpoint.served={served} "
                "model.judge.template='{prompt} {response} Good? Yes or No.' "
                "'model.judge.positive=[Yes]' 'model.judge.negative=[No]'"
            )
        word = "null, as servers write NaN" if self.wire.nulls else "NaN or infinite"
        return (
            f"its answer was {word}; in float16 a model's numbers may overflow. Start the server "
            f"in another precision (vLLM: vllm serve {served} --dtype float32), or see which it "
            f"is: pessimal check MODEL url={self.wire.server.address}"
        )


def _raise_first(failed: Sequence[RequestFailure], batches: int) -> None:
    for error in failed:
        if isinstance(error, ConfigError):
            raise error
    if failed:
        raise type(failed[0])(
            f"{failed[0]}. {len(failed)} of {batches} batches failed, and what was answered is "
            "kept: type the same command again to ask for the rest"
        ) from failed[0]


def open_endpoint(
    spec: EndpointSpec, tokenizer: "PreTrainedTokenizerBase | None" = None
) -> EndpointReward:
    """The server of a spec, which is asked what it speaks where that is not given; nothing else is
    sent yet. With a `tokenizer`, servers of sequence classifiers get token ids in its chat
    template, as the model's own forward does, or text where they take no ids; without, messages,
    which vLLM alone takes, or prompt and response, which rerankers do.

    ConfigError for an address, API, judge or output that cannot be, and for a tokenizer that is
    missing.
    """
    options, judge = recognised(spec.endpoint), spec.judge
    wire = Wire(options, tokenizer)
    if spec.output is not None and not isinstance(spec.output, int):
        raise ConfigError(
            f"model.output={spec.output!r}: a server's outputs go by number, counted from 0"
        )
    judging = options.api == "chat"
    if not judging and judge != QuestionOptions():
        raise ConfigError(
            f"model.judge is asked of a chat, and model.endpoint.api is {options.api}: type "
            "model.endpoint.api=chat, which vLLM and SGLang speak too, or leave model.judge out"
        )
    answers = AnswerShare()
    size, read = options.batch_size, cast(Reader, _OutputReader(wire, spec.output))
    if judging:
        size, inputs, read = 1, _questions(spec), _ChatReader(wire, judge, answers)
    else:
        inputs, messages = _shown(wire.api, tokenizer)
        size = 1 if messages else size
    reading = {
        "api": options.api,
        "output": spec.output,
        "judge": asdict(judge) if judging else None,
    }
    server = {"url": wire.server.address, "served": options.served}
    return EndpointReward(
        spec=spec,
        weights_digest=_digest(server),  # a server does not say more about them
        config_digest=_digest(reading),
        **about_texts(spec, tokenizer),
        wire=wire,
        inputs=inputs,
        read=read,
        batch_size=size,
        answers=answers,
    )


def _shown(api: str, tokenizer: "PreTrainedTokenizerBase | None") -> tuple[Inputs, bool]:
    """How conversations are sent to a classifier, and whether as messages."""
    pairs = tokenizer is None or takes_pairs(tokenizer)
    forms = APIS[api].forms
    if "pairs" in forms and (pairs or len(forms) == 1):
        return lambda c: [(plain_prompt(c), messages_of(c)[-1]["content"])], False
    if tokenizer is None:
        if api.startswith("vllm"):
            return lambda c: [messages_of(c)], True
        raise ConfigError(
            f"model.endpoint.api={api} takes texts in the model's own template: give its "
            "tokenizer, model.tokenizer=DIR_OR_ID"
        )
    if takes_pairs(tokenizer):
        raise ConfigError(
            "the tokenizer of model.tokenizer takes a prompt and a response as a pair, which "
            f"model.endpoint.api={api} does not: type model.endpoint.api=vllm-score"
        )
    template = Templated(tokenizer)
    if "ids" not in forms:
        prompts = api == "openrlhf"  # which sends the prompt along

        def written(c: Conversation) -> list[Input]:
            text = str(rendered(tokenizer, messages_of(c), tokenize=False))
            return [(text, plain_prompt(c)) if prompts else text]

        return written, False
    return lambda c: [list(template.encode(c).ids)], False


@dataclass(frozen=True)
class _OutputReader:
    """Reads one output of a classifier."""

    wire: Wire
    output: int | None

    def __call__(self, inputs: list[Input]) -> np.ndarray:
        rows = self.wire.rows(inputs)
        outputs = rows.shape[1]
        if outputs >= HIDDEN:
            raise ConfigError(
                f"{self.wire.address} gives {outputs} outputs, which is a hidden state and no "
                "reward: the model is served as an embedding. Serve it as a classifier (vLLM: vllm "
                "serve NAME --convert classify; SGLang needs its class with a score head). "
                f"pessimal check MODEL url={self.wire.server.address} says whether it is right then"
            )
        if (self.output is None and outputs > 1) or (self.output or 0) >= outputs:
            raise ConfigError(
                f"{self.wire.address} gives {outputs} outputs, and model.output={self.output}: say "
                f"which is the reward, model.output=0 to {outputs - 1}"
            )
        return rows[:, self.output or 0]


def _questions(spec: EndpointSpec) -> Inputs:
    """What a chat is asked about a conversation."""
    judge = spec.judge
    judge.check()
    wrong = {
        "model.judge.template=null": judge.template is None,
        "model.judge.logit": judge.logit is not None,
        "model.judge.chat=false": judge.chat is False,
    }
    if any(wrong.values()):
        raise ConfigError(
            f"{next(name for name, is_so in wrong.items() if is_so)} cannot be asked of "
            "model.endpoint.api=chat: give model.judge.template with {prompt} and {response}, and "
            "positive and negative, or ratings"
        )
    if spec.endpoint.served is None:
        raise ConfigError(
            "model.endpoint.api=chat needs the model's name at the server: "
            "model.endpoint.served=NAME"
        )
    begun = [{"role": "assistant", "content": judge.begin}] if judge.begin else []

    def ask(conversation: Conversation) -> list[Input]:
        prompt, response = plain_prompt(conversation), messages_of(conversation)[-1]["content"]
        questions = [judge_question(judge, prompt, response, swapped=s) for s in judge.orders]
        return [[*question, *begun] for question in questions]

    return ask


@dataclass(frozen=True)
class _ChatReader:
    """Reads a judge's reward off the likeliest first tokens of its answer.

    Spellings that are not among them are less likely than the last of them, and count as 0; by how
    much a reward may be off for that is logged once.
    """

    wire: Wire
    judge: QuestionOptions
    answers: AnswerShare
    warned: list[float] = field(default_factory=list)

    def __call__(self, inputs: list[Any]) -> np.ndarray:
        top = self.wire.top(inputs[0])
        reward, off = read_answer(top, self.judge)
        self.answers.add(top, [*self.judge.ratings, *self.judge.positive, *self.judge.negative])
        if 0.1 < off < math.inf and not self.warned:
            self.warned.append(off)
            _log.warning(
                "%s: spellings of an answer that are not among the %d likeliest tokens may move a "
                "reward by up to %.2f",
                self.wire.address,
                TOP,
                off,
            )
        return np.array([reward])


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
