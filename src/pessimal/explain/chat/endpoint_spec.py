"""Which endpoint is asked, and how: options and their checks, before any request.

Knows addresses and names of variables. Reads no environment by itself and sends nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pessimal.errors import ConfigError

OPENAI = "https://api.openai.com/v1"
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}


@dataclass(frozen=True)
class EndpointSpec:
    """An OpenAI-compatible endpoint."""

    model: str | None = None
    """The model's name as the server knows it."""
    base_url: str = OPENAI
    """The address before `/chat/completions`; mostly ends in /v1."""
    api_key_variable: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key; null sends none. A server on this machine is asked without a key where the
    variable is not set."""
    temperature: float | None = 1.0
    """Of the sampling; 0 always takes the likeliest token. null does not send one, for models that refuse it."""
    max_tokens: int | None = None
    """Longest reply, in tokens; null leaves it to the server."""
    requests_per_minute: float | None = None
    """Requests a minute at most, retries counted; null does not limit."""
    concurrency: int = 8
    """Requests in flight at once at most."""
    retries: int = 5
    """How often a request is sent again after status 408, 409, 429 or 5xx, a timeout or a broken connection."""
    first_wait: float = 1.0
    """Seconds before the first retry; doubled each time. Where the server says how long (Retry-After), that is waited."""
    longest_wait: float = 120.0
    """Seconds waited at most; a server that asks for more is taken to be out of service."""
    timeout: float = 120.0
    """Seconds for one request from beginning to end."""
    stop_after: int = 5
    """Requests in a row that fail for good, after which the work stops; what was answered is kept."""

    def __post_init__(self):
        if not self.model:
            raise ConfigError(
                "perturber.model is missing: which model shall be asked? Type perturber.model=NAME"
            )
        parts = _split(self.base_url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"perturber.base_url={self.base_url!r} is no address: give it with http:// or https:// and up to /v1, such "
                f"as {OPENAI} or http://localhost:8000/v1"
            )
        if parts.username or parts.password:
            raise ConfigError(
                "perturber.base_url holds a user or password, which would be written into results. Leave it out and name "
                "the variable that holds the key: perturber.api_key_variable=NAME"
            )
        self._check_numbers()

    @property
    def is_local(self) -> bool:
        """Whether the endpoint is on this machine."""
        return _split(self.base_url).hostname in _LOOPBACK

    @property
    def is_openai(self) -> bool:
        """Whether it is OpenAI's own, which calls the limit of tokens by another name."""
        return (_split(self.base_url).hostname or "").endswith("api.openai.com")

    def _check_numbers(self) -> None:
        lowest = {"concurrency": 1, "retries": 0, "stop_after": 1, "first_wait": 0, "longest_wait": 0}
        for name, minimum in lowest.items():
            if not getattr(self, name) >= minimum:
                raise ConfigError(f"perturber.{name}={getattr(self, name)}, but at least {minimum} is needed")
        for name in ("timeout", "requests_per_minute", "max_tokens"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"perturber.{name}={value}, but more than 0 is needed")
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise ConfigError(f"perturber.temperature={self.temperature}: give 0 to 2, or null")


def find_api_key(spec: EndpointSpec, environment: Mapping[str, str]) -> str | None:
    """The key that goes with an endpoint; None where it is asked without one.

    Raises:
        ConfigError: the variable is not set, and the endpoint is not on this machine.
    """
    if spec.api_key_variable is None:
        return None
    key = environment.get(spec.api_key_variable, "").strip()
    if key:
        return key
    if spec.is_local:
        return None
    raise ConfigError(
        f"{spec.base_url} wants a key, and the environment variable {spec.api_key_variable} is not set. Type: export "
        f"{spec.api_key_variable}=...; or name another variable: perturber.api_key_variable=NAME; for a server without keys any "
        f"will do: export {spec.api_key_variable}=none"
    )


def _split(address: str):
    try:
        return urlsplit(address)
    except ValueError:
        return None
