"""What an explanation depends on: known before the network is loaded, so that a finished one can be found."""

import hashlib
import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class ExplanationIdentity:
    """Two results with one key are the same explanation, but for the last bits that another device or batch size may
    change, and for what an endpoint answers today that it did not yesterday."""

    model: str
    """Short name of the model."""
    comparisons: str
    """Name of the set of comparisons."""
    comparisons_digest: str
    """sha256 over conversations and responses."""
    n: int
    """How many comparisons."""
    attributes: dict[str, dict]
    """Description, polarity and own rules of each attribute, by name."""
    perturber: str
    """Name of who changes the responses."""
    perturber_identity: dict
    """What decides its texts."""
    placebo_identity: dict
    """What decides the edits that keep the meaning."""
    judge_identity: dict
    """What decides whether an edit did what was asked."""
    options: dict = field(default_factory=dict)
    """Seeds, ties, bootstrap and the like."""
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
    """Precision of the network."""
    output: int | None = None
    """Which of the model's outputs is the reward; None where it has one."""
    software: dict[str, str] = field(default_factory=dict)
    """Versions of what computes the rewards."""

    @property
    def name(self) -> str:
        """Name of the artifact: what tells explanations apart in a list; the key tells all of it."""
        parts = [self.model, self.comparisons, self.perturber]
        return "--".join([*parts, *([self.dtype] if self.dtype not in (None, "float32") else [])])

    def key(self) -> str:
        """sha256 over all of it, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
