"""`pessimal compare explanations=…`: models by what moves their preferences."""

import logging
from pathlib import Path

import pandas as pd

from pessimal.config.schema import CompareConfig
from pessimal.contrast.comparison import Comparison
from pessimal.contrast.sources import read_jsonl
from pessimal.errors import InputError, TableError
from pessimal.report.contents import Contents
from pessimal.tasks.findings.explanations import explanations_contents
from pessimal.tracking.registry import Manifest, Registry

log = logging.getLogger(__name__)

EVERY = "all"
OUTCOMES = Path("tables") / "outcomes.parquet"
COMPARISONS = "comparisons.jsonl"


def compare_explanations(chosen: list[tuple[Path, Manifest]], config: CompareConfig) -> Contents:
    """The contents of a comparison of explanations."""
    outcomes = pd.concat([pd.read_parquet(folder / OUTCOMES) for folder, _ in chosen], ignore_index=True)
    comparisons: dict[str, Comparison] = {}
    for folder, _ in chosen:
        comparisons |= {comparison.key: comparison for comparison in read_jsonl(folder / COMPARISONS)}
    log.info("comparing the explanations of %d models", outcomes["model"].nunique())
    provenance = pd.concat(
        [pd.read_parquet(folder / "tables" / "provenance.parquet") for folder, _ in chosen]
    )
    return explanations_contents(outcomes, comparisons, provenance.reset_index(drop=True), config)


def chosen_explanations(config: CompareConfig, registry: Registry) -> list[tuple[Path, Manifest]]:
    """The newest version of each explanation that is asked for, its files as they were published.

    InputError where there is none such; TableError where they cannot be compared.
    """
    there = registry.latest("explanation")
    if not there:
        raise InputError(
            f"there is no explanation in {registry.root} yet; type: pessimal explain model=wordy-bpe-0"
        )
    every = config.explanations == [EVERY]
    asked = set() if every else set(config.explanations)
    found = []
    for folder, manifest in there:
        names = {manifest.name, f"explanation/{manifest.name}", manifest.reference}
        if every or asked & names:
            asked -= names
            if not config.models or manifest.summary.get("model") in config.models:
                found.append((folder, manifest))
    if asked:
        known = ", ".join(manifest.name for _, manifest in there)
        raise InputError(
            f"explanations: there is no {sorted(asked)[0]!r} in {registry.root}; there are: {known}"
        )
    if not found:
        raise InputError(f"models={config.models}: none of them is explained in {registry.root}")
    for folder, _ in found:
        registry.verify(folder)
    _check_alike(found)
    return found


def _check_alike(chosen: list[tuple[Path, Manifest]]) -> None:
    """TableError where the explanations are of different comparisons: a model's flip rates depend on these."""
    sets = {manifest.summary["comparisons_digest"]: manifest for _, manifest in chosen}
    if len(sets) > 1:
        a, b, *_ = sets.values()
        raise TableError(
            f"{a.reference} and {b.reference} explain different comparisons ({a.summary['comparisons']}, {a.summary['n']}; "
            f"{b.summary['comparisons']}, {b.summary['n']}), on which flip rates depend. Name those of one set: "
            f"explanations=[{a.name},…]"
        )
    named = [(manifest.summary["model"], manifest.summary["perturber"]) for _, manifest in chosen]
    if twice := [pair for pair in named if named.count(pair) > 1]:
        raise TableError(
            f"two of the explanations are of {twice[0][0]!r} by {twice[0][1]!r}. Name one of them: explanations=[NAME,…]"
        )
