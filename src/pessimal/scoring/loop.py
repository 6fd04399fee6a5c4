"""The prediction loop: a LightningModule over batches of candidates, and a writer that appends shards.

Knows Lightning. The arithmetic is the engine's, the files are the shards'.
"""

import logging
import sys
import time

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import BasePredictionWriter, Callback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.data import DataLoader, Dataset

from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Inputs
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.shards import Shards

log = logging.getLogger(__name__)

LOG_EVERY_SECONDS = 10


class CandidateBatches(Dataset):
    """The batches still to score; item = (batch number, row numbers (n,), framed, ids (n, length))."""

    def __init__(self, inputs: Inputs, batches: list[tuple[bool, np.ndarray]], todo: list[int]):
        self.inputs, self.batches, self.todo = inputs, batches, todo

    def __len__(self):
        return len(self.todo)

    def __getitem__(self, index):
        number = self.todo[index]
        framed, rows = self.batches[number]
        ids = torch.tensor([self.inputs.responses[row] for row in rows], dtype=torch.long)
        return number, torch.from_numpy(rows), framed, ids


class CandidateData(pl.LightningDataModule):
    """Serves the batches in order, one an item."""

    def __init__(self, dataset: CandidateBatches):
        super().__init__()
        self.dataset = dataset

    def predict_dataloader(self):
        return DataLoader(self.dataset, batch_size=None)


class ScanModule(pl.LightningModule):
    """Rewards of candidates in one frame."""

    def __init__(self, network, *, frame: Frame, inputs: Inputs, dtype: Dtype):
        super().__init__()
        self.network = network
        self.frame, self.inputs, self.precision = frame, inputs, dtype
        self.scorer: FrameScorer | None = None

    def on_predict_start(self):
        # Only here is the network where the trainer wants it.
        self.network.eval()
        self.scorer = FrameScorer(self.network, self.frame, device=self.device)
        self.scorer.establish_trust(self.inputs, dtype=self.precision)

    def predict_step(self, batch, _batch_index=None):
        _, _, framed, ids = batch
        return self.scorer.rewards(ids, framed=framed)


class ShardWriter(BasePredictionWriter):
    """Writes every batch's rewards as it is finished."""

    def __init__(self, shards: Shards):
        super().__init__(write_interval="batch")
        self.shards = shards

    def write_on_batch_end(
        self, trainer, module, prediction, batch_indices, batch, batch_index, dataloader_index
    ):
        number, rows, _, _ = batch
        self.shards.write(int(number), rows.cpu().numpy(), prediction.float().cpu().numpy())


class ScanProgress(Callback):
    """A bar with candidates a second and the time left; log lines every few seconds where there is no terminal."""

    def __init__(self, label: str, *, done: int, total: int, bar: bool):
        self.label, self.done, self.total, self.fresh = label, done, total, 0
        self.started = self.spoken = time.perf_counter()
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
        self.started = self.spoken = time.perf_counter()
        if self.bar and trainer.is_global_zero:
            self.bar.start()
            self.task = self.bar.add_task(self.label, total=self.total, completed=self.done, rate="")

    def on_predict_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        self.fresh += len(batch[1])
        if not trainer.is_global_zero:
            return
        if self.bar:
            self.bar.update(self.task, advance=len(batch[1]), rate=f"{self.rate:,.0f} candidates/s")
        elif time.perf_counter() - self.spoken > LOG_EVERY_SECONDS:
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
