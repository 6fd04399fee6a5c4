"""A server that scores texts, as a reward: vLLM, SGLang, OpenRLHF, a reranker, or a chat that is
asked to judge.

Knows how conversations become requests, and answers rewards. Does not know the shapes of either
(`wires`).
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
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
from pessimal.rewards.question import (
    ASKED,
    FEW,
    QuestionOptions,
    judge_question,
    read_answer,
    sum_answers,
    warn_of_rare,
)
from pessimal.rewards.rendering import Messages, messages_of, plain_prompt, rendered
from pessimal.rewards.server import ServerOptions
from pessimal.rewards.spec import ModelSpec
from pessimal.rewards.wires import APIS, TOP, Input, Wire, recognised
from pessimal.texts import storable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

HIDDEN = 64
"""Outputs from which on they are a hidden state, and no reward's."""
Inputs = Callable[[Conversation], list[Input]]


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
            raise ConfigError("model.kind=endpoint needs model.endpoint.url=http://HOST:PORT")
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
    dollars: float | None
    """None where there is no price, or tokens cannot be counted."""

    def __str__(self) -> str:
        tokens = "" if self.tokens is None else f", {self.tokens:,} tokens"
        dollars = "" if self.dollars is None else f", ${self.dollars:,.2f}"
        return f"{self.requests:,} requests{tokens}{dollars}"


@dataclass
class AnswerShare:
    """How likely a judge's answers are, all of them together, as far as its server says."""

    questions: list[tuple[float, float, str]] = field(default_factory=list)
    """Probability of those that the server gives, the most of the others, and the likeliest other
    token."""
    reported: set[str] = field(default_factory=set)

    def add(self, top: list[tuple[str, float]], answers: Sequence[str]) -> None:
        """Count a question with the likeliest tokens that the server gave."""
        instead = next((token for token, _ in top if token not in answers), "")
        self.questions.append((*sum_answers(top, answers), instead))

    def take(self) -> dict[str, Any]:
        """The most that the answers may have together, as a table records it of a local judge; it
        begins anew then."""
        totals = [(listed + more, instead) for listed, more, instead in self.questions]
        self.questions.clear()
        mean, (smallest, instead) = float(np.mean([total for total, _ in totals])), min(totals)
        return {"answers": {"mean": mean, "least": smallest, "instead": storable(instead)}}

    def report(self, address: str) -> None:
        """Log the mean, once; warned of below .5, or where it is unknown."""
        if not self.questions or "answers" in self.reported:
            return
        self.reported.add("answers")
        listed, more = np.mean([shares[:2] for shares in self.questions], axis=0)
        if listed + more < FEW:
            warn_of_rare(address, listed + more, min(self.questions)[2])
        elif listed < FEW:
            share = f"an unknown probability together ({listed:.2g} to {listed + more:.2g})"
            _log.warning("%s: the judge's answers have %s", address, share)
        else:
            share = f"a probability of {listed + more:.2g} together"
            _log.info("%s: the judge's answers have %s", address, share)

    def report_missing(self, address: str, off: float) -> None:
        """Warn once of spellings that are not among the likeliest tokens, each of which may have as
        much as the last of these, where they may move a reward by more than .1."""
        if 0.1 < off < math.inf and "spellings" not in self.reported:
            self.reported.add("spellings")
            message = "%s: spellings that are not among the %d likeliest tokens may move a reward"
            _log.warning(f"{message} by up to %.2f", address, TOP, off)


