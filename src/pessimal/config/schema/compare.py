"""Options of `pessimal compare`."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pessimal.config.schema.shared import TaskConfig
from pessimal.config.schema.values import at_least, matching
from pessimal.errors import ConfigError
from pessimal.scoring.mode import Mode


class Join(Enum):
    """When a token of one model and a token of another are the same."""

    exact = "exact"
    """Their texts are the same, white space included."""
    stripped = "stripped"
    """Their texts are the same without outer white space; of a model's several such tokens the barest counts."""


@dataclass
class IdentityAxis:
    """Terms that name groups of people along one axis."""

    about: str = ""
    """What the terms have in common, in neutral words; shown on the page."""
    source: str = ""
    """Where the list comes from."""
    terms: list[str] = field(default_factory=list)
    """Words in lower case, each one word."""


@dataclass
class WordingSpec:
    """A factorial of wordings: every combination of the levels is a prompt whose key is the levels joined by `_`."""

    factors: dict[str, list[str]] = field(default_factory=dict)
    """Levels by factor, in the order in which they stand in the key."""

    def __post_init__(self):
        if taken := sorted(set(self.factors) & {"token", "model", "wording", "frame", "rest"}):
            raise ConfigError(
                f"wording.factors: {', '.join(taken)} means something else here; name the factor otherwise"
            )
        levels = [level for names in self.factors.values() for level in names]
        if empty := [factor for factor, names in self.factors.items() if not names]:
            raise ConfigError(f"wording.factors.{empty[0]} has no levels")
        if twice := sorted({level for level in levels if levels.count(level) > 1}):
            raise ConfigError(
                f"wording.factors: the level {twice[0]!r} is named twice; a level belongs to one factor"
            )
        if wrong := [level for level in levels if "_" in level or not level]:
            raise ConfigError(
                f"wording.factors: the level {wrong[0]!r} cannot stand in a key, where levels are joined by `_`"
            )


@dataclass
class CompareConfig(TaskConfig):
    """`pessimal compare`: models with one another, with prompts and with people."""

    name: str = "comparison"
    """Name of the artifact."""
    tables: Any = None
    """Score tables: a file, a folder, a pattern or a list of these; by default the registry's."""
    source: str = "registry"
    """registry, or wandb: score tables of the W&B project `tracking.project` are fetched first."""
    explanations: list[str] = field(default_factory=list)
    """Instead of score tables, explanations of the registry: their names, or [all]."""
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
    rbo_persistence: float = 0.9
    """p of rank-biased overlap, the chance that a reader goes on to the next rank."""
    rbo_depth: int = 132
    """Depth of rank-biased overlap, in ranks."""
    join: Join = Join.exact
    """Which tokens of different models are the same: exact texts, or texts without outer white space."""
    lexicons: dict[str, str] = field(default_factory=dict)
    """Sentiment lexicons by name: afinn, textblob, or a CSV file with the columns word and valence."""
    frequencies: str = "wordfreq"
    """Word frequencies: wordfreq, or a CSV file with the columns word and per_million."""
    identity: dict[str, IdentityAxis] = field(default_factory=dict)
    """Identity terms by axis."""
    dictionaries: dict[str, str] = field(default_factory=dict)
    """Dictionaries by name: CSV files with the columns category and word, or LIWC files (.dic); a word may end in `*`."""
    polarity: dict[str, int] = field(default_factory=dict)
    """1 for a prompt that good words answer, -1 for one that bad words do, by prompt key or by a level in the key."""
    wording: WordingSpec = field(default_factory=WordingSpec)
    """Prompts that are one question in many wordings."""

    def __post_init__(self):
        at_least(1, top=self.top, rbo_depth=self.rbo_depth)
        if not 0 < self.rbo_persistence < 1:
            raise ConfigError(
                f"rbo_persistence={self.rbo_persistence} is no chance between 0 and 1; published: 0.9"
            )
        at_least(100, replicates=self.replicates, permutations=self.permutations)
        if not 0 < self.confidence < 1:
            raise ConfigError(
                f"confidence={self.confidence} is no level between 0 and 1; type for example 0.95"
            )
        if wrong := {key: sign for key, sign in self.polarity.items() if sign not in (1, -1)}:
            raise ConfigError(f"polarity={wrong}: give 1 (good words answer the prompt) or -1 (bad words do)")
        if self.source not in ("registry", "wandb"):
            raise ConfigError(f"source={self.source!r}: give registry or wandb")
        if self.source == "wandb" and (self.tables is not None or self.explanations):
            raise ConfigError("source=wandb fetches score tables; leave tables and explanations out")
        if self.explanations and self.tables is not None:
            raise ConfigError(
                "tables and explanations were both given, and are compared apart: leave one of them out"
            )
        if self.tables is not None:
            self.tables = matching("tables", self.tables)
