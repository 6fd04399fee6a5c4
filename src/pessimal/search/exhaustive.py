"""Every response of two tokens: exact ends, exact counts, and the distribution of all V² rewards.

A job that may take an hour on a laptop or an afternoon of a cluster. It is divided into blocks of first tokens; any
number of processes and commands that share `folder` share the work, and one that was killed goes on where it stopped.
Both goals come from one pass. Does not know Hydra, the registry or texts.
"""

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import ModelParallelStrategy

from pessimal.errors import ConfigError, WorkError
from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.trust import Trust
from pessimal.search.exhaustive_loop import PairsModule, PairsProgress
from pessimal.search.exhaustive_merge import Moments, merge
from pessimal.search.exhaustive_plan import FIRSTS_PER_BLOCK, PairPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Above:
    """How many pairs have a strictly higher reward: between `least` and `most`, both possible."""

    least: int
    most: int

    @property
    def exact(self) -> bool:
        return self.least == self.most


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
    """low, high, pairs: how many rewards lie in [low, high); the first and the last row are open to the outside."""
    moments: Moments
    """Mean and standard deviation of all rewards, and how much of the variance either token has by itself."""
    pairs: int
    """How many pairs there are, all of them scored."""
    blocks: int
    """How many blocks they were divided into."""
    path: str
    """Name of the way that scored."""
    trust: Trust
    """What the check against the model's own forward found on random pairs."""
    common_prefix_difference: float
    """Largest |pairs of one first token − own forward| in that check, in units of reward."""
    batch_size: int
    """Pairs per batch."""
    fresh_pairs: int
    """Pairs scored since this command began, by it and by all who share its folder; the others were finished before."""
    seconds: float
    """Seconds that took."""

    @property
    def rate(self) -> float:
        """Pairs a second, of all processes together, since this command began."""
        return self.fresh_pairs / self.seconds

    def rank_of(self, reward: float) -> Above:
        """How many pairs are strictly above `reward`: exact at both ends as far as pairs are kept, between them to
        within the pairs of one bin of the histogram."""
        if np.isnan(reward):
            raise ValueError("the rank of a reward that is not a number was asked for")
        top, bottom = self.top["reward"].to_numpy(), self.bottom["reward"].to_numpy()
        if reward >= top[-1]:
            return Above(*[int((top > reward).sum())] * 2)
        if reward < bottom[-1]:
            return Above(*[self.pairs - int((bottom <= reward).sum())] * 2)
        counts = self.histogram["pairs"].to_numpy()
        bin_ = int(np.searchsorted(self.histogram["low"], reward, side="right")) - 1
        least = int(counts[bin_ + 1 :].sum())
        return Above(max(least, len(top)), min(least + int(counts[bin_]), self.pairs - len(bottom)))


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
    The tables are the same to the bit however the work was shared or interrupted.

    Raises ModelError where a reward is not a number, ConfigError where the trainer spreads one network over processes.
    """
    if isinstance(trainer.strategy, ModelParallelStrategy):
        raise ConfigError(
            "search.method=exhaustive gives each process blocks of its own, at its own pace; trainer.strategy=sharded has "
            "all processes run one network in step. Type trainer=gpu, or trainer=ddp for several cards"
        )
    plan = PairPlan.of(allowed, keep=keep, firsts_per_block=firsts_per_block)
    key = plan.digest(frame.prefix, frame.suffix, frame.typed, dtype.value)
    module = PairsModule(
        network,
        frame,
        plan,
        dtype=dtype,
        batch_size=batch_size,
        folder=Path(folder) / f"pairs-{key[:16]}",
        label=label,
    )
    callback = PairsProgress(label, plan, bar=progress)
    trainer.callbacks = [callback]
    try:
        trainer.predict(module, return_predictions=False)
    finally:  # Lightning calls no hook of a module at any other end
        module.leave()
    seconds = time.perf_counter() - callback.started
    tables = merge(plan, module.bins, (_stored(module, number) for number in range(plan.blocks)))
    fresh = plan.pairs - callback.done
    log.info(
        "%s: %d pairs, %d of them now, %.0f a second (%s)",
        label,
        plan.pairs,
        fresh,
        fresh / seconds,
        module.scorer.path,
    )
    return ExhaustivePairs(
        **vars(tables),
        pairs=plan.pairs,
        blocks=plan.blocks,
        path=module.scorer.path,
        trust=module.scorer.trust,
        common_prefix_difference=module.scorer.common_prefix_difference,
        batch_size=module.batch_size,
        fresh_pairs=fresh,
        seconds=seconds,
    )


def _stored(module: PairsModule, number: int):
    block = module.store.read(number)
    if block is None:
        raise WorkError(
            f"block {number} of {module.plan.blocks} cannot be read back from {module.folder}. Give the same command again: "
            "it is scored anew, all others are kept"
        )
    return block
