"""The Lightning trainer that a configuration describes: devices, nodes, and how they share the
work; and memory: how many candidates go through the network at once, found from what is free and
never a constant per model.

The arithmetic of memory is over a configuration's sizes and errs on the large side; where a card
runs out of memory all the same, the batch is halved (`within_memory`).
"""

import ctypes
import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import ModelParallelStrategy
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor
from transformers import PreTrainedConfig

from pessimal.errors import ConfigError
from pessimal.scoring.spec import Strategy, TrainerSpec

log = logging.getLogger(__name__)


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
    accelerators = {"cpu", "auto"} | ({"gpu", "cuda"} if torch.cuda.is_available() else set())
    if torch.backends.mps.is_available():
        accelerators |= {"gpu", "mps"}
    if spec.accelerator not in accelerators:
        raise ConfigError(
            f"trainer.accelerator={spec.accelerator!r}, but this machine has: "
            f"{', '.join(sorted(accelerators))}; type trainer=cpu"
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


# More than these bring nothing: a CPU's caches overflow, a card has long been compute-bound
# (`experiments/LOG.md`).
_MOST_TOKENS = {"cpu": 4096, "cuda": 32_768}
_MOST_CANDIDATES = {"cpu": 512, "cuda": 32_768}
# Share of the free memory that a batch may take; on a CPU never more than a quarter of a GiB.
_SHARE, _CPU_BYTES = 0.5, 2**28


@dataclass(frozen=True)
class Lengths:
    """Tokens of one candidate."""

    run: int
    """That run through the network."""
    seen: int
    """That they attend to, the prefix included."""


def find_batch_size(config: PreTrainedConfig, lengths: Lengths, *, device: torch.device) -> int:
    """Candidates per batch, a power of two, for a network of this transformers configuration."""
    text, run = config.get_text_config(), lengths.run
    hidden = text.hidden_size
    heads = getattr(text, "num_attention_heads", 1)
    feed_forward = getattr(text, "intermediate_size", None) or 4 * hidden
    # Float32 throughout: residual, norm, queries, keys, values and output; gate, up and their
    # product; the scores, their softmax and a copy of each.
    floats = run * (8 * hidden + 3 * feed_forward) + 4 * heads * run * lengths.seen
    room = free_bytes(device) // (4 * floats)
    kind = device.type if device.type in _MOST_TOKENS else "cpu"
    limit = min(_MOST_TOKENS[kind] // run, _MOST_CANDIDATES[kind])
    return 2 ** (max(1, min(room, limit)).bit_length() - 1)


def free_bytes(device: torch.device) -> int:
    """Bytes that a batch may take."""
    if device.type == "cuda":
        return int(_SHARE * torch.cuda.mem_get_info(device)[0])
    return _CPU_BYTES


def within_memory(run: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Result of `run` for `rows`; rows that do not fit into a card's memory together are halved
    until they do."""
    try:
        return run(rows)
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise
    log.warning("out of memory with %d candidates at once; going on with half of them", len(rows))
    torch.cuda.empty_cache()
    return torch.cat([within_memory(run, half) for half in rows.tensor_split(2)])


def keep_large_buffers() -> None:
    """From now on, blocks below 1 GiB stay with this process when they are freed. Does nothing
    without glibc.

    glibc returns larger blocks at once, so each batch's activations are mapped, and their pages
    zeroed, anew: 6 to 20 % of the time of a bfloat16 scan (`experiments/LOG.md`).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 2**30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, 2**30)  # M_TRIM_THRESHOLD
