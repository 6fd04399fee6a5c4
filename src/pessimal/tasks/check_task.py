"""`pessimal check`: one model through the conformance suite; a table that says what holds, what does not, and by how much."""

import logging
from pathlib import Path

from pessimal.config.schema import CheckConfig
from pessimal.errors import WorkError
from pessimal.models.load import RewardModel, open_model
from pessimal.scoring.conformance import Conformance, Plan, as_table, conformance
from pessimal.tasks.check_table import as_text, show
from pessimal.tasks.common import config_hash, fetch, quiet_libraries, registry_of, tracked
from pessimal.tasks.trainer import begin_process, make_trainer
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest

log = logging.getLogger(__name__)


def run(config: CheckConfig) -> None:
    """Ask everything, publish a `conformance` artifact, print the table.

    Raises WorkError where a check fails and `strict` is on; the artifact is published all the same.
    """
    quiet_libraries()
    begin_process(config.trainer)
    model = open_model(config.model, fetch(config.model, cache=config.paths.cache, progress=config.progress))
    prompt, text = next(iter(config.prompts.items()))
    if len(config.prompts) > 1:
        log.info("a check looks at one prompt: %s. For others: pessimal check -m prompts=best,worst", prompt)
    frame = model.frame(text)
    plan = Plan(
        sample=config.sample,
        batch_size=config.batch_size,
        dtypes=list(dict.fromkeys(config.dtypes)),
        seed=config.seed,
    )
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    title = f"{model.name} on {prompt}"
    with tracked(config, name=f"check {model.name}") as mirror:
        found = conformance(model, frame, plan, device=device)
        folder, manifest = _publish(config, model, prompt, found, title=title, run_id=mirror.run_id)
        _tell(mirror, found, folder, manifest)
    show(found, title=title)
    log.info("%s", folder)
    if found.failed and config.strict:
        names = ", ".join(check.check for check in found.failed)
        raise WorkError(
            f"{len(found.failed)} of the checks of {model.name} failed: {names}. The table above says what that means "
            f"(kept in {folder}); without strict=true the exit code is 0"
        )


def _publish(
    config: CheckConfig,
    model: RewardModel,
    prompt: str,
    found: Conformance,
    *,
    title: str,
    run_id: str | None,
) -> tuple[Path, Manifest]:
    def fill(staging: Path) -> None:
        as_table(found.checks).to_parquet(staging / "conformance.parquet", index=False)
        if found.precision is not None:
            found.precision.to_parquet(staging / "precision.parquet", index=False)
        (staging / "conformance.txt").write_text(as_text(found, title=title), encoding="utf-8")

    what = {"model": model.name, "prompt": prompt, "weights_digest": model.weights_digest}
    return registry_of(config).publish(
        "conformance",
        model.name,
        fill,
        config_hash=config_hash(config),
        run_id=run_id,
        summary=what | found.facts | _counts(found),
    )


def _counts(found: Conformance) -> dict:
    """What a list of runs should show."""
    passed = [check.passed for check in found.checks]
    return {
        "passed": passed.count(True),
        "failed": passed.count(False),
        "failed_checks": [check.check for check in found.failed],
    }


def _tell(mirror: Mirror, found: Conformance, folder: Path, manifest: Manifest) -> None:
    differences = {f"measured/{c.check}": c.measured for c in found.checks if c.measured is not None}
    mirror.summary(_counts(found) | differences)
    mirror.table("conformance", as_table(found.checks))
    if found.precision is not None:
        mirror.table("precision", found.precision)
    mirror.artifact(folder, manifest, manifest.summary)
