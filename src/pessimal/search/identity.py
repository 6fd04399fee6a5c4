"""What a search's result depends on: known before the network is loaded, so that a finished result can be found."""

import hashlib
import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class SearchIdentity:
    """Two results with one key are the same search, but for the last bits that another device or batch size may
    change."""

    model: str
    """Short name of the model."""
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
    revision: str | None = None
    """Commit of the model repository; None for a local folder."""
    weights_digest: str | None = None
    """sha256 over the weight files."""
    config_digest: str | None = None
    """sha256 over the model's configuration."""
    tokenizer_digest: str | None = None
    """sha256 over vocabulary and tokenizer settings."""
    template_digest: str | None = None
    """sha256 over the chat template."""
    dtype: str | None = None
    """Precision that was searched in; what is claimed of the result is always float32."""
    output: int | None = None
    """Which of the model's outputs is the reward; None where it has one."""
    software: dict[str, str] = field(default_factory=dict)
    """Versions of what computes the rewards."""

    @property
    def name(self) -> str:
        """Name of the artifact: what tells results apart in a list; the key tells all of it."""
        parts = [self.model, "+".join(self.prompts), f"{self.goal}-{self.length}"]
        parts += [
            part for part in (self.mode, self.method, self.dtype) if part not in ("ids", "auto", "float32")
        ]
        return "--".join(parts)

    def key(self) -> str:
        """sha256 over all of it, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
