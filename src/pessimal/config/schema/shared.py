"""What verbs share: folders, tracking, and where a loop runs."""

import errno
import os
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge

from pessimal.errors import ConfigError
from pessimal.options import Count, OneOf, Options
from pessimal.rewards.spec import ModelSpec

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class TrackingMode(Enum):
    """Where Weights & Biases hears of a run."""

    online = "online"
    offline = "offline"
    off = "off"
    # As WANDB_MODE has them.
    disabled = "off"
    dryrun = "offline"
    run = "online"


class Strategy(Enum):
    """How a scan's processes share the work."""

    auto = "auto"
    """One process for one device; `ddp` for more."""
    ddp = "ddp"
    """Every process holds the whole network and scores its share of the candidates."""
    sharded = "sharded"
    """Every process holds a part of every layer, for a network larger than one card."""


@dataclass
class TrainerSpec(Options):
    """Where the loop runs."""

    _prefix: ClassVar[str] = "trainer"

    accelerator: Annotated[str, OneOf(("cpu", "gpu", "cuda", "mps", "auto"))] = "cpu"
    """Kind of device."""
    devices: Count = 1
    """Devices of each node, one process each (on a CPU: processes)."""
    num_nodes: Count = 1
    """Machines; started by torchrun or a scheduler on each of them."""
    strategy: Strategy = Strategy.auto
    """How the processes share the work."""
    threads: Count | None = None
    """OpenMP threads of a process; null lets a scan take one or all, whichever is faster here, and
    elsewhere leaves torch's choice."""

    @property
    def alone(self) -> bool:
        """One process on one device."""
        return self.devices * self.num_nodes == 1 and self.strategy is Strategy.auto

    def check_alone(self, why: str) -> None:
        """ConfigError, saying `why`, where more than one device is asked for."""
        if not self.alone:
            raise ConfigError(
                f"trainer.devices={self.devices} trainer.num_nodes={self.num_nodes} "
                f"trainer.strategy={self.strategy.value}: "
                f"{why}. Leave them out"
            )

    def check_here(self, *, sweep: bool) -> None:
        """ConfigError where this machine, or how the command was started, cannot be what is asked
        for; without torch, which alone knows the rest (`verbs.trainer`)."""
        linux_card = any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")))
        if sys.platform == "linux" and self.accelerator in ("gpu", "cuda") and not linux_card:
            raise ConfigError(
                f"trainer.accelerator={self.accelerator!r}, but this machine has no GPU that its "
                f"system knows of; type trainer=cpu"
            )
        started, slurm = os.environ.get("LOCAL_WORLD_SIZE"), "SLURM_JOB_ID" in os.environ
        if started is not None and int(started) != self.devices:
            raise ConfigError(
                f"torchrun started {started} processes on this node and "
                f"trainer.devices={self.devices}; give both the same"
            )
        if sweep and started is None and not slurm and self.devices > 1:
            raise ConfigError(
                f"trainer.devices={self.devices} in a sweep needs a launcher that starts each "
                f"job's processes: hydra/launcher="
                "submitit_slurm; or give one command a job, without -m"
            )
        if self.num_nodes > 1 and "MASTER_ADDR" not in os.environ and not slurm:
            raise ConfigError(
                f"trainer.num_nodes={self.num_nodes} needs a launcher on each node. Type there: "
                f"torchrun "
                f"--nnodes={self.num_nodes} --nproc-per-node={self.devices} --rdzv-backend=c10d "
                f"--rdzv-endpoint=HOST:29500 -m pessimal {' '.join(sys.argv[1:])}"
            )


@dataclass
class TrackingSpec(Options):
    """The W&B run that mirrors a task. What is not given follows W&B's own variables
    (conf/tracking/default.yaml)."""

    _prefix: ClassVar[str] = "tracking"

    mode: TrackingMode = TrackingMode.offline
    """Where runs go: sent, recorded on this disk, or nowhere; WANDB_MODE, or offline."""
    project: str = "pessimal"
    """WANDB_PROJECT, or pessimal."""
    entity: str | None = None
    """User or team; WANDB_ENTITY, or the key's own."""
    group: str | None = None
    """Runs of one study share a group; WANDB_RUN_GROUP, or the sweep that a job of -m is of."""
    tags: list[str] = field(default_factory=list)
    """What runs are found by; WANDB_TAGS where empty."""
    patience: Annotated[float, Ge(0)] = 12.0
    """Seconds that W&B's faults, and waiting at the end for what is online to arrive, may hold up a
    task."""


@dataclass
class PathsSpec(Options):
    """Folders; relative ones count from where the command was started."""

    root: str = "runs"
    """Where the others are by default, and each run's configuration and log."""
    registry: str = "runs/registry"
    """Every result, as versioned artifacts."""
    cache: str = "runs/cache"
    """What can be made again: trained demo models, shards of unfinished scans."""
    wandb: str = "runs/wandb"
    """Everything the wandb client writes."""

    def check(self) -> None:
        """Make them absolute, as seen from the working folder."""
        for name, folder in vars(self).items():
            setattr(self, name, os.path.abspath(os.path.expanduser(folder)))

    def check_writable(self) -> None:
        """ConfigError naming the option whose folder cannot be made or written to."""
        for name in ("registry", "cache", "wandb"):
            check_writable(f"paths.{name}", getattr(self, name))


def check_writable(name: str, folder: str) -> None:
    """Make the folder; ConfigError where that cannot be, or nothing can be written there. A full
    disk stays an OSError."""
    try:
        path = Path(folder).expanduser()
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise ConfigError(
            f"{name}={folder!r} cannot be written to: {error.strerror}; give another folder"
        ) from error
    except (
        RuntimeError,
        ValueError,
    ) as error:  # ~ of a user there is not; what no name of a folder can hold
        raise ConfigError(f"{name}={folder!r} is no folder: {error}; give another") from error
    if not os.access(path, os.W_OK):
        raise ConfigError(f"{name}={folder!r} is not writable; give another folder")


@dataclass
class TaskConfig(Options):
    """What all verbs share."""

    task: str = ""
    """The verb."""
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
