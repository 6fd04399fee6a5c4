"""What a run would take, before any request: calls, tokens, money.

Knows questions and prices. Makes no call. Tokens are estimated as characters / 4, which is about right for English and
too low for most other scripts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pessimal.errors import ConfigError
from pessimal.explain.chat.question import Message, canonical

CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Prices:
    """What an endpoint charges, in any one currency."""

    prompt: float | None = None
    """For a million tokens read; None where it is not known."""
    completion: float | None = None
    """For a million tokens written."""

    def __post_init__(self):
        for name, price in (("prompt", self.prompt), ("completion", self.completion)):
            if price is not None and not price >= 0:
                raise ConfigError(f"a price of {price} for a million {name} tokens: give 0 or more, or null")


@dataclass
class Planned:
    """Questions of one kind."""

    calls: int = 0
    """To be asked."""
    cached: int = 0
    """Answered already, at no cost."""
    prompt_tokens: int = 0
    """To be read, estimated."""
    completion_tokens: int = 0
    """To be written, estimated."""

    def add(self, messages: Sequence[Message], schema: Mapping, written: int) -> None:
        """One more question to be asked, whose answer has about `written` characters."""
        read = sum(len(message["content"]) for message in messages) + len(canonical(schema))
        self.calls += 1
        self.prompt_tokens += -(-read // CHARACTERS_PER_TOKEN)
        self.completion_tokens += -(-written // CHARACTERS_PER_TOKEN)


@dataclass
class Plan:
    """What a set of requests would take."""

    kinds: dict[str, Planned] = field(default_factory=dict)
    """By the name of the question: identify, rewrite."""
    examples: dict[str, tuple[Message, ...]] = field(default_factory=dict)
    """The first question of each kind that would be asked, in full."""
    seen: set[str] = field(default_factory=set)
    """Digests of the questions counted: equal ones are asked once."""
    unsendable: int = 0
    """Requests that would fail without a call."""

    @property
    def calls(self) -> int:
        """Requests to be sent, without those sent again."""
        return sum(kind.calls for kind in self.kinds.values())

    @property
    def cached(self) -> int:
        """Questions answered already."""
        return sum(kind.cached for kind in self.kinds.values())

    def cost(self, prices: Prices) -> float | None:
        """In the currency of the prices; None where one of them is not known."""
        if prices.prompt is None or prices.completion is None:
            return None
        read = sum(kind.prompt_tokens for kind in self.kinds.values())
        written = sum(kind.completion_tokens for kind in self.kinds.values())
        return (read * prices.prompt + written * prices.completion) / 1e6

    def text(self, prices: Prices) -> str:
        """All of it, to be printed."""
        lines = [
            f"{name}: {kind.calls:,} calls ({kind.cached:,} more are in the cache), about {kind.prompt_tokens:,} tokens to "
            f"be read and {kind.completion_tokens:,} to be written"
            for name, kind in self.kinds.items()
        ]
        cost = self.cost(prices)
        lines.append("cost: unknown, since no prices are given" if cost is None else f"cost: {_money(cost)}")
        if self.unsendable:
            lines.append(
                f"{self.unsendable:,} requests would fail: their responses hold lone surrogates, which cannot be sent"
            )
        lines.append(
            f"Tokens are estimated as characters / {CHARACTERS_PER_TOKEN}, a rewritten response as long as before. Requests "
            "sent again, after a failure, a reply of the wrong shape or a change in the wrong place, come on top, and so "
            "does what a model thinks before it replies."
        )
        for name, messages in self.examples.items():
            lines.append(f"\nAn example of {name}:")
            lines += [f"[{message['role']}] {message['content']}" for message in messages]
        return "\n".join(lines)


def _money(cost: float) -> str:
    return "below 0.01" if 0 < cost < 0.01 else f"about {cost:,.2f}"
