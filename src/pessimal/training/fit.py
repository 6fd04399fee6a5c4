"""Trains a reward model on people's preferences: LoRA on the upper layers of a causal language
model, and a new head.

Each step takes some items, scores all of them as the answer to one question, and compares every two
of them. The question is run once a step and shared, as it stands ahead of every item. Knows
networks and Lightning's trainer; not where results go.
"""

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase

from pessimal.errors import ModelError
from pessimal.training.bradley_terry import soft_bradley_terry, warm_up_and_cosine
from pessimal.training.preferences import Answers, Items, agreement, score_answers
from pessimal.training.spec import PreferenceRecipe

log = logging.getLogger(__name__)

WARM_UP = 0.1
"""Fraction of the steps over which the learning rate rises to its peak."""


LAST = "last.ckpt"
Agreement = dict[str, float]
"""Figures of `preferences.agreement`."""
Report = Callable[[dict[str, float]], None]
"""Called with the figures of a step, by name."""


def ignore(point: dict[str, float]) -> None:
    """A report that goes nowhere."""


def new_network(folder: Path, recipe: PreferenceRecipe, *, seed: int, pad: int) -> PeftModel:
    """The language model of a folder with a new head and untrained adapters, float32, on the CPU.

    Raises:
        ModelError: it cannot be loaded, or has fewer layers than `recipe.layers`.
    """
    torch.manual_seed(seed)
    try:
        network = AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=1, dtype=torch.float32, use_safetensors=True
        )
    except Exception as error:
        raise ModelError(f"the base in {folder} cannot be loaded: {error}") from error
    network.config.pad_token_id = pad
    layers = network.config.get_text_config().num_hidden_layers
    if recipe.layers > layers:
        raise ModelError(f"recipe.layers={recipe.layers}, and the base has {layers} layers")
    nn.init.normal_(network.score.weight, std=network.config.get_text_config().hidden_size ** -0.5)
    names = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    numbered = {name: re.search(r"\.(\d+)\.", name) for name in names}
    first = layers - recipe.layers
    upper = [name for name, number in numbered.items() if number and int(number[1]) >= first]
    ranks: dict[str, Any] = {"r": recipe.rank, "lora_alpha": 2 * recipe.rank}
    parts: dict[str, Any] = {"target_modules": upper, "modules_to_save": ["score"]}
    return get_peft_model(network, LoraConfig(task_type="SEQ_CLS", **ranks, **parts))


class PreferenceModule(pl.LightningModule):
    """Bradley-Terry on soft preferences; the loss of every step is kept in `losses`, in nats."""

    strict_loading = False  # a checkpoint holds what is trained

    def __init__(
        self,
        network: PeftModel,
        recipe: PreferenceRecipe,
        answers: Answers,
        items: Items,
        *,
        seed: int,
    ):
        super().__init__()
        self.network, self.recipe, self.answers, self.seed = network, recipe, answers, seed
        targets = np.stack([items.utility, items.precision])
        self.targets = torch.tensor(targets, dtype=torch.float32)
        self.losses: list[float] = []

    def rows(self, step: int) -> np.ndarray:
        """The items of a step: each pass through them is in a new order, whatever was interrupted
        before."""
        n, k = len(self.answers.ids), self.recipe.items
        first, end = step * k // n, ((step + 1) * k - 1) // n + 1
        orders = [np.random.default_rng((self.seed, p)).permutation(n) for p in range(first, end)]
        return np.concatenate(orders)[step * k - first * n :][:k]

    def training_step(self, batch: Any, index: int) -> Tensor:
        rows = self.rows(self.global_step)
        answers = [self.answers.ids[row] for row in rows]
        size = self.recipe.batch_size
        rewards = score_answers(self.network, self.answers.prefix, answers, rows=size)
        targets = self.targets[:, rows].to(rewards.device)
        loss = soft_bradley_terry(rewards[None], *targets[:, None])
        self.losses.append(loss.item())
        self.log("train/loss", loss, prog_bar=True, batch_size=len(rows))
        return loss

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        rates: dict[str, Any] = {
            "lr": self.recipe.learning_rate,
            "weight_decay": self.recipe.weight_decay,
        }
        return warm_up_and_cosine(torch.optim.AdamW(trained, **rates), self.recipe.steps)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        trained = {name for name, weight in self.named_parameters() if weight.requires_grad}
        weights = checkpoint["state_dict"]
        checkpoint["state_dict"] = {name: weights[name] for name in weights if name in trained}
        checkpoint["losses"] = self.losses

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.losses = checkpoint["losses"]


