"""An OpenAI-compatible endpoint, by the `openai` client: its retries, its waits, its Retry-After.

Knows statuses and `response_format`. Does not know what is asked, nor whether a reply is of use.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Interval

from pessimal.errors import ConfigError, WorkError
from pessimal.explain.chat.client import Question, Reply, Usage

log = logging.getLogger(__name__)
OPENAI = "https://api.openai.com/v1"
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}
_LONGEST_WAIT = 120  # seconds that the client waits before a retry, at most
_FILTERS = (
    "content_filter",
    "content_policy_violation",
)  # codes of refusals by a filter in front of the model
_ADVICE = {
    401: "The key is wrong: set the environment variable of perturber.api_key_variable anew",
    403: "The key may not use this model: type another perturber.model=NAME, or another key",
    404: "There is no such model or address: perturber.base_url=… mostly ends in /v1, perturber.model=NAME is the "
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
    """Environment variable that holds the key; null sends none. A server on this machine needs none."""
    temperature: Annotated[float, Interval(ge=0, le=2)] | None = 1.0
    """Of sampling; 0 always takes the likeliest token; null sends none, for models that refuse it."""
    max_tokens: Annotated[int, Ge(1)] | None = 1024
    """Most tokens of one answer, with what a model thinks before it; null leaves it to the server."""
    requests_per_minute: Annotated[float, Gt(0)] | None = 300.0
    """Most calls a minute; null does not limit."""
    concurrency: Annotated[int, Ge(1)] = 8
    """Most calls at once."""
    timeout: Annotated[float, Gt(0)] = 60.0
    """Seconds that the server may take to answer one call."""
    retries: Annotated[int, Ge(0)] = 5
    """How often a failed call is repeated, with growing waits, or after as long as the server says."""
    stop_after: Annotated[int, Ge(1)] = 5
    """Calls in a row that fail for good, after which the work stops; what was answered is kept."""

    @property
    def address(self) -> str:
        """The endpoint's address, without a / at its end."""
        return (self.base_url or OPENAI).rstrip("/")

    @property
    def host(self) -> str:
        """The address's host."""
        return urlsplit(self.address).hostname or ""

    def check_address(self) -> None:
        """ConfigError for what is no address."""
        try:
            parts = urlsplit(self.address)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"perturber.base_url={self.base_url!r} is no address: give it with http:// or https:// and up to /v1, "
                f"such as {OPENAI} or http://localhost:8000/v1"
            )
        if parts.username or parts.password:
            raise ConfigError(
                "perturber.base_url holds a user or password, which would be written into results. Leave it out and name "
                "the variable that holds the key: perturber.api_key_variable=NAME"
            )

    def api_key(self) -> str | None:
        """The key; None where the endpoint is asked without one. ConfigError where it needs one that is not set."""
        variable = self.api_key_variable
        key = os.environ.get(variable, "").strip() if variable else ""
        if not key and variable and self.host not in _LOOPBACK:
            raise ConfigError(
                f"{self.address} wants a key, and the environment variable {variable} is not set. Type: export "
                f"{variable}=...; or name another variable: perturber.api_key_variable=NAME; for a server without "
                f"keys any will do: export {variable}=none"
            )
        return key or None


