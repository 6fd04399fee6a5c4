"""`pessimal.compare`: every analysis over score tables, which files or a registry hold; and models
by what moves their preferences."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pessimal.analyses import Options, all_analyses
from pessimal.analyses import compare as every_analysis
from pessimal.analyses.analysis import Analysis
from pessimal.api.store import Artifact, Store, publish
from pessimal.catalogue import CONF, names_of, published_models
from pessimal.config.compose import configuration, make_analysis
from pessimal.config.schema import CompareConfig, Join
from pessimal.errors import ConfigError, InputError, TableError, did_you_mean
from pessimal.progress import steps
from pessimal.rewards.named import match_models
from pessimal.rewards.spec import Mode
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.result import Result, Results
from pessimal.tables.score_table import REWARD, ScoreProvenance, SharedColumns, read_provenance
from pessimal.tables.table_set import Reading, labels_of, table_sets
from pessimal.tables.word_lists import read_frequencies, read_lexicons
from pessimal.tracking.registry import Manifest, Registry

if TYPE_CHECKING:
    from pessimal.explaining.results import Resampling

log = logging.getLogger(__name__)

TABLE = {"model": str, "prompt": str, "candidates": str}
"""Figures of a score table's summary by which it is chosen."""
EXPLANATION = {"n": int, "model": str, "perturber": str, "comparisons_digest": str, "made_by": str}
"""Figures that are read of an explanation's summary."""
COMPARISONS = "comparisons.jsonl"


def compare(tables: Sequence[ScoreTable], **options) -> Results:
    """Every analysis over score tables of `scan`, or read with `pessimal.read`.

    Args:
        tables: of any models, prompts and candidate sets.
        options: as of `pessimal compare`, such as `replicates=200`, `polarity={"mine": 1}`,
            `join="stripped"`.

    Returns:
        Results in the order of the page; `results["agreement"]` is one of them, `results.skipped`
        says what could not be done and why.
    """
    tables = [tables] if isinstance(tables, ScoreTable) else list(tables)
    if not tables or not all(isinstance(table, ScoreTable) for table in tables):
        raise InputError("compare takes score tables: pessimal.scan(model), or pessimal.read(FILE)")
    sets, read, analyses = join_tables(tables, options)
    return Results(*every_analysis(sets, read, analyses=analyses))


def compare_tables(
    choice: "Choice",
    reading: Reading,
    options: Options,
    analyses: Sequence[Analysis],
    *,
    paths: Sequence[str] | None = None,
    extra: str | None = None,
    name: str,
    store: Store,
    progress: bool = True,
) -> Results:
    """Every analysis over score tables, published as a `comparison`.

    Args:
        choice, paths, extra: which tables, as of `choose_tables`.
        reading: how they are read and joined.
        options: of the analyses.
        analyses: in the order of the page.
        name: of the artifact.
        store: where it is published.
        progress: draw a bar where there is a terminal.
    """
    tables = choose_tables(store.registry, choice, paths, extra=extra)
    alone = [table for table, _ in tables]
    sets = table_sets(alone, reading)
    labels = labels_of(alone) | {m: label for each in sets for m, label in each.labels.items()}
    counts = {"models": len({t.provenance.model for t in alone}), "tables": len(alone)}
    log.info("comparing %s", counted_words(counts))
    with steps("analyses", len(analyses), bar=progress) as step:
        results, skipped = every_analysis(sets, options, step, analyses)
    inputs = [reference for _, reference in tables if reference]
    artifact = Artifact(
        "comparison", name, inputs=inputs, summary=counts, labels=labels, skipped=skipped
    )
    return publish_comparison(artifact, results, store=store, progress=progress)


def publish_comparison(
    artifact: Artifact, results: Sequence[Result], *, store: Store, progress: bool = True
) -> Results:
    """Publish the results of a comparison of tables, searches or explanations."""
    with store.track(name=f"compare {artifact.name}", inputs=artifact.inputs) as mirror:
        folder, _ = publish(store.registry, mirror, artifact, results, progress=progress)
        for result in results:
            if result.name == "forecast":  # what a tilt gains, as curves over KL in W&B
                tilts = result.table[result.table["way"] == "tilt"]
                for kl, rows in tilts.groupby("kl"):
                    gains = {f"forecast/{r.prompt}/{r.model}": r.gain for r in rows.itertuples()}
                    mirror.metrics({"forecast/kl": kl, **gains})
    return Results(results, artifact.skipped, folder)


