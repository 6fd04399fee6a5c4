"""Every response of two tokens: exact ends, exact counts, and the distribution of all V² rewards.

A job that may take an hour on a laptop or an afternoon of a cluster. It is divided into blocks of first tokens, each kept as
one npz file as soon as it is scored; any number of processes and commands that share a folder share the work, and one that
was killed goes on where it stopped. The tables are the same to the bit however the work was shared. Both goals come from
one pass. Does not know Hydra, the registry or texts.
"""

import contextlib
import fcntl
import hashlib
import io
import logging
import math
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import ModelParallelStrategy
from torch.utils.data import DataLoader

from pessimal.errors import ConfigError, ModelError, WorkError
from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.common_prefix import ResponseScorer
from pessimal.scoring.loop import ScanProgress
from pessimal.scoring.memory import Lengths, find_batch_size
from pessimal.scoring.shards import Shards
from pessimal.tables.files import write_atomically

log = logging.getLogger(__name__)

# What a kill may lose of each process: 9 seconds for a demo model on a core, 5 minutes for Llama-3-8B on an H200. Larger
# blocks leave fewer files (188 and 2,004 for these two), of which each holds some numbers for every second token.
FIRSTS_PER_BLOCK = 64
BINS = 4096
# Random pairs that the histogram's bins are laid around.
_SAMPLE = 4096
# How long a process with nothing left to take waits before it looks again.
_LOOK_AGAIN_SECONDS = 0.5


@dataclass(frozen=True)
class ExhaustivePairs:
    """Every response of two allowed tokens. Rewards are float32 numbers in float64 columns; ids are token ids."""

    top: pd.DataFrame
    """rank, first, second, reward: the `keep` best pairs, best first; rank = 1 + pairs strictly above, so equal rewards
    share a rank, and of pairs tied at the end those with the lowest ids are kept."""
    bottom: pd.DataFrame
    """The `keep` worst pairs, worst first; rank = 1 + pairs strictly below."""
    per_first: pd.DataFrame
    """first, best, best_second, worst, worst_second, mean, sd: of every first token over all second ones
    (sd with the number of second tokens as its divisor)."""
    per_second: pd.DataFrame
    """second, best, best_first, worst, worst_first, mean: of every second token over all first ones."""
    histogram: pd.DataFrame
    """low, high, n: how many rewards lie in [low, high); the first and the last row are open to the outside."""
    pairs: int
    """How many pairs there are, all of them scored."""

    def above(self, reward: float) -> tuple[int, int]:
        """How many pairs are strictly above `reward`, at least and at most: one number at both ends as far as pairs are
        kept, between them to within the pairs of one bin of the histogram."""
        if np.isnan(reward):
            raise ValueError("the rank of a reward that is not a number was asked for")
        top, bottom = self.top["reward"].to_numpy(), self.bottom["reward"].to_numpy()
        if reward >= top[-1]:
            return (int((top > reward).sum()),) * 2
        if reward < bottom[-1]:
            return (self.pairs - int((bottom <= reward).sum()),) * 2
        counts = self.histogram["n"].to_numpy()
        bin_ = int(np.searchsorted(self.histogram["low"], reward, side="right")) - 1
        least = int(counts[bin_ + 1 :].sum())
        return max(least, len(top)), min(least + int(counts[bin_]), self.pairs - len(bottom))


