"""Every response of two tokens: exact ends, exact counts, and the distribution of all V² rewards; and
where the best pair of `pessimal.search` stands among them.

    python experiments/optimal_pessimal_tokens/exhaustive_pairs.py MODEL FOLDER [--prompt greatest]
        [--goal optimal] [--allowed no_special,ascii] [--allowed-path FILE] [--keep 1000]
        [--batch-size N] [--devices 1] [--accelerator cpu] [--evaluations 250000]

A job that may take an hour on a laptop or an afternoon of a cluster. It is divided into blocks of
first tokens, each kept as one npz file as soon as it is scored; any number of processes and
commands that share a folder share the work, and one that was killed goes on where it stopped. The
tables are the same to the bit however the work was shared. Both goals come from one pass. FOLDER
gets the tables as parquet files and the blocks. Runs through the API alone; does not know Hydra or
the registry.
"""

import argparse
import contextlib
import fcntl
import hashlib
import io
import logging
import math
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import pessimal
from pessimal.catalogue import named_prompts
from pessimal.errors import ConfigError, ModelError, WorkError
from pessimal.rewards.base import require_network
from pessimal.rewards.frame import Frame
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.spec import Dtype
from pessimal.scoring.common_prefix import ResponseScorer
from pessimal.scoring.loop import ScanProgress, Shards
from pessimal.scoring.spec import TrainerSpec
from pessimal.scoring.trainer import Lengths, find_batch_size, is_first_process, make_trainer
from pessimal.searching.context import SearchContext
from pessimal.searching.results import SearchResult
from pessimal.searching.spec import SearchSpec
from pessimal.tables.files import write_atomically

log = logging.getLogger(__name__)

# What a kill may lose of each process: 9 seconds for a demo model on a core, 8 minutes for
# Llama-3-8B on an H200.
FIRSTS_PER_BLOCK = 64
BINS, _SAMPLE = 4096, 4096  # of the histogram; random pairs that they are laid around
_LOOK_AGAIN_SECONDS = 0.5  # a process with nothing left to take waits so long


@dataclass(frozen=True)
class ExhaustivePairs:
    """Every response of two allowed tokens. Rewards are float32 numbers in float64 columns; ids are
    token ids."""

    top: pd.DataFrame
    """rank, first, second, reward: the `keep` best pairs, best first; rank = 1 + pairs strictly
    above, so equal rewards share a rank, and of pairs tied at the end those with the lowest ids are
    kept."""
    bottom: pd.DataFrame
    """The `keep` worst pairs, worst first; rank = 1 + pairs strictly below."""
    per_first: pd.DataFrame
    """first, best, best_second, worst, worst_second, mean, sd: of every first token over all second
    ones (sd with their number as its divisor)."""
    per_second: pd.DataFrame
    """second, best, best_first, worst, worst_first, mean: of it over all first ones."""
    histogram: pd.DataFrame
    """low, high, n: how many rewards lie in [low, high); the first and the last row are open to the
    outside."""
    pairs: int
    """How many there are, all of them scored."""

    def above(self, reward: float) -> tuple[int, int]:
        """How many pairs are strictly above `reward`, at least and at most: one number at both ends
        as far as pairs are kept, between them to within the pairs of one bin of the histogram."""
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
    network: RewardNetwork,
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
    """Score every pair of `allowed` ids (n,) as the response in `frame`; what is finished under
    `folder` is not scored again. Raises ModelError where a reward is not a number.

    `folder` stands for one network in one precision: the caller names it by the weights' digest. In
    it, each choice of tokens, `keep`, frame and blocks has a folder of its own. Every process of
    the trainer's calls this and gets the same; other commands may be started at any time with the
    same folder, also on other machines, to share the work.
    """
    plan = Blocks(np.unique(np.asarray(allowed, dtype=np.int64)), keep, firsts_per_block)
    key = plan.digest(frame.prefix, frame.suffix, frame.typed, dtype.value)
    store = BlockStore(Path(folder) / f"pairs-{key[:16]}")
    try:
        store.forget_damaged()
        done, started = store.pairs(plan), time.perf_counter()
        module = _Pairs(network, frame, plan, store, dtype, batch_size, label)
        bar = _Progress(label, done=done, total=plan.pairs, bar=progress, unit="pairs")
        trainer.callbacks = [bar]  # type: ignore[attr-defined]  # a connector of Lightning's sets it
        trainer.predict(module, return_predictions=False)
        fresh, seconds = plan.pairs - done, time.perf_counter() - started
        text = "%s: %d pairs, %d now, %.0f a second (%s)"
        log.info(text, label, plan.pairs, fresh, fresh / seconds, module.scorer.path)
        return merge(plan, module.bins, map(store.read_back, range(plan.count)))
    finally:
        store.close()


