"""`pessimal audit`: one command before a training; a verdict per check, and an exit code."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from pessimal.api.audit import Baseline, audit
from pessimal.auditing import exports
from pessimal.auditing.evidence import PAGE_SECONDS
from pessimal.auditing.verdicts import FAIL, INCOMPLETE, NOT_ASKED, NOT_MEASURED, PASS, REVIEW
from pessimal.config.schema import AuditConfig, ReportConfig
from pessimal.errors import IncompleteError, VerdictError
from pessimal.explaining.pairs import labelled_pairs
from pessimal.progress import quiet_libraries
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.trainer import begin_process
from pessimal.verbs.common import is_sweep, print_path, show, store_of
from pessimal.verbs.report import write_page

STYLES = {PASS: "green", FAIL: "bold red", REVIEW: "yellow", NOT_MEASURED: "dim"}


def run(config: AuditConfig) -> None:
    """Do what fits into the budget, publish an `audit` artifact and its page, print the verdicts.

    An audit of the same reward that was asked the same is shown again (`force=true` does it anew);
    a server, and a function whose code does not say all that it depends on, is always asked anew.

    Raises:
        VerdictError: a check fails, or a number changed since the baseline by more than a seed
            changes it. The artifact is published all the same.
        IncompleteError: a core check could not be measured, and `strict` is true.
    """
    quiet_libraries()
    begin_process(config.trainer)
    store = store_of(config)
    pairs = [] if config.tasks else labelled_pairs(config.pairs, seed=config.seed)
    baseline = None if config.baseline is None else Baseline.load(config.baseline, store.registry)
    reward = open_reward(config.model, cache=config.paths.cache)
    same = (
        *("budget", "tasks", "rollouts", "n_contexts", "length", "evaluations", "url", "endpoint"),
        *("policy", "name", "seed", "trainer", "progress"),
    )
    done = audit(
        reward,
        config.prompts,
        pairs=pairs,
        reserve=PAGE_SECONDS * config.page,
        loop=config.loop and config.loop.value,
        baseline=baseline,
        store=store,
        cache=config.paths.cache,
        announce=not is_sweep(),
        **{option: getattr(config, option) for option in same},
    )
    assert done.folder is not None
    page = None
    if not done:
        reports = store.registry.latest("report")
        pages = [folder / "index.html" for folder, m in reports if done.reference in m.inputs]
        page = next(iter(pages), None)
    elif config.page:
        name = config.name or reward.name
        group = config.tracking.group or f"audit {name} {done.key[:8]}"
        shared = {name: getattr(config, name) for name in ("seed", "force", "progress", "paths")}
        options = ReportConfig(
            task="report",
            name=name,
            title=f"Audit of {reward.name}",
            artifacts=[done.reference],
            explorer=False,
            tracking=replace(config.tracking, group=group),
            **shared,
        )
        page = write_page(options)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and done:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(exports.markdown(done.document))
    _end(done.document, done.folder, page, strict=config.strict)


def _end(document: Mapping[str, Any], folder: Path, page: Path | None, *, strict: bool) -> None:
    """Print the verdicts, failures first, and the paths; end with the exit code that they mean."""
    _print(document)
    print_path(folder)
    if page is not None:
        print_path(page)
    outcome = "FAILED" if document["verdict"] == FAIL else "INCOMPLETE"
    name, deciding = document["reward"]["name"], ", ".join(document["deciding"])
    message = f"{name}: {outcome} ({deciding}); see {folder}"
    if document["verdict"] == FAIL:
        raise VerdictError(message)
    if document["verdict"] == INCOMPLETE and strict:
        raise IncompleteError(f"{message}. To end with exit code 0 all the same: strict=false")


def _print(document: Mapping[str, Any]) -> None:
    checks = exports.sort_checks(document["verdicts"])
    show(Text(f"\nAudit of {document['reward']['name']}", "bold"))
    show(Text(document["headline"], STYLES.get(document["verdict"], "bold yellow")))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for row in checks:
        if row["verdict"] != NOT_MEASURED:
            words = Text.assemble((row["question"], "dim"), " ", row["evidence"])
            words.append(f" To do: {row['action']}" if row["action"] else "", "bold")
            table.add_row(Text(row["verdict"], STYLES[row["verdict"]]), row["check"], words)
    for row in document["facts"]:
        if row["value"] is not None:
            table.add_row(Text("fact", "dim"), row["fact"], Text(row["evidence"]))
    idle = []
    for row in [*checks, *document["facts"]]:
        name = row.get("check") or row["fact"]
        if row["evidence"] == NOT_ASKED:
            idle.append(name)
        elif row.get("verdict", NOT_MEASURED) == NOT_MEASURED and row["value"] is None:
            reason = f"{row['evidence'].rstrip('.')}."
            if row["command"]:
                audits = re.match(r"pessimal audit \S+ (.*)", row["command"])
                reason += f" Add: {audits[1]}" if audits else f" Type: {row['command']}"
            table.add_row(Text("not measured", "dim"), name, Text(reason, "dim"))
    show(table)
    if idle:
        show(Text(f"Does not apply to this kind of reward: {', '.join(idle)}.", "dim"))
    if since := document["changes"]:
        rows = [row for row in since["numbers"] if row["verdict"] == FAIL]
        names = ", ".join(f"{row['kind']} {row['part']}".strip() for row in rows)
        text = f"more than another seed changes it: {names}" if rows else "nothing more than a seed"
        show(Text(f"Changed since {since['baseline']}: {text}."))
