"""`pessimal compare`: score tables, explanations, searches or labelled pairs of answers in, one
comparison out."""

from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd
from rich.text import Text

from pessimal.analyses.preferences import ALL
from pessimal.api.compare import (
    Choice,
    compare_explanations,
    compare_tables,
    counted_words,
    read_analyses,
    read_options,
    reading_of,
)
from pessimal.config.schema import CompareConfig
from pessimal.progress import console, quiet_libraries
from pessimal.tables.result import Results
from pessimal.texts import short_names
from pessimal.tracking.registry import read_manifest
from pessimal.verbs.common import (
    device_of,
    print_headlines,
    print_path,
    show,
    store_of,
    table_text,
)

MAX_MODELS = 8
"""Rows of the table of accuracies."""


def run(config: CompareConfig) -> None:
    """Compare the tables, explanations, searches or pairs that the configuration names; publish a
    `comparison` artifact."""
    of_pairs = isinstance(config.pairs, str)
    results = compare_pairs(config) if of_pairs else compare(config)
    assert results.folder is not None
    title, first = f"{len(results)} result{'s' * (len(results) != 1)}", "preferences"
    if of_pairs and results:
        print_accuracies(results[0].table)
        title = counted_words(read_manifest(results.folder).summary)
    elif not of_pairs:
        first = "forecast" if config.policy else ""
    if results:
        print_headlines(results, title=f"{config.name}: {title}", asked=first)
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
    artifact |= {"paths": config.tables, "beside": config.reference}
    return compare_tables(choice, reading, options, analyses, **artifact)


def compare_pairs(config: CompareConfig) -> Results:
    """Accuracies of the models on pairs of answers; only the folder where it is finished
    already."""
    quiet_libraries(lightning=config.trainer.accelerator != "cpu")
    from pessimal.api.explain import accuracy  # torch

    cache = config.paths.cache
    about: dict[str, Any] = {"device": device_of(config.trainer, cache), "store": store_of(config)}
    about |= {n: getattr(config, n) for n in ("name", "batch_size", "confidence", "progress")}
    pairs = None if config.pairs == "embedded" else config.pairs
    return accuracy(config.models, pairs, keep=Path(cache) / "rewards", cache=cache, **about)


def print_accuracies(table: pd.DataFrame) -> None:
    """Accuracies of the models, the most accurate first: of all pairs with the interval, then of as
    many categories as the terminal has room for."""
    overall = table[table["category"] == ALL].head(MAX_MODELS)
    names = short_names(overall["model"])
    values = table.set_index(["model", "category"])["accuracy"].map("{:.3f}".format).to_dict()
    every = [name for name in table["category"].unique() if name != ALL]
    ends = accumulate((len(name) + 2 for name in every), initial=max(map(len, names.values())) + 32)
    room = sum(end <= console().width for end in ends) - 1
    categories = every[: max(room, 0)]
    rows = [
        [names[row.model], values[row.model, ALL], f"{row.low:.3f} to {row.high:.3f}", row.ties]
        + [values.get((row.model, name)) for name in categories]
        for row in overall.itertuples()
    ]
    header = ["accuracy", ALL, "interval", "ties", *categories]
    show(Text(table_text(header, rows, width=None)))
    models = table["model"].nunique()
    if len(every) > len(categories) or models > MAX_MODELS:
        show(f"The page shows all {models} models and {len(every)} categories.")
