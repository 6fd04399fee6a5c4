"""What every task does around its work: fetch a model's files, open the W&B run, describe a configuration."""

import contextlib
import hashlib
import json
import logging
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from pathlib import Path

from pessimal.config.schema import TaskConfig, TrackingMode, demo_recipe
from pessimal.models.hub import FILES, snapshot
from pessimal.models.spec import ModelSpec
from pessimal.tables import ScoreTable, write_score_table
from pessimal.tracking.mirror import Mirror, open_mirror
from pessimal.tracking.registry import Manifest, Registry

log = logging.getLogger(__name__)


def fetch(spec: ModelSpec, *, cache: str, progress: bool) -> Path:
    """The folder with a model's files: a local one, a Hub snapshot, or a demo sibling, trained if it is not cached."""
    if spec.recipe is not None:
        return obtain_demo(spec, cache=cache, progress=progress)
    if spec.local:
        return Path(spec.path).expanduser().resolve()
    return snapshot(spec.path, spec.revision, files=(*FILES, "*.py"), local="model=auto model.path=DIR")


def obtain_demo(spec: ModelSpec, *, cache: str, progress: bool, again: bool = False) -> Path:
    """The checkpoint of a demo sibling; trains it where it is not cached (or `again`), saying how far it is."""
    from pessimal.demo.family import checkpoint_folder, is_cached, obtain

    recipe, models = demo_recipe(spec), Path(cache) / "models"
    if again:  # trained in a place of its own first: a kill leaves the old checkpoint where it is
        fresh = obtain_demo(spec, cache=str(Path(cache) / "again"), progress=progress)
        folder = checkpoint_folder(recipe, cache=models, name=spec.name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return fresh.rename(folder)
    bar, callbacks = progress and sys.stderr.isatty(), []
    if not is_cached(recipe, cache=models, name=spec.name):
        quiet_libraries()
        from pessimal.verbs.step_lines import StepLines

        log.info("training %s on the CPU, under two minutes on a free core", spec.name)
        callbacks = [] if bar else [StepLines(spec.name)]
    return obtain(recipe, cache=models, name=spec.name, progress=bar, callbacks=callbacks)


def quiet_libraries() -> None:
    """Send what libraries say about hardware, tips and their own deprecations to the run's log file."""
    import pytorch_lightning
    import transformers

    logging.captureWarnings(True)
    for name in (pytorch_lightning.__name__, "lightning.pytorch", "lightning_fabric"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for client in ("httpx", "httpx2", "openai"):
        logging.getLogger(client).setLevel(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_default_handler()
    transformers.utils.logging.enable_propagation()
    for message in ("Couldn't infer the batch indices", ".*does not have many workers", ".*LeafSpec.*"):
        warnings.filterwarnings("ignore", message=message)


def plain(config: TaskConfig) -> dict:
    """The configuration as JSON would have it: choices as their values."""
    return json.loads(
        json.dumps(
            asdict(config), default=lambda choice: choice.value if isinstance(choice, Enum) else str(choice)
        )
    )


def asked(config: TaskConfig) -> dict:
    """What a configuration asks for; folders, tracking and bars are not part of that."""
    return {k: v for k, v in plain(config).items() if k not in ("paths", "tracking", "progress", "force")}


def config_hash(config: TaskConfig) -> str:
    """sha256 of what a configuration asks for."""
    return hashlib.sha256(json.dumps(asked(config), sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def tracked(
    config: TaskConfig, *, name: str, inputs: list[str] | None = None, first: bool = True
) -> Iterator[Mirror]:
    """The W&B run of one task; of several processes only the `first` has one."""
    with open_mirror(
        mode=config.tracking.mode.value if first else TrackingMode.off.value,
        folder=Path(config.paths.wandb),
        project=config.tracking.project,
        entity=config.tracking.entity,
        group=config.tracking.group,
        tags=config.tracking.tags,
        job_type=config.task,
        name=name,
        config=plain(config) | {"config_hash": config_hash(config), "inputs": inputs or []},
        inputs=inputs,
        patience=config.tracking.patience,
    ) as mirror:
        yield mirror


def publish_table(
    config: TaskConfig,
    registry: Registry,
    table: ScoreTable,
    *,
    run_id: str | None,
    summary: dict | None = None,
) -> tuple[Path, Manifest]:
    """Publish a score table under its provenance's name and key; the summary always says what it is a table of."""
    provenance = table.provenance
    what = {
        "model": provenance.model,
        "prompt": provenance.prompt,
        "candidates": provenance.candidates,
        "n": len(table.rows),
    }
    return registry.publish(
        "score-table",
        table.name,
        lambda staging: write_score_table(table, staging / "scores.parquet"),
        key=provenance.key(),
        config_hash=config_hash(config),
        run_id=run_id,
        summary=what | (summary or {}),
    )


def registry_of(config: TaskConfig) -> Registry:
    """The registry that a configuration names; what is published there keeps what the configuration asks for."""
    return Registry(Path(config.paths.registry), config=asked(config))