def exhaustive_pairs(
    network: torch.nn.Module,
    frame: Frame,
    *,
    allowed: np.ndarray,
    dtype: Dtype,
    trainer: pl.Trainer,
    folder: Path,
    batch_size: int | None,
    keep: int,
    label: str,
    progress: bool,
    firsts_per_block: int = FIRSTS_PER_BLOCK,
) -> ExhaustivePairs:
    """Score every pair of `allowed` ids (n,) as the response in `frame`; what is finished under `folder` is not scored
    again.

    `folder` stands for one network in one precision: the caller names it by the weights' digest. In it, each choice of
    tokens, `keep`, frame and blocks has a folder of its own. Every process of the trainer's calls this and gets the
    same; other commands may be started at any time with the same folder, also on other machines, to share the work.

    Raises:
        ModelError: a reward is not a number.
        ConfigError: no token is allowed, or the trainer spreads one network over processes.
    """
    if isinstance(trainer.strategy, ModelParallelStrategy):
        raise ConfigError(
            "search.method=exhaustive gives each process blocks of its own, at its own pace; trainer.strategy=sharded has "
            "all processes run one network in step. Type trainer=gpu, or trainer=ddp for several cards"
        )
    plan = Blocks.of(allowed, keep=keep, firsts_per_block=firsts_per_block)
    key = plan.digest(frame.prefix, frame.suffix, frame.typed, dtype.value)
    module = _Pairs(
        network, frame, plan, dtype=dtype, batch_size=batch_size, folder=Path(folder) / f"pairs-{key[:16]}", label=label
    )  # fmt: skip
    callback = _Progress(label, plan, bar=progress)
    trainer.callbacks = [callback]
    try:
        trainer.predict(module, return_predictions=False)
    finally:  # Lightning calls no hook of a module at any other end
        if module.store is not None:
            module.store.close()
    fresh = plan.pairs - callback.before
    seconds = time.perf_counter() - callback.started
    rate = fresh / seconds
    log.info("%s: %d pairs, %d now, %.0f a second (%s)", label, plan.pairs, fresh, rate, module.scorer.path)
    return merge(plan, module.bins, module.store.read_all(plan.count))


