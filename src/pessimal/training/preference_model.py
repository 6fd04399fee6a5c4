"""A reward model of people's preferences, from a language model and a table of items to a folder
that transformers loads: `train_preferences`.

LoRA on the upper layers and a new head. Each step scores some items as the answer to one question,
which is run once and shared, and compares every two of them. Does not know configurations, the
registry or W&B.
"""

import csv
import hashlib
import json
import logging
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import ModulesToSaveWrapper
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase

from pessimal.errors import InputError, ModelError
from pessimal.rewards.checkpoint_files import load_tokenizer
from pessimal.rewards.obtain import fetch_files
from pessimal.rewards.spec import CheckpointSpec
from pessimal.rewards.weights import weights_digest
from pessimal.tables.files import whole_folder
from pessimal.training.bradley_terry import soft_bradley_terry, warm_up_and_cosine
from pessimal.training.callback import PessimalCallback
from pessimal.training.preferences import (
    Answers,
    Items,
    agreement,
    digest_of,
    read_preferences,
    score_answers,
    split,
)
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
    answers = Answers.from_names(tokenizer, recipe.question, items.names)
    module = PreferenceModule(network, recipe, answers, items, seed=seed)

    def agreed(part: Items) -> Agreement:
        answers = Answers.from_names(tokenizer, recipe.question, part.names)
        network.eval()
        with torch.no_grad():
            rows = 4 * recipe.batch_size
            rewards = score_answers(network, answers.prefix, answers.ids, rows=rows)
        network.train()
        return agreement(rewards.double().cpu().numpy(), part)

    checkpoint = folder / LAST
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
    trainer.fit(module, steps_to_go, ckpt_path=checkpoint if checkpoint.is_file() else None)
    sample = np.random.default_rng(0).permutation(len(items.names))[: len(held_out.names)]
    return {
        "losses": module.losses,
        "held_out": steps.last or agreed(held_out),
        "trained": agreed(items.take(sample)),
    }


REPORT, WATCHED = "training.json", "watched.csv"
LOOK_EVERY = 15
"""Steps between two turns of what is watched. Fewer would leave a turn less time than the smallest
sample takes."""
SPLIT_SEED = 0
"""The held-out items do not depend on the training's seed."""
CARD = """---
base_model: {base}
pipeline_tag: text-classification
---
# {it.name}

A reward model of people's preferences: Bradley-Terry on {n} items with human Elo, from {base} (weights sha256 {it.base_digest}).
{weights}

Question: *{it.recipe.question}*

Of pairs of {held_n} items that it was never trained on, it puts {held_out[accuracy]:.3f} into people's order (95 % interval {held_out[low]:.3f} to
{held_out[high]:.3f}). It has seen items of one to a few words as answers to one question, and nothing else.

`adapter/` is the PEFT adapter (LoRA, rank {it.recipe.rank}, upper {it.recipe.layers} layers) with the head, `steps/` the adapters during training,
`training.json` recipe, losses and figures, `watched.csv` the best and worst tokens seen while it was trained. Made with pessimal: `pessimal train`.
"""


@dataclass(frozen=True)
class Trained:
    """A trained reward model of people's preferences."""

    network: PeftModel
    tokenizer: PreTrainedTokenizerBase
    report: dict[str, Any]
    """The content of `training.json`: recipe, losses, held-out figures, time."""
    card: str
    """Text of the model card."""
    steps: Path
    """Folder with the adapters of some steps, each in `step-N`."""
    watched: pd.DataFrame | None
    """History of `PessimalCallback`; None where nothing was watched."""

    @property
    def summary(self) -> dict[str, float]:
        """The figures that a list of runs shows."""
        held_out = {f"held_out_{name}": value for name, value in self.report["held_out"].items()}
        return {"seconds": self.report["seconds"]} | held_out

    def write(self, folder: Path) -> None:
        """Fill a folder with the checkpoint and its adapters; once, as the network is merged with
        its adapter."""
        self.network.save_pretrained(str(folder / "adapter"))
        self.tokenizer.save_pretrained(folder / "adapter")
        merged = self.network.merge_and_unload(safe_merge=True)
        if isinstance(merged.score, ModulesToSaveWrapper):
            merged.score = merged.score.modules_to_save["default"]
        merged.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        for step in self.steps.glob("step-*"):
            shutil.copytree(step, folder / "steps" / step.name)
        if self.watched is not None:
            self.watched.to_csv(folder / WATCHED, index=False, quoting=csv.QUOTE_NONNUMERIC)
        (folder / "README.md").write_text(self.card, encoding="utf-8")
        (folder / REPORT).write_text(json.dumps(self.report, indent=1), encoding="utf-8")


