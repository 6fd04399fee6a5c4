"""`pessimal.compare`: every analysis over score tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from pessimal.analyses import compare as every_analysis
from pessimal.config.compose import configuration
from pessimal.config.reading import read_analyses, read_options, reading_of
from pessimal.config.schema import CompareConfig
from pessimal.errors import ConfigError, InputError
from pessimal.tables import ScoreTable
from pessimal.tables.result import Results
from pessimal.tables.table_set import table_sets


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
    results, skipped = every_analysis(sets, read, analyses=analyses)
    return Results(results, skipped)


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
