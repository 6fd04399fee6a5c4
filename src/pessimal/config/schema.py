"""One dataclass a verb: every option with its type, its unit and its default.

Hydra composes these from `conf/` and overrides; `build` turns the result into an instance, and `__post_init__`
says what does not fit together. Imports nothing heavy: `--help` and `--cfg` must answer at once.
"""

import glob
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from pessimal.errors import ConfigError, InputError
from pessimal.models.spec import ModelSpec, RecipeSpec
from pessimal.scoring.mode import Mode


class TrackingMode(Enum):
    """Where Weights & Biases hears of a run."""

    online = "online"
    offline = "offline"
    off = "off"


class ImportFormat(Enum):
    """Layouts of published score files."""

    eloeverything = "eloeverything"
    """elo_rank, elo_score, name, elo_matches, then one column a model."""
    factorial54 = "factorial54"
    """response, then one column for each of 54 prompts; one file a model."""
    vocabulary = "vocabulary"
    """token_id, token_name, token_decoded, then one column a prompt; one file a model."""


@dataclass
class CandidatesSpec:
    """What is scored as the answer."""

    name: str = "vocabulary"
    """`vocabulary` for every token; otherwise a name for the list of items."""
    path: str | None = None
    """Items, one a line (.txt), or the column `name` of a table (.csv)."""


@dataclass
class TrainerSpec:
    """Where the loop runs: one process, one device."""

    accelerator: str = "cpu"
    """cpu, gpu or auto."""
    threads: int | None = None
    """OpenMP threads of the process; null leaves torch's choice. Models of a few million parameters want 1."""


@dataclass
class TrackingSpec:
    """The W&B run that mirrors a task."""

    mode: TrackingMode = TrackingMode.offline
    project: str = "pessimal"
    entity: str | None = None
    group: str | None = None
    """Runs of one study share a group."""
    tags: list[str] = field(default_factory=list)


@dataclass
class PathsSpec:
    """Folders; relative ones count from where the command was started."""

    root: str = "runs"
    registry: str = "runs/registry"
    """Every result, as versioned artifacts; `index.jsonl` in it lists them."""
    cache: str = "runs/cache"
    """What can be made again: trained demo models, shards of unfinished scans."""
    wandb: str = "runs/wandb"
    """Everything the wandb client writes."""


@dataclass
class TaskConfig:
    """What all verbs share."""

    task: str = ""
    seed: int = 0
    """Seed of every random choice that is not a model's own recipe."""
    force: bool = False
    """Do again what is already finished."""
    progress: bool = True
    """Draw progress bars where there is a terminal; otherwise log lines."""
    tracking: TrackingSpec = field(default_factory=TrackingSpec)
    paths: PathsSpec = field(default_factory=PathsSpec)


@dataclass
class TrainConfig(TaskConfig):
    """`pessimal train`: make a reward model of the demo family."""

    model: ModelSpec = MISSING

    def __post_init__(self):
        if self.model.recipe is None:
            raise ConfigError(
                f"train makes members of the demo family, and model {self.model.name!r} has no recipe. Type for "
                "example: pessimal train model=alder-wordpiece-0"
            )
        demo_recipe(self.model)


@dataclass
class ScanConfig(TaskConfig):
    """`pessimal scan`: score every candidate on every prompt with one model."""

    model: ModelSpec = MISSING
    prompts: dict[str, str] = field(default_factory=dict)
    """The user turns, verbatim, by key."""
    candidates: CandidatesSpec = field(default_factory=CandidatesSpec)
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    mode: Mode = Mode.ids
    """What stands in the response slot: ids (exactly the token), text (as typed), paper (as published)."""
    batch_size: int = 256
    """Candidates per batch; beyond 256–512 nothing is gained on a CPU."""
    certain: int = 100
    """k: how many of the best and of the worst are named, and made certain after a low-precision scan."""

    def __post_init__(self):
        if not self.prompts:
            raise ConfigError("no prompts given; type for example prompts=core or prompts=[greatest,worst]")
        for key, text in self.prompts.items():
            if not text.strip():
                raise ConfigError(f"prompts.{key} is empty; a prompt is the question that the model is asked")
        _at_least(1, batch_size=self.batch_size, certain=self.certain)
        if self.candidates.name == "vocabulary":
            if self.candidates.path is not None:
                raise ConfigError(
                    "candidates.path was given for the vocabulary, which needs none. For a list type: "
                    "candidates=items candidates.path=FILE"
                )
        elif self.candidates.path is None:
            raise ConfigError(f"the item list {self.candidates.name!r} needs candidates.path=FILE")
        else:
            _existing_file("candidates.path", self.candidates.path)
        if self.mode is Mode.ids and self.candidates.name != "vocabulary":
            raise ConfigError(
                "mode=ids scores token ids; items are texts: type mode=text (or candidates=vocabulary)"
            )
        if self.model.recipe is not None:
            demo_recipe(self.model)


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
    """Only scans of this mode; needed where a model was scanned in more than one."""
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
        _at_least(1, top=self.top)
        _at_least(100, replicates=self.replicates, permutations=self.permutations)
        if not 0 < self.confidence < 1:
            raise ConfigError(
                f"confidence={self.confidence} is no level between 0 and 1; type for example 0.95"
            )
        if self.tables is not None:
            self.tables = _matching("tables", self.tables)


