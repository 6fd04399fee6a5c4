"""`pessimal.compare`: every analysis over score tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from pessimal.analyses import Options
from pessimal.analyses import compare as every_analysis
from pessimal.analyses.analysis import Analysis
from pessimal.api.store import Artifact, Store, publish
from pessimal.config.compose import configuration
from pessimal.config.reading import read_analyses, read_options, reading_of
from pessimal.config.schema import CompareConfig
from pessimal.errors import ConfigError, InputError
from pessimal.progress import steps
from pessimal.tables import ScoreTable
from pessimal.tables.result import Result, Results
from pessimal.tables.table_set import Reading, labels_of, table_sets


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
    chosen: Sequence[tuple[ScoreTable, str | None]],
    reading: Reading,
    options: Options,
    analyses: Sequence[Analysis],
    *,
    name: str,
    store: Store,
    progress: bool = True,
) -> Results:
    """Every analysis over score tables, published as a `comparison`.

    Args:
        chosen: the tables, each with its reference in the registry where it has one.
        reading: how they are read and joined.
        options: of the analyses.
        analyses: in the order of the page.
        name: of the artifact.
        store: where it is published.
        progress: draw a bar where there is a terminal.
    """
    tables = [table for table, _ in chosen]
    sets = table_sets(tables, reading)
    labels = {model: label for one in sets for model, label in one.labels.items()}
    labels = labels_of(tables) | labels
    counts = {"models": len({t.provenance.model for t in tables}), "tables": len(tables)}
    with steps(f"comparing {counted_words(counts)}", len(analyses), bar=progress) as step:
        results, skipped = every_analysis(sets, options, step, analyses)
    inputs = [reference for _, reference in chosen if reference]
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
    counts = {what: n for what, n in summary.items() if isinstance(n, int)}
    nouns = {what: what.removesuffix("s") for what in counts} | {"searches": "search"}
    return ", ".join(f"{n:,} {nouns[what] if n == 1 else what}" for what, n in counts.items())


def join_tables(tables: Sequence[ScoreTable], options: Mapping[str, Any]):
    """Tables side by side, the options of analyses, and the analyses, of options of `pessimal
    compare`."""
    config = configuration("compare", options)
    assert isinstance(config, CompareConfig)
    if isinstance(config.pairs, str):
        raise ConfigError(
            f"pairs={config.pairs!r} are pairs of answers: pessimal.accuracy(models, FILE)"
        )
    return table_sets(tables, reading_of(config)), read_options(config), read_analyses(config)