@dataclass(frozen=True)
class Blocks:
    """Every pair of `tokens`, in blocks of some first tokens with all second ones."""

    tokens: np.ndarray
    """int64 (n,): allowed ids, sorted, each once."""
    keep: int
    """How many of the best and of the worst pairs are kept."""
    firsts_per_block: int = FIRSTS_PER_BLOCK

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

    def digest(self, *more: Any) -> str:
        """sha256 over the blocks and whatever `more` they depend on, by its repr; 64 hexadecimal
        digits."""
        settings = repr((self.keep, self.firsts_per_block, *more)).encode()
        return hashlib.sha256(settings + self.tokens.astype("<i8").tobytes()).hexdigest()


# --- What is kept of a block, and of all blocks: arithmetic over tables of rewards.

Block = dict[str, np.ndarray]
"""What is kept of a block: `top` and `bottom` (END: the outermost pairs, outermost first, pairs of
one reward in the order of their ids); `first` and `second` (OWN: of each token over the other
place's); `first_sd`; `counts` (int64, see `Bins.count`)."""
ENDS = {"top": 1, "bottom": -1}
END = np.dtype([("first", "i4"), ("second", "i4"), ("reward", "f4")])
OWN = np.dtype("f4, i4, f4, i4, f8")
OWN.names = ("best", "best_with", "worst", "worst_with", "total")


