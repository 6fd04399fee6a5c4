"""What is explained: a conversation and two responses to it.

Knows texts. Does not know which response a model prefers.
"""

from dataclasses import dataclass

from pessimal.models.conversation import Turn


@dataclass(frozen=True)
class Comparison:
    """Two responses to one conversation."""

    key: str
    """Names it within its set."""
    turns: tuple[Turn, ...]
    """The conversation so far; the last turn is the user's."""
    responses: tuple[str, str]
    """Two different texts, in the order of their source."""
    preferred: int | None = None
    """Which response (0 or 1) people preferred, where the source says."""

    def conversation(self, response: str) -> tuple[Turn, ...]:
        """The whole conversation with this response at its end."""
        return (*self.turns, Turn("assistant", response))

    @property
    def prompt(self) -> str:
        """The user's last turn."""
        return self.turns[-1].content


__all__ = ["Comparison", "Turn"]
