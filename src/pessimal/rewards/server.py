"""A server that takes and gives JSON, asked by the `openai` client: its retries, its growing waits,
its Retry-After.

Knows addresses, keys, statuses, and how many requests are under way. Does not know what is asked,
nor what an answer is worth.
"""

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from annotated_types import Ge
from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.errors import ConfigError, ModelError, WorkError
from pessimal.options import Count, Options
from pessimal.progress import call_within

if TYPE_CHECKING:
    import openai

STOP_AFTER = 5
"""Requests in a row that fail for good, after which the work stops; what was answered is kept."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}
_ABOUT_ONE = (400, 403, 422)
"""Statuses of a request that was understood and is not taken, such as too long a conversation."""

RequestFailure = ConfigError | ModelError | WorkError
Item = TypeVar("Item")
Answer = TypeVar("Answer")


@options_dataclass
class ServerOptions(Options):
    """A server that scores texts."""

    _prefix: ClassVar[str] = "endpoint"

    url: str | None = None
    """Its address, such as http://localhost:8000."""
    api: str | None = None
    """Its API: vllm-classify, vllm-pooling, vllm-score, sglang-classify, openrlhf (/get_reward),
    rerank (Infinity, Cohere, Jina, vLLM), or chat (an OpenAI-compatible chat with
    log-probabilities, which is asked as `model.judge` says); null asks the server once."""
    served: str | None = None
    """The model's name there."""
    api_key_variable: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key; a server on this machine needs none."""
    batch_size: Count = 32
    """Texts a request, where the API takes several."""
    concurrency: Count = 8
    """Most requests at once."""
    timeout: Annotated[float, Ge(1e-3)] = 60.0
    """Seconds of one request, from its beginning to the last byte of its answer. Each of `retries`
    has as many."""
    retries: Annotated[int, Ge(0)] = 5
    """Number of times that a failed request is repeated, with growing waits."""
    price: float | None = None
    """Dollars for a million tokens sent; null where it costs nothing."""


@dataclass(frozen=True)
class OptionNames:
    """Names of the options that say which server it is: a user types them to mend a mistake."""

    url: str = "model.endpoint.url"
    key: str = "model.endpoint.api_key_variable"
    model: str = "model.endpoint.served"
    timeout: str = "model.endpoint.timeout"
    less: str = "model.endpoint.batch_size, .concurrency"
    path: str = "model.endpoint.api"


@dataclass
class Server:
    """One server, by options as `ServerOptions` has them. Safe to use from several threads."""

    url: str
    api_key_variable: str | None
    timeout: float
    retries: int
    names: OptionNames = field(default_factory=OptionNames)
    count: Callable[[], None] = lambda: None
    network: ClassVar[Any] = None
    """An httpx2 transport in place of the network; for tests."""

    def __post_init__(self) -> None:
        """ConfigError for an address that is none, or a key that is missing. Nothing is sent
        yet."""
        import openai  # noqa: F401  that it is missing shows before work

        self.address, names, variable = self.url.rstrip("/"), self.names, self.api_key_variable
        try:
            parts = urlsplit(self.address)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{names.url}={self.url!r}: give http://… or https://…")
        if parts.username or parts.password:
            advice = f"name the variable that holds the key, {names.key}=NAME"
            raise ConfigError(f"{names.url} holds a password, which results show: {advice}")
        self.host, self.has_answered = str(parts.hostname), False
        self.key = os.environ.get(variable or "", "").strip()
        if variable and not self.key and self.host not in _LOOPBACK:
            advice = f"export {variable}=... (or {names.key}=NAME, null where there is none)"
            raise ConfigError(f"{self.url} wants a key. Type: {advice}")

    @property
    def token_limit(self) -> str:
        """The field of a chat that limits its answer: OpenAI's newer models know only the new name,
        most other servers only the old one."""
        return "max_completion_tokens" if self.host.endswith("api.openai.com") else "max_tokens"

    def get(self, url: str) -> Any:
        """The JSON object or list that an address gives; None where it gives none. Raises WorkError
        where nobody answers."""
        import openai

        try:
            answer = self._client.get(url, cast_to=object)
        except (openai.APIStatusError, json.JSONDecodeError, ValueError):
            return None
        except openai.OpenAIError as error:
            raise _broken(url, error) from error
        return answer if isinstance(answer, dict | list) else None

    def post(self, url: str, body: dict[str, Any]) -> Any:
        """The JSON object or list that the server answers, after retries.

        Raises:
            ConfigError: it does not know this API, model or key.
            ModelError: it does not take this request, or its answer is no JSON.
            WorkError: no answer after all retries.
        """
        import openai

        try:
            answer = self._client.post(url, cast_to=object, body=body)
        except openai.APIStatusError as error:
            raise self._explained(url, error) from error
        except openai.APITimeoutError as error:
            advice = f"type {self.names.timeout}=SECONDS, or less at once ({self.names.less})"
            raise WorkError(f"{url} gave no answer in {self.timeout:g} s: {advice}") from error
        except json.JSONDecodeError as error:
            raise ModelError(f"{url} answered with broken JSON: {error}") from error
        except (openai.OpenAIError, ValueError) as error:
            raise _broken(url, error) from error
        if not isinstance(answer, dict | list):
            text = shortened(answer)
            raise ModelError(f"{url} answered with no JSON object ({text}): see {self.names.url}")
        self.has_answered = True
        return answer

    def ask_all(
        self,
        ask: Callable[[Item], Answer],
        items: Iterable[Item],
        keep: Callable[[int, Answer], None],
        *,
        concurrency: int,
        tolerant: bool = False,
    ) -> tuple[dict[int, RequestFailure], bool]:
        """Ask about all items, in their order, and at most `concurrency` at once.

        Args:
            ask: one item's answer, by `post`.
            items: only a few are prepared ahead, so that first answers, and failures, are seen
                early.
            keep: called with an item's number and its answer as soon as that is there, one at a
                time.
            tolerant: a request that the server understood and does not take says nothing about the
                next one, once others were answered.

        Returns:
            The failures by the item's number, and whether the work was stopped: by a ConfigError,
            or `STOP_AFTER` failures in a row.
        """
        failures: dict[int, RequestFailure] = {}
        running: dict[Future[Answer], int] = {}
        queue, pool, in_a_row, stops = enumerate(items), ThreadPoolExecutor(concurrency), 0, False
        try:
            while True:
                for index, item in islice(queue, 0 if stops else concurrency - len(running)):
                    running[pool.submit(ask, item)] = index
                if not running:
                    return failures, stops
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    index = running.pop(future)
                    try:
                        keep(index, future.result())
                        in_a_row = 0
                    except (ConfigError, ModelError, WorkError) as error:
                        failures[index] = error
                        alone = status_of(error) in _ABOUT_ONE and self.has_answered
                        in_a_row += not (tolerant and alone)
                        stops |= isinstance(error, ConfigError) or in_a_row >= STOP_AFTER
                if stops:  # those under way are still kept
                    running = {future: at for future, at in running.items() if not future.cancel()}
        finally:
            pool.shutdown(cancel_futures=True)
            for future, index in running.items():  # under way when it was interrupted
                if not future.cancelled() and future.exception() is None:
                    keep(index, future.result())

    @cached_property
    def _client(self) -> "openai.OpenAI":
        import httpx2
        import openai

        seconds = self.timeout

        class Client(openai.DefaultHttpxClient):
            """Its own limits are of each read, so that a server that drips would never be given
            up."""

            def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
                try:
                    call = partial(super().send, request, **options)
                    return call_within(seconds, call, task="a request")
                except TimeoutError as error:
                    raise httpx2.ReadTimeout(str(error), request=request) from error

        options: dict[str, Any] = {"transport": self.network} if self.network else {}
        options["event_hooks"] = {"request": [lambda request: self.count()]}
        return openai.OpenAI(
            # The client insists on a key; servers without keys do not look at it.
            api_key=self.key or "none",
            base_url=self.address,
            max_retries=self.retries,
            timeout=seconds,
            http_client=Client(**options),
        )

    def _explained(self, url: str, error: "openai.APIStatusError") -> RequestFailure:
        """Meaning of a status, and what to type next; without the key."""
        names, status = self.names, error.status_code
        advice = {
            401: f"The key is wrong: set the environment variable of {names.key} anew",
            403: f"The key may not use this model: {names.model}=NAME, or another key",
            404: f"No such model or API here: see {names.path}, and {names.model} (/v1/models)",
            405: f"This server has another API at this address: see {names.path}",
            "insufficient_quota": "The account's quota is spent: see to it, then type again",
        }
        body: Any = error.body
        for name in ("error", "message", "detail"):
            body = body.get(name, body) if isinstance(body, dict) else body
        reason = " ".join(str(body or error.message).split())[:300]
        reason = reason.replace(self.key, "***") if self.key else reason
        words = f"status {status}: {reason}"
        mend = advice.get(error.code or "") or advice.get(status)
        if mend and not (status == 403 and self.has_answered):  # which is not about the key
            return ConfigError(f"{url}: {words}. {mend}")
        passes = status >= 500 or status in (408, 409, 429)
        return (WorkError if passes else ModelError)(f"{url} refuses a request: {words}")


def _broken(url: str, error: Exception) -> WorkError:
    reason = " ".join(str(error.__cause__ or error).split())[:200]
    return WorkError(f"the connection to {url} failed ({type(error).__name__}: {reason})")


def status_of(failure: Exception) -> int | None:
    """The HTTP status behind a failure of `Server.post`; None where there was no answer."""
    return getattr(failure.__cause__, "status_code", None)


def shortened(answer: object) -> str:
    """An answer as a message quotes it."""
    text = " ".join(str(answer).split())
    return repr(text if len(text) <= 120 else text[:117] + "...")
