"""`pessimal train`: one member of the demo family, trained or taken from the cache, published and tracked."""

import logging
import shutil

from pessimal.config.schema import TrainConfig, demo_recipe
from pessimal.demo.checkpoint import read_training_report
from pessimal.tasks.common import config_hash, obtain_demo, registry_of, tracked

log = logging.getLogger(__name__)


def run(config: TrainConfig) -> None:
    """Train `model.recipe` unless it is cached; publish the checkpoint as a `reward-model` artifact."""
    recipe, registry = demo_recipe(config.model), registry_of(config)
    name, key = config.model.name, recipe.digest()
    published = registry.find("reward-model", key)
    if published and not config.force:
        log.info("%s is trained already: %s (force=true trains it again)", name, published[0])
        return

    folder = obtain_demo(config.model, cache=config.paths.cache, progress=config.progress, again=config.force)
    report = read_training_report(folder)
    with tracked(config, name=f"train {name}") as mirror:
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
        for loss in report["losses"]:
            mirror.metrics({"train/loss": loss})
        mirror.summary(summary)
        mirror.artifact(artifact, manifest, {"planted_truth": recipe.planted_truth()} | summary)
    log.info("%s: %s", name, artifact)
