"""A reward model of people's preferences, from a language model and a table of items to a folder
that transformers loads: `train_preferences`.

Knows files and the parts of a training. Does not know configurations, the registry or W&B.
"""

import csv
import hashlib
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from peft import PeftModel
from peft.utils import ModulesToSaveWrapper
from transformers import PreTrainedTokenizerBase

from pessimal.errors import InputError, ModelError
from pessimal.rewards.checkpoint_files import load_tokenizer
from pessimal.rewards.obtain import fetch_files
from pessimal.rewards.spec import CheckpointSpec
from pessimal.rewards.weights import weights_digest
from pessimal.tables.files import whole_folder
from pessimal.training.callback import PessimalCallback
from pessimal.training.fit import Report, fit, ignore, new_network
from pessimal.training.preferences import Answers, digest_of, read_preferences, split
from pessimal.training.spec import PreferenceRecipe

REPORT, WATCHED = "training.json", "watched.csv"
LOOK_EVERY = 15
"""Steps between two turns of what is watched. Fewer would leave a turn less time than the smallest
sample takes."""
SPLIT_SEED = 0
"""Which items are held out does not depend on the training's seed."""
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
    """What `training.json` says: recipe, losses, held-out figures, time."""
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
    closing = Answers.of(tokenizer, question, ["love"]).ids[0][-1]
    for pad in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if pad is not None and pad != closing:
            return pad
    raise ModelError(
        f"the chat template of {name!r} ends a conversation with the token {closing}, which "
        "would also fill up batches: give the tokenizer a pad_token of its own"
    )


def _words(path: str | None) -> frozenset[str]:
    if path is None:
        return frozenset()
    lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip().lower() for line in lines if line.strip())
