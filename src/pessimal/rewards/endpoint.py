"""A server that scores texts, as a reward: vLLM, SGLang, OpenRLHF, a reranker, or a chat that is
asked to judge.

Knows how conversations become requests, what each API is sent and answers, and rewards. Does not
know how requests travel (`server`).

Sources of the shapes (vLLM takes token ids at `/classify` from 0.15 on; nothing older was read):
    https://docs.vllm.ai/en/v0.15.0/examples/pooling/classify/ and
    .../v0.18.1/examples/pooling/pooling/; vllm-project/vllm,
    vllm/entrypoints/pooling/{base,classify,pooling,scoring}/protocol.py; sgl-project/sglang, its
    page on native APIs (`/classify`);
    https://platform.openai.com/docs/api-reference/chat/create (`logprobs`, `top_logprobs`);
    OpenRLHF/OpenRLHF, openrlhf/cli/serve_rm.py and openrlhf/utils/remote_rm_utils.py
    (`/get_reward`); michaelfeil/infinity, infinity_server.py and its pymodels (`/rerank`,
    `raw_scores`).
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast
from urllib.parse import urlsplit

import numpy as np
from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.conversation import Conversation
from pessimal.errors import ConfigError, ModelError, did_you_mean, require
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
from pessimal.rewards.server import Server, ServerOptions, shortened
from pessimal.rewards.spec import ModelSpec
from pessimal.texts import storable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_log = logging.getLogger(__name__)

RAW = dict.fromkeys(("use_activation", "activation", "add_special_tokens"), False)
"""Fields that vLLM is sent so that it gives logits, without softmax or sigmoid, and puts no second
beginning-of-sequence token before a text. `activation` is the older name of the first; versions
that do not know a field pass over it."""
LOGITS = {"use_activation": False, "activation": False}
"""The same without the last: by default neither messages nor pairs get special tokens."""
SCORES = {"raw_scores": True} | LOGITS
"""The same of rerankers; the first is Infinity's name, whose default is a sigmoid."""


class Api(NamedTuple):
    """The request and the answer of one API."""

    path: str
    forms: tuple[str, ...]
    """Forms of whole inputs that it takes; none where it gives no rewards of these."""
    request: tuple[str, ...]
    """Field that holds the inputs; of pairs, the fields of prompts and responses."""
    rows: str = ""
    """Field of the answer that holds one row per input; empty where the answer is the rows."""
    outputs: str = ""
    """Field of a row that holds its outputs; empty where a row is its outputs."""
    raw: Mapping[str, bool] = MappingProxyType({})
    """Further fields, by which it gives logits."""


PAIRS, MESSAGES = ("pairs",), ("ids", "messages", "text")
APIS = {
    "vllm-classify": Api("/classify", MESSAGES, ("input",), "data", "probs", RAW),
    "vllm-pooling": Api("/pooling", MESSAGES, ("input",), "data", "data", RAW),
    "vllm-score": Api("/score", PAIRS, ("text_1", "text_2"), "data", "score", LOGITS),
    "sglang-classify": Api("/classify", ("ids", "text"), ("text",), "", "embedding"),
    "openrlhf": Api("/get_reward", ("text",), ("query", "prompts"), "rewards"),
    "rerank": Api("/rerank", PAIRS, ("query", "documents"), "results", "relevance_score", SCORES),
    "chat": Api("/v1/chat/completions", (), ("messages",)),
}
GONE = {
    **dict.fromkeys(("sglang-score", "sglang-embeddings"), "endpoint.api=sglang-classify"),
    "infinity-classify": "endpoint.api=rerank",
    **dict.fromkeys(
        ("tei-rerank", "tei-predict"),
        "model.kind=callable, with a function of your own that asks the server,",
    ),
}
RECOGNISED = (
    ("vllm-classify", {"/classify", "/get_reward"}),  # `pessimal serve`
    ("openrlhf", {"/get_reward"}),
    ("sglang-classify", {"/classify", "/generate"}),  # which has /tokenize too
    ("vllm-classify", {"/classify", "/tokenize"}),
    ("vllm-pooling", {"/pooling", "/tokenize"}),
    ("rerank", {"/rerank", "/classify", "/embeddings"}),  # Infinity
    ("rerank", {"/rerank"}),
)
"""APIs of servers that list these paths; the first that fits."""
TOP = 20
"""Most log-probabilities of a position that chat APIs give."""
Input = str | list[int] | tuple[str, str] | Messages
"""A text, token ids, a prompt and a response (vllm-score), or messages that the server puts through
its template."""