@dataclass(frozen=True)
class EndpointReward(TextReward):
    """A server that gives rewards of conversations. Keeps nothing:
    `pessimal.scoring.texts.KeptRewards` does, by content."""

    spec: EndpointSpec
    wire: Wire
    inputs: Inputs
    """What is sent for a conversation: one input, or two where a judge compares in both orders."""
    batch_size: int
    answers: AnswerShare = field(default_factory=AnswerShare)

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

    def cost(
        self, conversations: Sequence[Conversation], *, again: Sequence[Conversation] = ()
    ) -> Cost:
        """Requests, tokens and dollars that the rewards of conversations take, and of some of them
        `again`."""
        orders = [*self._batches(conversations), *self._batches(again)]
        batches = [inputs for order in orders for inputs in order]
        requests = sum(len(self.wire.requests(inputs)) for inputs in batches)
        tokens = self.wire.tokens([each for inputs in batches for each in inputs])
        price = self.spec.endpoint.price
        dollars = None if price is None or tokens is None else price * tokens / 1e6
        return Cost(requests, tokens, dollars)

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

        def keep(number: int, values: np.ndarray) -> None:
            rows = range(number * self.batch_size, number * self.batch_size + len(values))
            rewards[rows] = values
            if report:
                pairs = zip(rows, values.tolist(), strict=True)
                report({i: v for i, v in pairs if math.isfinite(v)}, len(conversations))

        batches, concurrency = self._batches(conversations), self.spec.endpoint.concurrency
        failures, _ = self.wire.server.ask_all(self._score, batches, keep, concurrency=concurrency)
        self.answers.report(self.wire.address)
        if failures:
            error = min(failures.values(), key=lambda failure: not isinstance(failure, ConfigError))
            raise type(error)(f"{error}. What was answered is kept: type the same again") from error
        missing = np.flatnonzero(~np.isfinite(rewards))
        if len(missing):
            response = conversations[missing[0]][-1].content
            cause = self._cause(everywhere=len(missing) == len(rewards))
            n = f"{len(missing)} of {len(rewards)} conversations, as of {response[:60]!r}"
            raise ModelError(f"{self.wire.address} gives no number for {n}: {cause}")
        return rewards

    def describe_answers(self, conversations: Sequence[Conversation]) -> dict[str, Any]:
        """The probabilities of a judge's answers, as a table records them, on what was asked since
        this was called before, else on a few of these conversations; empty for a classifier."""
        if self.wire.api != "chat":
            return {}
        if not self.answers.questions:  # all was kept of an earlier start
            for orders in self._batches(conversations[:ASKED]):
                self._score(orders)
        return self.answers.take()

    def _batches(self, conversations: Sequence[Conversation]) -> Iterator[list[list[Input]]]:
        """The inputs of each batch: once; where a judge is asked in both orders, twice."""
        for start in range(0, len(conversations), self.batch_size):
            rows = map(self.inputs, conversations[start : start + self.batch_size])
            yield [list(order) for order in zip(*rows, strict=True)]

    def _score(self, orders: list[list[Input]]) -> np.ndarray:
        """Rewards (n,) of one batch, NaN where the server gives none: of two orders half the
        difference, since the second is the opponent's."""
        first, *second = map(self._read, orders)
        return (first - second[0]) / 2 if second else first

    def _read(self, inputs: list[Input]) -> np.ndarray:
        """One output of a classifier for each input, or the reward of a judge's answer."""
        if self.wire.api == "chat":
            judge, top = self.spec.judge, self.wire.top(cast(Messages, inputs[0]))
            reward, off = read_answer(top, judge)
            self.answers.add(top, [*judge.ratings, *judge.positive, *judge.negative])
            self.answers.report_missing(self.wire.address, off)
            return np.array([reward])
        rows, output = self.wire.rows(inputs), self.spec.output
        outputs = rows.shape[1]
        if outputs >= HIDDEN:
            advice = "a hidden state and no reward: serve a classifier (vLLM: --convert classify)"
            raise ConfigError(f"{self.wire.address} gives {outputs} outputs, {advice}")
        if (output is None and outputs > 1) or (output or 0) >= outputs:
            choice = f"model.output=0 to {outputs - 1}"
            raise ConfigError(f"{self.wire.address} gives {outputs} outputs: {choice}")
        return rows[:, output or 0]

    def _cause(self, *, everywhere: bool) -> str:
        """Why the server gave no number, to some conversations or to all, and what to type."""
        if self.wire.api == "chat":
            options = "model.judge.positive, model.judge.negative"
            return f"answers are not among the {TOP} likeliest tokens: more spellings in {options}"
        served = self.spec.endpoint.served or "NAME"
        if self.wire.nulls and everywhere:
            advice = f"vllm serve {served} --convert classify, or ask with endpoint.api=chat"
            return f"it wrote null each time: {advice} endpoint.served={served}"
        word = "null, as servers write NaN" if self.wire.nulls else "NaN or infinite"
        return f"its answer was {word}: serve it in float32 (vLLM: --dtype float32)"


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
        raise ConfigError(f"model.output={spec.output!r}: a server's outputs are counted from 0")
    is_judge = options.api == "chat"
    if not is_judge and judge != QuestionOptions():
        raise ConfigError(f"model.judge goes with endpoint.api=chat, not with {options.api}")
    if is_judge:
        size, inputs = 1, _questions(spec)
    else:
        inputs, messages = _make_inputs(wire.api, tokenizer)
        size = 1 if messages else options.batch_size
    asking = asdict(judge) if is_judge else None
    reading = {"api": options.api, "output": spec.output, "judge": asking}
    return EndpointReward(
        spec=spec,
        # A server does not say more about its weights.
        weights_digest=_digest({"url": wire.server.address, "served": options.served}),
        config_digest=_digest(reading),
        **about_texts(spec, tokenizer),
        wire=wire,
        inputs=inputs,
        batch_size=size,
    )


def _make_inputs(api: str, tokenizer: "PreTrainedTokenizerBase | None") -> tuple[Inputs, bool]:
    """How conversations are sent to a classifier, and whether as messages."""
    forms = APIS[api].forms
    pairs = tokenizer is None or takes_pairs(tokenizer)
    if "pairs" in forms and (pairs or len(forms) == 1):
        return lambda c: [(plain_prompt(c), messages_of(c)[-1]["content"])], False
    if tokenizer is None:
        if api.startswith("vllm"):
            return lambda c: [messages_of(c)], True
        raise ConfigError(f"endpoint.api={api} takes templated texts: model.tokenizer=DIR_OR_ID")
    if takes_pairs(tokenizer):
        raise ConfigError(f"endpoint.api={api} takes no pairs: type endpoint.api=vllm-score")
    if "ids" in forms:
        template = Templated(tokenizer)
        return lambda c: [list(template.encode(c).ids)], False

    def write(c: Conversation) -> list[Input]:
        text = str(rendered(tokenizer, messages_of(c), tokenize=False))
        return [(text, plain_prompt(c)) if api == "openrlhf" else text]  # which takes the prompt

    return write, False


def _questions(spec: EndpointSpec) -> Inputs:
    """What a chat is asked about a conversation."""
    judge = spec.judge
    judge.check()
    if judge.template is None or judge.logit is not None or judge.chat is False:
        needs = "model.judge.template, and positive and negative, or ratings; no logit, chat=false"
        raise ConfigError(f"endpoint.api=chat needs {needs}")
    if spec.endpoint.served is None:
        raise ConfigError("endpoint.api=chat needs the model's name: model.endpoint.served=NAME")
    begun = [{"role": "assistant", "content": judge.begin}] if judge.begin else []

    def ask(conversation: Conversation) -> list[Input]:
        prompt, response = plain_prompt(conversation), messages_of(conversation)[-1]["content"]
        questions = [judge_question(judge, prompt, response, swapped=s) for s in judge.orders]
        return [[*question, *begun] for question in questions]

    return ask


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
