"""One request to a server that scores texts: what each API is sent, and what it answers.

Knows bodies and replies. Does not know how they travel (`server`), conversations, templates, or
what a reward is.

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

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard
from urllib.parse import urlsplit

import numpy as np

from pessimal.errors import ConfigError, ModelError, did_you_mean, require
from pessimal.rewards.rendering import Messages
from pessimal.rewards.server import Server, ServerOptions, shortened

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

RAW: Mapping[str, bool] = {
    "use_activation": False,
    "activation": False,
    "add_special_tokens": False,
}
"""Fields that vLLM is sent so that it gives logits, without softmax or sigmoid, and puts no second
beginning-of-sequence token before a text. `activation` is the older name of the first; versions
that do not know a field pass over it."""
LOGITS = {name: value for name, value in RAW.items() if name != "add_special_tokens"}
"""The same without the last: by default neither messages nor pairs get special tokens."""
SCORES: Mapping[str, bool] = {"raw_scores": True} | LOGITS
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
        require("openai", why="a reward behind a server")
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
            answer = self.post(self.body([inputs[i] for i in group]))
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
        answer = self.post(self.body([messages]))
        try:
            entries = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            # Impossible tokens have null.
            pairs = [(e["token"], float(e["logprob"])) for e in entries if e["logprob"] is not None]
            entries[0]
        except (KeyError, IndexError, TypeError, ValueError):
            text = f"{self.address} answered without log-probabilities ({shortened(answer)})"
            raise ModelError(f"{text}: give another server, or model.kind=judge") from None
        return pairs

    def body(self, inputs: Sequence[Input]) -> dict[str, Any]:
        """Body of one request."""
        name, api, first = self.api, APIS[self.api], inputs[0]
        model = {"model": self.spec.served} if self.spec.served else {}
        if name == "chat":
            return model | self._chat_body(first)
        raw = dict(api.raw) if self.raw else {}
        if is_messages(first):
            if not name.startswith("vllm") or len(inputs) > 1:
                raise ConfigError(f"{name} takes no messages, or only one conversation a request")
            return model | {"messages": first} | {key: raw[key] for key in raw if key in LOGITS}
        if name == "openrlhf":
            inputs = [x if isinstance(x, tuple) else (str(x), "") for x in inputs]
        pairs = len(api.request) == 2
        if isinstance(inputs[0], tuple) != pairs:
            takes = "pairs of a prompt and a response" if pairs else "texts or token ids"
            raise ConfigError(f"endpoint.api={name} takes {takes}, got {shortened(first)}")
        columns = [*map(list, zip(*inputs, strict=True))] if pairs else [list(inputs)]
        body: dict[str, Any] = dict(zip(api.request, columns, strict=True))
        if name == "openrlhf":
            return body | {"labels": [None] * len(inputs)}
        if name == "rerank":
            body["query"] = columns[0][0]
        elif name == "sglang-classify" and isinstance(first, list):
            body = {"input_ids": list(inputs)}
        return model | body | raw

    def _chat_body(self, messages: Input) -> dict[str, Any]:
        turns = messages if is_messages(messages) else [{"role": "user", "content": messages}]
        body = {"messages": turns, self.server.token_limit: 1, "temperature": 0}
        body |= {"logprobs": True, "top_logprobs": TOP}
        if turns[-1]["role"] == "assistant":  # what the answer begins with (vLLM, SGLang)
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return body

    def tokens(self, inputs: Sequence[Input]) -> int | None:
        """Tokens that these send, without what a server's template puts around messages; None
        without a tokenizer."""
        if self.tokenizer is None:
            return None
        total, texts = 0, list[str]()
        for each in inputs:
            if is_messages(each):
                texts += [message["content"] for message in each]
            elif isinstance(each, list):
                total += len(each)
            else:
                texts += [each] if isinstance(each, str) else each
        encoded = self.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        return total + sum(len(ids) for ids in encoded)

    def post(self, body: Mapping[str, Any]) -> Any:
        """The JSON that the server answers, after retries. Raises as `rows`."""
        return self.server.post(self.address, dict(body))

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
    if instead := GONE.get(api):
        raise ConfigError(f"endpoint.api={api} is gone: type {instead} instead")
    if api not in names:
        guess = did_you_mean(api, names)
        raise ConfigError(f"endpoint.api={api}: give one of {', '.join(names)}.{guess}")


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
    require("openai", why="a reward behind a server")
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
