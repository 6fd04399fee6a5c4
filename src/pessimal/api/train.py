"""`pessimal.train`: a reward model of people's preferences between items."""

import json
import logging
import shutil
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pessimal.api.load import check_options, load
from pessimal.api.store import Store
from pessimal.errors import require
from pessimal.rewards.base import Reward
from pessimal.rewards.named import language_model_of
from pessimal.training.spec import PreferenceRecipe

if TYPE_CHECKING:
    from pessimal.training.preference_model import PreferenceTraining

log = logging.getLogger(__name__)


def train(
    base: str,
    data: str | Path,
    folder: str | Path,
    *,
    seed: int = 0,
    cache: str = "runs/cache",
    accelerator: str = "cpu",
    progress: bool = True,
    **recipe,
) -> Reward:
    """Train a reward model of people's preferences between items, from a language model.

    Args:
        base: the language model: a local folder, `org/name`, or a name of conf/model.
        data: CSV file with the columns name, elo_score and elo_matches.
        folder: where its checkpoint is written, which is new; transformers and `load` read it.
        seed: of the head's first weights and of the order of the items.
        recipe: options of the training (`pessimal.training.spec.PreferenceRecipe`), such as
            steps=150, layers=12, question="…".

    Raises:
        ConfigError, InputError, ModelError: an option, the data, or the base cannot be taken.
    """
    require("peft", why="training on people's preferences")
    from pessimal.training.preference_model import train_preferences  # which loads peft

    check_options("a training", recipe, *(field.name for field in fields(PreferenceRecipe)))
    folder = Path(folder).expanduser()
    train_preferences(
        language_model_of(base),
        Path(data).expanduser(),
        PreferenceRecipe(**recipe),
        folder=folder,
        cache=cache,
        seed=seed,
        accelerator=accelerator,
        progress=progress,
    )
    return load(str(folder), cache=cache)


REWARD_MODEL = "reward-model"


def train_published(
    training: "PreferenceTraining", *, store: Store, accelerator: str, progress: bool = True
) -> tuple[Path, dict[str, Any]]:
    """The folder of a training's `reward-model` in the registry and what its report says; one that
    is trained already is read, and one that was cut off goes on."""
    from pessimal.training.preference_model import REPORT

    if published := store.find(REWARD_MODEL, training.key):
        folder, _ = published
        log.info("%s is trained already: %s (force=true trains it again)", training.name, folder)
        return folder, json.loads((folder / REPORT).read_text(encoding="utf-8"))
    training.load()
    if store.force:
        shutil.rmtree(training.work, ignore_errors=True)
    with store.track(name=f"train {training.name}") as mirror:
        trained = training.run(accelerator=accelerator, progress=progress, report=mirror.metrics)
        mirror.summary(trained.summary)
        folder, _ = mirror.publish(
            *(store.registry, REWARD_MODEL, training.name, trained.write),
            key=training.key,
            summary=trained.summary,
        )
    shutil.rmtree(training.work, ignore_errors=True)
    return folder, trained.report
