"""One request and one reply as the OpenAI chat protocol writes them.

Knows fields, statuses and what each means for a retry. Sends nothing.
"""

from typing import Any

from pessimal.explain.chat.endpoint_spec import EndpointSpec
from pessimal.explain.chat.question import Question, Reply, canonical, sendable

_AGAIN = (408, 409, 425, 429)
_FILTER_CODES = ("content_filter", "content_policy_violation")
"""Codes of refusals by a filter in front of the model."""
_ADVICE = {
    401: "The key is wrong: set the environment variable of perturber.api_key_variable anew",
    403: "The key may not use this model: type another perturber.model=NAME, or another key",
    404: "There is no such model or address: perturber.base_url=… mostly ends in /v1, perturber.model=NAME is the server's "
    "own name (it lists them under /models)",
}


class RequestError(Exception):
    """A request got no reply."""

    def __init__(
        self,
        message: str,
        *,
        wait: float | None = None,
        final: bool = False,
        fatal: bool = False,
        about_request: bool = False,
        advice: str = "",
    ):
        super().__init__(message)
        self.message = message
        """Why, in words."""
        self.wait = wait
        """Seconds that the server asks to wait for; None where it does not say."""
        self.final = final
        """Whether a retry is in vain."""
        self.fatal = fatal
        """Whether any request is in vain."""
        self.about_request = about_request
        """Whether the server does not take a request of this form (400, 422)."""
        self.advice = advice
        """What the person at the keyboard can do."""


def written_out(question: Question, spec: EndpointSpec, *, with_format: bool) -> dict[str, Any]:
    """The request's fields; without `response_format`, the schema stands in the first message."""
    messages = [{**message, "content": sendable(message["content"])} for message in question.messages]
    options: dict[str, Any] = {"model": spec.model, "messages": messages, "seed": question.seed}
    if spec.temperature is not None:
        options["temperature"] = spec.temperature
    if spec.max_tokens is not None:
        # OpenAI's newer models know only the new name, most other servers only the old one.
        options["max_completion_tokens" if spec.is_openai else "max_tokens"] = spec.max_tokens
    if with_format:
        shape = {"name": question.name, "strict": True, "schema": question.schema}
        options["response_format"] = {"type": "json_schema", "json_schema": shape}
    else:
        options["messages"] = with_schema(messages, question)
    return options


def with_schema(messages: list[dict], question: Question) -> list[dict]:
    """The messages with the schema put into words."""
    words = (
        "Reply with one JSON object and nothing else: no explanation, no code fence. It must fit this JSON schema:\n"
        + canonical(question.schema)
    )
    first, *rest = messages
    if first["role"] == "system":
        return [{**first, "content": f"{first['content']}\n\n{words}"}, *rest]
    return [{"role": "system", "content": words}, *messages]


def read_completion(completion: Any) -> Reply:
    """The reply in what the client gives; RequestError where it is no chat completion, as a proxy's web page is none.

    The client checks no types, so nothing is taken for granted here.
    """
    choices = getattr(completion, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    if message is None:
        error = getattr(completion, "error", None)
        reason = f": {str(error)[:200]}" if error else "; is perturber.base_url right? It mostly ends in /v1"
        raise RequestError(f"the endpoint answered with no chat completion{reason}")
    usage = getattr(completion, "usage", None)
    return Reply(
        text=_text(getattr(message, "content", None)),
        refusal=_text(getattr(message, "refusal", None)),
        finish_reason=_text(getattr(choices[0], "finish_reason", None)),
        prompt_tokens=_count(getattr(usage, "prompt_tokens", None)),
        completion_tokens=_count(getattr(usage, "completion_tokens", None)),
    )


def error_meaning(error: Any, *, key: str | None, wait: float | None, answered: bool) -> RequestError | Reply:
    """What an error status means; a Reply where it is a filter's refusal, as Azure gives it.

    Args:
        key: never shown.
        wait: seconds that the server asks to wait for.
        answered: whether the endpoint answered before: a 403 is then about one text, not about the key.
    """
    status, reason = error.status_code, _reason(error)
    if key:
        reason = reason.replace(key, "***")
    if status == 400 and (error.code in _FILTER_CODES or any(code in reason for code in _FILTER_CODES)):
        return Reply(
            refusal=f"a content filter refused the request: {reason}", finish_reason="content_filter"
        )
    words = f"status {status}: {reason}"
    if status in _ADVICE and not (status == 403 and answered):
        return RequestError(words, final=True, fatal=True, advice=_ADVICE[status])
    if status in _AGAIN or status >= 500:
        # 429 is also the status of an account without money, where waiting is in vain.
        if error.code == "insufficient_quota":
            return RequestError(
                words,
                final=True,
                fatal=True,
                advice="The account's quota is spent: see to it, then type again",
            )
        return RequestError(words, wait=wait)
    return RequestError(words, final=True, about_request=status in (400, 422))


def _reason(error: Any) -> str:
    body = error.body
    for name in ("message", "detail", "error"):
        if isinstance(body, dict) and isinstance(body.get(name), str):
            body = body[name]
    return " ".join(str(body or error.message).split())[:300]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
