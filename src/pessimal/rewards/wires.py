"""One request to a server that scores texts: what each API is sent, and what it answers.

Requests go by the `openai` client: its retries, its waits, its Retry-After. Knows addresses, bodies
and replies. Does not know conversations, templates, or what a reward is.

Sources of the shapes (vLLM takes token ids at `/classify` from 0.15 on; nothing older was read):
    https://docs.vllm.ai/en/v0.15.0/examples/pooling/classify/ and
    .../v0.18.1/examples/pooling/pooling/; vllm-project/vllm,
    vllm/entrypoints/pooling/{base,classify,pooling,scoring}/protocol.py; sgl-project/sglang, its
    page on native APIs (`/classify`), python/sglang/srt/entrypoints/openai/protocol.py
    (`ScoringRequest`), pull request 22118 (`/v1/score` of sequence classifiers);
    https://platform.openai.com/docs/api-reference/chat/create (`logprobs`, `top_logprobs`).
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from pessimal.errors import ConfigError, ModelError, WorkError, did_you_mean, require
from pessimal.rewards.spec import EndpointSpec

PATHS = {
    "vllm-classify": "/classify",
    "vllm-pooling": "/pooling",
    "vllm-score": "/score",
    "sglang-classify": "/classify",
    "sglang-score": "/v1/score",
    "chat": "/v1/chat/completions",
}
"""Where each API (`EndpointSpec.api`) is."""
RAW: Mapping[str, bool] = {
    "use_activation": False,
    "activation": False,
    "add_special_tokens": False,
}
"""Fields that vLLM is sent so that it gives logits, without softmax or sigmoid, and puts no second
beginning-of-sequence token before a text. `activation` is the older name of the first; versions
that do not know a field pass over it."""
TOP = 20
"""Most log-probabilities of a position that chat APIs give."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}
_ADVICE = {
    401: "The key is wrong: set the environment variable of model.endpoint.api_key_variable anew",
    403: "The key may not use this model: type another model.endpoint.served=NAME, or another key",
    404: "There is no such model or API at this address: see model.endpoint.api, and "
    "model.endpoint.served, which is the "
    "server's own name of the model (it lists them under /v1/models)",
    405: "This server has another API at this address: see model.endpoint.api",
    "insufficient_quota": "The account's quota is spent: see to it, then type again",
}

Messages = list[dict[str, str]]
Input = str | list[int] | tuple[str, str] | Messages
"""A text, token ids, a prompt and a response (vllm-score), or messages that the server puts through
its template."""


