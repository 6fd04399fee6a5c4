"""What an explanation depends on: its key, and what must be equal for several to be compared."""

import hashlib
import json
from dataclasses import dataclass, field

from pessimal.explaining.explain import METHOD_VERSION
from pessimal.tables.score_table import ModelProvenance

OPTIONS = (
    *("both_ways", "seeds", "placebos", "overall", "tie", "shrink", "exact_hunks"),
    *("replicates", "permutations", "confidence", "examples"),
)
"""Those that decide an explanation's numbers."""


@dataclass(frozen=True, kw_only=True)
class ExplanationProvenance(ModelProvenance):
    """Two results with one key are the same explanation, but for the last bits that another device
    or batch size may change, and for what an endpoint answers today that it did not yesterday."""

    comparisons: str
    comparisons_digest: str
    n: int
    attributes: dict[str, dict]  # description, polarity and rules of each, by name
    perturber: str
    perturber_identity: dict  # what decides its texts
    placebo_identity: dict
    judge_identity: dict
    method_version: int = METHOD_VERSION
    options: dict = field(default_factory=dict)
    seed: int = 0

    def edits_digest(self) -> str:
        """sha256 over what decides the edits and how they are judged, whatever the model:
        explanations of several models can be compared where it is the same."""
        options = {
            name: self.options[name] for name in ("both_ways", "seeds", "placebos", "overall")
        }
        decides = [
            self.attributes,
            self.perturber_identity,
            self.placebo_identity,
            self.judge_identity,
            options,
        ]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name of the artifact: what distinguishes explanations in a list; the key covers
        everything."""
        parts = [self.model, self.comparisons, self.perturber]
        return "--".join([*parts, *([self.dtype] if self.dtype not in (None, "float32") else [])])
