"""An OpenAI-compatible endpoint, by the `openai` client: its retries, its waits, its Retry-After.

Knows statuses. Does not know what is asked, nor whether a reply is of use.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Interval

from pessimal.errors import ConfigError, WorkError, require
from pessimal.explaining.chat.client import Question, Reply, Usage
from pessimal.tables.score_table import storable

OPENAI = "https://api.openai.com/v1"
STOP_AFTER = 5
"""Calls in a row that fail for good, after which the work stops; what was answered is kept."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}
_FILTERS = ("content_filter", "content_policy_violation")  # codes of a filter in front of the model
_ADVICE = {
    401: "The key is wrong: set the environment variable of perturber.api_key_variable anew",
    403: "The key may not use this model: type another perturber.model=NAME, or another key",
    404: "There is no such model or address: perturber.base_url=… mostly ends in /v1, "
    "perturber.model=NAME is the "
    "server's own name (it lists them under /models)",
    "insufficient_quota": "The account's quota is spent: see to it, then type again",
}


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
    """Seconds that the server may be silent in one call."""
    retries: Annotated[int, Ge(0)] = 5
    """How often a failed call is repeated, with growing waits, or after as long as the server
    says."""

    @property
    def address(self) -> str:
        """The endpoint's address, without a / at its end."""
        return (self.base_url or OPENAI).rstrip("/")

    def host(self) -> str:
        """The address's host; ConfigError for what is no address."""
        try:
            parts = urlsplit(self.address)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"perturber.base_url={self.base_url!r} is no address: give it with http:// or "
                f"https:// and up to /v1, "
                f"such as {OPENAI} or http://localhost:8000/v1"
            )
        if parts.username or parts.password:
            raise ConfigError(
                "perturber.base_url holds a user or password, which would be written into results. "
                "Leave it out and name "
                "the variable that holds the key: perturber.api_key_variable=NAME"
            )
        return parts.hostname

    def api_key(self) -> str | None:
        """The key; None where the endpoint is asked without one. ConfigError where it needs one
        that is not set."""
        variable, host = self.api_key_variable, self.host()
        key = os.environ.get(variable, "").strip() if variable else ""
        if not key and variable and host not in _LOOPBACK:
            raise ConfigError(
                f"{self.address} wants a key, and the environment variable {variable} is not set. "
                f"Type: export "
                f"{variable}=...; or name another variable: perturber.api_key_variable=NAME; for a "
                f"server without "
                f"keys any will do: export {variable}=none"
            )
        return key or None