class Steps(pl.Callback):
    """Keeps the adapters of some steps, and takes the held-out accuracy as training goes on."""

    def __init__(
        self, folder: Path, *, every: int, held_out: Callable[[], Agreement], report: Report
    ):
        self.folder, self.every, self.held_out, self.report = folder, every, held_out, report
        self.last: Agreement | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.global_step == 0:
            self._keep(pl_module, 0)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any, **__: Any) -> None:
        step = trainer.global_step
        point = {"train/step": step, "train/loss": pl_module.losses[-1]}
        if step % self.every == 0 or step == pl_module.recipe.steps:
            self._keep(pl_module, step)
            self.last = self.held_out()
            total, accuracy = pl_module.recipe.steps, self.last["accuracy"]
            log.info(
                "%s: step %d of %d, held-out accuracy %.3f", self.folder.name, step, total, accuracy
            )
            point |= {f"train/held_out_{name}": value for name, value in self.last.items()}
        self.report(point)

    def _keep(self, module: PreferenceModule, step: int) -> None:
        module.network.save_pretrained(str(self.folder / f"step-{step}"))


def fit(
    network: PeftModel,
    recipe: PreferenceRecipe,
    tokenizer: PreTrainedTokenizerBase,
    items: Items,
    held_out: Items,
    *,
    seed: int,
    folder: Path,
    accelerator: str = "cpu",
    progress: bool = True,
    report: Report = ignore,
    callbacks: Sequence[pl.Callback] = (),
) -> dict[str, Any]:
    """Train `network` in place for `recipe.steps` steps, going on where an earlier call with this
    `folder` was cut off.

    Args:
        items, held_out: what is trained on, and what is not.
        folder: keeps the last state, and the adapters of every `recipe.every` steps as `step-N`.
        report: called with the loss of every step, and now and then the held-out figures.

    Returns:
        `losses` of every step in nats; `held_out` and, of as many items that it was trained on,
        `trained`: see `agreement`.
    """
    answers = Answers.of(tokenizer, recipe.question, items.names)
    module = PreferenceModule(network, recipe, answers, items, seed=seed)

    def agreed(part: Items) -> Agreement:
        answers = Answers.of(tokenizer, recipe.question, part.names)
        network.eval()
        with torch.no_grad():
            rows = 4 * recipe.batch_size
            rewards = score_answers(network, answers.prefix, answers.ids, rows=rows)
        network.train()
        return agreement(rewards.double().cpu().numpy(), part)

    last = folder / LAST
    names: dict[str, Any] = {"dirpath": folder, "filename": "last", "enable_version_counter": False}
    keep = pl.callbacks.ModelCheckpoint(every_n_train_steps=recipe.every, **names)
    steps = Steps(folder, every=recipe.every, held_out=lambda: agreed(held_out), report=report)
    trainer = pl.Trainer(
        accelerator=accelerator,
        devices=1,
        max_steps=recipe.steps,
        max_epochs=-1,
        logger=False,
        callbacks=[steps, keep, *callbacks],
        enable_model_summary=False,
        enable_progress_bar=progress,
        gradient_clip_val=1.0,
        default_root_dir=folder,
    )
    network.train()
    steps_to_go = DataLoader(TensorDataset(torch.arange(recipe.steps)))
    trainer.fit(module, steps_to_go, ckpt_path=last if last.is_file() else None)
    sample = np.random.default_rng(0).permutation(len(items.names))[: len(held_out.names)]
    return {
        "losses": module.losses,
        "held_out": steps.last or agreed(held_out),
        "trained": agreed(items.take(sample)),
    }
