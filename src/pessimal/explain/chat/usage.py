"""The usage of a chat: counts, and one sentence of them."""

from dataclasses import dataclass, fields


@dataclass
class Usage:
    """Counts of one chat since it was made."""

    calls: int = 0
    """Requests sent, those that failed and were sent again among them."""
    cached: int = 0
    """Replies taken from the cache."""
    retries: int = 0
    """Requests sent again because the one before got no reply."""
    malformed: int = 0
    """Replies that were not of the wanted shape; each was requested again, up to the number of attempts."""
    refusals: int = 0
    """Questions refused, those whose refusal was taken from the cache among them."""
    failures: int = 0
    """Questions without a usable answer in the end, refusals apart."""
    unanswered: int = 0
    """Questions to which no reply came, after all retries."""
    written: int = 0
    """Requests without `response_format`, the shape put into words instead."""
    prompt_tokens: int = 0
    """Tokens read in these calls, as the server counted them."""
    completion_tokens: int = 0
    """Tokens written in these calls, as the server counted them."""
    unmetered: int = 0
    """Replies for which the server gave no count of tokens."""

    def counts(self) -> dict[str, int]:
        """All counts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def sentence(self) -> str:
        """All of it in words."""
        text = (
            f"{self.calls:,} calls ({self.retries:,} of them sent again after a failure), {self.cached:,} replies from the "
            f"cache; {self.refusals:,} refused, {self.failures:,} without a usable answer, {self.malformed:,} replies of "
            f"the wrong shape; {self.prompt_tokens:,} tokens read and {self.completion_tokens:,} written"
        )
        if self.unmetered:
            text += f", without {self.unmetered:,} replies for which the server gave no count"
        if self.written:
            text += (
                f"; {self.written:,} calls without response_format, the shape of the answer put into words"
            )
        return text
