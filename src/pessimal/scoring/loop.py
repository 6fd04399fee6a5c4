"""One pass: rows of the inputs through one network in one precision, in a Lightning loop that can
be killed and goes on, since its finished batches are shards on disk.

Knows Lightning and files. The arithmetic is the scorer's; what the rewards are for, the scan knows.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.strategies import ModelParallelStrategy
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.data import DataLoader

from pessimal.errors import ConfigError, ModelError
from pessimal.progress import Counter, counted
from pessimal.rewards.frame import Frame
from pessimal.rewards.language import JudgeNetwork
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.question import ASKED, Answers
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import Inputs, batches
from pessimal.scoring.engine import Decoder, SharedPrefix
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.trainer import Lengths, find_batch_size
from pessimal.scoring.trust import SAMPLE, Trust, noise_sample, numerical_noise, sample_rows
from pessimal.tables.files import naming, open_to_others, write_atomically

_DIGEST = hashlib.sha256().digest_size


class Shards:
    """One folder of shards; a shard holds the row numbers and rewards of one batch, behind their
    sha256."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, batch: int, rows: np.ndarray, rewards: np.ndarray) -> None:
        """Store one finished batch: rows int (n,), rewards float32 (n,) or (n, outputs)."""
        payload = rows.astype("<i4").tobytes() + rewards.astype("<f4").tobytes()
        write_atomically(
            self._file(batch), hashlib.sha256(payload).digest() + payload, durable=False
        )

    def read(
        self, batch: int, rows: np.ndarray, *, width: tuple[int, ...] = ()
    ) -> np.ndarray | None:
        """Rewards float32 (n, *width) of a finished batch; None if it is missing, torn, damaged or
        of other rows."""
        try:
            content = self._file(batch).read_bytes()
        except FileNotFoundError:
            return None
        digest, payload = content[:_DIGEST], content[_DIGEST:]
        n, columns = len(rows), math.prod(width)
        if hashlib.sha256(payload).digest() != digest or len(payload) != 4 * n * (1 + columns):
            return None
        stored, rewards = np.split(np.frombuffer(payload, dtype="<i4"), [n])
        return rewards.view("<f4").reshape(n, *width) if np.array_equal(stored, rows) else None

    def agree(self, name: str, value: Any, *, insist: bool = False) -> Any:
        """The value that the first process to ask has settled on: `value`, as JSON has it, where
        nobody has, or where all `insist` on it; else what is written there."""
        file = self.folder / f"{name}.json"
        if insist:
            write_atomically(file, json.dumps(value).encode())
            return value
        # Process ids repeat from node to node, so the sibling's name is random.
        handle, draft_path = tempfile.mkstemp(prefix=f".{name}-", dir=self.folder)
        try:
            with naming(file), os.fdopen(handle, "w") as draft:
                draft.write(json.dumps(value))
                draft.flush()
                os.fsync(draft.fileno())
            open_to_others(draft_path)
            # Fails where it exists: one wins, and nobody sees half a file.
            os.link(draft_path, file)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft_path)
        return json.loads(file.read_text())

    def _file(self, batch: int) -> Path:
        return self.folder / f"batch-{batch:06d}"


log = logging.getLogger(__name__)

REPORT_EVERY_SECONDS = 2
PROBED, PROBES, SLOW, FASTER = 256, 3, 0.004, 0.9
"""To find the number of threads: candidates and runs, the seconds of a candidate from which all
threads are taken, and how much less time one thread must need to be preferred."""


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
    """Called every few seconds of a pass with the candidates scored, how many a second, and the
    batch size."""

    @property
    def sharded(self) -> bool:
        """Whether a network's layers are spread over the processes."""
        return isinstance(self.trainer.strategy, ModelParallelStrategy)


