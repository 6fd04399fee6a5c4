"""`pessimal compare pairs=FILE`: how often each model gives the better of two answers the higher
reward."""

from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd
from rich.text import Text

from pessimal.analyses.preferences import ALL
from pessimal.api.compare import counted_words
from pessimal.api.explain import accuracy
from pessimal.config.schema import CompareConfig
from pessimal.progress import console, quiet_libraries
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
"""Rows of the table that is printed."""


def run(config: CompareConfig) -> None:
    """Score the pairs of answers by every model; publish a `comparison` artifact, or name one that
    is finished already."""
    quiet_libraries(lightning=config.trainer.accelerator != "cpu")
    store, cache = store_of(config), config.paths.cache
    about: dict[str, Any] = {"device": device_of(config.trainer, cache), "store": store}
    about |= {n: getattr(config, n) for n in ("name", "batch_size", "confidence", "progress")}
    pairs = None if config.pairs == "embedded" else config.pairs
    results = accuracy(config.models, pairs, keep=Path(cache) / "rewards", cache=cache, **about)
    assert results.folder is not None
    if results:
        print_accuracies(results[0].table)
        counts = counted_words(read_manifest(results.folder).summary)
        print_headlines(results, title=f"{config.name}: {counts}", first="preferences")
    print_path(results.folder)


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
