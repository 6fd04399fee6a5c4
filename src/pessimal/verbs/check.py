"""`pessimal check`: one model through the conformance suite; with `url` a server that should give
its rewards, with `loop` a trainer's loop. A table that says what holds, what does not, and by how
much."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pessimal.api.check import check_model, check_server, check_trainer
from pessimal.checking.checks import Check
from pessimal.checking.loop import LoopCheck
from pessimal.checking.served import FAULTS, Diagnosis, checks_of
from pessimal.checking.suite import CheckPlan, Conformance
from pessimal.config.schema import CheckConfig
from pessimal.errors import VerdictError
from pessimal.progress import SafeConsole, quiet_libraries
from pessimal.rewards.base import require_network
from pessimal.rewards.endpoint import recognised
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.verbs.common import is_sweep, print_path, store_of

log = logging.getLogger(__name__)

STYLES = {"pass": "green", "FAIL": "bold red", "info": "cyan", "n/a": "dim"}
NARROW, FILE_WIDTH, WIDE = 80, 100, 120
"""Columns of the table: at least, where the output is no terminal, and at most."""


def run(config: CheckConfig) -> None:
    """Ask everything, publish a `conformance` artifact, print the table.

    Raises VerdictError where a check fails and `strict` is on; the artifact is published all the
    same.
    """
    quiet_libraries()
    begin_process(config.trainer)
    endpoint = None if config.url is None else replace(config.endpoint, url=config.url)
    if endpoint is not None:
        endpoint = recognised(endpoint)
        config.check_forms(endpoint.api)
    cache, prompts, seed = config.paths.cache, config.prompts, config.seed
    model = require_network(open_reward(config.model, cache=cache), "check")
    device = make_trainer(config.trainer, root=cache).strategy.root_device
    about: dict[str, Any] = {"device": device, "progress": config.progress}
    about["store"] = store_of(config)
    if endpoint is not None:
        sent = {name: getattr(config, name) for name in ("forms", "raw", "requests")}
        diagnosis, results = check_server(model, endpoint, prompts, seed=seed, **sent, **about)
        title, lines = f"At {config.url} {results[0].headline}", server_lines(diagnosis)
        failed = [] if diagnosis.harmless else [part.fault for part in diagnosis.faults]
    elif config.loop is not None and config.policy is not None:
        about |= {"sample": config.sample, "seed": seed, "cache": cache}
        comparison, results = check_trainer(
            model, config.loop.value, config.policy, prompts, **about
        )
        title, lines = results[0].headline, loop_lines(comparison, results[0].table)
        failed = [*comparison.counts]
    else:
        first, *rest = prompts
        if rest:
            message = "a check looks at one prompt: %s. For others: pessimal check -m prompts=%s"
            log.info(message, first, ",".join(rest))
        plan = CheckPlan(config.sample, config.batch_size, [*dict.fromkeys(config.dtypes)], seed)
        conformance, results = check_model(model, prompts, plan, **about)
        title, lines = f"{model.name} on {first}", suite_lines(conformance)
        failed = [check.check for check in conformance.failed]
    assert results.folder is not None
    if not is_sweep():
        console = SafeConsole(highlight=False, markup=False, emoji=False)
        console.width = min(max(console.width if console.is_terminal else FILE_WIDTH, NARROW), WIDE)
        console.print(Text(f"\n{title}", style="bold red" if failed else "bold green"))
        for line in lines:
            console.print(line)
    print_path(results.folder)
    if failed and config.strict:
        names = ", ".join(failed)
        raise VerdictError(f"{len(failed)} of the checks of {model.name} failed: {names}")


def suite_lines(suite: Conformance) -> Iterator[Any]:
    """All checks of the conformance suite, precisions, and the remedies of failures."""
    details = suite.details
    spread = "" if details["spread"] is None else f" (rewards' SD {details['spread']:.3g})"
    yield (
        f"{details['dtype']} on {details['device']}, path of scans: {details['attention']}; "
        f"{details['n']} random responses{spread}. Differences are the largest, in units of reward "
        "where no unit is given."
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, expand=True)
    for name in ("", "check", "measured", "allowed", "n"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("", "check") else "right")
    table.add_column("what", ratio=1)
    for row in suite.checks:
        note = {"n/a": f" Does not apply: {row.note}.", "info": f" {row.note}"}.get(row.result, "")
        amounts = [_amount(value, row) for value in (row.measured, row.allowed)]
        name = row.check + (f" ({row.part})" if row.part > 1 else "")
        verdict = Text(row.result, STYLES[row.result])
        table.add_row(verdict, name, *amounts, str(row.n or ""), row.what + note)
    yield table
    if suite.precision is not None:
        yield Text("Precisions, against the model's own forward in float32", style="bold")
        yield _precision(suite.precision)
    for row in suite.failed:
        yield Text(f"FAIL  {row.check}", style=STYLES["FAIL"])
        yield Padding(row.note, (0, 0, 1, 6))
    n = {result: sum(check.result == result for check in suite.checks) for result in STYLES}
    words = f"{n['pass']} passed, {n['FAIL']} failed, {n['info']} only reported, {n['n/a']} do not "
    yield Text(f"{words}apply", style=STYLES["FAIL" if n["FAIL"] else "pass"])


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


def loop_lines(comparison: LoopCheck, table: pd.DataFrame) -> Iterator[Any]:
    """Each fault of a loop, how often, by how much rewards move, and one difference."""
    for row in table.itertuples():
        yield Text.assemble((f"{row.fault}", "bold"), f" in {row.conversations} of {row.of}. ")
        yield f"  {row.what} {row.mend}."
        if row.n_moved:
            moved = f"{row.moved:.2g} SD on average, {row.moved_most:.2g} at most"
            yield f"  Rewards move by {moved} (n = {row.n_moved})."
        yield Text(f"  {row.difference}", style="cyan")
    if comparison.different:
        yield "-[what the card's template writes] +[what the loop sends]"


def server_lines(diagnosis: Diagnosis) -> Iterator[Any]:
    """The faults of a server and its checks, in at most 15 lines."""
    for part in diagnosis.faults:
        yield "{} {}.".format(*FAULTS[part.fault].values())
    yield (
        f"Largest difference from the model's own rewards {diagnosis.own_difference:.2g}; their "
        f"standard deviation is {diagnosis.spread:.2g}. {len(diagnosis.served)} inputs sent."
    )
    for check in checks_of(diagnosis):
        limit = "" if check.allowed is None else f"allowed {check.allowed:.2g}"
        measured = "–" if check.measured is None else f"{check.measured:.2g}"
        amounts = f" {check.check:16} {measured:>9}  {limit:17} n = {check.n}"
        yield Text.assemble((f"{check.result:5}", STYLES[check.result]), amounts)
