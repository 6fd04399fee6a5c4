"""`pessimal train`: a reward model of people's preferences, published and tracked."""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pessimal.config.schema import TrainConfig
from pessimal.progress import quiet_libraries
from pessimal.verbs.common import store_of
from pessimal.verbs.publish import print_path, show_rows

log = logging.getLogger(__name__)

REWARD_MODEL = "reward-model"


def run(config: TrainConfig) -> None:
    """Train `recipe` from `base` on `data` unless that is done, and publish the checkpoint as a
    `reward-model` artifact; a training that was cut off goes on."""
    quiet_libraries()
    from pessimal.rewards.named import spec_of
    from pessimal.rewards.spec import Kind
    from pessimal.training.preference_model import REPORT, PreferenceTraining

    assert config.base is not None
    assert config.data is not None  # checked by the configuration
    store = store_of(config)
    training = PreferenceTraining(
        spec_of(config.base, kind=Kind.log_probability),
        Path(config.data).expanduser(),
        config.recipe,
        cache=config.paths.cache,
        seed=config.seed,
    )
    name, key = training.name, training.key
    if published := store.find(REWARD_MODEL, key):
        log.info("%s is trained already: %s (force=true trains it again)", name, published[0])
        report = json.loads((published[0] / REPORT).read_text(encoding="utf-8"))
        show_rows(name, _rows(report))
        return print_path(published[0])
    training.load()
    if store.force:
        shutil.rmtree(training.work, ignore_errors=True)
    with store.track(name=f"train {name}") as mirror:
        trained = training.run(
            accelerator=config.trainer.accelerator, progress=config.progress, report=mirror.metrics
        )
        mirror.summary(trained.summary)
        artifact, _ = mirror.publish(
            store.registry, REWARD_MODEL, name, trained.write, key=key, summary=trained.summary
        )
    shutil.rmtree(training.work, ignore_errors=True)
    show_rows(name, _rows(trained.report))
    print_path(artifact)


def _rows(report: Mapping[str, Any]) -> list[tuple[str, str]]:
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