@dataclass(frozen=True)
class Blocks:
    """Every pair of `tokens`, in blocks of some first tokens with all second ones."""

    tokens: np.ndarray
    """int64 (n,): allowed ids, sorted, each once."""
    keep: int
    """How many of the best and of the worst pairs are kept."""
    firsts_per_block: int = FIRSTS_PER_BLOCK

    @classmethod
    def of(cls, allowed: np.ndarray, *, keep: int, firsts_per_block: int = FIRSTS_PER_BLOCK) -> "Blocks":
        """The blocks for `allowed` ids in any order. Raises ConfigError where none is allowed."""
        tokens = np.unique(np.asarray(allowed, dtype=np.int64))
        if not len(tokens):
            raise ConfigError(
                "no token is allowed, so there are no pairs to score: allow more of them in search.allowed or "
                "search.allowed_path"
            )
        return cls(tokens, keep, firsts_per_block)

    @property
    def count(self) -> int:
        """How many blocks there are, numbered from 0."""
        return -(-len(self.tokens) // self.firsts_per_block)

    @property
    def pairs(self) -> int:
        return len(self.tokens) ** 2

    def firsts(self, number: int) -> np.ndarray:
        """int64 (F,): first tokens of a block."""
        return self.tokens[number * self.firsts_per_block : (number + 1) * self.firsts_per_block]

    def digest(self, *more: object) -> str:
        """sha256 over the blocks and whatever `more` they depend on, by its repr; 64 hexadecimal digits."""
        settings = repr((self.keep, self.firsts_per_block, *more)).encode()
        return hashlib.sha256(settings + self.tokens.astype("<i8").tobytes()).hexdigest()


# --- What is kept of a block, and of all blocks: arithmetic over tables of rewards.

Block = dict[str, np.ndarray]
"""What is kept of a block: `top_*` and `bottom_*` (first, second int32, reward float32: the outermost pairs, outermost
first, pairs of one reward in the order of their ids); `first_*` and `second_*` (best, worst float32, best_with, worst_with
int32, total float64: of each token over the other place's); `first_sd`; `counts` (int64, see `Bins.count`)."""


@dataclass(frozen=True)
class Bins:
    """BINS intervals of one width, closed on the left; a power of two wide, so that their edges are exact in binary."""

    exponent: int
    """Each is 2^exponent wide, in units of reward."""
    lowest: int
    """The first begins at lowest · 2^exponent."""

    @classmethod
    def around(cls, sample: np.ndarray) -> "Bins":
        """Bins that reach a whole range of the `sample` (n,) further than it on either side; of four thousand rewards
        that is some twelve standard deviations. Rewards beyond are counted too, though not where they are."""
        low, high = float(sample.min()), float(sample.max())
        span = max(high - low, 2.0**-24 * max(abs(low), abs(high)), 2.0**-60)  # equal rewards have none
        exponent = math.ceil(math.log2(3 * span / (BINS - 1)))
        middle = math.floor(math.ldexp((low + high) / 2, -exponent))
        return cls(exponent, middle - BINS // 2)

    @property
    def edges(self) -> np.ndarray:
        """float64 (BINS + 1,): where the bins begin, and where the last one ends."""
        return np.ldexp(np.arange(self.lowest, self.lowest + BINS + 1, dtype=np.float64), self.exponent)

    def count(self, rewards: np.ndarray) -> np.ndarray:
        """int64 (BINS + 2,): how many lie below all bins, in each of them, and above all."""
        place = np.floor(np.ldexp(rewards.ravel().astype(np.float64), -self.exponent)) - self.lowest
        return np.bincount(np.clip(place, -1, BINS).astype(np.int64) + 1, minlength=BINS + 2)


def summarise(
    rewards: np.ndarray, *, firsts: np.ndarray, seconds: np.ndarray, keep: int, bins: Bins
) -> Block:
    """The block of `rewards` (F, n) float32, finite: of the pairs of `firsts` (F,) with `seconds` (n,), ids in order."""
    block: Block = {"counts": bins.count(rewards), "first_sd": rewards.std(axis=1, dtype=np.float64)}
    for end, sign in (("top", 1), ("bottom", -1)):
        # One selection, without sorting them all; places are in the order of the ids.
        values = sign * rewards.ravel()
        kept = min(keep, len(values))
        last = np.partition(values, len(values) - kept)[len(values) - kept]
        above = np.flatnonzero(values > last)
        chosen = np.concatenate([above, np.flatnonzero(values == last)[: kept - len(above)]])
        chosen = chosen[np.lexsort((chosen, -values[chosen]))]
        row, column = np.divmod(chosen, len(seconds))
        block[f"{end}_first"], block[f"{end}_second"] = firsts[row].astype("i4"), seconds[column].astype("i4")
        block[f"{end}_reward"] = rewards[row, column]
    for place, table, others in (("first", rewards, seconds), ("second", rewards.T, firsts)):
        table = np.ascontiguousarray(table)
        rows, best, worst = np.arange(len(table)), table.argmax(axis=1), table.argmin(axis=1)
        block |= {
            f"{place}_best": table[rows, best],
            f"{place}_best_with": others[best].astype("i4"),
            f"{place}_worst": table[rows, worst],
            f"{place}_worst_with": others[worst].astype("i4"),
            f"{place}_total": table.sum(axis=1, dtype=np.float64),
        }
    return block


def merge(plan: Blocks, bins: Bins, blocks: Iterable[Block]) -> ExhaustivePairs:
    """The tables over all `blocks`, in the order of their numbers, so that sums come out the same to the bit."""
    whole: Block | None = None
    by_first: list[Block] = []
    for block in blocks:
        by_first.append({name: array for name, array in block.items() if name.startswith("first_")})
        whole = block if whole is None else _together(whole, block, keep=plan.keep)
    firsts = {name: np.concatenate([part[name] for part in by_first]) for name in by_first[0]}
    per_first = _per_token(plan, firsts, "first", "second").assign(sd=firsts["first_sd"])
    edges = np.concatenate([[-np.inf], bins.edges, [np.inf]])
    return ExhaustivePairs(
        top=_ranked(whole, "top", sign=1),
        bottom=_ranked(whole, "bottom", sign=-1),
        per_first=per_first,
        per_second=_per_token(plan, whole, "second", "first"),
        histogram=pd.DataFrame({"low": edges[:-1], "high": edges[1:], "n": whole["counts"]}),
        pairs=plan.pairs,
    )


def _together(one: Block, other: Block, *, keep: int) -> Block:
    """Both blocks' ends, second tokens and counts; on a tie the first one's, so lower ids come first."""
    whole = {"counts": one["counts"] + other["counts"]}
    for end, sign in (("top", 1), ("bottom", -1)):
        first, second, reward = (
            np.concatenate([one[f"{end}_{name}"], other[f"{end}_{name}"]])
            for name in ("first", "second", "reward")
        )
        order = np.lexsort((second, first, -sign * reward))[:keep]
        whole |= {
            f"{end}_first": first[order],
            f"{end}_second": second[order],
            f"{end}_reward": reward[order],
        }
    for what, sign in (("best", 1), ("worst", -1)):
        name = f"second_{what}"
        better = sign * other[name] > sign * one[name]
        for column in (name, f"{name}_with"):
            whole[column] = np.where(better, other[column], one[column])
    whole["second_total"] = one["second_total"] + other["second_total"]
    return whole


def _per_token(plan: Blocks, block: Block, place: str, other: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            place: plan.tokens.astype(np.int32),
            "best": block[f"{place}_best"].astype(np.float64),
            f"best_{other}": block[f"{place}_best_with"],
            "worst": block[f"{place}_worst"].astype(np.float64),
            f"worst_{other}": block[f"{place}_worst_with"],
            "mean": block[f"{place}_total"] / len(plan.tokens),
        }
    )


def _ranked(block: Block, end: str, *, sign: int) -> pd.DataFrame:
    reward = block[f"{end}_reward"].astype(np.float64)
    # Whatever lies strictly further out is kept too, so these are ranks among all pairs.
    rank = 1 + np.searchsorted(-sign * reward, -sign * reward, side="left")
    ids = {name: block[f"{end}_{name}"] for name in ("first", "second")}
    return pd.DataFrame({"rank": rank, **ids, "reward": reward})


# --- Finished blocks on disk, and who is at work on which of the others.


class BlockStore:
    """One folder of npz files that any number of processes may share: of one command, of several, on several machines.

    Each process takes the next block that is not finished and that no other process has: byte n of one file is locked
    while block n is scored. Such locks end with the process, however it ends, leave nothing behind, and hold between the
    machines of a cluster. On a file system without locks every claim succeeds; then some blocks are scored twice, to the
    same numbers.
    """

    def __init__(self, folder: Path, *, of: str):
        self.folder, self.of = Path(folder), of
        """`of`: what the blocks depend on; those of anything else count as damaged."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._claims = os.open(self.folder / "claims", os.O_RDWR | os.O_CREAT, 0o666)

    def write(self, number: int, block: Block) -> None:
        """Store a finished block. Compressed: for 12,000 tokens and 1,000 kept pairs 0.2 MB, in 25 ms of a block's 9 s."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, of=np.array(self.of), **block)
        write_atomically(self._file(number), buffer.getvalue(), durable=False)

    def read(self, number: int) -> Block | None:
        """A finished block; None if it is missing, torn, damaged (zip keeps a checksum of each array) or of other pairs."""
        try:
            with np.load(self._file(number), allow_pickle=False) as stored:
                block = {name: stored[name] for name in stored.files}
        except Exception:  # numpy raises almost anything at a damaged header
            return None
        return block if str(block.pop("of", "")) == self.of else None

    def read_all(self, count: int) -> Iterator[Block]:
        """All blocks. Raises WorkError where one is not there."""
        for number in range(count):
            block = self.read(number)
            if block is None:
                raise WorkError(
                    f"block {number} cannot be read back from {self.folder}. Give the same command again: it is scored "
                    "anew, all others are kept"
                )
            yield block

    def finished(self) -> set[int]:
        """Numbers of the blocks that are here, whole or not."""
        return {int(file.stem.removeprefix("block-")) for file in self.folder.glob("block-*.npz")}

    def forget_damaged(self, count: int) -> None:
        """Remove blocks that were torn or damaged since they were stored, so that they are scored anew."""
        for number in sorted(self.finished()):
            if number < count and self.take(number):
                if self.read(number) is None:
                    log.warning("block %d in %s is damaged; it is scored again", number, self.folder)
                    self._file(number).unlink(missing_ok=True)
                self.release(number)

    def take(self, number: int) -> bool:
        """Whether the block is this process's now; False where another one has it."""
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):  # systems differ in which of the two they raise
            return False
        except OSError:
            return True
        return True

    def release(self, number: int) -> None:
        """Leave the block to others."""
        with contextlib.suppress(OSError):
            fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, number)

    def take_next(self, order: Sequence[int]) -> int | None:
        """Claim the first block in `order` that is neither finished nor another process's; None once all are finished.

        Waits while other processes are at work on all that are left: should one of them die, its block is there to take.
        """
        waiting = False
        while True:
            finished = self.finished()
            left = [number for number in order if number not in finished]
            for number in left:
                if self.take(number):
                    if number not in self.finished():
                        return number
                    self.release(number)  # it was finished just now
            if not left:
                return None
            if not waiting:
                log.info("waiting for %d blocks that other processes are scoring", len(left))
                waiting = True
            time.sleep(_LOOK_AGAIN_SECONDS)

    def close(self) -> None:
        """Leave all blocks to others."""
        os.close(self._claims)

    def _file(self, number: int) -> Path:
        return self.folder / f"block-{number:06d}.npz"


