"""Provenance of a search's result, known before the network is loaded: its key looks up a finished result."""

from dataclasses import dataclass, field

from pessimal.tables.provenance import ModelProvenance


@dataclass(frozen=True, kw_only=True)
class SearchProvenance(ModelProvenance):
    """Two results with one key are the same search, but for the last bits that another device or batch size may
    change."""

    prompts: dict[str, str]
    """The user turns whose mean reward is searched, verbatim, by key."""
    goal: str
    """optimal or pessimal."""
    length: int
    """Tokens of the response."""
    mode: str
    """`ids`, or `text`: only responses that a text gives."""
    method: str
    """auto or exhaustive."""
    allowed: int
    """How many tokens a response may be made of."""
    allowed_digest: str
    """Digest of which."""
    options: dict = field(default_factory=dict)
    """The other options of the search."""
    seed: int = 0

    @property
    def name(self) -> str:
        """Name of the artifact: what distinguishes results in a list; the key covers everything."""
        parts = [self.model, "+".join(self.prompts), f"{self.goal}-{self.length}"]
        parts += [
            part for part in (self.mode, self.method, self.dtype) if part not in ("ids", "auto", "float32")
        ]
        return "--".join(parts)