@dataclass
class Wire:
    """A server, asked by one of the APIs of `PATHS`. Safe to use from several threads."""

    spec: EndpointSpec
    tokenizer: object = None
    """Counts the tokens of texts; None counts none."""
    fields: Mapping[str, Any] = field(default_factory=lambda: dict(RAW))
    """Further fields of each request to vLLM; {} leaves all to the server's defaults."""
    labels: tuple[int, ...] = ()
    """For sglang-score: ids of the tokens whose probabilities are the outputs; empty for a sequence
    classifier."""
    network: ClassVar[Any] = None
    """An httpx2 transport in place of the network; for tests."""

    def __post_init__(self):
        """ConfigError for an impossible address or API, or a key that is missing. Nothing is sent
        yet."""
        if self.spec.api not in PATHS:
            raise ConfigError(
                f"model.endpoint.api={self.spec.api!r} is none of {', '.join(PATHS)}."
                f"{did_you_mean(self.spec.api, PATHS)}"
            )
        require("openai", why="a reward behind a server")

        self.key = api_key(self.spec)

    @property
    def address(self) -> str:
        """Where requests go."""
        root, path = root_of(self.spec), PATHS[self.spec.api]
        if (
            self.spec.api == "chat" and urlsplit(root).path
        ):  # a provider's address, given up to its /v1
            return root + path.removeprefix("/v1")
        return root.removesuffix("/v1") + path

    @property
    def several(self) -> bool:
        """Whether a request takes several inputs (other than messages)."""
        return self.spec.api != "chat"

    def scores(self, inputs: Sequence[Input]) -> np.ndarray:
        """Outputs float64 (n, outputs) of texts or token ids, exactly as they are, in one request.

        Raises:
            ConfigError: the server does not know this API, model or key.
            ModelError: its answer is of no use: no JSON, another number of rows, not numbers.
            WorkError: no answer after all retries.
        """
        rows = self.rows(inputs)
        if not np.isfinite(rows).all():
            bad = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            raise ModelError(
                f"{self.address} gives {rows[bad].tolist()} for input {bad + 1} of {len(rows)}"
            )
        return rows

    def rows(self, inputs: Sequence[Input]) -> np.ndarray:
        """As `scores`, with NaN for what is null or NaN in the answer."""
        if self.spec.api == "chat":
            raise ConfigError(
                "model.endpoint.api=chat gives no scores, but log-probabilities of tokens: "
                "`Wire.top`"
            )
        if not len(inputs):
            return np.empty((0, 0))
        return self._read(self.post(self.body(inputs)), len(inputs))

    def top(self, messages: Messages) -> list[tuple[str, float]]:
        """The likeliest next tokens (at most `TOP`) and their log-probabilities in nats, of a chat.
        Raises as `scores`."""
        answer = self.post(self.body([messages]))
        try:
            position = answer["choices"][0]["logprobs"]["content"][0]
            tops = [(entry["token"], float(entry["logprob"])) for entry in position["top_logprobs"]]
        except (KeyError, IndexError, TypeError, ValueError):
            raise ModelError(
                f"{self.address} answered without log-probabilities of its first token "
                f"({_short(answer)}), and a judge is "
                "read off these. Use a server that gives them (vLLM, SGLang, OpenAI), or load the "
                "judge here: "
                "model.kind=judge model.path=DIR_OR_ID"
            ) from None
        return tops

    def body(self, inputs: Sequence[Input]) -> dict[str, Any]:
        """What one request sends."""
        api, first = self.spec.api, inputs[0]
        model = {"model": self.spec.served} if self.spec.served else {}
        pair, ids = isinstance(first, tuple), isinstance(first, list) and not _is_messages(first)
        if pair != (api == "vllm-score"):
            takes = (
                "pairs of a prompt and a response" if api == "vllm-score" else "texts or token ids"
            )
            raise ConfigError(f"model.endpoint.api={api} takes {takes}, got {_short(first)}")
        if api == "chat":
            return model | self._chat_body(first)
        if _is_messages(first):
            if not api.startswith("vllm") or len(inputs) > 1:
                raise ConfigError(
                    f"{api} takes no messages, or one conversation a request: give its model's "
                    f"tokenizer"
                )
            no_bos = {
                name: value for name, value in self.fields.items() if name != "add_special_tokens"
            }
            return model | {"messages": first} | no_bos  # whose default is to add none
        if pair:
            raw = {
                name: value for name, value in self.fields.items() if name != "add_special_tokens"
            }
            return (
                model
                | {"text_1": [pair[0] for pair in inputs], "text_2": [pair[1] for pair in inputs]}
                | raw
            )
        if api == "sglang-classify":
            return model | {"input_ids" if ids else "text": list(inputs)}
        if api == "sglang-score":
            body = model | {
                "query": [] if ids else "",
                "items": list(inputs),
                "apply_softmax": False,
            }
            return body | {"label_token_ids": list(self.labels)} if self.labels else body
        return model | {"input": list(inputs)} | dict(self.fields)

    def _chat_body(self, messages: Input) -> dict[str, Any]:
        if not _is_messages(messages):
            messages = [{"role": "user", "content": messages}]
        # OpenAI's newer models know only the new name, most other servers only the old one.
        openai = (urlsplit(root_of(self.spec)).hostname or "").endswith("api.openai.com")
        limit = "max_completion_tokens" if openai else "max_tokens"
        body = {
            "messages": messages,
            limit: 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": TOP,
        }
        if messages[-1]["role"] == "assistant":  # what the answer begins with (vLLM, SGLang)
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return body

    def tokens(self, inputs: Sequence[Input]) -> int | None:
        """Tokens that these send, without what a server's template puts around messages; None
        without a tokenizer."""
        if self.tokenizer is None:
            return None
        total = 0
        for given in inputs:
            if isinstance(given, list) and not _is_messages(given):
                total += len(given)
                continue
            texts = [given] if isinstance(given, str) else given
            texts = [text["content"] if isinstance(text, dict) else text for text in texts]
            total += sum(map(len, self.tokenizer(texts, add_special_tokens=False)["input_ids"]))
        return total

    def post(self, body: Mapping[str, Any]) -> Any:
        """The JSON that the server answers, after retries. Raises as `scores`."""
        import openai

        try:
            answer = self._client.post(self.address, cast_to=object, body=dict(body))
        except openai.APIStatusError as error:
            words = self._words(error)
            advice = _ADVICE.get(error.code) or _ADVICE.get(error.status_code)
            if advice:
                raise ConfigError(f"{self.address}: {words}. {advice}") from error
            kind = (
                ModelError
                if error.status_code < 500 and error.status_code not in (408, 409, 429)
                else WorkError
            )
            raise kind(f"{self.address} refuses a request: {words}") from error
        except openai.APITimeoutError as error:
            raise WorkError(
                f"{self.address} gave no answer within {self.spec.timeout:g} s: give it longer "
                "(model.endpoint.timeout=SECONDS), or ask for less at once "
                "(model.endpoint.batch_size, .concurrency)"
            ) from error
        except (openai.OpenAIError, ValueError) as error:
            if isinstance(error, json.JSONDecodeError):
                raise ModelError(f"{self.address} answered with broken JSON: {error}") from error
            reason = " ".join(str(error.__cause__ or error).split())[:200]
            raise WorkError(
                f"the connection to {self.address} failed ({type(error).__name__}: {reason})"
            ) from error
        if not isinstance(answer, dict | list):
            raise ModelError(
                f"{self.address} answered with no JSON object ({_short(answer)}): is "
                f"model.endpoint.url the server's own "
                "address, and not that of a web page before it?"
            )
        return answer

    @cached_property
    def _client(self):
        import openai

        network = {"transport": self.network} if self.network else {}
        return openai.OpenAI(
            api_key=self.key
            or "none",  # the client insists on one; servers without keys do not look at it
            base_url=root_of(self.spec),
            max_retries=self.spec.retries,
            timeout=self.spec.timeout,
            http_client=openai.DefaultHttpxClient(**network),
        )

    def _read(self, answer: Any, n: int) -> np.ndarray:
        """Outputs (n, outputs) in the order of the inputs, whatever the order of the answer."""
        api = self.spec.api
        try:
            if api == "sglang-score":
                rows = answer["scores"]
            else:
                entries = answer["data"] if api.startswith("vllm") else answer
                entries = [entries] if isinstance(entries, dict) else entries
                if all("index" in entry for entry in entries):
                    entries = sorted(entries, key=lambda entry: int(entry["index"]))
                    if [int(entry["index"]) for entry in entries] != list(range(len(entries))):
                        raise ModelError(
                            f"{self.address} numbers its answers "
                            f"{[entry['index'] for entry in entries][:8]}, and not 0 to "
                            f"{len(entries) - 1}"
                        )
                rows = [_outputs(api, entry) for entry in entries]
            rows = [[np.nan if value is None else float(value) for value in row] for row in rows]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise ModelError(
                f"{self.address} answers not as model.endpoint.api={api} does: {_short(answer)}. "
                f"See which API the server "
                f"speaks: {', '.join(PATHS)}"
            ) from None
        if len(rows) != n:
            raise ModelError(f"{self.address} gives {len(rows)} answers for {n} inputs")
        if len({len(row) for row in rows}) != 1 or not rows[0]:
            raise ModelError(
                f"{self.address} gives {min(map(len, rows))} to {max(map(len, rows))} outputs an "
                f"input: one number for "
                "every token, perhaps. Serve the model as a sequence classifier (vLLM: --convert "
                "classify)"
            )
        return np.array(rows, dtype=np.float64)

    def _words(self, error: Any) -> str:
        """A status and its reason, without the key."""
        body = error.body
        for name in ("error", "message", "detail"):
            if isinstance(body, dict) and name in body:
                body = body[name]
        reason = " ".join(str(body or error.message).split())[:300]
        return (
            f"status {error.status_code}: {reason.replace(self.key, '***') if self.key else reason}"
        )


