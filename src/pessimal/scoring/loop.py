"""One pass: rows of the inputs through one network in one precision, in a Lightning loop that can be killed and goes on.

Knows Lightning. The arithmetic is the scorer's, the files are the shards'; what the rewards are for, the scan knows.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import BasePredictionWriter, Callback
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.data import DataLoader

from pessimal.errors import ConfigError, ModelError
from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.progress import Counter, counted
from pessimal.scoring.candidates import Inputs, batches
from pessimal.scoring.engine import Decoder, SharedPrefix
from pessimal.scoring.memory import Lengths, find_batch_size
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.shards import Shards
from pessimal.scoring.trust import NOISE_SAMPLE, Trust, numerical_noise, sample_rows

log = logging.getLogger(__name__)

REPORT_EVERY_SECONDS = 2
PROBED, PROBES, SLOW, FASTER = 256, 3, 1.0, 0.9
"""To find the number of threads: candidates and runs, the seconds from which all threads are taken, and how much less time one
thread must need to be preferred."""


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
    """Called every few seconds of a pass with the candidates scored, how many a second, and the batch size."""

    @property
    def sharded(self) -> bool:
        """Whether a network's layers are spread over the processes."""
        return isinstance(self.trainer.strategy, ModelParallelStrategy)


class Pass:
    """Scores rows of `inputs` with `network`; finished batches are kept under `folder`."""

    def __init__(
        self,
        network: nn.Module,
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

    def _lengths(self, network: nn.Module) -> Lengths:
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


class CandidateData(pl.LightningDataModule):
    """Serves each process its share of the batches still to score: every n-th by number, so that each is scored once.

    A batch numbered -1 is computed and not written. A process whose share is empty gets one, since the trust check
    belongs to the table and Lightning runs no loop over nothing; `equal_steps` gives all processes the same number of steps,
    as networks sharded over processes need it.
    """

    def __init__(self, inputs: Inputs, batches: list[np.ndarray], todo: list[int], *, equal_steps: bool):
        super().__init__()
        self.inputs, self.batches, self.todo = inputs, batches, todo
        self.equal_steps = equal_steps

    def predict_dataloader(self):
        processes = self.trainer.world_size
        shares = [[n for n in self.todo if n % processes == rank] for rank in range(processes)]
        own = shares[self.trainer.global_rank]
        steps = max(map(len, shares)) if self.equal_steps else len(own)
        own += [-1] * (max(steps, 1) - len(own))
        return DataLoader(own, batch_size=None, collate_fn=self._batch)

    def _batch(self, number: int) -> tuple[int, torch.Tensor, int, torch.Tensor]:
        """Its number, row numbers (n,), how much they share, ids (n, length)."""
        rows = self.batches[max(number, 0)]
        ids = np.stack([self.inputs.own(row) for row in rows])
        return number, torch.from_numpy(rows), int(self.inputs.shared[rows[0]]), torch.from_numpy(ids).long()


class ScanModule(pl.LightningModule):
    """Rewards of candidates in one frame."""

    def __init__(
        self, network, *, frame: Frame, inputs: Inputs, dtype: Dtype, sample: np.ndarray, sharded: bool
    ):
        super().__init__()
        self.network = network
        self.frame, self.inputs, self.precision, self.sharded = frame, inputs, dtype, sharded
        self.sample = sample
        """Rows (n,) that the model's own forward scores too."""
        self.own: np.ndarray | None = None
        """Its rewards float64 (n,)."""
        self.scorer: FrameScorer | None = None
        self.agree_threads: Callable[[int], int] | None = None
        """Settles on a number of threads, given the fastest here; None leaves them as they are."""

    def configure_model(self):
        if self.sharded:
            shard_over(self.network, Decoder.of(self.network), self.device_mesh)

    def on_predict_start(self):
        # Only here is the network where the trainer wants it; after the loop it is there no more.
        self.network.eval()
        if self.scorer is None:
            self.scorer = FrameScorer(self.network, self.frame, device=self.device)
            if self.agree_threads is not None and self.device.type == "cpu":
                torch.set_num_threads(self.agree_threads(self._fastest_threads()))
            self.scorer.establish_trust(self.inputs, dtype=self.precision)
            self.own = self.scorer.own_rewards(self.inputs, self.sample)

    def _fastest_threads(self) -> int:
        """The faster of one thread and of all that torch would take, on a batch of these candidates: on cores that others
        use as well, threads that wait for one another are slower than one (`experiments/speed/threads.py`)."""
        most = torch.get_num_threads()
        like = (self.inputs.kinds == self.inputs.kinds[self.sample[0]]).all(axis=1)
        rows = np.flatnonzero(like)[:PROBED]
        ids = torch.from_numpy(np.stack([self.inputs.own(row) for row in rows])).long()
        shared = int(self.inputs.shared[rows[0]])
        seconds = dict.fromkeys((most, 1), float("inf"))
        for _ in range(PROBES if most > 1 else 0):
            for threads in seconds:
                torch.set_num_threads(threads)
                started = time.perf_counter()
                self.scorer.rewards(ids, shared=shared)
                seconds[threads] = min(seconds[threads], time.perf_counter() - started)
                if seconds[threads] > SLOW:  # a network of this size has work for all threads
                    return most
        return 1 if seconds[1] < FASTER * seconds[most] else most

    def predict_step(self, batch, _batch_index=None):
        _, _, shared, ids = batch
        return self.scorer.rewards(ids, shared=shared)


class ShardWriter(BasePredictionWriter):
    """Writes every batch's rewards as it is finished; a reward that is not a number ends the scan there."""

    def __init__(self, shards: Shards, texts: list[str]):
        super().__init__(write_interval="batch")
        self.shards, self.texts = shards, texts

    def write_on_batch_end(
        self, trainer, module, prediction, batch_indices, batch, batch_index, dataloader_index
    ):
        number, rows, _, _ = batch
        rows, rewards = rows.cpu().numpy(), prediction.float().cpu().numpy()
        bad = np.flatnonzero(~np.isfinite(rewards))
        if len(bad):
            raise ModelError(
                f"the model's reward is not a number for {len(bad)} of {len(rows)} candidates of a batch, first for "
                f"{self.texts[rows[bad[0]]]!r}, in {module.precision.value}. Batches finished before are kept. Try "
                "model.dtype=float32, or look at the weights: pessimal check"
            )
        if number >= 0:
            self.shards.write(int(number), rows, rewards)


class ScanProgress(Callback):
    """How far the first process is; the others are about as far."""

    def __init__(
        self,
        label: str,
        *,
        done: int,
        total: int,
        bar: bool,
        unit: str = "candidates",
        report: Callable[[int, float], None] | None = None,
    ):
        """`report` is called every few seconds, and at the end, with how many are scored and how many a second."""
        self.label, self.done, self.total, self.bar, self.unit = label, done, total, bar, unit
        self.report, self.reported = report, 0.0
        self.shown = contextlib.ExitStack()
        self.counter: Counter | None = None

    def on_predict_start(self, trainer, module):
        if trainer.is_global_zero:
            counter = counted(self.label, unit=self.unit, total=self.total, done=self.done, bar=self.bar)
            self.counter, self.reported = self.shown.enter_context(counter), time.monotonic()

    def on_predict_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        self.reach(min(self.done + len(batch[1]) * trainer.world_size, self.total))

    def reach(self, done: int) -> None:
        """So many are done now."""
        fresh, self.done = done - self.done, done
        if not fresh or self.counter is None:
            return
        self.counter.advance(fresh)
        late = time.monotonic() - self.reported > REPORT_EVERY_SECONDS
        if self.report and (late or done == self.total):
            self.reported = time.monotonic()
            self.report(done, self.counter.rate)

    def on_exception(self, trainer, module, exception):
        if isinstance(exception, KeyboardInterrupt):  # Lightning ends the process without a word
            log.warning(
                "%s: stopped at %d of %d; the same command goes on from there",
                self.label,
                self.done,
                self.total,
            )

    def teardown(self, trainer, module, stage):
        self.shown.close()


def shard_over(network: nn.Module, decoder: Decoder | None, mesh: DeviceMesh) -> None:
    """Shard the backbone of a network larger than one card over the processes of `mesh`, layer by layer, to be gathered one
    after the other as they run (`fully_shard`); the head stays whole. All processes must take the same number of steps.

    Adds the attribute `whole_parts`, the decoder as it was taken before. Does nothing the second time. Raises ConfigError
    for a network whose layers pessimal does not find.
    """
    if isinstance(getattr(decoder, "backbone", None), FSDPModule):
        return
    if decoder is None:
        raise ConfigError(
            f"trainer=sharded needs a decoder with a head that pessimal knows; {type(network).__name__} is none. "
            "Type trainer=gpu"
        )
    processes = mesh["data_parallel"]
    for layer in decoder.layers:
        fully_shard(layer, mesh=processes)
    fully_shard(decoder.backbone, mesh=processes)
    network.whole_parts = decoder
