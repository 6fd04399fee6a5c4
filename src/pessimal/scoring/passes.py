"""One pass: rows of the inputs through one network in one precision, in a loop that can be killed and goes on.

Knows the loop and the shards. What the rewards are for, the scan knows.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import ModelParallelStrategy

from pessimal.errors import ModelError
from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.batch_size import Lengths, find_batch_size
from pessimal.scoring.candidates import Inputs, batches
from pessimal.scoring.engine import Decoder, SharedPrefix
from pessimal.scoring.loop import CandidateData, ScanModule, ScanProgress, ShardWriter
from pessimal.scoring.shards import Shards
from pessimal.scoring.trust import NOISE_SAMPLE, Trust, numerical_noise, sample_rows

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loop:
    """Where and how a pass runs; none of it changes what a reward is."""

    trainer: pl.Trainer
    batch_size: int | None
    """Candidates per batch; chosen from memory where None."""
    progress: bool
    """Draw a progress bar where there is a terminal."""
    find_threads: bool = False
    """Take one thread or all, whichever is faster here."""
    ignore_finished: bool = False
    """Score anew what an earlier, interrupted scan has finished."""
    report: Callable[[int, float, int], None] | None = None
    """Told every few seconds of a pass how many candidates are scored, how many a second, and the batch size."""

    @property
    def sharded(self) -> bool:
        """Whether a network's layers are spread over the processes."""
        return isinstance(self.trainer.strategy, ModelParallelStrategy)


class Pass:
    """Scores rows of `inputs` with `network`; finished batches are kept under `folder`."""

    def __init__(
        self,
        network: torch.nn.Module,
        frame: Frame,
        inputs: Inputs,
        *,
        dtype: Dtype,
        texts: list[str],
        label: str,
        folder: Path,
        loop: Loop,
    ):
        self.inputs, self.texts, self.label, self.folder, self.loop = inputs, texts, label, folder, loop
        self.sample = sample_rows(inputs.kinds, n=NOISE_SAMPLE, seed=1)
        self.module = ScanModule(
            network, frame=frame, inputs=inputs, dtype=dtype, sample=self.sample, sharded=loop.sharded
        )
        wanted = loop.batch_size or find_batch_size(
            network.config, self._lengths(network), device=loop.trainer.strategy.root_device
        )
        # One that was given holds, also where an earlier start took another.
        self.batch_size = Shards(folder).agree("batch-size", wanted, insist=loop.batch_size is not None)
        if loop.find_threads:  # another number changes the last bits, so a scan that goes on keeps it
            self.module.agree_threads = lambda threads: Shards(folder).agree("threads", threads)
        self.rate = 0.0
        """Candidates a second in the last run."""

    def run(self, rows: np.ndarray, *, name: str) -> np.ndarray:
        """Rewards float32 (n,) of sorted `rows` (n,); `name` keeps their shards apart from other runs'.

        Raises ModelError where a reward is not a number, and where batches of other processes do not arrive.
        """
        trainer, plan = self.loop.trainer, batches(self.inputs, size=self.batch_size, rows=rows)
        shards = Shards(self.folder / name)
        rewards = np.full(len(self.inputs), np.nan, dtype=np.float32)
        wait_for_all()
        todo = list(range(len(plan)))
        if not self.loop.ignore_finished:
            todo = _restore(shards, plan, todo, rewards)
            if len(todo) < len(plan):
                log.info("%s: going on with %d of %d batches", self.label, len(todo), len(plan))
        done = int(np.isfinite(rewards).sum())
        progress = ScanProgress(
            self.label, done=done, total=len(rows), bar=self.loop.progress, report=self._report
        )
        trainer.callbacks = [ShardWriter(shards, self.texts), progress]
        data = CandidateData(self.inputs, plan, todo, equal_steps=self.loop.sharded)
        trainer.predict(self.module, data, return_predictions=False)
        wait_for_all()
        missing = _restore(shards, plan, todo, rewards)
        if missing:
            raise ModelError(
                f"{len(missing)} of {len(plan)} batches did not reach {shards.folder}: give all processes one "
                "paths.cache on a file system that they share, and scan again; what is finished is kept"
            )
        self.rate = progress.rate
        return rewards[rows]

    def _report(self, done: int, rate: float) -> None:
        if self.loop.report:
            self.loop.report(done, rate, self.batch_size)

    @property
    def trust(self) -> Trust:
        """Result of the check against the model's own forward (after a run). ModelError where that gave no number to
        compare with, though the engine did: a head that overflows in float16 is one."""
        if self.module.scorer.trust is None:
            raise ModelError(
                f"{self.label}: the model's own forward gives no reward that is a number for any random candidate in "
                f"{self.module.precision.value}, so nothing can be checked. Try model.dtype=float32, or look at it: "
                "pessimal check"
            )
        return self.module.scorer.trust

    @property
    def attention(self) -> str:
        """The path that scored (after a run)."""
        return self.module.scorer.attention

    def noise(self, rewards: np.ndarray) -> float:
        """Numerical error of this float32 pass's `rewards` (m,) of `sample`, by the model's own forward."""
        return numerical_noise(rewards, self.module.own)

    def _lengths(self, network: torch.nn.Module) -> Lengths:
        own, seen = int(self.inputs.lengths.max()), int((self.inputs.shared + self.inputs.lengths).max())
        shared = Decoder.of(network) is not None and SharedPrefix.suits(network)
        return Lengths(own if shared else seen, seen)


def wait_for_all() -> None:
    """Wait until every process of the scan is here; at once where there is only one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


def _restore(shards: Shards, plan: list[np.ndarray], numbers: list[int], rewards: np.ndarray) -> list[int]:
    """Fill `rewards` from the finished shards among these batches; returns the numbers of those that are missing."""
    missing = []
    for number in numbers:
        stored = shards.read(number, plan[number])
        if stored is None:
            missing.append(number)
        else:
            rewards[plan[number]] = stored
    return missing
