"""`pessimal compare`: score tables in, one comparison out."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from pessimal.analyses import Options, all_analyses, compare
from pessimal.config.schema import CompareConfig, Join
from pessimal.errors import TableError
from pessimal.rewards.spec import answering, names_of
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.score_table import REWARD, SharedColumns
from pessimal.tables.table_set import Reading, labels_of, table_sets
from pessimal.tables.word_lists import read_dictionary, read_frequencies, read_lexicon
from pessimal.tracking.registry import Manifest, Registry
from pessimal.tracking.remote import fetch_score_tables
from pessimal.verbs.common import registry_of, tracked
from pessimal.verbs.compare_explanations import chosen_explanations, compare_explanations
from pessimal.verbs.progress import steps
from pessimal.verbs.publish import Artifact, print_headlines, print_path, publish

log = logging.getLogger(__name__)


def run(config: CompareConfig) -> None:
    """Compare the tables, or the explanations, that the configuration names; publish a `comparison`
    artifact."""
    registry = registry_of(config)
    if config.explanations:
        chosen = chosen_explanations(config, registry)
        results, labels, files = compare_explanations(chosen, config)
        inputs, skipped, counts = (
            [m.reference for _, m in chosen],
            {},
            {"explanations": len(chosen)},
        )
    else:
        # What is wrong with a path or an analysis is reported before any table is opened.
        analyses, options = all_analyses(config.analyses), read_options(config)
        source = fetched(config) if config.source == "wandb" else registry
        found = named(config) if config.tables else registered(config, source)
        tables, inputs = (
            [table for table, _ in found],
            [reference for _, reference in found if reference],
        )
        sets = table_sets(tables, reading_of(config))
        labels = {model: label for one in sets for model, label in one.labels.items()}
        labels |= {m: label for m, label in labels_of(tables).items() if m not in labels}
        counts = {"models": len({t.provenance.model for t in tables}), "tables": len(tables)}
        with steps(
            f"comparing {counts['tables']} tables of {counts['models']} models", len(analyses)
        ) as step:
            results, skipped = compare(sets, options, step, analyses)
        files = {}
    with tracked(config, name=f"compare {config.name}", inputs=inputs) as mirror:
        artifact = Artifact(
            "comparison",
            config.name,
            inputs=inputs,
            summary=counts,
            labels=labels,
            files=files,
            skipped=skipped,
        )
        folder, _ = publish(config, registry, mirror, artifact, results)
    print_headlines(
        results, title=f"{config.name}: {', '.join(f'{n} {what}' for what, n in counts.items())}"
    )
    print_path(folder)


def reading_of(config: CompareConfig) -> Reading:
    """How the tables are read."""
    return Reading(
        paper=config.paper,
        stripped=config.join is Join.stripped,
        polarity=config.polarity,
        factors=config.wording.factors,
        pairs=[(first, second) for first, second in config.pairs],
    )


def read_options(config: CompareConfig) -> Options:
    """The options of the analyses: the configuration's numbers, and what people say about words,
    read from files."""
    same = {f.name: getattr(config, f.name) for f in fields(Options) if f.name in vars(config)}
    return Options(
        **same
        | {
            "lexicons": {name: read_lexicon(source) for name, source in config.lexicons.items()},
            "frequencies": read_frequencies(config.frequencies),
            "dictionaries": {
                n: read_dictionary(Path(p).expanduser()) for n, p in config.dictionaries.items()
            },
        }
    )


def fetched(config: CompareConfig) -> Registry:
    """A registry of what a W&B project has, fetched and verified."""
    tracking = config.tracking
    own = Path(config.paths.cache) / "fetched" / (tracking.entity or "own") / tracking.project
    into = Registry(own / "registry")
    names = list(dict.fromkeys(name for model in config.models for name in names_of(model)))
    got = fetch_score_tables(tracking.project, tracking.entity, names, list(config.prompts), into)
    new = sum(downloaded for _, _, downloaded in got)
    log.info("%d score tables of %s, %d of them fetched now", len(got), tracking.project, new)
    return into


def named(config: CompareConfig) -> list[tuple[ScoreTable, str | None]]:
    """The tables that `tables` names."""
    files: dict[Path, None] = {}  # a file that is named twice is one
    for path in map(Path, config.tables):
        below = sorted(path.rglob("scores.parquet")) if path.is_dir() else [path]
        if not below:
            raise TableError(f"tables={str(path)!r}: no scores.parquet below this folder")
        files |= dict.fromkeys(file.resolve() for file in below)
    shared = SharedColumns()
    found = [(shared.of(read_score_table(file)), None) for file in files]
    config.models = answering(config.models, [table.provenance.model for table, _ in found])
    _check_known(config, [asdict(table.provenance) for table, _ in found], where="the tables named")
    return _chosen(config, found, "the tables named")


def registered(config: CompareConfig, registry: Registry) -> list[tuple[ScoreTable, str | None]]:
    """The registry's tables that are asked for, verified, with their references."""
    there = _current(registry)
    summaries = [manifest.summary for _, manifest in there]  # spares opening what is not asked for
    config.models = answering(config.models, [summary["model"] for summary in summaries])
    wanted = [
        pair for pair, summary in zip(there, summaries, strict=True) if _asked_for(config, summary)
    ]
    _check_known(config, summaries, where=str(registry.root))
    for folder, _ in wanted:
        registry.verify(folder)
    shared = SharedColumns()
    found = [
        (shared.of(read_score_table(folder)), manifest.reference) for folder, manifest in wanted
    ]
    if there and not found:
        near = {
            f"{s['model']} on {s['prompt']}"
            for s in summaries
            if _asked_for(config, s, every=False)
        }
        raise TableError(
            f"no score table in {registry.root} has all of it ({_choices_text(config)}). There "
            f"are: {'; '.join(sorted(near)[:8])}"
        )
    return _chosen(config, found, str(registry.root))


