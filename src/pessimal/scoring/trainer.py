"""The Lightning trainer that a configuration describes: devices, nodes, and how they share the
work."""

import logging
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import ModelParallelStrategy
from pytorch_lightning.utilities import rank_zero_only

from pessimal.errors import ConfigError
from pessimal.scoring.memory import keep_large_buffers
from pessimal.scoring.spec import Strategy, TrainerSpec


def begin_process(spec: TrainerSpec) -> bool:
    """Check the trainer, give this process its threads, and silence all processes but the first;
    whether it is that one."""
    first = is_first_process()
    if not first:  # one of them speaks
        logging.getLogger("pessimal").setLevel(logging.WARNING)
    if spec.threads:
        torch.set_num_threads(spec.threads)
    check_trainer(spec)
    return first


def check_trainer(spec: TrainerSpec) -> None:
    """ConfigError where torch does not find the devices; `TrainerSpec.check_here` has seen to the
    rest before torch was there."""
    here = {"cpu", "auto"} | ({"gpu", "cuda"} if torch.cuda.is_available() else set())
    if torch.backends.mps.is_available():
        here |= {"gpu", "mps"}
    if spec.accelerator not in here:
        raise ConfigError(
            f"trainer.accelerator={spec.accelerator!r}, but this machine has: "
            f"{', '.join(sorted(here))}; type trainer=cpu"
        )
    cards = torch.cuda.device_count()
    if spec.accelerator != "cpu" and spec.devices > cards > 0:
        raise ConfigError(
            f"trainer.devices={spec.devices}, but this machine has {cards}; type "
            f"trainer.devices={cards}"
        )


def make_trainer(spec: TrainerSpec, *, root: Path | str) -> pl.Trainer:
    """A trainer for prediction that keeps no checkpoints, draws nothing and divides nothing by
    itself."""
    if spec.accelerator == "cpu":
        keep_large_buffers()
    sharded = spec.strategy is Strategy.sharded
    return pl.Trainer(
        accelerator=spec.accelerator,
        devices=spec.devices,
        num_nodes=spec.num_nodes,
        strategy=ModelParallelStrategy() if sharded else spec.strategy.value,
        use_distributed_sampler=False,
        default_root_dir=root,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=not sharded,
    )


def is_first_process() -> bool:
    """Whether this process publishes and speaks; in a scan of one process it is the only one."""
    return getattr(rank_zero_only, "rank", 0) == 0