@dataclass
class Wire:
    """A server, asked by one of the APIs of `APIS`. Safe to use from several threads."""

    spec: ServerOptions
    tokenizer: "PreTrainedTokenizerBase | None" = None
    nulls: int = field(default=0, init=False)
    """Inputs so far for which the server wrote null."""
    raw: bool = True
    """Ask for logits and no added special tokens; False leaves that to the server's defaults."""

    def __post_init__(self) -> None:
        """ConfigError for an impossible address or API, or a key that is missing. Nothing is sent
        yet."""
        check_api(str(self.spec.api), APIS)
        require("openai", purpose="a reward behind a server")
        self.api, self.server = str(self.spec.api), server_of(self.spec)

    @property
    def address(self) -> str:
        """Where requests go."""
        root, path = self.server.address, APIS[self.api].path
        # The address of a provider of chats is given up to its /v1.
        if self.api == "chat" and urlsplit(root).path:
            return root + path.removeprefix("/v1")
        return root.removesuffix("/v1") + path

    def rows(self, inputs: Sequence[Input]) -> np.ndarray:
        """Outputs float64 (n, outputs) of inputs as they are; NaN for what is null or NaN.

        Raises:
            ConfigError: the server does not know this API, model or key.
            ModelError: its answer is of no use: no JSON, another number of rows, not numbers.
            WorkError: no answer after all retries.
        """
        if not len(inputs):
            return np.empty((0, 0))
        rows: dict[int, np.ndarray] = {}
        for group in self.requests(inputs):
            answer = self.server.post(self.address, self.body([inputs[i] for i in group]))
            rows |= dict(zip(group, self._read(answer, len(group)), strict=True))
        return np.array([rows[i] for i in range(len(inputs))])

    def requests(self, inputs: Sequence[Input]) -> list[list[int]]:
        """Numbers of the inputs of each request: rerankers take one prompt each."""
        groups: dict[str, list[int]] = {}
        for number, each in enumerate(inputs):
            groups.setdefault(str(each[0]) if self.api == "rerank" else "", []).append(number)
        return list(groups.values())

    def top(self, messages: Messages) -> list[tuple[str, float]]:
        """The likeliest next tokens (at most `TOP`) and their log-probabilities in nats, of a chat.
        Raises as `rows`."""
        answer = self.server.post(self.address, self.body([messages]))
        try:
            entries = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            entries[0]
            # Impossible tokens have null.
            return [(e["token"], float(e["logprob"])) for e in entries if e["logprob"] is not None]
        except (KeyError, IndexError, TypeError, ValueError):
            text = f"{self.address} answered without log-probabilities ({shortened(answer)})"
            raise ModelError(f"{text}: give another server, or model.kind=judge") from None

    def body(self, inputs: Sequence[Input]) -> dict[str, Any]:
        """Body of one request."""
        name, api, first = self.api, APIS[self.api], inputs[0]
        body: dict[str, Any] = {"model": self.spec.served} if self.spec.served else {}
        if name == "chat":
            body |= {"messages": first, self.server.token_limit: 1, "temperature": 0}
            body |= {"logprobs": True, "top_logprobs": TOP}
            if cast(Messages, first)[-1]["role"] == "assistant":  # the answer's beginning
                body |= {"continue_final_message": True, "add_generation_prompt": False}
            return body
        raw = dict(api.raw) if self.raw else {}
        if is_messages(first):
            if not name.startswith("vllm") or len(inputs) > 1:
                raise ConfigError(f"{name} takes no messages, or only one conversation a request")
            return body | {"messages": first} | {key: raw[key] for key in raw if key in LOGITS}
        if name == "openrlhf":
            inputs = [x if isinstance(x, tuple) else (str(x), "") for x in inputs]
            body = {"labels": [None] * len(inputs)}
        pairs = len(api.request) == 2
        if isinstance(inputs[0], tuple) != pairs:
            form = "pairs of a prompt and a response" if pairs else "texts or token ids"
            raise ConfigError(f"endpoint.api={name} takes {form}, got {shortened(first)}")
        columns = [*map(list, zip(*inputs, strict=True))] if pairs else [list(inputs)]
        if name == "sglang-classify" and isinstance(first, list):
            return body | {"input_ids": columns[0]}
        body |= dict(zip(api.request, columns, strict=True))
        if name == "rerank":
            body["query"] = columns[0][0]
        return body | raw

    def tokens(self, inputs: Sequence[Input]) -> int | None:
        """Tokens that these send, without what a server's template puts around messages; None
        without a tokenizer."""
        if self.tokenizer is None:
            return None
        texts = list[str]()
        for each in inputs:
            if is_messages(each):
                texts += [message["content"] for message in each]
            elif not isinstance(each, list):
                texts += [each] if isinstance(each, str) else each
        encoded = self.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        ids = [each for each in inputs if isinstance(each, list) and not is_messages(each)]
        return sum(map(len, [*ids, *encoded]))

    def _read(self, answer: Any, n: int) -> np.ndarray:
        """Outputs (n, outputs) in the order of the inputs, whatever the order of the answer."""
        api = APIS[self.api]
        try:
            entries = answer[api.rows] if api.rows else answer
            entries = [entries] if isinstance(entries, dict) else entries
            if all(isinstance(entry, dict) and "index" in entry for entry in entries):
                numbered = {int(entry["index"]): entry for entry in entries}
                entries = [numbered[number] for number in range(len(entries))]
            rows = [_outputs(entry[api.outputs] if api.outputs else entry) for entry in entries]
            self.nulls += sum(None in row for row in rows)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            text = f"{self.address} answers not as endpoint.api={self.api}: {shortened(answer)}"
            raise ModelError(f"{text}. Give another of {', '.join(APIS)}") from None
        if len(rows) != n:
            raise ModelError(f"{self.address} gives {len(rows)} answers for {n} inputs")
        if len({len(row) for row in rows}) != 1 or not rows[0]:
            counts = f"{min(map(len, rows))} to {max(map(len, rows))} outputs"
            advice = "serve a sequence classifier (vLLM: --convert classify)"
            raise ModelError(f"{self.address} gives inputs {counts}: {advice}")
        return np.array(rows, dtype=np.float64)  # None as NaN