def _current(registry: Registry) -> list[tuple[Path, Manifest]]:
    """The newest version of every score table, then older ones of the same key: what another batch
    or machine made of it, for the noise floor."""
    latest = registry.latest("score-table")
    newest = {manifest.name: manifest for _, manifest in latest}
    older = [
        (folder, manifest)
        for folder, manifest in registry.manifests("score-table")
        if manifest.key == newest[manifest.name].key
        and manifest.version < newest[manifest.name].version
    ]
    return latest + older


def _choices(config: CompareConfig) -> list[tuple[str, list[str], str]]:
    """What may be chosen: its field in a provenance or summary, the choice, and the option that
    makes one more."""
    items = "candidates=items mode=text candidates.path=FILE candidates.name="
    return [
        ("model", config.models, "model="),
        ("prompt", list(config.prompts), "prompts="),
        ("candidates", config.sets, items),
    ]


def _asked_for(config: CompareConfig, what: Mapping, *, every: bool = True) -> bool:
    """Whether a table is of the model, prompt and candidate set chosen; or, unless `every`, of one
    of them."""
    if every:
        return all(not chosen or what[field] in chosen for field, chosen, _ in _choices(config))
    return any(what[field] in chosen for field, chosen, _ in _choices(config))


def _check_known(config: CompareConfig, there: Sequence[Mapping], *, where: str) -> None:
    """TableError where something was asked for that no table has: half a comparison is not what was
    meant."""
    for field, chosen, option in _choices(config):
        known = sorted({what[field] for what in there})
        if missing := [name for name in chosen if name not in known]:
            raise TableError(
                f"no score table of {field} {', '.join(map(repr, missing))} in {where}. There are "
                f"tables of: "
                f"{', '.join(known) or f'no {field} yet'}. To make one: pessimal scan "
                f"{option}{missing[0]}"
            )


def _chosen(
    config: CompareConfig, found: list[tuple[ScoreTable, str | None]], where: str
) -> list[tuple[ScoreTable, str | None]]:
    chosen = [
        (table, reference)
        for table, reference in found
        if _asked_for(config, asdict(table.provenance)) and _in_mode(config, table)
    ]
    if not chosen:
        there = sorted(
            {
                f"{t.provenance.model} on {t.provenance.prompt} ({t.provenance.mode})"
                for t, _ in found
            }
        )
        raise TableError(
            f"nothing to compare in {where}: {'; '.join(there[:8]) or 'no score tables'}. Scan or "
            f"import first, for "
            "example: pessimal scan model=plain-wordpiece-0"
        )
    for field, names, _ in _choices(config):
        left = {getattr(table.provenance, field) for table, _ in chosen}
        if lost := [name for name in names if name not in left]:
            raise TableError(
                f"{field} {', '.join(map(repr, lost))} has score tables in {where}, but none that "
                f"all choices leave "
                f"({_choices_text(config)}). Leave one of them out, or scan what is missing"
            )
    return chosen


def _in_mode(config: CompareConfig, table: ScoreTable) -> bool:
    """Whether a table is of the mode asked for; published scores and log-probabilities have no
    choice of one."""
    provenance = table.provenance
    free = provenance.mode == "published" or provenance.score != REWARD
    return free or config.mode is None or provenance.mode == config.mode.value


def _choices_text(config: CompareConfig) -> str:
    parts = [f"{field}: {', '.join(names)}" for field, names, _ in _choices(config) if names]
    return "; ".join([*parts, f"mode: {config.mode.value}"] if config.mode else parts)