def counted_words(summary: Mapping[str, Any]) -> str:
    """Counts of a summary with their nouns, which end in s: "2 models, 1 table"."""
    counts = {noun: n for noun, n in summary.items() if isinstance(n, int)}
    singular = {noun: noun.removesuffix("s") for noun in counts} | {"searches": "search"}
    return ", ".join(f"{n:,} {singular[noun] if n == 1 else noun}" for noun, n in counts.items())


# --- How tables are read, by the options of `pessimal compare`.


def join_tables(tables: Sequence[ScoreTable], options: Mapping[str, Any]):
    """Tables side by side, the options of analyses, and the analyses."""
    config = configuration("compare", options)
    assert isinstance(config, CompareConfig)
    if isinstance(config.pairs, str):
        raise ConfigError(f"pairs={config.pairs!r}: type pessimal.accuracy(models, FILE)")
    return table_sets(tables, reading_of(config)), read_options(config), read_analyses(config)


def reading_of(config: CompareConfig) -> Reading:
    """The way in which the tables are put side by side."""
    pairs = [(first, second) for first, second in config.pairs]
    stripped = None if config.join is Join.auto else config.join is Join.stripped
    return Reading(config.paper, stripped, config.polarity, config.wording.factors, pairs)


def read_options(config: CompareConfig) -> Options:
    """The options of the analyses: the configuration's numbers, and what people say about words,
    read from files."""
    same = {f.name: getattr(config, f.name) for f in fields(Options) if f.name in vars(config)}
    same["lexicons"] = read_lexicons(config.lexicons)
    return Options(**same | {"frequencies": read_frequencies(config.frequencies)})


def read_analyses(config: CompareConfig) -> tuple[Analysis, ...]:
    """The analyses that `config.only` names, all where it names none; those that `config.analyses`
    adds are among them.

    Raises:
        ConfigError: one cannot be imported or made, is no analysis, or there is none of a name.
    """
    entries = [make_analysis(e) if isinstance(e, Mapping) else e for e in config.analyses]
    if wrong := [type(e).__name__ for e in entries if not isinstance(e, str | Analysis)]:
        raise ConfigError(f"analyses: {wrong[0]} is no Analysis: give a function under @analysis()")
    analyses = all_analyses(entries)
    if not config.only:
        return analyses
    names = [each.name for each in analyses]
    if unknown := next((name for name in config.only if name not in names), None):
        guess = did_you_mean(unknown, names)
        raise ConfigError(f"only: no analysis {unknown!r}.{guess} There are: {', '.join(names)}")
    return tuple(each for each in analyses if each.name in (*config.only, "provenance"))


# --- Which tables are compared.


@dataclass(frozen=True)
class Choice:
    """The score tables that are compared; an empty list chooses all."""

    models: list[str]
    prompts: list[str]
    sets: list[str]
    mode: Mode | None

    @property
    def fields(self) -> list[tuple[str, list[str], str]]:
        """A field of a provenance or summary, the values chosen of it, and the option of a scan
        that makes one more."""
        items = "candidates=items mode=text candidates.path=FILE candidates.name="
        all_in_conf = all(
            (CONF / "prompts" / f"{prompt}.yaml").is_file() for prompt in self.prompts
        )
        return [
            ("model", self.models, "model="),
            (
                "prompt",
                self.prompts,
                "prompts=" if all_in_conf else "MODEL +prompts.KEY=TEXT, of KEY ",
            ),
            ("candidates", self.sets, items),
        ]

    def takes(self, table: Mapping) -> bool:
        """Whether a table is of the models, prompts and candidate sets chosen."""
        return all(not values or table[field] in values for field, values, _ in self.fields)

    def __str__(self) -> str:
        parts = [f"{field}: {', '.join(names)}" for field, names, _ in self.fields if names]
        return "; ".join([*parts, f"mode: {self.mode.value}"] if self.mode else parts)


Chosen = list[tuple[ScoreTable, str | None]]
"""Tables with their references, where they are from a registry."""


