"""Options of `pessimal compare`."""

from dataclasses import dataclass, field
from typing import Any

from pessimal.config.schema.shared import TaskConfig
from pessimal.config.schema.values import at_least, matching
from pessimal.errors import ConfigError
from pessimal.scoring.mode import Mode


@dataclass
class CompareConfig(TaskConfig):
    """`pessimal compare`: models with one another, with prompts and with people."""

    name: str = "comparison"
    """Name of the artifact."""
    tables: Any = None
    """Score tables: a file, a folder, a pattern or a list of these; by default the registry's."""
    models: list[str] = field(default_factory=list)
    """Only these models; all of them where empty."""
    prompts: dict[str, str] = field(default_factory=dict)
    """Only these prompts; all of them where empty."""
    sets: list[str] = field(default_factory=list)
    """Only these candidate sets, `vocabulary` or the name of a list of items; all of them where empty."""
    mode: Mode | None = None
    """Only scans of this mode. Where it is not given, a model scanned in several is represented by ids (else text, else
    paper), and a section of its own compares its modes."""
    paper: bool = False
    """Follow the published procedure where ours differs."""
    replicates: int = 1000
    """Bootstrap replicates behind each interval."""
    permutations: int = 10_000
    """Node permutations behind each p-value of the representational similarity analysis."""
    confidence: float = 0.95
    """Level of the intervals."""
    top: int = 20
    """Tokens named at each end."""

    def __post_init__(self):
        at_least(1, top=self.top)
        at_least(100, replicates=self.replicates, permutations=self.permutations)
        if not 0 < self.confidence < 1:
            raise ConfigError(
                f"confidence={self.confidence} is no level between 0 and 1; type for example 0.95"
            )
        if self.tables is not None:
            self.tables = matching("tables", self.tables)
