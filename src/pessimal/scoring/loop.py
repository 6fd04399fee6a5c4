"""The prediction loop: a LightningModule over batches of candidates, and a writer that appends shards.

Knows Lightning. The arithmetic is the engine's, the files are the shards'.
"""

import logging
import sys
import time
from collections.abc import Callable

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import BasePredictionWriter, Callback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.data import DataLoader, Dataset

from pessimal.errors import ModelError
from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Inputs
from pessimal.scoring.engine import Decoder
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.sharded import shard_over
from pessimal.scoring.shards import Shards

log = logging.getLogger(__name__)

LOG_EVERY_SECONDS = 10
REPORT_EVERY_SECONDS = 2
PROBED, PROBES, SLOW, FASTER = 256, 3, 1.0, 0.9
"""To find the number of threads: candidates and runs, the seconds from which all threads are taken, and how much less time one
thread must need to be preferred."""


class CandidateBatches(Dataset):
    """The batches still to score; item = (batch number or -1, row numbers (n,), shared, ids (n, length))."""

    def __init__(self, inputs: Inputs, batches: list[np.ndarray], todo: list[int]):
        self.inputs, self.batches, self.todo = inputs, batches, todo

    def __len__(self):
        return len(self.todo)

    def __getitem__(self, index):
        number = self.todo[index]
        rows = self.batches[max(number, 0)]
        ids = np.stack([self.inputs.own(row) for row in rows])
        return number, torch.from_numpy(rows), int(self.inputs.shared[rows[0]]), torch.from_numpy(ids).long()


class CandidateData(pl.LightningDataModule):
    """Serves each process its share of the batches: every n-th by number, so that each is scored once.

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
        return DataLoader(CandidateBatches(self.inputs, self.batches, own), batch_size=None)


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
        like = (self.inputs.lengths == self.inputs.lengths[self.sample[0]]) & (
            self.inputs.shared == self.inputs.shared[self.sample[0]]
        )
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
    """A bar with candidates a second and the time left; log lines every few seconds where there is no terminal."""

    def __init__(
        self,
        label: str,
        *,
        done: int,
        total: int,
        bar: bool,
        report: Callable[[int, float], None] | None = None,
    ):
        """`report` is told every few seconds, and at the end, how many are scored now and how many a second."""
        self.label, self.done, self.total, self.fresh = label, done, total, 0
        self.report, self.started = report, time.perf_counter()
        self.spoken = self.reported = self.started
        self.bar = None
        if bar and sys.stderr.isatty():
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def on_predict_start(self, trainer, module):
        self.started = self.spoken = self.reported = time.perf_counter()
        if self.bar and trainer.is_global_zero:
            self.bar.start()
            self.task = self.bar.add_task(self.label, total=self.total, completed=self.done, rate="")

    def on_predict_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        # The other processes are about as far.
        scored = len(batch[1]) * trainer.world_size
        self.fresh = min(self.fresh + scored, self.total - self.done)
        if not trainer.is_global_zero:
            return
        late = time.perf_counter() - self.reported > REPORT_EVERY_SECONDS
        if self.report and self.fresh and (late or self.done + self.fresh == self.total):
            self.reported = time.perf_counter()
            self.report(self.done + self.fresh, self.rate)
        if self.bar:
            self.bar.update(
                self.task, completed=self.done + self.fresh, rate=f"{self.rate:,.0f} candidates/s"
            )
        elif self.fresh and time.perf_counter() - self.spoken > LOG_EVERY_SECONDS:
            self.spoken = time.perf_counter()
            done = self.done + self.fresh
            left = (self.total - done) / self.rate
            log.info(
                "%s: %d of %d, %.0f candidates/s, %.0f s left", self.label, done, self.total, self.rate, left
            )

    def on_exception(self, trainer, module, exception):
        if isinstance(exception, KeyboardInterrupt):  # Lightning ends the process without a word
            done = self.done + self.fresh
            log.warning(
                "%s: stopped at %d of %d; the same command goes on from there", self.label, done, self.total
            )

    def teardown(self, trainer, module, stage):
        if self.bar:
            self.bar.stop()

    @property
    def rate(self) -> float:
        """Candidates a second since the loop began."""
        return self.fresh / max(time.perf_counter() - self.started, 1e-9)