class Pass(pl.LightningModule):
    """Scores rows of `inputs` with `network`; finished batches are kept under `folder`."""

    def __init__(
        self,
        network: RewardNetwork,
        frame: Frame,
        inputs: Inputs,
        *,
        dtype: Dtype,
        texts: list[str],
        label: str,
        folder: Path,
        loop: Loop,
        outputs: int = 0,
    ):
        """`outputs` says how many are kept of each row, where every one is scanned."""
        super().__init__()
        self.width = (outputs,) if outputs else ()
        self.network, self.frame, self.inputs, self.precision = network, frame, inputs, dtype
        self.texts, self.label, self.folder, self.loop = texts, label, folder, loop
        n = noise_sample(len(inputs))
        self.sample = sample_rows(inputs.kinds, n=n, seed=int(n > SAMPLE))
        """Rows (n,) that the model's own forward scores too."""
        self.own_rewards = np.empty(0)
        """Rewards of the sample by the model's own forward, float64 (n,)."""
        self.answers: Answers | None = None
        """Probability of a judge's answers, on some of the sample."""
        self._scorer: FrameScorer | None = None
        lengths, seen = inputs.lengths, int((inputs.shared + inputs.lengths).max())
        shared = Decoder.find(network) is not None and SharedPrefix.suits(network)
        wanted = loop.batch_size or find_batch_size(
            network.config,
            Lengths(int(lengths.max()) if shared else seen, seen),
            device=loop.trainer.strategy.root_device,
        )
        # One that was given holds, also where an earlier start took another.
        self.batch_size = Shards(folder).agree(
            "batch-size", wanted, insist=loop.batch_size is not None
        )

    def run(self, rows: np.ndarray, *, name: str) -> np.ndarray:
        """Rewards float32 (n,) of sorted `rows` (n,), or (n, outputs); `name` keeps their shards
        apart from other runs'.

        Raises ModelError where a reward is not a number, and where batches of other processes do
        not arrive.
        """
        trainer: Any = self.loop.trainer  # whose callbacks are said to be fixed
        self.plan = batches(self.inputs, size=self.batch_size, rows=rows)
        self.shards = Shards(self.folder / name)
        rewards = np.full((len(self.inputs), *self.width), np.nan, dtype=np.float32)
        wait_for_all()
        self.todo = list(range(len(self.plan)))
        if not self.loop.ignore_finished:
            self.todo = self._restore(rewards)
            if len(self.todo) < len(self.plan):
                log.info(
                    "%s: going on with %d of %d batches", self.label, len(self.todo), len(self.plan)
                )
        done = int(np.isfinite(rewards.reshape(len(rewards), -1)[:, 0]).sum())
        progress = ScanProgress(
            self.label, done=done, total=len(rows), bar=self.loop.progress, report=self._report
        )
        trainer.callbacks = [progress]
        device = next(self.network.parameters()).device
        try:
            trainer.predict(self, return_predictions=False)
        finally:
            if not self.loop.sharded:  # Lightning leaves it on the CPU, also one that was elsewhere
                self.to(device)
        wait_for_all()
        if missing := self._restore(rewards):
            raise ModelError(
                f"{len(missing)} of {len(self.plan)} batches did not reach {self.shards.folder}: "
                "give all processes one paths.cache on a file system that they share"
            )
        return rewards[rows]

    @property
    def scorer(self) -> FrameScorer:
        """The scorer (after the loop has started)."""
        assert self._scorer is not None
        return self._scorer

    @property
    def trust(self) -> Trust:
        """Result of the check against the model's own forward (after a run). ModelError where that
        gave no number to compare with, though the engine did: a head that overflows in float16 is
        one."""
        if self.scorer.trust is None:
            raise ModelError(
                f"{self.label}: the model's own forward gives no number for any random candidate "
                f"in {self.precision.value}. Try model.dtype=float32, or: pessimal check"
            )
        return self.scorer.trust

    @property
    def attention(self) -> str:
        """The path that scored (after a run)."""
        return self.scorer.attention

    def noise(self, rewards: np.ndarray) -> np.ndarray:
        """Numerical error of this float32 pass's `rewards` (m,) of `sample`, by the model's own
        forward; of several outputs (m, outputs) one each."""
        if not self.width:
            return np.array(numerical_noise(rewards, self.own_rewards))
        expected, columns = self.own_rewards, range(*self.width)
        return np.array([numerical_noise(rewards[:, i], expected[:, i]) for i in columns])

    def _restore(self, rewards: np.ndarray) -> list[int]:
        """Fill `rewards` from the finished shards among the batches to do; the numbers of those
        that are missing."""
        missing = []
        for number in self.todo:
            stored = self.shards.read(number, self.plan[number], width=self.width)
            if stored is None:
                missing.append(number)
            else:
                rewards[self.plan[number]] = stored
        return missing

    def _report(self, done: int, rate: float) -> None:
        if self.loop.report:
            self.loop.report(done, rate, self.batch_size)

    # What Lightning calls, in this order.

    def configure_model(self) -> None:
        if self.loop.sharded:
            assert self.device_mesh is not None
            shard_over(self.network, Decoder.find(self.network), self.device_mesh)

    def predict_dataloader(self) -> DataLoader:
        """Each process's share of the batches to do: every n-th by number, so that each is scored
        once.

        A batch numbered -1 is computed and not written. A process whose share is empty gets one,
        since the trust check belongs to the table and Lightning runs no loop over nothing; networks
        sharded over processes need the same number of steps in all.
        """
        processes = self.trainer.world_size
        shares = [[n for n in self.todo if n % processes == rank] for rank in range(processes)]
        share: Any = shares[self.trainer.global_rank]  # a sequence is a data set
        steps = max(map(len, shares)) if self.loop.sharded else len(share)
        share += [-1] * (max(steps, 1) - len(share))
        return DataLoader(share, batch_size=None, collate_fn=self._batch)

    def _batch(self, number: Any) -> tuple[int, torch.Tensor, int, torch.Tensor]:
        """Its number, row numbers (n,), how much they share, ids (n, length)."""
        rows = self.plan[max(number, 0)]
        shared, ids = int(self.inputs.shared[rows[0]]), self.inputs.batch(rows)
        return number, torch.from_numpy(rows), shared, torch.from_numpy(ids)

    def on_predict_start(self) -> None:
        # Only here is the network where the trainer wants it; after the loop it is there no more.
        self.network.eval()
        if self._scorer is None:
            self._scorer = FrameScorer(self.network, self.frame, device=self.device)
            if self.loop.find_threads and self.device.type == "cpu":
                # Another number changes the last bits, so a scan that goes on keeps it.
                torch.set_num_threads(Shards(self.folder).agree("threads", self._fastest_threads()))
            self.own_rewards = self.scorer.establish_trust(self.inputs, dtype=self.precision)
            if noise_sample(len(self.inputs)) > SAMPLE:  # or it is the sample of the trust check
                self.own_rewards = self.scorer.own_rewards(self.inputs, self.sample)
            if isinstance(self.network, JudgeNetwork):
                whole = [self.inputs.ids(row) for row in self.sample[:ASKED]]
                self.answers = self.network.answers(whole)

    def _fastest_threads(self) -> int:
        """The faster of one thread and of all that torch would take, on a batch of these
        candidates: on cores that others use as well, threads that wait for one another are slower
        than one (`experiments/speed/threads.py`)."""
        n_threads, kinds = torch.get_num_threads(), self.inputs.kinds
        rows = np.flatnonzero((kinds == kinds[self.sample[0]]).all(axis=1))[:PROBED]
        ids = torch.from_numpy(self.inputs.batch(rows))
        shared = int(self.inputs.shared[rows[0]])

        def seconds(threads: int, n: int) -> float:
            torch.set_num_threads(threads)
            started = time.perf_counter()
            self.scorer.rewards(ids[:n], shared=shared)
            return time.perf_counter() - started

        # A large network has work for all threads; a few candidates show it, the second time.
        if n_threads == 1 or min(seconds(n_threads, SAMPLE) for _ in "12") > SLOW * min(
            SAMPLE, len(ids)
        ):
            return n_threads
        times = [(seconds(n_threads, PROBED), seconds(1, PROBED)) for _ in range(PROBES)]
        all_threads, single = np.min(times, axis=0)
        return 1 if single < FASTER * all_threads else n_threads

    def predict_step(
        self, batch: tuple[int, torch.Tensor, int, torch.Tensor], _batch_index: int = 0
    ) -> int:
        """Score a batch and write it; its number. A reward that is not a number ends the scan
        there."""
        number, rows, shared, ids = batch
        rewards = self.scorer.rewards(ids, shared=shared).float().cpu().numpy()
        bad = np.flatnonzero(~np.isfinite(rewards).reshape(len(rewards), -1).all(axis=1))
        if len(bad):
            if not self.loop.sharded:
                # In bfloat16, one row's NaN reaches the next row of a matrix product on some
                # processors (AMX).
                alone = torch.cat([self.scorer.rewards(ids[[i]], shared=shared) for i in bad])
                wrong = ~alone.isfinite().view(len(bad), -1).all(dim=1).cpu().numpy()
                bad = bad[wrong] if wrong.any() else bad
            raise ModelError(
                f"the model's reward is not a number for {len(bad)} of {len(rows)} candidates of a "
                f"batch, first for {self.texts[rows[bad[0]]]!r}, in {self.precision.value}. "
                "Batches finished before are kept. Try model.dtype=float32, or look at the "
                "weights: pessimal check"
            )
        if number >= 0:
            self.shards.write(int(number), rows.cpu().numpy(), rewards)
        return number


