"""`pessimal check`: one model through the conformance suite; a table that says what holds, what does not, and by how much."""

import logging

from pessimal.config.schema import CheckConfig
from pessimal.errors import WorkError
from pessimal.models.load import open_model
from pessimal.scoring.conformance import Conformance, Plan, as_table, conformance
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.verbs.check_table import as_text, show
from pessimal.verbs.common import fetch, quiet_libraries, registry_of, tracked
from pessimal.verbs.progress import in_sweep, steps
from pessimal.verbs.publish import Artifact, print_path, publish
from pessimal.verbs.trainer import begin_process, make_trainer

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
        with steps(f"checking {model.name}", plan.steps, bar=config.progress) as step:
            found = conformance(model, frame, plan, device=device, step=step)
        results = conformance_results(found, model.name)
        what = {"model": model.name, "prompt": prompt, "weights_digest": model.weights_digest}
        artifact = Artifact(
            "conformance",
            model.name,
            summary=what | found.details | _counts(found),
            files={"conformance.txt": as_text(found, title=title)},
        )
        folder, _ = publish(config, registry_of(config), mirror, artifact, results)
    if not in_sweep():
        show(found, title=title)
    print_path(folder)
    if found.failed and config.strict:
        names = ", ".join(check.check for check in found.failed)
        raise WorkError(
            f"{len(found.failed)} of the checks of {model.name} failed: {names}. The table above says what that means "
            f"(kept in {folder}); without strict=true the exit code is 0"
        )


def conformance_results(found: Conformance, name: str) -> list[Result]:
    """What the suite found, as Results."""
    counts = _counts(found)
    asked = counts["passed"] + counts["failed"]
    missed = f"; not: {', '.join(counts['failed_checks'][:4])}" if found.failed else ""
    differences = {f"measured/{c.check}": c.measured for c in found.checks if c.measured is not None}
    checks = Result(
        "conformance",
        as_table(found.checks),
        headline=f"{counts['passed']} of {asked} checks of {name} hold{missed}.",
        method="check",
        weight=weight_of(counts["failed"] / max(asked, 1)),
        estimate=Estimate("checks that hold", counts["passed"], asked, "checks"),
        summary=counts | differences,
    )
    if found.precision is None:
        return [checks]
    return [checks, Result("precision", found.precision, method="check")]


def _counts(found: Conformance) -> dict:
    """What a list of runs should show."""
    passed = [check.passed for check in found.checks]
    return {
        "passed": passed.count(True),
        "failed": passed.count(False),
        "failed_checks": [check.check for check in found.failed],
    }
