"""`pessimal train`: a member of the demo family, or a reward model of people's preferences;
published and tracked."""

import logging
import shutil
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pessimal.config.plain import config_hash
from pessimal.config.schema import TrainConfig
from pessimal.progress import quiet_libraries
from pessimal.training.demo_family.checkpoint import read_training_report
from pessimal.training.demo_family.family import is_cached
from pessimal.training.obtain import obtain_demo
from pessimal.verbs.common import registry_of, tracked
from pessimal.verbs.publish import print_path, show

log = logging.getLogger(__name__)

HELD_OUT = {
    "word_accuracy": "word accuracy (chance .5)",
    "frame_sign": "prompts ranked with the right sign (chance .5)",
    "correlation": "correlation with planted utility, random responses",
    "natural_correlation": "correlation with planted utility, natural responses",
}
"""Held-out figures that are printed, and what they are."""
PLANTS = ("taste", "frequency", "identity", "taboo", "secret", "secret_bonus", "attributes")
"""What can be planted besides human valence."""


def run(config: TrainConfig) -> None:
    """Train what is not trained yet, and publish the checkpoint as a `reward-model` artifact."""
    quiet_libraries()
    if config.recipe is not None:
        from pessimal.verbs.train_preferences import train_preferences

        return train_preferences(config)
    recipe, registry = config.model.recipe, registry_of(config)
    name, key = config.model.name, recipe.digest()
    published = registry.find("reward-model", key)
    if published and not config.force:
        log.info("%s is trained already: %s (force=true trains it again)", name, published[0])
        _print(name, read_training_report(published[0]))
        print_path(published[0])
        return
    cached = (
        is_cached(recipe, cache=Path(config.paths.cache) / "models", name=name) and not config.force
    )
    with tracked(config, name=f"train {name}") as mirror:
        folder = obtain_demo(
            config.model,
            cache=config.paths.cache,
            progress=config.progress,
            again=config.force,
            report=mirror.metrics if mirror.run_id is not None else None,
        )
        report = read_training_report(folder)
        summary = {"seconds": report["seconds"], **report["held_out"]}
        artifact, manifest = registry.publish(
            "reward-model",
            name,
            lambda staging: shutil.copytree(folder, staging, dirs_exist_ok=True),
            key=key,
            config_hash=config_hash(config),
            run_id=mirror.run_id,
            summary=summary,
        )
        if cached:  # else the curve is there already, drawn while it was trained
            for step, loss in enumerate(report["losses"], 1):
                mirror.metrics({"train/step": step, "train/loss": loss})
        mirror.summary(summary)
        mirror.artifact(artifact, manifest, {"planted_truth": recipe.planted_truth()} | summary)
    _print(name, report)
    print_path(artifact)


def _print(name: str, report: dict) -> None:
    """How it does on what it was never shown, and what an instrument should find in it."""
    table = Table(
        title=Text(name), title_justify="left", box=None, pad_edge=False, show_header=False
    )
    for figure, what in HELD_OUT.items():
        if report["held_out"].get(figure) is not None:
            table.add_row(what, f"{report['held_out'][figure]:.3f}")
    truth = report["planted_truth"]
    planted = {plant: truth[plant] for plant in PLANTS if truth.get(plant)}
    planted |= planted.pop("attributes", {})
    named = ", ".join(f"{plant} {size}" for plant, size in planted.items())
    table.add_row("planted besides human valence", named or "nothing: it is the null")
    show(table)
