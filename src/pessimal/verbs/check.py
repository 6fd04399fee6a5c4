"""`pessimal check`: one model through the conformance suite; a table that says what holds, what
does not, and by how much."""

import logging

import pandas as pd
from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pessimal.api.store import Artifact, publish
from pessimal.checking import Check, CheckPlan, Conformance, check
from pessimal.checking.results import conformance_results, counts_of
from pessimal.config.schema import CheckConfig
from pessimal.errors import VerdictError
from pessimal.progress import SafeConsole, quiet_libraries
from pessimal.rewards.base import require_network
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.verbs.check_loop import run as check_loop
from pessimal.verbs.check_served import run as check_served
from pessimal.verbs.common import in_sweep, registry_of, tracked
from pessimal.verbs.publish import print_path

log = logging.getLogger(__name__)

STYLES = {"pass": "green", "FAIL": "bold red", "info": "cyan", "n/a": "dim"}
NARROW, WIDE = 80, 120
FILE_WIDTH = 100


def run(config: CheckConfig) -> None:
    """Ask everything, publish a `conformance` artifact, print the table.

    Raises VerdictError where a check fails and `strict` is on; the artifact is published all the
    same.
    With `url` it is a server that is checked (`check_served`), with `loop` a trainer's loop
    (`check_loop`).
    """
    if config.url is not None:
        return check_served(config)
    if config.loop is not None:
        return check_loop(config)
    quiet_libraries()
    begin_process(config.trainer)
    model = require_network(
        open_reward(config.model, cache=config.paths.cache),
        "check",
    )
    prompt, text = next(iter(config.prompts.items()))
    if len(config.prompts) > 1:
        log.info(
            "a check looks at one prompt: %s. For others: pessimal check -m prompts=best,worst",
            prompt,
        )
    plan = CheckPlan(
        sample=config.sample,
        batch_size=config.batch_size,
        dtypes=list(dict.fromkeys(config.dtypes)),
        seed=config.seed,
    )
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    title = f"{model.name} on {prompt}"
    with tracked(config, name=f"check {model.name}") as mirror:
        found = check(model, text, plan, device=device, progress=config.progress)
        results = conformance_results(found, model.name)
        what = {"model": model.name, "prompt": prompt, "weights_digest": model.weights_digest}
        artifact = Artifact(
            "conformance", model.name, summary=what | found.details | counts_of(found)
        )
        folder, _ = publish(
            registry_of(config), mirror, artifact, results, progress=config.progress
        )
    if not in_sweep():
        show(found, title=title)
    print_path(folder)
    if found.failed and config.strict:
        names = ", ".join(check.check for check in found.failed)
        raise VerdictError(
            f"{len(found.failed)} of the checks of {model.name} failed: {names}. The table above "
            f"says what that means (kept in {folder}); without strict=true the exit code is 0"
        )


def show(found: Conformance, *, title: str) -> None:
    """Print on stdout, between 80 and 120 columns wide."""
    console = SafeConsole(highlight=False, markup=False, emoji=False)
    console.width = min(max(console.width if console.is_terminal else FILE_WIDTH, NARROW), WIDE)
    details = found.details
    spread = details["spread"]
    console.print(Text(f"\n{title}", style="bold"))
    console.print(
        f"{details['dtype']} on {details['device']}, path of scans: {details['attention']}; "
        f"{details['n']} random responses"
        + ("" if spread is None else f", whose rewards have a standard deviation of {spread:.3g}")
        + ". Differences are the largest, in units of reward where no unit is given."
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, expand=True)
    for name in ("", "check", "measured", "allowed", "n"):
        table.add_column(
            name, no_wrap=True, justify="right" if name in ("measured", "allowed", "n") else "left"
        )
    table.add_column("what", ratio=1)
    for row in found.checks:
        note = {"n/a": f" Does not apply: {row.note}.", "info": f" {row.note}"}.get(row.result, "")
        style = STYLES[row.result]
        amounts = [_amount(value, row) for value in (row.measured, row.allowed)]
        name = row.check + (f" ({row.part})" if row.part > 1 else "")
        table.add_row(Text(row.result, style), name, *amounts, str(row.n or ""), row.what + note)
    console.print(table)
    if found.precision is not None:
        console.print(Text("Precisions, against the model's own forward in float32", style="bold"))
        console.print(_precision(found.precision))
    for row in found.failed:
        console.print(
            Text(f"FAIL  {row.check}", style=STYLES["FAIL"]),
            Padding(row.note, (0, 0, 1, 6)),
            sep="\n",
        )
    passed, failed, reported, idle = (
        sum(c.result == result for c in found.checks) for result in STYLES
    )
    verdict = f"{passed} passed, {failed} failed, {reported} only reported, {idle} do not apply"
    console.print(Text(verdict, style=STYLES["FAIL" if failed else "pass"]))


def _precision(precision: pd.DataFrame) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("precision", "path", "largest", "mean", "Spearman", "top 10", "distinct"):
        table.add_column(name, justify="left" if name in ("precision", "path") else "right")
    for row in precision.itertuples():
        largest, mean = f"{row.largest_difference:.2g} SD", f"{row.mean_difference:.2g} SD"
        same = f"{row.spearman:.4f}", f"{row.top_10_overlap:.0%}", f"{row.distinct} of {row.n}"
        table.add_row(row.dtype, row.path, largest, mean, *same)
    return table


def _amount(value: float | None, row: Check) -> str:
    """Two figures of a measure, and counts as counts."""
    if value is None:
        return "" if row.passed is None else "–"
    if row.unit == "share":
        return f"{value:.1%}"
    if row.unit not in ("reward", "SD"):
        return f"{value:.0f}"
    return f"{value:.2g}{' SD' if row.unit == 'SD' else ''}"
