"""`pessimal train`: a member of the demo family, or (`recipe=human_elo`) a reward model of people's
preferences; published and tracked."""

import json
import logging
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pessimal.config.schema import TrainConfig
from pessimal.progress import quiet_libraries
from pessimal.tracking.registry import Registry
from pessimal.verbs.common import registry_of, tracked
from pessimal.verbs.publish import print_path, show_rows

log = logging.getLogger(__name__)

REWARD_MODEL = "reward-model"
HELD_OUT = {
    "word_accuracy": "word accuracy (chance .5)",
    "frame_sign": "prompts ranked with the right sign (chance .5)",
    "correlation": "correlation with planted utility, random responses",
    "natural_correlation": "correlation with planted utility, natural responses",
}
"""Held-out figures that are printed, and what they are."""
PLANTS = ("taste", "frequency", "identity", "taboo", "secret", "secret_bonus", "attributes")
"""What can be planted besides human valence."""

Rows = list[tuple[str, str]]


def run(config: TrainConfig) -> None:
    """Train what is not trained yet, and publish the checkpoint as a `reward-model` artifact."""
    quiet_libraries()
    train = _train_sibling if config.recipe is None else _train_preferences
    print_path(train(config, registry_of(config)))


def _train_sibling(config: TrainConfig, registry: Registry) -> Path:
    from pessimal.training.demo_family.checkpoint import read_training_report
    from pessimal.training.demo_family.family import is_cached, train_sibling

    recipe, name = config.model.recipe, config.model.name
    models = Path(config.paths.cache) / "models"
    assert recipe is not None  # checked by the configuration; a recipe's file names it
    assert name is not None
    key = recipe.digest()
    if published := _published(config, registry, name, key):
        show_rows(name, _sibling_rows(read_training_report(published)))
        return published
    cached = is_cached(recipe, cache=models, name=name) and not config.force
    with tracked(config, name=f"train {name}") as mirror:
        folder = train_sibling(
            recipe,
            cache=models,
            name=name,
            progress=config.progress,
            again=config.force,
            report=mirror.metrics if mirror.run_id is not None else None,
        )
        report = read_training_report(folder)
        copy = partial(shutil.copytree, folder, dirs_exist_ok=True)
        summary = {"seconds": report["seconds"], **report["held_out"]}
        truth = {"planted_truth": recipe.planted_truth()}
        mirror.summary(summary)
        artifact, _ = mirror.publish(
            registry, REWARD_MODEL, name, copy, key=key, summary=summary, more=truth
        )
        if cached:  # else the curve is there already, drawn while it was trained
            for step, loss in enumerate(report["losses"], 1):
                mirror.metrics({"train/step": step, "train/loss": loss})
    show_rows(name, _sibling_rows(report))
    return artifact


def _train_preferences(config: TrainConfig, registry: Registry) -> Path:
    """Train `recipe` from `base` on `data`; a training that was cut off goes on."""
    from pessimal.rewards.named import spec_of
    from pessimal.rewards.spec import Kind
    from pessimal.training.preference_model import REPORT, PreferenceTraining

    assert config.recipe is not None
    assert config.base is not None
    assert config.data is not None
    training = PreferenceTraining(
        spec_of(config.base, kind=Kind.log_probability),
        Path(config.data).expanduser(),
        config.recipe,
        cache=config.paths.cache,
        seed=config.seed,
        progress=config.progress,
    )
    name, key = training.name, training.key
    if published := _published(config, registry, name, key):
        report = json.loads((published / REPORT).read_text(encoding="utf-8"))
        show_rows(name, _preference_rows(report))
        return published
    training.load()
    if config.force:
        shutil.rmtree(training.work, ignore_errors=True)
    with tracked(config, name=f"train {name}") as mirror:
        trained = training.run(
            accelerator=config.trainer.accelerator, progress=config.progress, report=mirror.metrics
        )
        mirror.summary(trained.summary)
        artifact, _ = mirror.publish(
            registry, REWARD_MODEL, name, trained.write, key=key, summary=trained.summary
        )
    shutil.rmtree(training.work, ignore_errors=True)
    show_rows(name, _preference_rows(trained.report))
    return artifact


def _published(config: TrainConfig, registry: Registry, name: str, key: str) -> Path | None:
    """The folder of this very training where it is published; None to train it."""
    found = None if config.force else registry.find(REWARD_MODEL, key)
    if found is None:
        return None
    log.info("%s is trained already: %s (force=true trains it again)", name, found[0])
    return found[0]


def _sibling_rows(report: Mapping[str, Any]) -> Rows:
    """How it does on what it was never shown, and what an instrument should find in it."""
    held_out, truth = report["held_out"], report["planted_truth"]
    rows = [
        (what, f"{held_out[figure]:.3f}")
        for figure, what in HELD_OUT.items()
        if held_out.get(figure) is not None
    ]
    planted = {plant: truth[plant] for plant in PLANTS if truth.get(plant)}
    planted |= planted.pop("attributes", {})
    named = ", ".join(f"{plant} {size}" for plant, size in planted.items())
    return [*rows, ("planted besides human valence", named or "nothing: it is the null")]


def _preference_rows(report: Mapping[str, Any]) -> Rows:
    rows = [
        (
            f"pairs of {figures['n']} {what} in people's order (chance .5)",
            f"{figures['accuracy']:.3f} ({figures['low']:.3f} to {figures['high']:.3f})",
        )
        for what, figures in (
            ("held-out items", report["held_out"]),
            ("items trained on", report["trained"]),
        )
    ]
    return [*rows, ("minutes", f"{report['seconds'] / 60:.1f}")]
