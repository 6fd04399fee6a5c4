"""Questions to an OpenAI-compatible endpoint (`pessimal.rewards.server`).

Does not know what is asked, nor whether a reply is of use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval

from pessimal.errors import ConfigError, ModelError, WorkError, require
from pessimal.explaining.chat.client import Question, Reply, Usage
from pessimal.rewards.server import STOP_AFTER, OptionNames, Server, status_of
from pessimal.tables.score_table import storable

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


@dataclass(kw_only=True)
class EndpointOptions:
    """Which endpoint is asked, and how."""

    model: str
    """The model's name at the endpoint."""
    base_url: str | None = None
    """Address of the endpoint, such as http://localhost:8000/v1; null is OpenAI's."""
    api_key_variable: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key; null sends none. A server on this machine needs
    none."""
    temperature: Annotated[float, Interval(ge=0, le=2)] | None = 1.0
    """Of sampling; 0 always takes the likeliest token; null sends none, for models that refuse
    it."""
    max_tokens: Annotated[int, Ge(1)] | None = 1024
    """Most tokens of one answer, with what a model thinks before it; null leaves it to the
    server."""
    concurrency: Annotated[int, Ge(1)] = 8
    """Most calls at once."""
    timeout: Annotated[float, Gt(0)] = 60.0
    """Seconds of one call, from its beginning to the last byte of its answer. Each of `retries` has
    as many."""
    retries: Annotated[int, Ge(0)] = 5
    """How often a failed call is repeated, with growing waits, or after as long as the server
    says."""


class Endpoint:
    """Sends questions to an endpoint (see `Transport`)."""

    def __init__(self, options: EndpointOptions):
        """ConfigError for an impossible option, or a key that is missing; MissingExtraError without
        openai's client. Nothing is sent yet."""
        require("openai", why="a language model behind a server")
        self.options, self.usage, self.max_tokens = options, Usage(), options.max_tokens
        url, key = options.base_url or OPENAI, options.api_key_variable
        self.server = Server(url, key, options.timeout, options.retries, OPTIONS, self._count)
        self._lock = Lock()

    def provenance(self) -> dict[str, Any]:
        """Model, address and sampling options."""
        names = ("model", "temperature", "max_tokens")
        sampling = {name: getattr(self.options, name) for name in names}
        return sampling | {"base_url": self.server.address}

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
        why = str(error or "is perturber.base_url right? It mostly ends in /v1")[:200]
        raise ModelError(f"the endpoint answered with no chat completion: {why}") from None
    text, refusal, reason = (storable(each) if isinstance(each, str) else None for each in texts)
    read, written = (n if isinstance(n, int) and n >= 0 else None for n in counts)
    return Reply(text, refusal, reason, read, written)
