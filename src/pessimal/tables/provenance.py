"""Provenance of a model: the digests and versions that its rewards depend on."""

import hashlib
import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, kw_only=True)
class ModelProvenance:
    """The model's part of the provenance of a result; `key` covers the fields of the subclass too."""

    model: str
    """Short name of the model."""
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

    def key(self) -> str:
        """Cache key: sha256 over all fields, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