class Endpoint:
    """Sends questions to an endpoint (see `Transport`)."""

    network: ClassVar[Any] = None
    """An httpx2 transport in place of the network; tests put a scripted one here."""

    def __init__(self, options: EndpointOptions):
        """ConfigError for an impossible option, or a key that is missing. Nothing is sent yet."""
        options.check_address()
        self.options, self.usage, self.max_tokens = options, Usage(), options.max_tokens
        self.key = options.api_key()
        self._takes_format: bool | None = None  # `response_format`; None until a request has shown it
        self._ever_answered = False
        self._next = 0.0  # when the next request may go; of all batches, which may be small
        self._in_a_row = 0
        self._stopped: Exception | None = None

    def provenance(self) -> dict:
        """Model, address and sampling options."""
        said = {name: getattr(self.options, name) for name in ("model", "temperature", "max_tokens")}
        return said | {"base_url": self.options.address}

    def send(self, questions: Sequence[Question], keep: Callable[[int, Reply], None]) -> None:
        """Ask all, at most `concurrency` at once; `keep` hears of each reply as it comes.

        Raises:
            ConfigError: a wrong key, model or address.
            WorkError: `stop_after` requests in a row failed for good.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(self._send(questions, keep))
        else:  # a notebook, in whose loop this runs already
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, self._send(questions, keep)).result()
        if self._stopped is not None:
            raise self._stopped

    async def _send(self, questions: Sequence[Question], keep: Callable[[int, Reply], None]) -> None:
        import openai

        options, waiting = self.options, iter(enumerate(questions))
        network = {"transport": self.network} if self.network else {}
        async with openai.AsyncOpenAI(
            api_key=self.key or "none",  # the client insists on one; servers without keys do not look at it
            base_url=options.address,
            max_retries=options.retries,
            timeout=options.timeout,
            http_client=openai.DefaultAsyncHttpxClient(event_hooks={"request": [self._count]}, **network),
        ) as client:

            async def work() -> None:
                for index, question in waiting:
                    if self._stopped is None:
                        keep(index, await self._ask(client, question))

            # As many workers as may be in flight, and not a task a question: they go in order, so that a run of
            # failures is one, and nothing is begun after the stop.
            await asyncio.gather(*(work() for _ in range(min(options.concurrency, len(questions)))))

    async def _count(self, request) -> None:
        """Called before each request, retries too: counts it, and waits until the rate allows it."""
        self.usage["calls"] += 1
        self.usage["retries"] += request.headers.get("x-stainless-retry-count", "0") != "0"
        if per_minute := self.options.requests_per_minute:
            mine = max(time.monotonic(), self._next)
            self._next = mine + 60 / per_minute  # before the wait: the next one queues behind this one
            await asyncio.sleep(mine - time.monotonic())

    async def _ask(self, client, question: Question) -> Reply:
        """One question to its end: a reply, or a failure after all retries."""
        import openai

        about_one = False
        # The client bounds each silence of the server; a reply that trickles in for ever ends here.
        longest = (self.options.retries + 1) * (self.options.timeout + _LONGEST_WAIT)
        try:
            async with asyncio.timeout(longest):
                reply = await self._formatted(client, question)
        except openai.APIStatusError as error:
            reply, about_one = self._refusal(error), error.status_code in (400, 403, 422)
        except (openai.APITimeoutError, TimeoutError):
            reply = Reply(failure=f"no reply within {self.options.timeout:g} s")
        except (openai.OpenAIError, ValueError) as error:
            reason = str(error.__cause__ or error)[:200]
            reply = Reply(failure=f"the connection failed ({type(error).__name__}: {reason})")
        if reply.failure is None:
            self.usage.meter(reply)
            self._in_a_row, self._ever_answered = 0, True
        # A request that the server understood and does not take (too long a conversation) says nothing about the next
        # one, once others were answered.
        elif not (about_one and self._ever_answered):
            self._in_a_row += 1
            if self._in_a_row >= self.options.stop_after:
                message = (
                    f"{self._in_a_row} requests in a row to {self.options.address} failed, the last one so: "
                    f"{reply.failure}. What was answered is kept: once the endpoint answers, type the same command again. "
                    "Where it is overrun, ask more slowly: perturber.requests_per_minute=N perturber.concurrency=1"
                )
                self._stopped = self._stopped or WorkError(message)
        return reply

    async def _formatted(self, client, question: Question) -> Reply:
        """One request with `response_format` where the endpoint takes it; where it does not, once more without. What
        comes back is checked by whoever asks: a server may take the format and not look at it."""
        import openai

        reason = ""
        if self._takes_format is not False:
            try:
                reply = _read(await client.chat.completions.create(**self._fields(question, in_words=False)))
                self._takes_format = True
                return reply
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                if self._takes_format or _is_filter(error):
                    raise
                reason = self._words(error)
        reply = _read(await client.chat.completions.create(**self._fields(question, in_words=True)))
        if self._takes_format is None:  # only now is it known that the format was what it did not take
            self._takes_format = False
            said = "%s takes no response_format (%s): the shape of the answers is put into words, and checked here"
            log.warning(said, self.options.address, reason)
        return reply

    def _fields(self, question: Question, *, in_words: bool) -> dict[str, Any]:
        options, shape = self.options, question.shape
        # OpenAI's newer models know only the new name, most other servers only the old one.
        new = options.host.endswith("api.openai.com")
        form = {"name": shape.name, "strict": True, "schema": shape.schema}
        asked = {
            "model": options.model,
            "messages": question.sent(in_words=in_words),
            "seed": question.seed,
            "temperature": options.temperature,
            "max_completion_tokens" if new else "max_tokens": options.max_tokens,
            "response_format": None if in_words else {"type": "json_schema", "json_schema": form},
        }
        return {name: value for name, value in asked.items() if value is not None}

    def _refusal(self, error: Any) -> Reply:
        """What an error status means: a filter's refusal (as Azure gives it), a failure, or the end of the work."""
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
        return f"status {error.status_code}: {reason.replace(self.key, '***') if self.key else reason}"


def _read(completion: Any) -> Reply:
    """The reply in what the client gives, which checks no types; a failure where it is no chat completion, as a proxy's
    web page is none."""
    try:
        choice, usage = completion.choices[0], getattr(completion, "usage", None)
        texts = [choice.message.content, getattr(choice.message, "refusal", None), choice.finish_reason]
    except (AttributeError, TypeError, IndexError):
        error = getattr(completion, "error", None) or "is perturber.base_url right? It mostly ends in /v1"
        return Reply(failure=f"the endpoint answered with no chat completion: {str(error)[:200]}")
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
    return Reply(
        *(text if isinstance(text, str) else None for text in texts),
        *(count if isinstance(count, int) and count >= 0 else None for count in counts),
    )


def _is_filter(error: Any) -> bool:
    return error.status_code == 400 and any(code in f"{error.code} {error.body}" for code in _FILTERS)
