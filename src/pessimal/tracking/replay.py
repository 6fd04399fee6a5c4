"""Runs made again from manifests: one for each command that published, so that W&B's table of runs compares them.

Knows manifests and offline runs. Does not talk to a server; what it writes is sent by `wandb sync`.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pessimal.tracking.client import PATIENCE, clean
from pessimal.tracking.mirrored import alias_of, as_artifact
from pessimal.tracking.registry import Manifest

JOBS = {
    "score-table": "scan",
    "comparison": "compare",
    "search-result": "search",
    "study": "search",
    "explanation": "explain",
    "reward-model": "train",
    "report": "report",
    "conformance": "check",
}
"""The verb that publishes each type; W&B's job type, as a run of the verb itself has it."""

Published = tuple[Path, Manifest]


def by_run(published: Sequence[Published]) -> dict[str, list[Published]]:
    """The artifacts of each run, in order of publishing; those published without tracking get a run each, under an id
    that is the same whenever they are pushed."""
    runs: dict[str, list[Published]] = {}
    for folder, manifest in sorted(published, key=lambda pair: pair[1].created):
        id = manifest.run_id or _made_up([manifest.reference])
        runs.setdefault(id, []).append((folder, manifest))
    return runs


def second_id(id: str, published: Sequence[Published]) -> str:
    """The id of a run beside `id`, which W&B has but without these artifacts: writing into a run that is there would
    replace its configuration."""
    return _made_up([id, *(manifest.reference for _, manifest in published)])


def write_run(
    id: str,
    published: Sequence[Published],
    *,
    folder: Path,
    project: str,
    entity: str | None,
    group: str | None,
    tags: list[str],
) -> Path:
    """Record an offline run with these artifacts below `folder`; returns the run's own."""
    import wandb

    first = published[0][1]
    run = wandb.init(
        id=id,
        mode="offline",
        dir=str(folder),
        project=project,
        entity=entity,
        group=group,
        job_type=JOBS.get(first.type, first.type),
        tags=[*tags, "pushed"],
        name=name_of(published),
        config=_config(published),
        reinit="finish_previous",
        settings=wandb.Settings(
            init_timeout=PATIENCE, console="off", silent=True, disable_git=True, x_disable_stats=True
        ),
    )
    run_folder = Path(run.dir).parent
    run.summary.update(_summary(published))
    for folder, manifest in published:
        run.log_artifact(as_artifact(folder, manifest), aliases=[alias_of(manifest.version)])
    run.finish()
    return run_folder


def name_of(published: Sequence[Published]) -> str:
    """What the verb itself would have called the run."""
    first = published[0][1]
    verb, named = JOBS.get(first.type, first.type), first.name
    if first.type == "score-table":
        named = " ".join(dict.fromkeys(str(m.summary.get("model", m.name)) for _, m in published))
    return f"{verb} {named}"[:128]


def _config(published: Sequence[Published]) -> dict:
    """What the manifests know of the configuration: its hash, the inputs, and what the artifacts are about."""
    manifests = [manifest for _, manifest in published]
    models = dict.fromkeys(str(m.summary["model"]) for m in manifests if m.summary.get("model"))
    prompts = dict.fromkeys(str(m.summary["prompt"]) for m in manifests if m.summary.get("prompt"))
    config = {
        "task": JOBS.get(manifests[0].type, manifests[0].type),
        "config_hash": manifests[0].config_hash,
        "inputs": inputs_of(published),
        "artifacts": [manifest.reference for manifest in manifests],
        "prompts": dict.fromkeys(prompts),
    }
    if len(models) == 1:  # where a run of the verb itself has it
        config["model"] = {"name": next(iter(models))}
    return clean(config)


def inputs_of(published: Sequence[Published]) -> list[str]:
    """References that the artifacts of a run were made from, each once."""
    return list(dict.fromkeys(reference for _, manifest in published for reference in manifest.inputs))


def _summary(published: Sequence[Published]) -> dict:
    """The figures under the keys of the verb's own run: `PROMPT/figure` for score tables, else flat."""
    figures = {}
    for _, manifest in published:
        prompt = manifest.summary.get("prompt") if manifest.type == "score-table" else None
        figures |= {f"{prompt}/{key}" if prompt else key: value for key, value in manifest.summary.items()}
    return clean(figures)


def _made_up(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
