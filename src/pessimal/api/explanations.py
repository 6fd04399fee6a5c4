"""`pessimal compare explanations=…`: models by what moves their preferences."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pessimal.api.compare import publish_comparison
from pessimal.api.store import Artifact, Store
from pessimal.errors import InputError, TableError
from pessimal.explaining.outcomes import KEY
from pessimal.explaining.results import Resampling, compared_results, contested_outcomes
from pessimal.explaining.views import to_json, views
from pessimal.rewards.named import answering_to
from pessimal.tables.comparisons import read_jsonl
from pessimal.tables.result import Results
from pessimal.tracking.registry import Manifest, Registry

log = logging.getLogger(__name__)

EXPLANATION = {"n": int, "model": str, "perturber": str, "comparisons_digest": str, "made_by": str}
"""Fields that are read of an explanation's summary."""

COMPARISONS = "comparisons.jsonl"


def compare_explanations(
    names: Sequence[str],
    models: Sequence[str],
    options: Resampling,
    *,
    name: str,
    store: Store,
    progress: bool = True,
) -> Results:
    """Models by what moves their preferences, published as a `comparison` with the most contested
    comparisons, to be read word by word.

    Args:
        names: explanations of the registry, or ["all"]: the newest of each that is of a set.
        models: only these, by any of their names; all where none is given.
        options: of the intervals.
        name: of the artifact.
        store: where the explanations are, and where the comparison is published.
        progress: draw a bar where there is a terminal.

    Raises:
        InputError: there is none such.
        TableError: they cannot be compared.
    """
    chosen = _choose(store.registry, names, models)
    folders = [folder for folder, _ in chosen]
    tables = [pd.read_parquet(folder / "tables" / "outcomes.parquet") for folder in folders]
    outcomes = _without_repeats(pd.concat(tables, ignore_index=True))
    lines = [each for folder in folders for each in read_jsonl(folder / COMPARISONS)]
    comparisons = {comparison.key: comparison for comparison in lines}
    pieces = [pd.read_parquet(folder / "tables" / "provenance.parquet") for folder in folders]
    provenance = pd.concat(pieces).reset_index(drop=True)
    labels = {row.model: row.label or row.model for row in provenance.itertuples()}
    if len(set(labels.values())) < len(labels):
        labels = {model: model for model in labels}
    results = compared_results(outcomes, provenance, options, labels=labels)
    files = {}
    table = next((each.table for each in results if each.name == "contested"), None)
    if table is not None:
        rows = contested_outcomes(outcomes, table)
        files["views/contested.json"] = to_json(views(rows, comparisons))
    inputs, counts = [manifest.reference for _, manifest in chosen], {"explanations": len(chosen)}
    artifact = Artifact(
        "comparison", name, inputs=inputs, summary=counts, labels=labels, files=files
    )
    return publish_comparison(artifact, results, store=store, progress=progress)


def _without_repeats(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Explanations of one model by several perturbers each hold its placebo edits: once is enough.

    TableError where two of them say different things of one edit.
    """
    once = outcomes.drop_duplicates([*KEY, "edited"]).reset_index(drop=True)
    if len(twice := once[once.duplicated(KEY)]):
        row = twice.iloc[0]
        raise TableError(
            f"two explanations of {row['model']!r} have different texts for the same "
            f"{row['attribute']} edit of {row['comparison']!r}: they were made by different "
            "versions. Explain it again: force=true"
        )
    return once


def _choose(
    registry: Registry, names: Sequence[str], models: Sequence[str]
) -> list[tuple[Path, Manifest]]:
    """The explanations that are asked for, of sets that can be compared."""
    chosen = registry.choose("explanation", names, needs=EXPLANATION)
    if list(names) == ["all"]:  # one pair is no sample
        chosen = [found for found in chosen if found[1].summary["n"] > 1]
        if not chosen:
            raise InputError(
                f"there is no explanation of a set in {registry.root} yet: pessimal explain MODEL"
            )
    explained = {manifest.summary["model"] for _, manifest in chosen}
    wanted = answering_to(models, explained)
    if missing := sorted(set(wanted) - explained):
        raise InputError(
            f"models: {', '.join(missing)} is not explained in what is compared; explained are: "
            f"{', '.join(sorted(explained))}"
        )
    chosen = [found for found in chosen if not wanted or found[1].summary["model"] in wanted]
    for _, manifest in chosen:
        log.info("%s", manifest.reference)
    _check_alike(chosen)
    return chosen


def _check_alike(chosen: list[tuple[Path, Manifest]]) -> None:
    """TableError where the explanations are of different comparisons: a model's flip rates depend
    on these."""
    sets = {manifest.summary["comparisons_digest"]: manifest for _, manifest in chosen}
    if len(sets) > 1:
        a, b, *_ = sets.values()
        raise TableError(
            f"{a.reference} and {b.reference} explain different comparisons "
            f"({a.summary['comparisons']}, {a.summary['n']}; {b.summary['comparisons']}, "
            f"{b.summary['n']}), on which flip rates depend. Name those of one set: "
            f"explanations=[{a.name},…]"
        )
    named = [(manifest.summary["model"], manifest.summary["perturber"]) for _, manifest in chosen]
    if twice := [pair for pair in named if named.count(pair) > 1]:
        raise TableError(
            f"two are of {twice[0][0]!r} by {twice[0][1]!r}: explanations=[NAME,…] names one"
        )
    made: dict[str, Manifest] = {}
    for _, manifest in chosen:
        other = made.setdefault(manifest.summary["perturber"], manifest)
        if other.summary["made_by"] != manifest.summary["made_by"]:
            raise TableError(
                f"{other.reference} and {manifest.reference} are by "
                f"{manifest.summary['perturber']!r}, but of different attributes, options, judges, "
                "seeds or placebos: their numbers are not to be set beside one another. Explain "
                "both models with the same options"
            )