# --- The loop: a LightningModule that takes block after block until none is left.


class _Pairs(pl.LightningModule):
    """Rewards of all pairs in one frame, kept as blocks under `folder`."""

    def __init__(
        self, network: torch.nn.Module, frame: Frame, plan: Blocks, *, dtype: Dtype, batch_size: int | None,
        folder: Path, label: str,
    ):  # fmt: skip
        super().__init__()
        self.network, self.frame, self.plan, self.precision = network, frame, plan, dtype
        self.folder, self.label = folder, label
        self.batch_size = batch_size
        """Pairs per batch, the same in all processes once the loop has begun; None finds it from the memory there is."""
        self.scorer: ResponseScorer | None = None
        self.bins: Bins | None = None
        self.store: BlockStore | None = None

    def on_predict_start(self):
        # Only here is the network where the trainer wants it.
        self.network.eval()
        self.folder.mkdir(parents=True, exist_ok=True)
        check_folder_is_shared(self.folder, self.trainer)
        tokens = self.plan.tokens
        self.scorer = ResponseScorer(
            self.network, self.frame, dtype=self.precision, device=self.device, length=2, allowed=tokens
        )
        if self.scorer.trust is None:
            raise ModelError(
                f"{self.label}: the model's own forward gives no reward that is a number for any random pair in "
                f"{self.precision.value}. Try model.dtype=float32, or look at it: pessimal check"
            )
        self._agree()
        self.store = BlockStore(self.folder, of=repr((self.plan.digest(), self.bins)))
        if self.trainer.is_global_zero:
            self.store.forget_damaged(self.plan.count)
        self.trainer.strategy.barrier()
        # In an order of each process's own: where there are no locks, two that go the same way would score the same
        # blocks. It decides who scores a block, never what comes of it.
        self.order = np.random.default_rng(secrets.randbits(64)).permutation(self.plan.count).tolist()
        self.pairs = torch.from_numpy(np.column_stack([tokens, tokens])).to(self.device)  # (n, 2)

    def predict_dataloader(self):
        # Turns, not blocks: which block a process takes is seen when it is free. None takes more than there are.
        return DataLoader(range(self.plan.count), batch_size=None)

    def predict_step(self, _turn, _turn_index=None) -> int:
        """Score and store one block; its number, or -1 where none is left to take."""
        number = self.store.take_next(self.order)
        if number is None:
            return -1
        firsts, seconds = self.plan.firsts(number), self.plan.tokens
        rewards = np.stack([self._rewards(first) for first in firsts.tolist()])  # (F, n)
        block = summarise(rewards, firsts=firsts, seconds=seconds, keep=self.plan.keep, bins=self.bins)
        self.store.write(number, block)
        self.store.release(number)
        return number

    def _rewards(self, first: int) -> np.ndarray:
        """Rewards float32 (n,) of one first token with all second ones: the prompt and it are run once."""
        self.pairs[:, 0] = first
        rewards = self.scorer.rewards(self.pairs, anchor=self.pairs[0]).cpu().numpy()
        bad = np.flatnonzero(~np.isfinite(rewards))
        if len(bad):
            raise ModelError(
                f"{self.label}: the model's reward is not a number for {len(bad)} of {len(rewards)} responses that begin "
                f"with token {first}, first for the token ids [{first}, {self.plan.tokens[bad[0]]}], in "
                f"{self.precision.value}. Blocks finished before are kept. Try model.dtype=float32, leave such tokens "
                "out with search.allowed_path, or look at the weights: pessimal check"
            )
        return rewards

    def _agree(self) -> None:
        """Settle with all who share the folder what the rewards' last bits and the histogram depend on."""
        frame, scorer = self.frame, self.scorer
        seen = len(frame.prefix) + 2 + len(frame.suffix)
        own = 1 + len(frame.suffix) if scorer.common_prefix.shares_starts else seen
        wanted = self.batch_size or find_batch_size(
            self.network.config, Lengths(own, seen), device=self.device
        )
        settled = Shards(self.folder)
        # One that was given holds, also where an earlier start took another.
        self.batch_size = settled.agree("batch-size", wanted, insist=self.batch_size is not None)
        scorer.common_prefix.batch_size = self.batch_size
        sample = np.random.default_rng(0).choice(self.plan.tokens, size=(_SAMPLE, 2))
        rewards = scorer.rewards(torch.from_numpy(sample)).cpu().numpy()
        bins = Bins.around(rewards[np.isfinite(rewards)])
        self.bins = Bins(*settled.agree("bins", [bins.exponent, bins.lowest]))


