"""`pessimal train`: a reward model of people's preferences, published and tracked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pessimal.api.load import train_published
from pessimal.config.schema import TrainConfig
from pessimal.progress import quiet_libraries
from pessimal.rewards.named import language_model_of
from pessimal.verbs.common import print_path, show_rows, store_of


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
    show_rows(training.name, _rows(report))
    print_path(folder)


def _rows(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for items, name in (("held-out items", "held_out"), ("items trained on", "trained")):
        figures = report[name]
        interval = f"({figures['low']:.3f} to {figures['high']:.3f})"
        text = f"pairs of {figures['n']} {items} in people's order (chance .5)"
        rows.append((text, f"{figures['accuracy']:.3f} {interval}"))
    return [*rows, ("minutes", f"{report['seconds'] / 60:.1f}")]
