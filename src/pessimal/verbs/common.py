"""What every task does around its work: fetch a model's files, open the W&B run, describe a
configuration."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from pessimal.config.plain import asked, config_hash, plain
from pessimal.config.schema import SearchConfig, TaskConfig, TrackingMode
from pessimal.progress import working
from pessimal.rewards.spec import Kind
from pessimal.scoring.spec import TrainerSpec
from pessimal.tables import ScoreTable, write_score_table
from pessimal.tracking.checkout import checkout
from pessimal.tracking.client import Target
from pessimal.tracking.mirror import Mirror, open_mirror
from pessimal.tracking.registry import Manifest, Registry

if TYPE_CHECKING:
    import torch

    from pessimal.rewards.base import Reward

log = logging.getLogger(__name__)

_NOT_ASKED = ("task", "tracking", "paths", "progress", "force", "hydra", "tuning.")
"""Options that do not say what a run is about."""


def in_sweep() -> bool:
    """Whether this is one of the jobs of `-m`, which print one line each."""
    return HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN


@contextlib.contextmanager
def tracked(
    config: TaskConfig, *, name: str, inputs: Sequence[str] = (), first: bool = True
) -> Iterator[Mirror]:
    """The W&B run of one task; of several processes only the `first` has one. Jobs of a sweep share
    a group, and are called after their overrides."""
    tracking, (_, overrides) = config.tracking, _sweep(config)
    code = checkout()._asdict()
    with contextlib.ExitStack() as stack:
        run = open_mirror(
            target_of(config),
            mode=tracking.mode.value if first else TrackingMode.off.value,
            job_type=config.task,
            name=" ".join([name, *overrides]),
            config=plain(config)
            | {"config_hash": config_hash(config), "inputs": list(inputs), "code": code},
            patience=tracking.patience,
        )
        yield stack.enter_context(run)
        with working("sending what is left to W&B", after=2):
            stack.close()


def target_of(config: TaskConfig) -> Target:
    """Where at W&B a configuration sends its run."""
    tracking = config.tracking
    return Target(
        project=tracking.project,
        folder=Path(config.paths.wandb),
        entity=tracking.entity,
        group=tracking.group or _sweep(config)[0],
        tags=tracking.tags,
    )


def _sweep(config: TaskConfig) -> tuple[str | None, list[str]]:
    """Of a job of `-m`: what the sweep is called, the same in all its jobs, and the job's overrides
    that matter."""
    if not in_sweep():
        return None, []
    if isinstance(config, SearchConfig) and config.tuning.study:  # its jobs have names of their own
        return config.tuning.study, []
    hydra = HydraConfig.get()
    overrides = [o for o in hydra.overrides.task if not o.lstrip("+~").startswith(_NOT_ASKED)]
    return f"{config.task} {Path(hydra.sweep.dir).name.removeprefix('multirun_')}", overrides


def device_of(trainer: TrainerSpec, cache: str) -> "torch.device":
    """Where a model runs. On a CPU without Lightning, whose import takes longer than one pair."""
    import torch

    if trainer.accelerator != "cpu":
        from pessimal.scoring.trainer import begin_process, make_trainer

        begin_process(trainer)
        return make_trainer(trainer, root=cache).strategy.root_device
    torch.set_num_threads(trainer.threads or torch.get_num_threads())
    return torch.device("cpu")


def model_inputs(registry: Registry, model: "Reward") -> tuple[list[str], dict[str, str]]:
    """What an artifact that was made with a model says of it: its reference where it is one of the
    registry's, as inputs; and for the summary, `reward_model`: that reference, or where the model
    comes from: `hf:ORG/NAME@COMMIT`, `folder:NAME@sha256:DIGEST` (of its weights),
    `package:REQUIREMENT@sha256:DIGEST` (of its file)."""
    spec = model.spec
    if spec.kind in (Kind.callable, Kind.sum):
        what = "function" if spec.kind is Kind.callable else "sum"
        return [], {"reward_model": f"{what}:{spec.name}@sha256:{model.weights_digest[:16]}"}
    if spec.kind is Kind.endpoint:
        server = f"{spec.endpoint.served or spec.name}@{spec.endpoint.url}"
        return [], {"reward_model": f"server:{server}"}
    files: Path = model.folder  # type: ignore[attr-defined] # of a network; the others are above
    for folder, manifest in reversed(registry.manifests("reward-model")):
        if folder.resolve() == files.resolve():
            return [manifest.reference], {"reward_model": manifest.reference}
    origin = f"hf:{spec.path}@{model.revision}"
    if spec.package is not None:
        origin = f"package:{spec.package.requirement}@sha256:{spec.package.sha256[:16]}"
    elif spec.local:
        origin = f"folder:{files.name}@sha256:{model.weights_digest[:16]}"
    return [], {"reward_model": origin}


def publish_table(
    registry: Registry,
    mirror: Mirror,
    table: ScoreTable,
    *,
    inputs: Sequence[str] = (),
    summary: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> tuple[Path, Manifest]:
    """Publish a score table under its provenance's name and key, with the code that made it; the
    summary always says what it is a table of. `more` is said at W&B alone."""
    provenance = table.provenance
    table = replace(table, code=checkout()._asdict())
    what = {
        "model": provenance.model,
        "prompt": provenance.prompt,
        "candidates": provenance.candidates,
        "n": len(table.rows),
    }
    return mirror.publish(
        registry,
        "score-table",
        table.name,
        lambda staging: write_score_table(table, staging / "scores.parquet"),
        key=provenance.key(),
        inputs=inputs,
        summary={**what, **(summary or {})},
        more=more,
    )


def registry_of(config: TaskConfig) -> Registry:
    """The registry that a configuration names; what is published there keeps what the configuration
    asks for."""
    return Registry(Path(config.paths.registry), config=asked(config))
