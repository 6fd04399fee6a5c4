"""`pessimal train`: a reward model of people's preferences, published and tracked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from pessimal.api.load import train_published
from pessimal.config.schema import TrainConfig
from pessimal.progress import quiet_libraries
from pessimal.rewards.named import language_model_of
from pessimal.verbs.common import print_path, show, store_of


def run(config: TrainConfig) -> None:
    """Train `recipe` from `base` on `data` unless that is done, and publish the checkpoint as a
    `reward-model` artifact; a training that was cut off goes on."""
    quiet_libraries()
    from pessimal.training.preference_model import PreferenceTraining

    assert config.base is not None
    assert config.data is not None  # checked by the configuration
    training = PreferenceTraining(
        language_model_of(config.base),
        Path(config.data).expanduser(),
        config.recipe,
        cache=config.paths.cache,
        seed=config.seed,
    )
    folder, report = train_published(
        training,
        store=store_of(config),
        accelerator=config.trainer.accelerator,
        progress=config.progress,
    )
    print_accuracy(training.name, report)
    print_path(folder)


def print_accuracy(name: str, report: Mapping[str, Any]) -> None:
    """Print the shares of pairs, held out and trained on, that the model orders as people do."""
    minutes = report["seconds"] / 60
    show(Text(f"{name}, {minutes:.1f} minutes. Pairs in people's order (chance .5):"))
    for items, part in (("held-out items", "held_out"), ("items trained on", "trained")):
        of = report[part]
        numbers = f"{of['accuracy']:.3f} ({of['low']:.3f} to {of['high']:.3f})"
        show(Text(f"    {numbers} of {of['n']} {items}"))
