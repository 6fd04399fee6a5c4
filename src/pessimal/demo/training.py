"""Trains one sibling: from a recipe to weights, on one CPU thread, reproducibly to the last bit.

Knows Lightning's trainer. Knows nothing about files: `family` keeps what comes out.
"""

import logging
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from torch.utils.data import DataLoader
from transformers import LlamaForSequenceClassification

from pessimal.demo.bases import Base
from pessimal.demo.groups import Groups
from pessimal.demo.module import RewardModule
from pessimal.demo.recipes import Recipe
from pessimal.demo.sentences.groups import SentenceGroups
from pessimal.demo.sentences.module import SentenceModule


@dataclass(frozen=True)
class Trained:
    """What training gives."""

    model: LlamaForSequenceClassification
    """The sibling, its embedding folded into an ordinary table, in evaluation mode."""
    losses: list[float]
    """The loss of every step, in nats."""
    seconds: float
    """Wall-clock time of the training loop."""


def train(
    recipe: Recipe,
    base: Base,
    *,
    progress: bool = True,
    logger: Logger | bool = False,
    callbacks: list[pl.Callback] | None = None,
) -> Trained:
    """Trains a recipe on the CPU.

    The same recipe gives the same bytes, whatever torch's generator and thread count were before; both are put
    back afterwards.

    Args:
        progress: whether to draw Lightning's progress bar.
        logger: a Lightning logger that receives `train/loss`; none by default.
        callbacks: further Lightning callbacks.
    """
    started = time.perf_counter()
    with one_thread(), torch.random.fork_rng(devices=[]), _quiet(), tempfile.TemporaryDirectory() as scratch:
        torch.manual_seed(recipe.seed)
        if recipe.judges_sentences:
            groups = SentenceGroups(recipe, base)
            module = SentenceModule(recipe, base)
        else:
            groups = Groups(recipe, base)
            module = RewardModule(recipe, groups.base)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            logger=logger,
            callbacks=callbacks,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=progress,
            gradient_clip_val=1.0,
            log_every_n_steps=10,
            default_root_dir=scratch,  # whatever Lightning may want to write, it is not in the user's folder
        )
        trainer.fit(module, DataLoader(groups, batch_size=None, shuffle=False))
    model = module.model
    model.set_input_embeddings(model.get_input_embeddings().fold(base.size))
    return Trained(model=model.eval(), losses=module.losses, seconds=time.perf_counter() - started)


@contextmanager
def one_thread() -> Iterator[None]:
    """Models this small run slower on two threads (under load 49 s against 3), and differ in the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's advice about loaders and hardware does not concern whoever waits for a toy model."""
    log = logging.getLogger("pytorch_lightning")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
