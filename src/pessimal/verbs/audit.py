"""`pessimal audit`: one command before a training; a verdict per check, and an exit code."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from pessimal.api.audit import Baseline, audit
from pessimal.auditing import exports
from pessimal.auditing.evidence import PAGE_SECONDS
from pessimal.auditing.verdicts import (
    FAIL,
    INCOMPLETE,
    NOT_ASKED,
    NOT_MEASURED,
    PASS,
    REVIEW,
)
from pessimal.config.compose import configuration
from pessimal.config.schema import AuditConfig, ReportConfig
from pessimal.errors import IncompleteError, VerdictError
from pessimal.explaining.pairs import labelled_pairs
from pessimal.progress import quiet_libraries
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.trainer import begin_process
from pessimal.tracking.registry import Registry
from pessimal.verbs.common import in_sweep, store_of
from pessimal.verbs.printing import print_path, show
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
    config = config.resolve()
    begin_process(config.trainer)
    store = store_of(config)
    pairs = [] if config.tasks else labelled_pairs(config.pairs, seed=config.seed)
    baseline = None if config.baseline is None else Baseline.of(config.baseline, store.registry)
    reward = open_reward(config.model, cache=config.paths.cache)
    same = (
        *("budget", "tasks", "n_contexts", "length", "evaluations", "url", "endpoint", "policy"),
        *("name", "seed", "trainer", "progress"),
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
        announce=not in_sweep(),
        **{option: getattr(config, option) for option in same},
    )
    assert done.folder is not None
    page = None
    if not done:
        page = _page_of(store.registry, done.reference)
    elif config.page:
        name = config.name or reward.name
        group = config.tracking.group or f"audit {name} {done.key[:8]}"
        page = write_page(
            replace(
                _page_options(config),
                name=name,
                artifacts=[done.reference],
                title=f"Audit of {reward.name}",
                tracking=replace(config.tracking, group=group),
            )
        )
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and done:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(exports.markdown(done.document))
    _end(done.document, done.folder, page, strict=config.strict)


def _page_options(config: AuditConfig) -> ReportConfig:
    """Options of the page, in the audit's folders."""
    options = configuration("report")
    assert isinstance(options, ReportConfig)
    shared = {name: getattr(config, name) for name in ("seed", "force", "progress", "paths")}
    return replace(options, explorer=False, **shared)


def _page_of(registry: Registry, reference: str) -> Path | None:
    """The page of an audit, where the registry has one."""
    for folder, manifest in registry.latest("report"):
        if reference in manifest.inputs:
            return folder / "index.html"
    return None


def _end(document: Mapping[str, Any], folder: Path, page: Path | None, *, strict: bool) -> None:
    """Print the verdicts, failures first, and the paths; end with the exit code that they mean."""
    _print(document)
    print_path(folder)
    if page is not None:
        print_path(page)
    outcome = "FAILED" if document["verdict"] == FAIL else "INCOMPLETE"
    message = (
        f"{document['reward']['name']}: {outcome} ({', '.join(document['deciding'])}); see {folder}"
    )
    if document["verdict"] == FAIL:
        raise VerdictError(message)
    if document["verdict"] == INCOMPLETE and strict:
        raise IncompleteError(f"{message}. To end with exit code 0 all the same: strict=false")


def _print(document: Mapping[str, Any]) -> None:
    checks = exports.in_order(document["verdicts"])
    show(Text(f"\nAudit of {document['reward']['name']}", "bold"))
    show(Text(document["headline"], STYLES.get(document["verdict"], "bold yellow")))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for one in checks:
        if one["verdict"] == NOT_MEASURED:
            continue
        words = Text.assemble((one["question"], "dim"), " ", one["evidence"])
        if one["action"]:
            words.append(f" To do: {one['action']}", "bold")
        table.add_row(Text(one["verdict"], STYLES[one["verdict"]]), one["check"], words)
    for one in document["facts"]:
        if one["value"] is not None:
            table.add_row(Text("fact", "dim"), one["fact"], Text(one["evidence"]))
    for one in [*checks, *document["facts"]]:
        if one.get("verdict", NOT_MEASURED) == NOT_MEASURED and one["value"] is None:
            if one["evidence"] == NOT_ASKED:
                continue
            why = f"{one['evidence'].rstrip('.')}."
            why += f" Type: {one['command']}" if one["command"] else ""
            name = one.get("check") or one["fact"]
            table.add_row(Text("not measured", "dim"), name, Text(why, "dim"))
    show(table)
    every = [*document["verdicts"], *document["facts"]]
    rest = [one.get("check") or one["fact"] for one in every if one["evidence"] == NOT_ASKED]
    if rest:
        show(Text(f"Does not apply to this kind of reward: {', '.join(rest)}.", "dim"))
    if since := document["changes"]:
        beyond = [row for row in since["numbers"] if row["verdict"] == FAIL]
        names = ", ".join(f"{row['kind']} {row['part']}".strip() for row in beyond)
        text = (
            f"more than another seed changes it: {names}" if beyond else "nothing more than a seed"
        )
        show(Text(f"Changed since {since['baseline']}: {text}."))
