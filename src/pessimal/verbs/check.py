"""`pessimal check`: one model through the conformance suite; with `url` a server that should give
its rewards, with `loop` a trainer's loop. A table that says what holds, what does not, and by how
much."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pessimal.api.check import check_model, check_server, check_trainer
from pessimal.checking import Check, CheckPlan, Conformance
from pessimal.checking.loop import LoopCheck
from pessimal.checking.served import FAULTS, Diagnosis, checks_of
from pessimal.config.schema import CheckConfig
from pessimal.errors import VerdictError
from pessimal.progress import SafeConsole, quiet_libraries
from pessimal.rewards.base import require_network
from pessimal.rewards.obtain import open_reward
from pessimal.rewards.wires import recognised
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.verbs.common import in_sweep, store_of
from pessimal.verbs.printing import print_path

log = logging.getLogger(__name__)

STYLES = {"pass": "green", "FAIL": "bold red", "info": "cyan", "n/a": "dim"}
NARROW, WIDE = 80, 120
FILE_WIDTH = 100
FAULTS_WIDTH = 110


def run(config: CheckConfig) -> None:
    """Ask everything, publish a `conformance` artifact, print the table.

    Raises VerdictError where a check fails and `strict` is on; the artifact is published all the
    same.
    """
    quiet_libraries()
    begin_process(config.trainer)
    endpoint = None
    if config.url is not None:
        endpoint = recognised(replace(config.endpoint, url=config.url))
        config.check_forms(endpoint.api)
    model = require_network(open_reward(config.model, cache=config.paths.cache), "check")
    prompts, store = config.prompts, store_of(config)
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    progress = config.progress
    failed: Sequence[str] = ()
    if endpoint is not None:
        diagnosis, results = check_server(
            model,
            endpoint,
            prompts,
            forms=config.forms,
            raw=config.raw,
            requests=config.requests,
            seed=config.seed,
            device=device,
            store=store,
            progress=progress,
        )
        if not in_sweep():
            show_server(diagnosis, title=f"At {config.url} {results[0].headline}")
        failed = [] if diagnosis.harmless else [part.fault for part in diagnosis.faults]
    elif config.loop is not None:
        assert config.policy is not None  # checked by the configuration
        comparison, results = check_trainer(
            model,
            config.loop.value,
            config.policy,
            prompts,
            sample=config.sample,
            seed=config.seed,
            device=device,
            cache=config.paths.cache,
            store=store,
            progress=progress,
        )
        if not in_sweep():
            show_loop(comparison, results[0].table, title=results[0].headline)
        failed = [*comparison.counts]
    else:
        if len(prompts) > 1:
            log.info(
                "a check looks at one prompt: %s. For others: pessimal check -m prompts=best,worst",
                next(iter(prompts)),
            )
        dtypes = list(dict.fromkeys(config.dtypes))
        plan = CheckPlan(config.sample, config.batch_size, dtypes, config.seed)
        conformance, results = check_model(
            model, prompts, plan, device=device, store=store, progress=progress
        )
        if not in_sweep():
            show(conformance, title=f"{model.name} on {next(iter(prompts))}")
        failed = [check.check for check in conformance.failed]
    assert results.folder is not None
    print_path(results.folder)
    if failed and config.strict:
        raise VerdictError(
            f"{len(failed)} of the checks of {model.name} failed: {', '.join(failed)}. The table "
            f"above says what that means (kept in {results.folder}); without strict=true the exit "
            "code is 0"
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
    for name in ("precision", "path", "largest", "Spearman", "distinct"):
        table.add_column(name, justify="left" if name in ("precision", "path") else "right")
    for row in precision.itertuples():
        numbers = f"{row.largest_difference:.2g} SD", f"{row.spearman:.4f}"
        table.add_row(row.dtype, row.path, *numbers, f"{row.distinct} of {row.n}")
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


def show_loop(found: LoopCheck, table: pd.DataFrame, *, title: str) -> None:
    """Print on stdout: each fault, how often, by how much rewards move, and one difference."""
    console = SafeConsole(highlight=False, markup=False, emoji=False, width=FAULTS_WIDTH)
    console.print(Text(title, style="bold red" if found.different else "bold green"))
    for row in table.itertuples():
        console.print(
            Text.assemble((f"{row.fault}", "bold"), f" in {row.conversations} of {row.of}. ")
        )
        console.print(f"  {row.what} {row.mend}.")
        if row.n_moved:
            console.print(
                f"  Rewards move by {row.moved:.2g} SD on average, {row.moved_most:.2g} at most "
                f"(n = {row.n_moved})."
            )
        console.print(Text(f"  {row.difference}", style="cyan"))
    if found.different:
        console.print("-[what the card's template writes] +[what the loop sends]")


def show_server(found: Diagnosis, *, title: str) -> None:
    """Print on stdout, at most 15 lines at its width."""
    console = SafeConsole(highlight=False, markup=False, emoji=False, width=FAULTS_WIDTH)
    console.print(Text(title, style="bold green" if found.harmless else "bold red"))
    for part in found.faults:
        what, mend = FAULTS[part.fault].values()
        console.print(f"{what} {mend}.")
    console.print(
        f"Largest difference from the model's own rewards {found.own_difference:.2g}; their "
        f"standard deviation is {found.spread:.2g}. {len(found.served)} inputs sent."
    )
    for check in checks_of(found):
        limit = "" if check.allowed is None else f"allowed {check.allowed:.2g}"
        measured = "–" if check.measured is None else f"{check.measured:.2g}"
        row = Text.assemble(
            (f"{check.result:5}", STYLES[check.result]),
            f" {check.check:16} {measured:>9}  {limit:17} n = {check.n}",
        )
        console.print(row)