def root_of(spec: EndpointSpec) -> str:
    """The server's address without a / at its end; ConfigError for what is none."""
    address = (spec.url or "").rstrip("/")
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"model.endpoint.url={spec.url!r} is no address: give it with http:// or https://, "
            f"such as "
            "http://localhost:8000"
        )
    if parts.username or parts.password:
        raise ConfigError(
            "model.endpoint.url holds a user or password, which would be written into results. "
            "Leave it out and name "
            "the variable that holds the key: model.endpoint.api_key_variable=NAME"
        )
    return address


def api_key(spec: EndpointSpec) -> str | None:
    """The key; None where the server is asked without one. ConfigError where it needs one that is
    not set."""
    variable, host = spec.api_key_variable, urlsplit(root_of(spec)).hostname
    key = os.environ.get(variable, "").strip() if variable else ""
    if not key and variable and host not in _LOOPBACK:
        raise ConfigError(
            f"{spec.url} wants a key, and the environment variable {variable} is not set. Type: "
            f"export {variable}=...; or "
            "name another variable: model.endpoint.api_key_variable=NAME; for a server without "
            "keys type "
            "model.endpoint.api_key_variable=null"
        )
    return key or None


def _outputs(api: str, entry: Mapping[str, Any]) -> Sequence[Any]:
    """The outputs of one input, as this API says them."""
    if api == "vllm-classify":
        return entry["probs"]
    if api == "vllm-score":
        return [entry["score"]]
    outputs = entry["embedding" if api == "sglang-classify" else "data"]
    if isinstance(outputs, str):
        raise TypeError  # base64, which is not asked for
    # One row a token where the server reads every position (`token_classify`): the model's reward
    # is at the last.
    return outputs[-1] if outputs and isinstance(outputs[0], list) else outputs


def _is_messages(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and isinstance(given[0], Mapping)


def _short(answer: Any) -> str:
    text = " ".join(str(answer).split())
    return repr(text if len(text) <= 120 else text[:117] + "...")