class Endpoint:
    """Sends questions to an endpoint (see `Transport`)."""

    network: ClassVar[Any] = None
    """An httpx2 transport in place of the network; tests put a scripted one here."""

    def __init__(self, options: EndpointOptions):
        """ConfigError for an impossible option, or a key that is missing; MissingExtraError without
        openai's client. Nothing is sent yet."""
        require("openai", why="a language model behind a server")
        self.options, self.usage, self.max_tokens = options, Usage(), options.max_tokens
        self.key = options.api_key()
        self._ever_answered = False
        self._in_a_row = 0
        self._stopped: Exception | None = None
        self._lock = Lock()

    def provenance(self) -> dict:
        """Model, address and sampling options."""
        said = {
            name: getattr(self.options, name) for name in ("model", "temperature", "max_tokens")
        }
        return said | {"base_url": self.options.address}

    def send(self, questions: Sequence[Question], keep: Callable[[int, Reply], None]) -> None:
        """Ask all, at most `concurrency` at once and in order; `keep` hears of each reply as it
        comes.

        Raises:
            ConfigError: a wrong key, model or address.
            WorkError: `STOP_AFTER` requests in a row failed for good.
        """
        import openai

        options = self.options
        network = {"transport": self.network} if self.network else {}

        def work(index: int) -> None:
            if self._stopped is None:
                reply = self._ask(client, questions[index])
                with self._lock:
                    keep(index, reply)

        with (
            openai.OpenAI(
                api_key=self.key
                or "none",  # the client insists on one; servers without keys do not look at it
                base_url=options.address,
                max_retries=options.retries,
                timeout=options.timeout,
                http_client=openai.DefaultHttpxClient(
                    event_hooks={"request": [self._count]}, **network
                ),
            ) as client,
            ThreadPoolExecutor(options.concurrency) as pool,
        ):
            for _ in pool.map(work, range(len(questions))):
                pass
        if self._stopped is not None:
            raise self._stopped

    def _count(self, request) -> None:
        """Called before each request, retries too."""
        with self._lock:
            self.usage["calls"] += 1

    def _ask(self, client, question: Question) -> Reply:
        """One question to its end: a reply, or a failure after all retries."""
        import openai

        options, about_one = self.options, False
        # OpenAI's newer models know only the new name, most other servers only the old one.
        limit = (
            "max_completion_tokens" if options.host().endswith("api.openai.com") else "max_tokens"
        )
        fields = {"model": options.model, "messages": question.sent(), "seed": question.seed}
        fields |= {"temperature": options.temperature, limit: options.max_tokens}
        try:
            sent = {name: value for name, value in fields.items() if value is not None}
            reply = _read(client.chat.completions.create(**sent))
        except openai.APIStatusError as error:
            reply, about_one = self._refusal(error), error.status_code in (400, 403, 422)
        except openai.APITimeoutError:
            reply = Reply(failure=f"no reply within {self.options.timeout:g} s")
        except (openai.OpenAIError, ValueError) as error:
            reason = str(error.__cause__ or error)[:200]
            reply = Reply(failure=f"the connection failed ({type(error).__name__}: {reason})")
        with self._lock:
            if reply.failure is None:
                self.usage.meter(reply)
                self._in_a_row, self._ever_answered = 0, True
            # A request that the server understood and does not take (too long a conversation) says
            # nothing about the next one, once others were answered.
            elif not (about_one and self._ever_answered):
                self._in_a_row += 1
            if self._in_a_row >= STOP_AFTER and self._stopped is None:
                self._stopped = WorkError(
                    f"{self._in_a_row} requests in a row to {self.options.address} failed, the "
                    f"last one so: "
                    f"{reply.failure}. What was answered is kept: once the endpoint answers, type "
                    f"the same command again. "
                    "Where it is overrun, ask more slowly: perturber.concurrency=1"
                )
        return reply

    def _refusal(self, error: Any) -> Reply:
        """What an error status means: a filter's refusal (as Azure gives it), a failure, or the end
        of the work."""
        words, status = self._words(error), error.status_code
        if _is_filter(error):
            return Reply(refusal=f"a content filter refused the request: {words}")
        advice = _ADVICE.get(error.code) or _ADVICE.get(status)
        about_one = status == 403 and self._ever_answered  # not about the key
        if advice and not about_one:
            where = f"{self.options.address} with model {self.options.model!r}"
            self._stopped = self._stopped or ConfigError(f"{where}: {words}. {advice}")
        return Reply(failure=words)

    def _words(self, error: Any) -> str:
        """A status and its reason, without the key."""
        body = error.body
        for name in ("message", "detail", "error"):
            if isinstance(body, dict) and isinstance(body.get(name), str):
                body = body[name]
        reason = " ".join(str(body or error.message).split())[:300]
        return (
            f"status {error.status_code}: {reason.replace(self.key, '***') if self.key else reason}"
        )


def _read(completion: Any) -> Reply:
    """The reply in what the client gives, which checks no types; a failure where it is no chat
    completion, as a proxy's web page is none."""
    try:
        choice, usage = completion.choices[0], getattr(completion, "usage", None)
        texts = [
            choice.message.content,
            getattr(choice.message, "refusal", None),
            choice.finish_reason,
        ]
    except (AttributeError, TypeError, IndexError):
        error = (
            getattr(completion, "error", None)
            or "is perturber.base_url right? It mostly ends in /v1"
        )
        return Reply(failure=f"the endpoint answered with no chat completion: {str(error)[:200]}")
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
    return Reply(
        *(storable(text) if isinstance(text, str) else None for text in texts),
        *(count if isinstance(count, int) and count >= 0 else None for count in counts),
    )


def _is_filter(error: Any) -> bool:
    return error.status_code == 400 and any(
        code in f"{error.code} {error.body}" for code in _FILTERS
    )