@dataclass(frozen=True)
class Bins:
    """BINS intervals of one width, closed on the left; a power of two wide, so that their edges are
    exact in binary."""

    exponent: int
    """Each is 2^exponent wide, in units of reward."""
    lowest: int
    """The first begins at lowest · 2^exponent."""

    @classmethod
    def around(cls, sample: np.ndarray) -> "Bins":
        """Bins that reach a whole range of the `sample` (n,) further than it on either side."""
        low, high = float(sample.min()), float(sample.max())
        least = max(2.0**-24 * max(abs(low), abs(high)), 2.0**-60)  # equal rewards have no span
        span = max(high - low, least)
        exponent = math.ceil(math.log2(3 * span / (BINS - 1)))
        middle = math.floor(math.ldexp((low + high) / 2, -exponent))
        return cls(exponent, middle - BINS // 2)

    @property
    def edges(self) -> np.ndarray:
        """float64 (BINS + 1,): where the bins begin, and where the last one ends."""
        numbers = np.arange(self.lowest, self.lowest + BINS + 1, dtype=np.float64)
        return np.ldexp(numbers, self.exponent)

    def count(self, rewards: np.ndarray) -> np.ndarray:
        """int64 (BINS + 2,): how many lie below all bins, in each of them, and above all."""
        place = np.floor(np.ldexp(rewards.ravel().astype(np.float64), -self.exponent)) - self.lowest
        return np.bincount(np.clip(place, -1, BINS).astype(np.int64) + 1, minlength=BINS + 2)


def summarise(
    rewards: np.ndarray, *, firsts: np.ndarray, seconds: np.ndarray, keep: int, bins: Bins
) -> Block:
    """The block of `rewards` (F, n) float32, finite: of the pairs of `firsts` (F,) with `seconds`
    (n,), ids in order."""
    block: Block = {"counts": bins.count(rewards), "first_sd": rewards.std(axis=1, dtype="f8")}
    for end, sign in ENDS.items():
        outermost = np.argsort(-sign * rewards.ravel(), kind="stable")[:keep]
        row, column = np.divmod(outermost, len(seconds))
        pairs = [firsts[row], seconds[column], rewards[row, column]]
        block[end] = np.rec.fromarrays(pairs, dtype=END)
    for place, table, others in (("first", rewards, seconds), ("second", rewards.T, firsts)):
        table, rows = np.ascontiguousarray(table), np.arange(len(table))
        best, worst = table.argmax(axis=1), table.argmin(axis=1)
        total = table.sum(axis=1, dtype=np.float64)
        columns = [table[rows, best], others[best], table[rows, worst], others[worst], total]
        block[place] = np.rec.fromarrays(columns, dtype=OWN)
    return block


def merge(plan: Blocks, bins: Bins, blocks: Iterable[Block]) -> ExhaustivePairs:
    """The tables over all `blocks`, in the order of their numbers, so that sums come out the same
    to the bit."""
    in_order = iter(blocks)
    merged = next(in_order)
    for block in in_order:
        merged = _together(merged, block, keep=plan.keep)
    per_first = _per_token(plan, merged["first"], "first", "second")
    edges = np.concatenate([[-np.inf], bins.edges, [np.inf]])
    return ExhaustivePairs(
        top=_ranked(merged["top"], sign=1),
        bottom=_ranked(merged["bottom"], sign=-1),
        per_first=per_first.assign(sd=merged["first_sd"]),
        per_second=_per_token(plan, merged["second"], "second", "first"),
        histogram=pd.DataFrame({"low": edges[:-1], "high": edges[1:], "n": merged["counts"]}),
        pairs=plan.pairs,
    )


def _together(one: Block, other: Block, *, keep: int) -> Block:
    """Both blocks' tokens, ends and counts; on a tie the first one's, so lower ids come first."""
    merged = {name: np.concatenate([one[name], other[name]]) for name in ("first", "first_sd")}
    merged["counts"] = one["counts"] + other["counts"]
    for end, sign in ENDS.items():
        both = np.concatenate([one[end], other[end]])
        merged[end] = both[np.argsort(-sign * both["reward"], kind="stable")[:keep]]
    seconds, fresh = one["second"].copy(), other["second"]
    for what, sign in (("best", 1), ("worst", -1)):
        better = sign * fresh[what] > sign * seconds[what]
        for column in (what, f"{what}_with"):
            seconds[column][better] = fresh[column][better]
    seconds["total"] += fresh["total"]
    return merged | {"second": seconds}


def _per_token(plan: Blocks, own: np.ndarray, place: str, other: str) -> pd.DataFrame:
    table = pd.DataFrame(own).astype({"best": "f8", "worst": "f8"})
    table.insert(0, place, plan.tokens.astype(np.int32))
    table["total"] /= len(plan.tokens)
    names = {"best_with": f"best_{other}", "worst_with": f"worst_{other}", "total": "mean"}
    return table.rename(columns=names)


def _ranked(end: np.ndarray, *, sign: int) -> pd.DataFrame:
    table = pd.DataFrame(end).astype({"reward": "f8"})
    outer = -sign * table["reward"].to_numpy()
    # Whatever lies strictly further out is kept too, so these are ranks among all pairs.
    table.insert(0, "rank", 1 + np.searchsorted(outer, outer, side="left"))
    return table


# --- Finished blocks on disk, and who is at work on which of the others.


class BlockStore:
    """One folder of npz files that any number of processes may share: of one command, of several,
    on several machines.

    Byte n of one file is locked while block n is scored. Such locks end with the process, however
    it ends, leave nothing behind, and hold between the machines of a cluster. On a file system
    without locks every claim succeeds; then some blocks are scored twice, to the same numbers.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._claims = os.open(self.folder / "claims", os.O_RDWR | os.O_CREAT, 0o666)

    def write(self, number: int, block: Block) -> None:
        """Store a finished block. Compressed: for 12,000 tokens and 1,000 kept pairs 0.2 MB, in 25
        ms of a block's 9 s."""
        buffer, arrays = io.BytesIO(), dict[str, Any](block)
        np.savez_compressed(buffer, **arrays)
        write_atomically(self._file(number), buffer.getvalue(), durable=False)

    def read(self, number: int) -> Block | None:
        """A finished block; None if it is missing, torn or damaged (zip keeps a checksum of each
        array)."""
        try:
            with np.load(self._file(number), allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except Exception:  # numpy raises almost anything at a damaged header
            return None

    def read_back(self, number: int) -> Block:
        """A finished block. Raises WorkError where it is not there."""
        if (block := self.read(number)) is None:
            raise WorkError(
                f"block {number} cannot be read back from {self.folder}. Give the same command "
                "again: it is scored anew, all others are kept"
            )
        return block

    def finished(self) -> set[int]:
        """Numbers of the blocks that are here, whole or not."""
        return {int(file.stem.removeprefix("block-")) for file in self.folder.glob("block-*.npz")}

    def pairs(self, plan: Blocks) -> int:
        """How many pairs these are."""
        return sum(len(plan.firsts(number)) for number in self.finished()) * len(plan.tokens)

    def forget_damaged(self) -> None:
        """Remove blocks that were torn or damaged since they were stored, so that they are scored
        anew."""
        for number in sorted(filter(self.take, self.finished())):
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
        except OSError:  # no locks here
            return True
        return True

    def release(self, number: int) -> None:
        """Leave the block to others."""
        with contextlib.suppress(OSError):
            fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, number)

    def take_next(self, order: Sequence[int]) -> int | None:
        """Claim the first block in `order` that is neither finished nor another process's; None
        once all are finished.

        Waits while other processes are at work on all that are left: should one of them die, its
        block is there to take.
        """
        looks = 0
        while True:
            finished = self.finished()
            left = [number for number in order if number not in finished]
            if not left:
                return None
            for number in filter(self.take, left):
                if number not in self.finished():
                    return number
                self.release(number)  # it was finished just now
            looks += 1
            if looks == 2:
                log.info("waiting for %d blocks that other processes are scoring", len(left))
            time.sleep(_LOOK_AGAIN_SECONDS)

    def close(self) -> None:
        """Leave all blocks to others."""
        os.close(self._claims)

    def _file(self, number: int) -> Path:
        return self.folder / f"block-{number:06d}.npz"


# --- The loop: a LightningModule that takes block after block until none is left.


class _Pairs(pl.LightningModule):
    """Rewards of all pairs in one frame, kept as blocks in a store."""

    scorer: ResponseScorer
    bins: Bins

    def __init__(
        self,
        network: RewardNetwork,
        frame: Frame,
        plan: Blocks,
        store: BlockStore,
        dtype: Dtype,
        batch_size: int | None,
        label: str,
    ):
        super().__init__()
        self.network, self.frame, self.plan, self.store = network, frame, plan, store
        self.precision, self.batch_size, self.label = dtype, batch_size, label

    def on_predict_start(self) -> None:
        # Only here is the network where the trainer wants it.
        self.network.eval()
        tokens = self.plan.tokens
        how = {"dtype": self.precision, "device": self.device, "length": 2, "allowed": tokens}
        self.scorer = ResponseScorer(self.network, self.frame, **how)
        if self.scorer.trust is None:
            raise ModelError(
                f"{self.label}: the model's own forward gives no reward that is a number for any "
                f"random pair in {self.precision.value}. Try model.dtype=float32, or look at it: "
                "pessimal check"
            )
        self._agree()
        # In an order of each process's own: where there are no locks, two that go the same way
        # would score the same blocks. It decides who scores a block, never what comes of it.
        random = np.random.default_rng(secrets.randbits(64))
        self.order = random.permutation(self.plan.count).tolist()
        self.pairs = torch.from_numpy(np.column_stack([tokens, tokens])).to(self.device)  # (n, 2)

    def predict_dataloader(self) -> DataLoader:
        # Turns, not blocks: which block a process takes is seen when it is free. None takes more
        # than there are.
        return DataLoader(TensorDataset(torch.arange(self.plan.count)), batch_size=None)

    def predict_step(self, *_turn: Any, **_index: Any) -> int:
        """Score and store one block; its number, or -1 where none is left to take."""
        number = self.store.take_next(self.order)
        if number is None:
            return -1
        firsts, seconds = self.plan.firsts(number), self.plan.tokens
        rewards = np.stack([self._rewards(first) for first in firsts.tolist()])  # (F, n)
        keep, bins = self.plan.keep, self.bins
        block = summarise(rewards, firsts=firsts, seconds=seconds, keep=keep, bins=bins)
        self.store.write(number, block)
        self.store.release(number)
        return number

    def _rewards(self, first: int) -> np.ndarray:
        """Rewards float32 (n,) of one first token with all second ones: the prompt and it are run
        once."""
        self.pairs[:, 0] = first
        rewards = self.scorer.rewards(self.pairs, anchor=self.pairs[0]).cpu().numpy()
        bad = np.flatnonzero(~np.isfinite(rewards))
        if len(bad):
            raise ModelError(
                f"{self.label}: the model's reward is not a number for {len(bad)} of "
                f"{len(rewards)} responses that begin with token {first}, first for the token ids "
                f"[{first}, {self.plan.tokens[bad[0]]}], in {self.precision.value}. Blocks "
                "finished before are kept. Try model.dtype=float32, leave such tokens out with "
                "--allowed-path, or look at the weights: pessimal check"
            )
        return rewards

    def _agree(self) -> None:
        """Settle with all who share the folder what the rewards' last bits and the histogram depend
        on: the batch size (one that was given holds, also where an earlier start took another) and
        the bins."""
        frame, scorer, shared = self.frame, self.scorer, Shards(self.store.folder)
        seen = len(frame.prefix) + 2 + len(frame.suffix)
        fresh = 1 + len(frame.suffix) if scorer.shares_starts else seen
        insist, config, size = self.batch_size is not None, self.network.config, self.batch_size
        size = size or find_batch_size(config, Lengths(fresh, seen), device=self.device)
        scorer.batch_size = shared.agree("batch-size", size, insist=insist)
        sample = np.random.default_rng(0).choice(self.plan.tokens, size=(_SAMPLE, 2))
        rewards = scorer.rewards(torch.from_numpy(sample)).cpu().numpy()
        bins = Bins.around(rewards[np.isfinite(rewards)])
        self.bins = Bins(*shared.agree("bins", [bins.exponent, bins.lowest]))


class _Progress(ScanProgress):
    """The scan's bar and lines, in pairs. What is done is seen on the disk, whoever did it: other
    processes, and other commands, share the work."""

    def on_predict_batch_end(self, *given: Any, **_: Any) -> None:
        module, number = given[1:3]
        if number >= 0:
            self.reach(module.store.pairs(module.plan))


# --- On a model: all pairs, and a search beside them.


def every_pair(
    context: SearchContext, *, trainer: pl.Trainer, folder: Path, keep: int, progress: bool = True
) -> ExhaustivePairs:
    """All responses of two tokens in a search's context, scored by all processes together; what is
    finished is kept under `folder`.

    Raises:
        ConfigError: the reward is a sum or a negative of networks, or is of several prompts.
    """
    model = context.model
    if [part.weight for part in model.parts] != [1.0] or len(context.frames) != 1:
        raise ConfigError(
            f"every pair goes through one network in one order, on one prompt; {model.name!r} is a "
            "sum or a negative of such, or is asked several prompts. Type: pessimal search"
        )
    ((prompt, frames),) = context.frames.items()
    network = context.network()
    output = "" if model.spec.output is None else f"-{model.spec.output}"
    weights = f"{model.weights_digest[:16]}-{model.config_digest[:8]}-{context.dtype.value}{output}"
    pairs = exhaustive_pairs(
        network,
        frames[0],
        allowed=np.flatnonzero(context.mask),
        dtype=context.dtype,
        trainer=trainer,
        folder=folder / weights,
        batch_size=context.batch_size,
        keep=keep,
        label=f"{model.name} · {prompt}",
        progress=progress,
    )
    network.to(context.device)  # the trainer took it back to the CPU
    return pairs


def responses_of(ends: pd.DataFrame) -> torch.Tensor:
    """Responses (n, 2) int64 of rows with the columns first and second."""
    return torch.from_numpy(ends[["first", "second"]].to_numpy().astype(np.int64))


def pair_tables(
    context: SearchContext, pairs: ExhaustivePairs, *, rescored: int = 16
) -> dict[str, pd.DataFrame]:
    """Both ends of all pairs, every token's own numbers, all rewards; the outermost `rescored` pairs
    with their reward by the model's own forward in float32, too."""
    texts = context.vocabulary.rows.set_index("candidate_id")["text"]

    def spelled(ends: pd.DataFrame) -> pd.DataFrame:
        responses = responses_of(ends)
        table = ends.rename(columns={"first": "first_id", "second": "second_id"})
        table["first"], table["second"] = ends["first"].map(texts), ends["second"].map(texts)
        table["text"] = context.round_trip.text_of(responses)
        table["round_trips"] = context.round_trip(responses).tolist()
        table["own_reward"] = np.nan
        table.loc[table.index[:rescored], "own_reward"] = context.own_rewards(responses[:rescored])
        return table

    return {
        "top_pairs": spelled(pairs.top),
        "bottom_pairs": spelled(pairs.bottom),
        "per_first": pairs.per_first,
        "per_second": pairs.per_second,
        "histogram": pairs.histogram,
    }


def standing(result: SearchResult, pairs: ExhaustivePairs) -> pd.DataFrame:
    """One row per stage of a search of two tokens: result, pair, reward, and between which ranks
    (rank, rank_most) of all pairs it stands. Another batch gave its reward, which may err by the
    noise."""
    outer = pairs.top if result.sign > 0 else pairs.bottom
    rank_of = outer.set_index(["first", "second"])["rank"]

    def ranks(reward: float, response: tuple[int, ...]) -> tuple[int, int]:
        if response in rank_of.index:
            return (int(rank_of.loc[response]),) * 2
        low, high = pairs.above(reward + result.noise)[0], pairs.above(reward - result.noise)[1]
        if result.sign < 0:
            low, high = pairs.pairs - high, pairs.pairs - low
        return 1 + low, 1 + high

    rows = []
    for stage in result.stages.done:
        ends = [end for end in (stage.curve[-1:] or stage.finals) if len(end.response) == 2]
        if ends:
            [pair] = result.context.round_trip.text_of(torch.tensor([ends[0].response]))
            reward = result.sign * ends[0].value
            rows.append((stage.name, pair, reward, *ranks(reward, ends[0].response), pairs.pairs))
    return pd.DataFrame(rows, columns=["result", "pair", "reward", "rank", "rank_most", "of"])


DEFAULTS = {"prompt": "greatest", "allowed": "no_special", "accelerator": "cpu", "keep": 1000}
DEFAULTS |= {"devices": 1, "evaluations": 250_000}


def main(arguments: Sequence[str] | None = None) -> dict[str, pd.DataFrame]:
    """Score all pairs, search beside them, write and print the tables; {} in other processes than
    the first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--goal", default="optimal", choices=["optimal", "pessimal"])
    parser.add_argument("--allowed-path")
    parser.add_argument("--batch-size", type=int)
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = parser.parse_args(arguments)
    model = require_network(pessimal.load(options.model), "search", "gradient")
    allowed = list(filter(None, options.allowed.split(",")))
    among = {"length": 2, "goal": options.goal, "allowed": allowed}
    among["allowed_path"] = options.allowed_path
    prompts = named_prompts(options.prompt)
    spec = TrainerSpec(accelerator=options.accelerator, devices=options.devices)
    size = options.batch_size
    pairs_context = SearchContext(model, prompts, SearchSpec(**among), batch_size=size)
    trainer = make_trainer(spec, root=str(options.folder))
    pairs = every_pair(pairs_context, trainer=trainer, folder=options.folder, keep=options.keep)
    if not is_first_process():
        return {}
    result = pessimal.search(model, prompts, evaluations=options.evaluations, **among)
    tables = pair_tables(pairs_context, pairs) | {"standing": standing(result, pairs)}
    for name, table in tables.items():
        table.to_parquet(options.folder / f"{name}.parquet")
    columns = ["rank", "text", "reward", "own_reward", "round_trips"]
    for end in ("top_pairs", "bottom_pairs"):
        print(tables[end][columns].head(10).to_string(index=False))
    print(tables["standing"].to_string(index=False))
    return tables


if __name__ == "__main__":
    main()
