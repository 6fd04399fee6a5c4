"""What verbs share: folders, tracking, and where a loop runs."""

from dataclasses import dataclass, field
from enum import Enum

from pessimal.config.schema.values import at_least
from pessimal.models.spec import ModelSpec


class TrackingMode(Enum):
    """Where Weights & Biases hears of a run."""

    online = "online"
    offline = "offline"
    off = "off"


class Strategy(Enum):
    """How a scan's processes share the work."""

    auto = "auto"
    """One process for one device; `ddp` for more."""
    ddp = "ddp"
    """Every process holds the whole network and scores its share of the candidates."""
    sharded = "sharded"
    """Every process holds a part of every layer, for a network larger than one card."""


@dataclass
class TrainerSpec:
    """Where the loop runs."""

    accelerator: str = "cpu"
    """cpu, gpu or auto."""
    devices: int = 1
    """Devices of each node, one process each (on a CPU: processes)."""
    num_nodes: int = 1
    """Machines; started by torchrun or a scheduler on each of them."""
    strategy: Strategy = Strategy.auto
    """How the processes share the work: auto, ddp or sharded."""
    threads: int | None = None
    """OpenMP threads of a process; null lets a scan take one or all, whichever is faster here, and elsewhere leaves torch's choice."""

    def __post_init__(self):
        at_least(1, **{"trainer.devices": self.devices, "trainer.num_nodes": self.num_nodes})
        if self.threads is not None:
            at_least(1, **{"trainer.threads": self.threads})


@dataclass
class TrackingSpec:
    """The W&B run that mirrors a task."""

    mode: TrackingMode = TrackingMode.offline
    project: str = "pessimal"
    entity: str | None = None
    group: str | None = None
    """Runs of one study share a group."""
    tags: list[str] = field(default_factory=list)
    patience: float = 12.0
    """Seconds that a task waits at its end for what is online to arrive; then it leaves that to `wandb sync`."""


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


def demo_recipe(model: ModelSpec):
    """The demo recipe that `model.recipe` names; ConfigError where there is none such."""
    from pessimal.demo.recipes import Recipe

    spec = model.recipe
    return Recipe(lab=spec.lab, base=spec.base, width=spec.width, seed=spec.seed)