def wait_for_all() -> None:
    """Wait until every process of the scan is here; at once where there is only one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


class ScanProgress(Callback):
    """Progress of the first process; the others are about as far."""

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
        """`report` is called every few seconds, and at the end, with how many are scored and how
        many a second."""
        self.label, self.done, self.total, self.bar, self.unit = label, done, total, bar, unit
        self.report, self.reported = report, 0.0
        self.shown = contextlib.ExitStack()
        self.counter: Counter | None = None

    def on_predict_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            counter = counted(
                self.label, unit=self.unit, total=self.total, done=self.done, bar=self.bar
            )
            self.counter, self.reported = self.shown.enter_context(counter), time.monotonic()

    def on_predict_batch_end(
        self,
        trainer: pl.Trainer,
        module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.reach(min(self.done + len(batch[1]) * trainer.world_size, self.total))

    def reach(self, done: int) -> None:
        """Set the number of items that are done."""
        fresh, self.done = done - self.done, done
        if not fresh or self.counter is None:
            return
        self.counter.advance(fresh)
        late = time.monotonic() - self.reported > REPORT_EVERY_SECONDS
        if self.report and (late or done == self.total):
            self.reported = time.monotonic()
            self.report(done, self.counter.rate)

    def on_exception(
        self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException
    ) -> None:
        self.shown.close()  # as Lightning does not come to teardown
        if isinstance(exception, KeyboardInterrupt):  # Lightning ends the process without a word
            log.warning(
                "%s: stopped at %d of %d; the same command goes on from there",
                self.label,
                self.done,
                self.total,
            )

    def teardown(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        self.shown.close()


def shard_over(network: RewardNetwork, decoder: Decoder | None, mesh: DeviceMesh) -> None:
    """Shard the backbone of a network larger than one card over the processes of `mesh`, layer by
    layer, to be gathered one after the other as they run (`fully_shard`); the head stays whole. All
    processes must take the same number of steps.

    Adds the attribute `whole_parts`, the decoder as it was taken before. Does nothing the second
    time. Raises ConfigError for a network whose layers pessimal does not find.
    """
    if isinstance(getattr(decoder, "backbone", None), FSDPModule):
        return
    if decoder is None:
        raise ConfigError(
            "trainer=sharded needs a decoder with a head that pessimal knows; "
            f"{type(network).__name__} is none. Type trainer=gpu"
        )
    processes = mesh["data_parallel"]
    for layer in decoder.layers:
        fully_shard(layer, mesh=processes)
    fully_shard(decoder.backbone, mesh=processes)
    network.whole_parts = decoder
