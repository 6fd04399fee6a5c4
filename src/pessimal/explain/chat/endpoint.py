"""An OpenAI-compatible endpoint: requests at once within bounds, sent again where that may help.

Knows the protocol: statuses, waits, `response_format`. Does not know what is asked, nor whether a reply is of use.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pessimal.errors import ConfigError, WorkError
from pessimal.explain.chat.endpoint_spec import EndpointSpec
from pessimal.explain.chat.protocol import RequestError, error_meaning, read_completion, written_out
from pessimal.explain.chat.question import Keep, Question, Reply, digest_of
from pessimal.explain.chat.rate_limit import Clock, RateLimit, Sleep, backoff, retry_after
from pessimal.explain.chat.usage import Usage
from pessimal.explain.rules.draw import generator

log = logging.getLogger(__name__)
_NO_KEY = "none"  # the client insists on one; servers without keys do not look at it


class Endpoint:
    """Sends questions to an endpoint (see `Transport`)."""

    def __init__(
        self,
        spec: EndpointSpec,
        *,
        api_key: str | None,
        usage: Usage,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ):
        self.spec, self.usage, self.address = spec, usage, spec.base_url
        self._key, self._sleep = api_key, sleep
        self._takes_format: bool | None = None
        """Whether the endpoint takes `response_format`; None until one request has shown it."""
        self._ever_answered = False
        # Of all that is sent through this endpoint, and not of one batch: batches may be small.
        self.rate_limit = RateLimit(per_minute=spec.requests_per_minute, clock=clock, sleep=sleep)
        self._in_a_row = 0

    def provenance(self) -> dict:
        """Model, address and sampling options."""
        spec = self.spec
        return {
            "model": spec.model,
            "base_url": spec.base_url.rstrip("/"),
            "temperature": spec.temperature,
            "max_tokens": spec.max_tokens,
        }

    def send(self, questions: Sequence[Question], keep: Keep) -> None:
        """Ask all, at most `concurrency` at once; `keep` hears of each reply as it comes.

        Raises:
            ConfigError: a wrong key, model or address.
            WorkError: `stop_after` requests in a row failed for good.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(self._send(questions, keep))
            return
        # Within a notebook a loop runs already, in this thread.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, self._send(questions, keep)).result()

    async def _send(self, questions: Sequence[Question], keep: Keep) -> None:
        import openai

        spec = self.spec
        client = openai.AsyncOpenAI(
            api_key=self._key or _NO_KEY, base_url=spec.base_url, timeout=spec.timeout, max_retries=0
        )
        async with client:
            batch = _Batch(self, client, keep)
            waiting = iter(enumerate(questions))

            async def work() -> None:
                for index, question in waiting:
                    if batch.stopped is None:
                        await batch.ask(index, question)

            # As many workers as may be in flight, and not a task a question: they go in order, so that a run of
            # failures is one, and nothing is begun after the stop.
            workers = [asyncio.create_task(work()) for _ in range(min(spec.concurrency, len(questions)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
        if batch.stopped is not None:
            raise batch.stopped


class _Batch:
    """The state of one `send`."""

    def __init__(self, endpoint: Endpoint, client, keep: Keep):
        self.endpoint, self.client, self.keep = endpoint, client, keep
        self.spec, self.usage = endpoint.spec, endpoint.usage
        self.rate_limit = endpoint.rate_limit
        self.stopped: Exception | None = None

    async def ask(self, index: int, question: Question) -> None:
        """One question to its end: a reply, or a failure after all retries."""
        reply, final = await self._with_retries(question)
        if reply is None:  # the work was stopped meanwhile
            return
        self.keep(index, reply)
        if reply.failure is None:
            self.endpoint._in_a_row, self.endpoint._ever_answered = 0, True
        # A request that the server understood and does not take (too long a conversation) says nothing about the next
        # one, once others were answered.
        elif not (final and self.endpoint._ever_answered):
            self.endpoint._in_a_row += 1
            if self.endpoint._in_a_row >= self.spec.stop_after:
                self._stop(reply.failure)

    async def _with_retries(self, question: Question) -> tuple[Reply | None, bool]:
        """The reply, and whether a failure is final by its nature."""
        # The waits differ between questions, and are the same each time.
        random = generator("backoff", digest_of([list(map(dict, question.messages)), question.seed]))
        for attempt in range(self.spec.retries + 1):
            self.usage.retries += attempt > 0
            try:
                return await self._formatted(question), False
            except RequestError as refusal:
                failure, wait = refusal.message, refusal.wait
                if refusal.fatal:
                    self.stopped = self.stopped or ConfigError(
                        f"{self.spec.base_url} with model {self.spec.model!r}: {failure}. {refusal.advice}"
                    )
                    return None, True
                if refusal.final:
                    return Reply(failure=failure), True
            if wait is not None and wait > self.spec.longest_wait:
                return Reply(failure=f"{failure}; it wants to be asked again in {wait:,.0f} s"), False
            if wait is not None:
                self.rate_limit.hold(wait)  # whoever asks next is not welcome either
            if attempt < self.spec.retries:
                own = backoff(
                    attempt, first=self.spec.first_wait, longest=self.spec.longest_wait, random=random
                )
                await self.endpoint._sleep(max(own, wait or 0.0))
            if self.stopped is not None:
                return None, False
        return Reply(failure=f"{failure} ({self.spec.retries + 1} attempts)"), False

    async def _formatted(self, question: Question) -> Reply:
        """One request with `response_format` where the endpoint takes it; where it does not, once more without."""
        endpoint = self.endpoint
        if endpoint._takes_format is not False:
            try:
                reply = await self._request(question, with_format=True)
                endpoint._takes_format = True
                return reply
            except RequestError as refusal:
                if not refusal.about_request or endpoint._takes_format:
                    raise
                reason = refusal.message
        reply = await self._request(question, with_format=False)
        if endpoint._takes_format is None:  # only now is it known that the format was what it did not take
            endpoint._takes_format = False
            log.warning(
                "%s takes no response_format (%s): the shape of the answers is put into words from here on, and checked "
                "here",
                self.spec.base_url,
                reason,
            )
        return reply

    async def _request(self, question: Question, *, with_format: bool) -> Reply:
        import openai

        options = written_out(question, self.spec, with_format=with_format)
        await self.rate_limit.turn()
        self.usage.calls += 1
        self.usage.written += not with_format
        try:
            async with asyncio.timeout(self.spec.timeout):  # the client's own is for each packet
                completion = await self.client.chat.completions.create(**options)
        except TimeoutError as error:
            raise RequestError(f"no reply within {self.spec.timeout:g} s") from error
        except openai.APITimeoutError as error:
            raise RequestError(f"no reply within {self.spec.timeout:g} s") from error
        except openai.APIStatusError as error:
            refusal = error_meaning(
                error,
                key=self.endpoint._key,
                wait=retry_after(error.response.headers),
                answered=self.endpoint._ever_answered,
            )
            if isinstance(refusal, Reply):
                return refusal
            raise refusal from error
        except (openai.OpenAIError, ValueError) as error:
            reason = str(error.__cause__ or error)[:200]
            raise RequestError(f"the connection failed ({type(error).__name__}: {reason})") from error
        reply = read_completion(completion)
        if reply.prompt_tokens is None or reply.completion_tokens is None:
            self.usage.unmetered += 1
        self.usage.prompt_tokens += reply.prompt_tokens or 0
        self.usage.completion_tokens += reply.completion_tokens or 0
        return reply

    def _stop(self, failure: str) -> None:
        self.stopped = self.stopped or WorkError(
            f"{self.endpoint._in_a_row} requests in a row to {self.spec.base_url} failed, the last one so: {failure}. What was "
            "answered until then is kept: once the endpoint answers, type the same command again, and nothing is paid for "
            "twice. Where it is overrun, ask more slowly: perturber.requests_per_minute=N perturber.concurrency=1"
        )