def choose_tables(
    registry: Registry, choice: Choice, paths: Sequence[str] | None, *, extra: str | None = None
) -> Chosen:
    """The tables of files and folders where some are given, else of the registry, verified.

    Args:
        extra: `published` for the ten published models beside those that are chosen.

    Raises:
        TableError: something is chosen that no table has.
        InputError: a file has changed.
    """
    if paths:
        where = "the tables named"
        entries = [(asdict(read_provenance(file)), file, "") for file in _files(paths)]
    else:  # summaries spare opening the others
        where = str(registry.root)
        entries = [(m.summary, folder, m.reference) for folder, m in _current(registry)]
    models = match_models(choice.models, {about["model"] for about, _, _ in entries})
    choice = Choice(models, choice.prompts, choice.sets, choice.mode)
    for field, names, option in choice.fields:  # half a comparison is not what was meant
        values = sorted({about[field] for about, _, _ in entries})
        if missing := [name for name in names if name not in values]:
            raise TableError(
                f"no score table of {field} {', '.join(map(repr, missing))} in {where}. There are "
                f"tables of: {', '.join(values) or f'no {field} yet'}. To make one: pessimal scan "
                f"{option}{missing[0]}"
            )
    shared = SharedColumns()
    tables: Chosen = []
    for about, file, reference in entries:
        if choice.takes(about):
            if reference:
                registry.verify(file)
            table = shared.share(read_score_table(file))
            # Published scores and log-probabilities have no choice of a mode.
            mode, score = table.provenance.mode, table.provenance.score
            if score != REWARD or choice.mode is None or mode in ("published", choice.mode.value):
                tables.append((table, reference or None))
    if not tables:
        near = sorted({f"{about['model']} on {about['prompt']}" for about, _, _ in entries})
        listing = "; ".join(near[:8]) or "no score tables"
        message = f"nothing to compare in {where} ({str(choice) or 'all'}): {listing}"
        raise TableError(f"{message}. Scan or import first: pessimal scan MODEL")
    for field, names, _ in choice.fields:
        left = {getattr(table.provenance, field) for table, _ in tables}
        if lost := [name for name in names if name not in left]:
            message = f"{field} {lost[0]!r} has score tables, but none that all choices leave"
            raise TableError(f"{message} ({choice})")
    return tables if extra is None else add_published(registry, tables)


def _files(paths: Sequence[str]) -> list[Path]:
    """The files of score tables that are named or stand in folders that are, each once."""
    files: dict[Path, None] = {}
    for path in map(Path, paths):
        below = sorted(path.rglob("scores.parquet")) if path.is_dir() else [path]
        if not below:
            raise TableError(f"tables={str(path)!r}: no scores.parquet below this folder")
        files |= dict.fromkeys(file.resolve() for file in below)
    return list(files)


def _current(registry: Registry) -> list[tuple[Path, Manifest]]:
    """The newest version of every score table, then older ones of the same key: what another batch
    or machine made of it, for the noise floor."""
    latest = registry.latest("score-table", needs=TABLE)
    newest = {manifest.name: manifest for _, manifest in latest}
    every = registry.manifests("score-table", needs=TABLE)
    same = [pair for pair in every if pair[1].key == newest[pair[1].name].key]
    return latest + [pair for pair in same if pair[1].version < newest[pair[1].name].version]


def add_published(registry: Registry, selection: Chosen) -> Chosen:
    """Tables of other models on items that the ten published reward models were scored on, and
    then theirs on the same items and prompts.

    Raises:
        TableError: theirs are not in the registry, no other model is chosen, or none has such a
            table.
    """
    ten = {name for repository in published_models() for name in names_of(repository)}
    published = [
        ((manifest.summary["candidates"], manifest.summary["prompt"]), folder, manifest)
        for folder, manifest in registry.latest("score-table", needs=TABLE)
        if manifest.summary["model"] in ten and manifest.summary["candidates"] != "vocabulary"
    ]
    keys = dict.fromkeys(key for key, *_ in published)
    if not published:
        how = "pessimal import format=eloeverything path=greatest_one_word.csv prompt=greatest"
        raise TableError(f"reference=published: the ten published models are not imported: {how}")
    mine = [pair for pair in selection if pair[0].provenance.model not in ten]
    tables = [pair for pair in mine if _items(pair[0].provenance) in keys]
    if not tables:
        models = ", ".join(sorted({table.provenance.model for table, _ in mine}))
        items, prompt = next(iter(keys))
        lists = "; ".join(f"{a} on {b}" for a, b in [*keys][:4])
        message = f"{models or 'no model'} has no scores on the published {lists}: pessimal scan"
        typed = f"MODEL prompts={prompt} mode=text candidates=items candidates.name={items}"
        raise TableError(f"{message} {typed} candidates.path=FILE")
    shared, same = SharedColumns(), {_items(table.provenance) for table, _ in tables}
    for key, folder, manifest in published:
        if key in same:
            registry.verify(folder)
            tables.append((shared.share(read_score_table(folder)), manifest.reference))
    return tables


