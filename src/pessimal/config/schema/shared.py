"""Options that verbs share: folders, tracking, and where a loop runs."""

import errno
import os
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from annotated_types import Ge
from pydantic import AfterValidator, ConfigDict
from pydantic.dataclasses import dataclass

from pessimal.conversation import prompt_of, read_prompts
from pessimal.errors import ConfigError
from pessimal.options import Options

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
    """Tags by which runs are found; WANDB_TAGS where empty."""
    patience: Annotated[float, Ge(0)] = 12.0
    """Seconds that W&B may hold up a task: a third each to begin online, to take its artifacts and
    to end."""


Folder = Annotated[str, AfterValidator(lambda path: os.path.abspath(os.path.expanduser(path)))]
"""Absolute, as seen from where the command was started."""


@dataclass
class PathsSpec(Options):
    """Folders; relative ones count from where the command was started."""

    __pydantic_config__ = Options.__pydantic_config__ | ConfigDict(validate_default=True)

    root: Folder = "runs"
    """Where the others are by default, and each run's configuration and log."""
    registry: Folder = "runs/registry"
    """Every result, as versioned artifacts."""
    cache: Folder = "runs/cache"
    """Files that can be made again: converted models, shards of unfinished scans."""
    wandb: Folder = "runs/wandb"
    """Everything the wandb client writes."""

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
        raise ConfigError(f"{name}={folder!r} cannot be written to: {error.strerror}") from error
    # ~ of a user there is not; what no name of a folder can hold.
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"{name}={folder!r} is no folder: {error}; give another") from error
    if not os.access(path, os.W_OK):
        raise ConfigError(f"{name}={folder!r} is not writable; give another folder")


@dataclass
class TaskConfig(Options):
    """Options that all verbs share."""

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

    def resolve(self) -> Self:
        """The same with what follows from the options decided; verbs are given this."""
        return self


@dataclass
class PromptedConfig(TaskConfig):
    """Options of the verbs that ask a model."""

    prompts: dict[str, Any] = field(default_factory=dict)
    """The user turns, verbatim, by key; or conversations, each a list of messages with role and
    content."""
    prompts_path: str | None = None
    """File of more of them: YAML (key: prompt), or JSON lines with key, and prompt or messages;
    prompts=FILE takes these alone."""

    def __post_init__(self):
        typed = {key: prompt_of(p, name=f"prompts.{key}") for key, p in self.prompts.items()}
        more = {} if self.prompts_path is None else read_prompts(self.prompts_path)
        self.prompts = typed | more
        super().__post_init__()
