"""Provenance of an explanation, known before the network is loaded: its key looks up a finished one."""

import hashlib
import json
from dataclasses import dataclass, field

from pessimal.tables.provenance import ModelProvenance


@dataclass(frozen=True, kw_only=True)
class ExplanationProvenance(ModelProvenance):
    """Two results with one key are the same explanation, but for the last bits that another device or batch size may
    change, and for what an endpoint answers today that it did not yesterday."""

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
    code: str
    """sha256 over the files that compute margins, statistics and minimal edits: other code, other numbers."""
    options: dict = field(default_factory=dict)
    """Seeds, ties, bootstrap and the like."""
    seed: int = 0

    def edits_digest(self) -> str:
        """sha256 over what decides the edits and how they are judged, whatever the model: explanations of several models can be
        compared where it is the same."""
        options = {name: self.options[name] for name in ("seeds", "placebos")}
        said = [self.attributes, self.perturber_identity, self.placebo_identity, self.judge_identity, options]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name of the artifact: what distinguishes explanations in a list; the key covers everything."""
        parts = [self.model, self.comparisons, self.perturber]
        return "--".join([*parts, *([self.dtype] if self.dtype not in (None, "float32") else [])])
