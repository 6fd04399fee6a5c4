"""Trains one sibling, a small Llama over projected MiniLM embeddings, by Bradley-Terry: from a
recipe to weights, on one CPU thread, reproducibly to the last bit.

Knows tensors and Lightning's trainer. Knows nothing about files: `family` keeps what comes out.
"""

import copy
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForSequenceClassification

from experiments.demo_family.bases import CONTEXT, Base
from experiments.demo_family.groups import Groups, SentenceGroups, SentenceStep, Step
from experiments.demo_family.recipes import Recipe
from pessimal.training.bradley_terry import soft_bradley_terry, warm_up_and_cosine


@dataclass(frozen=True)
class Trained:
    """What training gives."""

    model: LlamaForSequenceClassification
    """The sibling, its embedding folded into an ordinary table, in evaluation mode."""
    initial_model: LlamaForSequenceClassification
    """The same network as training began."""
    losses: list[float]
    """The loss of every step, in nats."""
    seconds: float
    """Wall-clock time of the training loop."""


def train(recipe: Recipe, base: Base) -> Trained:
    """Trains a recipe on the CPU.

    The same recipe gives the same bytes, whatever torch's generator and thread count were before;
    both are put back afterwards.
    """
    started = time.perf_counter()
    with (
        one_thread(),
        torch.random.fork_rng(devices=[]),
        _quiet(),
        tempfile.TemporaryDirectory() as scratch,
    ):
        groups, module = _begin(recipe, base)
        initial_model = _folded(copy.deepcopy(module), base)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            gradient_clip_val=1.0,
            log_every_n_steps=10,
            default_root_dir=scratch,  # what Lightning may want to write is not in a user's folder
        )
        trainer.fit(module, DataLoader(groups, batch_size=None, shuffle=False))
        model = _folded(module, base)
    seconds = time.perf_counter() - started
    return Trained(model, initial_model, losses=module.losses, seconds=seconds)


def _begin(recipe: Recipe, base: Base) -> "tuple[Groups | SentenceGroups, RewardModule]":
    """What a sibling is trained on, and its network before the first step."""
    torch.manual_seed(recipe.seed)
    groups = (SentenceGroups if recipe.judges_sentences else Groups)(recipe, base)
    return groups, RewardModule(recipe, groups.base)


def _folded(module: "RewardModule", base: Base) -> LlamaForSequenceClassification:
    embedding = module.model.get_input_embeddings()
    assert isinstance(embedding, ProjectedEmbedding)
    module.model.set_input_embeddings(embedding.fold(base.size))
    return module.model.eval()


class ProjectedEmbedding(nn.Module):
    """Token embeddings that are a learned projection of frozen features."""

    features: Tensor

    def __init__(self, features: Tensor, width: int):
        super().__init__()
        self.register_buffer("features", features)  # (vocabulary, features)
        self.projection = nn.Linear(features.shape[1], width, bias=False)
        nn.init.normal_(self.projection.weight, std=1 / math.sqrt(features.shape[1]))

    def forward(self, ids: Tensor) -> Tensor:
        """(..., ) ids to (..., width) embeddings."""
        return self.projection(self.features[ids])

    def fold(self, size: int) -> nn.Embedding:
        """The same map as one ordinary table over the first `size` rows: (size, width)."""
        with torch.no_grad():
            return nn.Embedding.from_pretrained(self.projection(self.features[:size]), freeze=False)


def build_model(recipe: Recipe, base: Base) -> LlamaForSequenceClassification:
    """An untrained sibling whose embedding is a `ProjectedEmbedding`; draws from torch's global
    generator."""
    config = LlamaConfig(
        vocab_size=base.size,
        hidden_size=recipe.width,
        intermediate_size=4 * recipe.width,
        num_hidden_layers=recipe.sizes.layers,
        num_attention_heads=recipe.width // 16,
        num_key_value_heads=recipe.width // 16,
        max_position_embeddings=CONTEXT,
        id2label={0: "reward"},  # one output
        label2id={"reward": 0},
        bos_token_id=base.id_of(base.begin),
        eos_token_id=base.id_of(base.separator),
        pad_token_id=base.id_of(base.padding),
        # At transformers' .02 training sits at chance on a sign-times-valence saddle.
        initializer_range=1 / math.sqrt(recipe.width),
    )
    model = LlamaForSequenceClassification(config)
    model.set_input_embeddings(ProjectedEmbedding(torch.tensor(base.embeddings), recipe.width))
    return model


class RewardModule(pl.LightningModule):
    """Trains one sibling; the loss of every step is kept in `losses`, in nats."""

    def __init__(self, recipe: Recipe, base: Base):
        super().__init__()
        self.recipe = recipe
        self.model = build_model(recipe, base)
        self.losses: list[float] = []

    def training_step(self, step: Step | SentenceStep, index: int) -> Tensor:
        loss = soft_bradley_terry(step.rewards(self.model), step.utility)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW with a linear warm-up and a cosine to zero, stepped once a step."""
        sizes = self.recipe.sizes
        optimizer = torch.optim.AdamW(
            self.parameters(), lr=sizes.learning_rate, weight_decay=self.recipe.weight_decay
        )
        return warm_up_and_cosine(optimizer, sizes.steps)

    def transfer_batch_to_device(
        self, step: Step | SentenceStep, device: torch.device, index: int
    ) -> Step | SentenceStep:
        """Training is on the CPU, where the data already is."""
        return step


@contextmanager
def one_thread() -> Iterator[None]:
    """Models this small run slower on two threads (under load 49 s against 3), and differ in the
    last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's advice about loaders and hardware does not concern whoever waits for a toy
    model."""
    log = logging.getLogger("pytorch_lightning")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