def _outputs(entry: Any) -> list[float | None]:
    """The outputs of one input: a number, or several; None for null. Of one row per token
    (`token_classify`) the last, which holds the model's reward."""
    entry = entry if isinstance(entry, list) else [entry]
    entry = entry[-1] if entry and isinstance(entry[0], list) else entry
    return [None if value is None else float(value) for value in entry]


def forms_of(api: str | None) -> tuple[str, ...]:
    """The forms of whole inputs that an API takes. ConfigError where it gives no rewards of
    these."""
    check_api(str(api), [name for name in APIS if APIS[name].forms])
    return APIS[str(api)].forms


def check_api(api: str, names: Collection[str]) -> None:
    """ConfigError where an API is none of these."""
    if api not in names:
        advice = f"give one of {', '.join(names)}.{did_you_mean(api, names)}"
        advice = f"it is gone: type {GONE[api]} instead" if api in GONE else advice
        raise ConfigError(f"endpoint.api={api}: {advice}")


def server_of(spec: ServerOptions) -> Server:
    """The server of a spec; nothing is sent yet."""
    return Server(spec.url or "", spec.api_key_variable, spec.timeout, spec.retries)


def recognised(spec: ServerOptions) -> ServerOptions:
    """The spec with the API that its server speaks, where none is given: by the paths that it
    lists, one request or two.

    ConfigError where it lists none that is known.
    """
    if spec.api is not None:
        return spec
    require("openai", purpose="a reward behind a server")
    server = server_of(replace(spec, retries=min(spec.retries, 1)))
    root = server.address.removesuffix("/v1")
    listed = server.get(f"{root}/openapi.json")
    paths = set(listed.get("paths", ())) if isinstance(listed, dict) else set()
    for api, needs in RECOGNISED:
        if needs <= paths:
            _log.info("%s speaks %s (endpoint.api)", server.address, api)
            return replace(spec, api=api)
    advice = f"type endpoint.api=…, of {', '.join(APIS)}; of others see docs/kinds/callable.md"
    raise ConfigError(f"{server.address} does not say what it speaks: {advice}")


