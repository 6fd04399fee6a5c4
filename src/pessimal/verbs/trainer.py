"""The Lightning trainer that a configuration describes: devices, nodes, and how they share the work."""

import logging
import os
import sys

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from pytorch_lightning.strategies import ModelParallelStrategy
from pytorch_lightning.utilities import rank_zero_only

from pessimal.config.schema import Strategy, TrainerSpec
from pessimal.errors import ConfigError
from pessimal.scoring.allocator import keep_large_buffers


def begin_process(spec: TrainerSpec) -> bool:
    """Check the trainer, give this process its threads, and silence all processes but the first; whether it is that one."""
    first = is_first_process()
    if not first:  # one of them speaks
        logging.getLogger("pessimal").setLevel(logging.WARNING)
    if spec.threads:
        torch.set_num_threads(spec.threads)
    check_trainer(spec)
    return first


def check_trainer(spec: TrainerSpec) -> None:
    """ConfigError where this machine, or the way the command was started, does not fit the configuration."""
    here = {"cpu", "auto"} | ({"gpu", "cuda"} if torch.cuda.is_available() else set())
    if torch.backends.mps.is_available():
        here |= {"gpu", "mps"}
    if spec.accelerator not in here:
        raise ConfigError(
            f"trainer.accelerator={spec.accelerator!r}, but this machine has: {', '.join(sorted(here))}; type trainer=cpu"
        )
    cards = torch.cuda.device_count()
    if spec.accelerator != "cpu" and spec.devices > cards > 0:
        raise ConfigError(
            f"trainer.devices={spec.devices}, but this machine has {cards}; type trainer.devices={cards}"
        )
    started = os.environ.get("LOCAL_WORLD_SIZE")
    if started is not None and int(started) != spec.devices:
        raise ConfigError(
            f"torchrun started {started} processes on this node and trainer.devices={spec.devices}; give both the same"
        )
    alone = started is None and "SLURM_JOB_ID" not in os.environ
    if (
        alone
        and spec.devices > 1
        and HydraConfig.initialized()
        and HydraConfig.get().mode is RunMode.MULTIRUN
    ):
        raise ConfigError(
            f"trainer.devices={spec.devices} in a sweep needs a launcher that starts each job's processes: hydra/launcher="
            "submitit_slurm; or give one command a job, without -m"
        )
    if spec.num_nodes > 1 and "MASTER_ADDR" not in os.environ and "SLURM_JOB_ID" not in os.environ:
        raise ConfigError(
            f"trainer.num_nodes={spec.num_nodes} needs a launcher on each node. Type there: torchrun "
            f"--nnodes={spec.num_nodes} --nproc-per-node={spec.devices} --rdzv-backend=c10d "
            f"--rdzv-endpoint=HOST:29500 -m pessimal {' '.join(sys.argv[1:])}"
        )


def make_trainer(spec: TrainerSpec, *, root: str) -> pl.Trainer:
    """A trainer for prediction that keeps no checkpoints, draws nothing and divides nothing by itself."""
    if spec.accelerator == "cpu":
        keep_large_buffers()
    strategy = spec.strategy.value
    if spec.strategy is Strategy.sharded:
        strategy = ModelParallelStrategy()
    return pl.Trainer(
        accelerator=spec.accelerator,
        devices=spec.devices,
        num_nodes=spec.num_nodes,
        strategy=strategy,
        use_distributed_sampler=False,
        default_root_dir=root,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=spec.strategy is not Strategy.sharded,
    )


def is_first_process() -> bool:
    """Whether this process publishes and speaks; in a scan of one process it is the only one."""
    return rank_zero_only.rank == 0
