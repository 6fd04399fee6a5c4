"""`pessimal compare`: score tables, explanations or searches in, one comparison
out."""

from typing import Any

from pessimal.api.compare import (
    Choice,
    compare_explanations,
    compare_tables,
    read_analyses,
    read_options,
    reading_of,
)
from pessimal.config.schema import CompareConfig
from pessimal.tables.result import Results
from pessimal.verbs.common import print_headlines, print_path, store_of


def run(config: CompareConfig) -> None:
    """Compare the tables, explanations or searches that the configuration names; publish a
    `comparison` artifact."""
    results = compare(config)
    assert results.folder is not None
    print_headlines(results, title=config.name, first="forecast" if config.policy else "")
    print_path(results.folder)


def compare(config: CompareConfig) -> Results:
    """The results, published."""
    store, cache = store_of(config), config.paths.cache
    artifact: dict[str, Any] = {"name": config.name, "store": store, "progress": config.progress}
    if config.searches:
        from pessimal.api.search import compare_searches  # torch

        return compare_searches(config.searches, config.models, cache=cache, **artifact)
    if config.explanations:
        from pessimal.explaining.results import Resampling

        numbers = (config.replicates, config.permutations, config.confidence, config.seed)
        request = config.explanations, config.models, Resampling(*numbers)
        return compare_explanations(*request, **artifact)
    # What is wrong with a path or an analysis is reported before any table is opened.
    analyses, options, reading = read_analyses(config), read_options(config), reading_of(config)
    choice = Choice(config.models, list(config.prompts), config.sets, config.mode)
    artifact |= {"paths": config.tables, "extra": config.reference}
    return compare_tables(choice, reading, options, analyses, **artifact)