def is_messages(value: object) -> TypeGuard[Messages]:
    """Whether an input is a conversation."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


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
    """The cost of asking a server."""

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
    """Probability of a judge's answers, all of them together, as far as its server says."""

    questions: list[tuple[float, float, str]] = field(default_factory=list)
    """Probability of those that the server gives, the most of the others, and the likeliest other
    token."""
    reported: bool = False
    off: float = 0.0
    """The most by which spellings that are not among the likeliest tokens may move a reward."""

    def add(self, top: list[tuple[str, float]], answers: Sequence[str], off: float = 0) -> None:
        """Count a question with the likeliest tokens that the server gave."""
        instead = next((token for token, _ in top if token not in answers), "")
        self.questions.append((*sum_answers(top, answers), instead))
        self.off = max(self.off, off if math.isfinite(off) else 0.0)

    def take(self) -> dict[str, Any]:
        """The most that the answers may have together, as a table records it of a local judge; it
        begins anew then."""
        totals = [(listed + more, instead) for listed, more, instead in self.questions]
        self.questions.clear()
        mean, (smallest, instead) = float(np.mean([total for total, _ in totals])), min(totals)
        return {"answers": {"mean": mean, "least": smallest, "instead": storable(instead)}}

    def report(self, address: str) -> None:
        """Log the mean, once; warned of below .5, or where it is unknown, and where a reward may be
        off by .1."""
        if not self.questions or self.reported:
            return
        self.reported = True
        listed, more = np.mean([shares[:2] for shares in self.questions], axis=0)
        if listed + more < FEW:
            warn_of_rare(address, listed + more, min(self.questions)[2])
        elif listed < FEW:
            share = f"an unknown probability together ({listed:.2g} to {listed + more:.2g})"
            _log.warning("%s: the judge's answers have %s", address, share)
        else:
            share = f"a probability of {listed + more:.2g} together"
            _log.info("%s: the judge's answers have %s", address, share)
        if self.off > 0.1:
            message = "%s: spellings beyond the %d likeliest tokens may move a reward by up to %.2f"
            _log.warning(message, address, TOP, self.off)


@dataclass(frozen=True)
class EndpointReward(TextReward):
    """A server that gives rewards of conversations. Keeps nothing:
    `pessimal.scoring.texts.KeptRewards` does, by content."""

    spec: EndpointSpec
    wire: Wire
    inputs: Inputs
    """Inputs that are sent for a conversation: one input, or two where a judge compares in both
    orders."""
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
        batches = [*chain(*self._batches(conversations), *self._batches(again))]
        requests = sum(len(self.wire.requests(inputs)) for inputs in batches)
        tokens, price = self.wire.tokens([*chain(*batches)]), self.spec.endpoint.price
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
            self.answers.add(top, [*judge.ratings, *judge.positive, *judge.negative], off)
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
    wire, is_judge = Wire(options, tokenizer), options.api == "chat"
    if spec.output is not None and not isinstance(spec.output, int):
        raise ConfigError(f"model.output={spec.output!r}: a server's outputs are counted from 0")
    if not is_judge and judge != QuestionOptions():
        raise ConfigError(f"model.judge goes with endpoint.api=chat, not with {options.api}")
    inputs, alone = (_questions(spec), True) if is_judge else _make_inputs(wire.api, tokenizer)
    reading: dict[str, Any] = {"api": options.api, "output": spec.output}
    reading["judge"] = asdict(judge) if is_judge else None
    return EndpointReward(
        spec=spec,
        # A server does not say more about its weights.
        weights_digest=_digest({"url": wire.server.address, "served": options.served}),
        config_digest=_digest(reading),
        **about_texts(spec, tokenizer),
        wire=wire,
        inputs=inputs,
        batch_size=1 if alone else options.batch_size,
    )


def _make_inputs(api: str, tokenizer: "PreTrainedTokenizerBase | None") -> tuple[Inputs, bool]:
    """Inputs of a classifier for conversations, and whether they are messages."""
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
    """Question to a chat about a conversation."""
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