def _items(provenance: ScoreProvenance) -> tuple[str, str]:
    return provenance.candidates, provenance.prompt


# --- Models by what moves their preferences.


def compare_explanations(
    names: Sequence[str],
    models: Sequence[str],
    options: "Resampling",
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
    from pessimal.explaining.outcomes import KEY
    from pessimal.explaining.results import compared_results, contested_outcomes
    from pessimal.explaining.views import to_json, views
    from pessimal.tables.comparisons import Comparison, read_jsonl

    explanations = choose_explanations(store.registry, names, models)
    tables, pieces = [], []
    comparisons: dict[str, Comparison] = {}
    for folder, manifest in explanations:
        log.info("%s", manifest.reference)
        tables.append(pd.read_parquet(folder / "tables" / "outcomes.parquet"))
        comparisons |= {each.key: each for each in read_jsonl(folder / COMPARISONS)}
        pieces.append(pd.read_parquet(folder / "tables" / "provenance.parquet"))
    # Explanations of one model by several perturbers each hold its placebo edits: once is enough.
    outcomes = pd.concat(tables, ignore_index=True).drop_duplicates([*KEY, "edited"])
    outcomes = outcomes.reset_index(drop=True)
    if len(twice := outcomes[outcomes.duplicated(KEY)]):
        row = twice.iloc[0]
        raise TableError(f"explanations of {row['model']!r} differ in one edit: type force=true")
    provenance = pd.concat(pieces).reset_index(drop=True)
    labels = {row.model: row.label or row.model for row in provenance.itertuples()}
    if len(set(labels.values())) < len(labels):
        labels = {model: model for model in labels}
    results, files = compared_results(outcomes, provenance, options, labels=labels), {}
    if table := [result.table for result in results if result.name == "contested"]:
        rows = contested_outcomes(outcomes, table[0])
        files["views/contested.json"] = to_json(views(rows, comparisons))
    inputs, counts = (
        [manifest.reference for _, manifest in explanations],
        {"explanations": len(explanations)},
    )
    artifact = Artifact(
        "comparison", name, inputs=inputs, summary=counts, labels=labels, files=files
    )
    return publish_comparison(artifact, results, store=store, progress=progress)


def choose_explanations(
    registry: Registry, names: Sequence[str], models: Sequence[str]
) -> list[tuple[Path, Manifest]]:
    """The explanations that are asked for, of one set of comparisons, on which flip rates depend,
    and made alike.

    Raises:
        InputError: there is none of a set, or a model is not explained.
        TableError: they are of several sets, or two are of one model, or made differently.
    """
    explanations = registry.choose("explanation", names, needs=EXPLANATION)
    if list(names) == ["all"]:  # one pair is no sample
        explanations = [pair for pair in explanations if pair[1].summary["n"] > 1]
        if not explanations:
            raise InputError(f"no explanation of a set is in {registry.root} yet")
    explained = {manifest.summary["model"] for _, manifest in explanations}
    models = match_models(models, explained)
    if missing := ", ".join(sorted(set(models) - explained)):
        listing = ", ".join(sorted(explained))
        raise InputError(f"models: {missing} is not explained here; explained are: {listing}")
    explanations = [
        pair for pair in explanations if not models or pair[1].summary["model"] in models
    ]
    manifests = [manifest for _, manifest in explanations]
    sets = {manifest.summary["comparisons_digest"]: manifest for manifest in manifests}
    if len(sets) > 1:
        a, b, *_ = sets.values()
        names = f"{a.reference} and {b.reference}"
        raise TableError(f"{names} explain different comparisons: explanations=[{a.name},…]")
    makers: dict[str, Manifest] = {}
    pairs: set[tuple[str, str]] = set()
    for manifest in manifests:
        model, perturber = (manifest.summary[name] for name in ("model", "perturber"))
        if (model, perturber) in pairs:
            raise TableError(f"two are of {model!r} by {perturber!r}: explanations=[NAME,…]")
        pairs.add((model, perturber))
        other = makers.setdefault(perturber, manifest)
        if other.summary["made_by"] != manifest.summary["made_by"]:
            references = f"{other.reference} and {manifest.reference}"
            raise TableError(f"{references} have different options: explain both alike")
    return explanations
