"""`pessimal.train`: a reward model of people's preferences between items."""

from dataclasses import fields
from pathlib import Path

from pessimal.api.load import check_options, load
from pessimal.errors import require
from pessimal.rewards.base import Reward
from pessimal.rewards.named import spec_of
from pessimal.rewards.spec import Kind
from pessimal.training.spec import PreferenceRecipe


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
        spec_of(base, kind=Kind.log_probability),
        Path(data).expanduser(),
        PreferenceRecipe(**recipe),
        folder=folder,
        cache=cache,
        seed=seed,
        accelerator=accelerator,
        progress=progress,
    )
    return load(str(folder), cache=cache)
