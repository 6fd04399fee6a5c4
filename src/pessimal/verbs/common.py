"""What every task does around its work: fetch a model's files, open the W&B run, describe a
configuration."""

import contextlib
import functools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from pessimal.api.store import Store
from pessimal.config.compose import asked, config_hash, plain
from pessimal.config.schema import TaskConfig, TrackingMode
from pessimal.progress import working
from pessimal.scoring.spec import TrainerSpec
from pessimal.tracking.mirror import Mirror, Target, open_mirror
from pessimal.tracking.registry import Registry, checkout

if TYPE_CHECKING:
    import torch


log = logging.getLogger(__name__)

_NOT_ASKED = ("task", "tracking", "paths", "progress", "force", "hydra", "tuning.")
"""Options that do not say what a run is about."""


def in_sweep() -> bool:
    """Whether this is one of the jobs of `-m`, which print one line each."""
    return HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN


@contextlib.contextmanager
def tracked(
    config: TaskConfig,
    *,
    name: str,
    inputs: Sequence[str] = (),
    task: str | None = None,
    group: str | None = None,
    first: bool = True,
) -> Iterator[Mirror]:
    """The W&B run of one task; of several processes only the `first` has one. Jobs of a sweep share
    a group, and are called after their overrides; parts of another task are of its `group`."""
    tracking, (_, overrides) = config.tracking, _sweep(config)
    code = checkout()._asdict()
    with contextlib.ExitStack() as stack:
        run = open_mirror(
            target_of(config, group),
            mode=tracking.mode.value if first else TrackingMode.off.value,
            job_type=task or config.task,
            name=" ".join([name, *overrides]),
            config=plain(config)
            | {"config_hash": config_hash(config), "inputs": list(inputs), "code": code},
            patience=tracking.patience,
        )
        yield stack.enter_context(run)
        with working("sending what is left to W&B", after=2):
            stack.close()


def target_of(config: TaskConfig, group: str | None = None) -> Target:
    """Where at W&B a configuration sends its run."""
    tracking = config.tracking
    return Target(
        project=tracking.project,
        folder=Path(config.paths.wandb),
        entity=tracking.entity,
        group=tracking.group or group or _sweep(config)[0],
        tags=tracking.tags,
    )


def _sweep(config: TaskConfig) -> tuple[str | None, list[str]]:
    """Of a job of `-m`: what the sweep is called, the same in all its jobs, and the job's overrides
    that matter."""
    if not in_sweep():
        return None, []
    hydra = HydraConfig.get()
    overrides = [o for o in hydra.overrides.task if not o.lstrip("+~").startswith(_NOT_ASKED)]
    return f"{config.task} {Path(hydra.sweep.dir).name.removeprefix('multirun_')}", overrides


def device_of(trainer: TrainerSpec, cache: str) -> "torch.device":
    """Where a model runs. On a CPU without Lightning, whose import takes longer than one pair."""
    import torch

    if trainer.accelerator != "cpu":
        from pessimal.scoring.trainer import begin_process, make_trainer

        begin_process(trainer)
        return make_trainer(trainer, root=cache).strategy.root_device
    torch.set_num_threads(trainer.threads or torch.get_num_threads())
    return torch.device("cpu")


def store_of(config: TaskConfig) -> Store:
    """Where a verb publishes: its registry, and a W&B run of its own."""
    return Store(registry_of(config), functools.partial(tracked, config), config.force)


def registry_of(config: TaskConfig) -> Registry:
    """The registry that a configuration names; what is published there keeps what the configuration
    asks for."""
    return Registry(Path(config.paths.registry), config=asked(config))