class PreferenceTraining:
    """One training: its data, its base, and the key of what it depends on, known before the network
    is loaded.

    Args:
        base: the language model.
        data: CSV file with the columns name, elo_score and elo_matches.
        cache: folder for fetched models, and for the state of a training that was cut off.
        seed: of the head's first weights and of the order of the items.

    Raises:
        InputError: the data cannot be read, or are too few.
        ModelError: the base cannot be fetched.
    """

    def __init__(
        self,
        base: CheckpointSpec,
        data: Path,
        recipe: PreferenceRecipe,
        *,
        cache: Path | str = "runs/cache",
        seed: int = 0,
    ):
        self.base, self.recipe, self.seed = base, recipe, seed
        items = read_preferences(data, without=_words(recipe.without))
        self.items, self.held_out = split(items, held_out=recipe.held_out, seed=SPLIT_SEED)
        folder = fetch_files(base, cache=str(cache))
        if folder is None:
            raise ModelError(f"{base.name!r} has no weights to be trained: give a language model")
        self.folder, self.base_digest = folder, weights_digest(folder)
        self.items_digest = digest_of(items)
        # The words left out are in the digest of the items; what is watched changes no weight.
        depends_on = {"base": self.base_digest, "items": self.items_digest, "seed": seed}
        depends_on["recipe"] = asdict(recipe) | {"without": None, "watch": None}
        self.key = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
        self.name = f"{recipe.name}-{base.name}-{seed}"
        self.work = Path(cache) / "training" / f"{self.name}-{self.key[:16]}"
        """Folder of the last state, from which a training that was cut off goes on."""

    def load(self) -> None:
        """The base with a new head and untrained adapters, and its tokenizer.

        Raises:
            FrameError: it has no chat template.
            ModelError: it is no language model, or has fewer layers than the recipe says.
        """
        self.tokenizer = load_tokenizer(self.base, self.folder)
        pad = padding(self.tokenizer, self.recipe.question, self.base.name)
        self.network = new_network(self.folder, self.recipe, seed=self.seed, pad=pad)

    def run(
        self, *, accelerator: str = "cpu", progress: bool = True, report: Report = ignore
    ) -> Trained:
        """Train what was loaded.

        Args:
            accelerator: Lightning's kind of device.
            progress: whether to draw a progress bar, where there is a terminal.
            report: called with the figures of each step, by name.
        """
        started, recipe = time.perf_counter(), self.recipe
        watching = []
        if recipe.watch:
            prompts = {"question": recipe.question}
            watching = [PessimalCallback(prompts, self.tokenizer, every=LOOK_EVERY, report=report)]
        figures = fit(
            self.network,
            recipe,
            self.tokenizer,
            self.items,
            self.held_out,
            seed=self.seed,
            folder=self.work,
            accelerator=accelerator,
            progress=progress and sys.stderr.isatty(),
            report=report,
            callbacks=watching,
        )
        n, held_n = len(self.items.names), len(self.held_out.names)
        whole_report = {
            "name": self.name,
            "base": self.base.name,
            "base_weights": self.base_digest,
            "seed": self.seed,
            "recipe": asdict(recipe),
            "items": {"trained": n, "held_out": held_n, "sha256": self.items_digest},
            "seconds": round(time.perf_counter() - started, 1),
            **figures,
            "watched": [
                {"turns": w.history["step"].nunique(), "share_of_time": round(w.share_taken, 5)}
                for w in watching
            ],
        }
        history = watching[0].history if watching else None
        card = self._card(figures["held_out"])
        return Trained(self.network, self.tokenizer, whole_report, card, self.work, history)

    def _card(self, held_out: dict[str, float]) -> str:
        base, package = self.base, self.base.package
        source = package.source if package else base.name if base.local else base.path
        weights = f"The base has {package.weights} weights." if package else ""
        sizes = {"n": len(self.items.names), "held_n": len(self.held_out.names)}
        return CARD.format(it=self, base=source, weights=weights, held_out=held_out, **sizes)


def train_preferences(
    base: CheckpointSpec,
    data: Path,
    recipe: PreferenceRecipe | None = None,
    *,
    folder: Path,
    cache: Path | str = "runs/cache",
    seed: int = 0,
    **running: Any,
) -> Trained:
    """Train a reward model of people's preferences and write its checkpoint to `folder`. A training
    that was cut off goes on from its last state in `cache`. See `PreferenceTraining` for the
    arguments and errors, and its `run` for `running`: accelerator, progress, report.

    Raises:
        InputError: there is something at `folder` already.
    """
    if folder.exists():
        raise InputError(f"{folder} is there already; give a new folder")
    training = PreferenceTraining(base, data, recipe or PreferenceRecipe(), cache=cache, seed=seed)
    training.load()
    trained = training.run(**running)
    with whole_folder(folder) as temporary:
        trained.write(temporary)
    shutil.rmtree(training.work, ignore_errors=True)
    return trained


def padding(tokenizer: PreTrainedTokenizerBase, question: str, name: str | None) -> int:
    """The id that fills up a batch: transformers reads the reward at the last that is another.
    ModelError where there is none."""
    closing = Answers.from_names(tokenizer, question, ["love"]).ids[0][-1]
    for pad in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if pad is not None and pad != closing:
            return pad
    raise ModelError(f"{name!r} has no token to fill up batches: give its tokenizer a pad_token")


def _words(path: str | None) -> frozenset[str]:
    if path is None:
        return frozenset()
    lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip().lower() for line in lines if line.strip())
