"""The prediction loop over blocks of pairs: a LightningModule that takes block after block until none is left.

Knows Lightning and the scorer. What a block keeps and where it is stored, others know.
"""

import secrets
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from pessimal.errors import ConfigError, ModelError
from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.batch_size import Lengths, find_batch_size
from pessimal.scoring.loop import ScanProgress
from pessimal.scoring.responses import ResponseScorer
from pessimal.scoring.shards import Shards
from pessimal.search.exhaustive_block import Bins, summarise
from pessimal.search.exhaustive_plan import PairPlan
from pessimal.search.exhaustive_store import BlockStore, Claims, forget_damaged, take_next

# Random pairs that the histogram's bins are laid around.
_SAMPLE = 4096


class PairsModule(pl.LightningModule):
    """Rewards of all pairs in one frame, kept as blocks under `folder`."""

    def __init__(
        self,
        network: torch.nn.Module,
        frame: Frame,
        plan: PairPlan,
        *,
        dtype: Dtype,
        batch_size: int | None,
        folder: Path,
        label: str,
    ):
        super().__init__()
        self.network, self.frame, self.plan, self.precision = network, frame, plan, dtype
        self.folder, self.label = Path(folder), label
        self.batch_size = batch_size
        """Pairs per batch, the same in all processes once the loop has begun; None finds it from the memory there is."""
        self.scorer: ResponseScorer | None = None
        self.bins: Bins | None = None
        self.store: BlockStore | None = None
        self.claims: Claims | None = None

    def on_predict_start(self):
        # Only here is the network where the trainer wants it.
        self.network.eval()
        self.folder.mkdir(parents=True, exist_ok=True)
        check_folder_is_shared(self.folder, self.trainer)
        self.scorer = ResponseScorer(
            self.network,
            self.frame,
            dtype=self.precision,
            device=self.device,
            length=2,
            allowed=self.plan.tokens,
        )
        if self.scorer.trust is None:
            raise ModelError(
                f"{self.label}: the model's own forward gives no reward that is a number for any random pair in "
                f"{self.precision.value}. Try model.dtype=float32, or look at it: pessimal check"
            )
        self._agree()
        self.store = BlockStore(self.folder, of=repr((self.plan.digest(), self.bins)))
        self.claims = Claims(self.folder)
        if self.trainer.is_global_zero:
            forget_damaged(self.store, self.claims, self.plan.blocks)
        self.trainer.strategy.barrier()
        # In an order of each process's own: where there are no locks, two that go the same way would score the same
        # blocks. It decides who scores a block, never what comes of it.
        random = np.random.default_rng(secrets.randbits(64))
        self.order = random.permutation(self.plan.blocks).tolist()
        self.pairs = torch.from_numpy(np.column_stack([self.plan.tokens] * 2)).to(self.device)  # (n, 2)

    def predict_dataloader(self):
        # Turns, not blocks: which block a process takes is seen when it is free. None takes more than there are.
        return DataLoader(range(self.plan.blocks), batch_size=None)

    def predict_step(self, _turn, _turn_index=None) -> int:
        """Score and store one block; its number, or -1 where none is left to take."""
        number = take_next(self.store, self.claims, self.order)
        if number is None:
            return -1
        firsts = self.plan.firsts(number)
        rewards = np.stack([self._rewards(first) for first in firsts.tolist()])  # (F, n)
        block = summarise(
            rewards, firsts=firsts, seconds=self.plan.tokens, keep=self.plan.keep, bins=self.bins
        )
        self.store.write(number, block)
        self.claims.release(number)
        return number

    def leave(self) -> None:
        """Leave unfinished blocks to others."""
        if self.claims is not None:
            self.claims.close()

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


class PairsProgress(ScanProgress):
    """The scan's bar and lines, in pairs. What is done is seen on the disk, whoever did it: other processes, and other
    commands, share the work."""

    def __init__(self, label: str, plan: PairPlan, *, bar: bool):
        super().__init__(label, done=0, total=plan.pairs, bar=bar)
        self.plan = plan

    def on_predict_start(self, trainer, module):
        pass  # what an earlier start has left is known a moment later

    def on_predict_epoch_start(self, trainer, module):
        self.done = self._finished(module)
        super().on_predict_start(trainer, module)

    def on_predict_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        if outputs >= 0:
            self.fresh = self._finished(module) - self.done
            super().on_predict_batch_end(trainer, module, outputs, (outputs, ()), batch_idx)

    def _finished(self, module: PairsModule) -> int:
        return sum(self.plan.pairs_of(number) for number in module.store.finished())


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