class _Progress(ScanProgress):
    """The scan's bar and lines, in pairs. What is done is seen on the disk, whoever did it: other processes, and other
    commands, share the work."""

    def __init__(self, label: str, plan: Blocks, *, bar: bool):
        super().__init__(label, done=0, total=plan.pairs, bar=bar, unit="pairs")
        self.plan, self.before, self.started = plan, 0, time.perf_counter()

    def on_predict_start(self, trainer, module):
        pass  # what an earlier start has left is known a moment later

    def on_predict_epoch_start(self, trainer, module):
        self.before = self.done = self._finished(module)
        self.started = time.perf_counter()
        super().on_predict_start(trainer, module)

    def on_predict_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        if outputs >= 0:
            self.reach(self._finished(module))

    def _finished(self, module: _Pairs) -> int:
        numbers = (number for number in module.store.finished() if number < self.plan.count)
        return sum(len(self.plan.firsts(number)) * len(self.plan.tokens) for number in numbers)


def check_folder_is_shared(folder: Path, trainer: pl.Trainer) -> None:
    """ConfigError where processes of one command do not see the same folder: each would score every pair."""
    if trainer.world_size == 1:
        return
    mark = folder / f".start-{trainer.strategy.broadcast(secrets.token_hex(8))}"
    if trainer.is_global_zero:
        mark.touch()
    trainer.strategy.barrier()
    if not mark.exists():
        raise ConfigError(
            f"{folder} is not the same folder for all processes: give them one paths.cache on a file system that they "
            "share, or each would score every pair"
        )
    trainer.strategy.barrier()
    if trainer.is_global_zero:
        mark.unlink()
