"""`pessimal compare explanations=…`: models by what moves their preferences."""

import logging
from pathlib import Path

import pandas as pd

from pessimal.config.schema import CompareConfig
from pessimal.errors import InputError, TableError
from pessimal.explaining.edits.views import to_json, views
from pessimal.explaining.outcomes import KEY
from pessimal.explaining.results import Resampling, compared_results, contested_outcomes
from pessimal.rewards.named import answering_to
from pessimal.tables.comparisons import read_jsonl
from pessimal.tables.result import Result
from pessimal.tracking.registry import Manifest, Registry, find_artifact

log = logging.getLogger(__name__)

EXPLANATION = {"n": int, "model": str, "perturber": str, "comparisons_digest": str, "made_by": str}
"""Fields that are read of an explanation's summary."""

EVERY = "all"
COMPARISONS = "comparisons.jsonl"


def compare_explanations(
    chosen: list[tuple[Path, Manifest]], config: CompareConfig
) -> tuple[list[Result], dict[str, str], dict[str, str]]:
    """The Results of a comparison of explanations; names of models for people; and the artifact's
    other files: the most contested comparisons, to be read word by word."""
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
    options = Resampling(config.replicates, config.permutations, config.confidence, config.seed)
    results = compared_results(outcomes, provenance, options, labels=labels)
    files = {}
    table = next((each.table for each in results if each.name == "contested"), None)
    if table is not None:
        rows = contested_outcomes(outcomes, table)
        files["views/contested.json"] = to_json(views(rows, comparisons))
    return results, labels, files


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


def chosen_explanations(config: CompareConfig, registry: Registry) -> list[tuple[Path, Manifest]]:
    """The newest version of each explanation that is asked for, its files as they were published.

    InputError where there is none such; TableError where they cannot be compared.
    """
    there = registry.manifests("explanation", needs=EXPLANATION)
    if not any(manifest.summary["n"] > 1 for _, manifest in there):  # one pair is no sample
        raise InputError(
            f"there is no explanation of a set in {registry.root} yet: pessimal explain MODEL"
        )
    manifests = [manifest for _, manifest in there]
    if config.explanations == [EVERY]:
        newest = {manifest.name: manifest for manifest in manifests}.values()
        wanted = [manifest for manifest in newest if manifest.summary["n"] > 1]
    else:
        wanted = [find_artifact(name, manifests) for name in config.explanations]
    models = {manifest.summary["model"] for manifest in wanted}
    config.models = answering_to(config.models, models)
    if missing := sorted(set(config.models) - models):
        raise InputError(
            f"models: {', '.join(missing)} is not explained in what is compared; explained are: "
            f"{', '.join(sorted(models))}"
        )
    chosen = [
        (folder, manifest)
        for folder, manifest in there
        if manifest in wanted
        if not config.models or manifest.summary["model"] in config.models
    ]
    for folder, manifest in chosen:
        registry.verify(folder)
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