@dataclass
class ImportConfig(TaskConfig):
    """`pessimal import`: published score files into score tables."""

    format: ImportFormat | None = None
    path: Any = None
    """The file; for formats with one file a model also a folder, a pattern or a list."""
    prompt: str | None = None
    """Key of the prompt an EloEverything file was scored with; greatest where not given."""
    prompts: dict[str, str] = field(default_factory=dict)
    """Wordings by key, where they are known."""
    model_name: str | None = None
    """Name of the model that a vocabulary file is of; by default taken from the file's name."""
    published: dict[str, ModelSpec] = field(default_factory=dict)
    """What is known about published models, by Hub repository."""

    def __post_init__(self):
        if self.format is None or self.path is None:
            raise ConfigError(
                "import needs a format and a path; type for example: "
                "pessimal import format=eloeverything path=greatest_one_word.csv"
            )
        self.path = _matching("path", self.path)


@dataclass
class ReportConfig(TaskConfig):
    """`pessimal report`: one HTML page."""

    name: str = "report"
    """Name of the artifact."""
    title: str = "What these reward models want"
    """Heading of the page."""
    artifacts: list[str] = field(default_factory=list)
    """References such as comparison/quickstart or comparison/quickstart:v0; the newest comparison where empty."""


TASKS: dict[str, type[TaskConfig]] = {
    "train": TrainConfig,
    "scan": ScanConfig,
    "compare": CompareConfig,
    "import": ImportConfig,
    "report": ReportConfig,
}

SCHEMAS: dict[str, type] = {
    schema.__name__: schema
    for schema in (
        *TASKS.values(),
        ModelSpec,
        RecipeSpec,
        CandidatesSpec,
        TrainerSpec,
        TrackingSpec,
        PathsSpec,
    )
}
"""Every schema by name, for messages about unknown options."""


def demo_recipe(model: ModelSpec):
    """The demo recipe that `model.recipe` names; ConfigError where there is none such."""
    from pessimal.demo.recipes import Recipe

    spec = model.recipe
    return Recipe(lab=spec.lab, base=spec.base, width=spec.width, seed=spec.seed)


def _at_least(minimum: int, **values: int) -> None:
    for name, value in values.items():
        if value < minimum:
            raise ConfigError(f"{name}={value}, but at least {minimum} is needed")


def _existing_file(name: str, path: str) -> Path:
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{name}={path!r}: there is no such file (looked in {file.absolute().parent})")
    return file


def _matching(name: str, given: Any) -> list[str]:
    """Existing files and folders that `given` names: a path, a pattern with * or a list of these."""
    patterns = [given] if isinstance(given, str) else given
    if not isinstance(patterns, list) or not all(isinstance(p, str) for p in patterns) or not patterns:
        raise ConfigError(
            f"{name}={given!r}: give a path, a pattern such as 'folder/*.parquet', or a list of paths"
        )
    found = []
    for pattern in patterns:
        expanded = str(Path(pattern).expanduser())
        matches = [expanded] if Path(expanded).exists() else sorted(glob.glob(expanded))
        if not matches:
            raise InputError(
                f"{name}={pattern!r}: no such file (looked in {Path(expanded).absolute().parent})"
            )
        found += matches
    return found
