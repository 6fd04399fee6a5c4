"""`pessimal compare pairs=…`: models by how often they score the better of two answers higher."""

import hashlib
import json
import logging
from itertools import accumulate
from pathlib import Path

import pandas as pd
from rich.text import Text

from pessimal.analyses.preferences import ALL
from pessimal.api.accuracy import accuracy
from pessimal.api.store import Artifact, publish, reward_inputs
from pessimal.config.schema import CompareConfig
from pessimal.config.schema.tables import SCORED_PAIRS
from pessimal.errors import ConfigError
from pessimal.explaining.pairs import PARQUET, labelled_pairs, pairs_digest, published_rewards
from pessimal.progress import console, quiet_libraries
from pessimal.rewards.checkpoint_files import of_model
from pessimal.rewards.obtain import open_reward
from pessimal.texts import short_names
from pessimal.tracking.registry import Registry, find_artifact
from pessimal.verbs.common import device_of, store_of
from pessimal.verbs.compare_searches import registered_spec
from pessimal.verbs.printing import print_headlines, print_path, show, table_text
from pessimal.version import __version__

log = logging.getLogger(__name__)

MAX_MODELS = 8
"""Rows of the table that is printed."""


def compare_pairs(config: CompareConfig) -> None:
    """Have every model score the pairs, publish a `comparison` artifact and print its folder; one
    that is finished already is named."""
    quiet_libraries(lightning=config.trainer.accelerator != "cpu")
    store = store_of(config)
    registry = store.registry
    path, inputs = _find_pairs(config.pairs, registry)
    source = "those of pessimal" if path is None else Path(config.pairs).name
    pairs = labelled_pairs(path, n=None)
    published = published_rewards(pairs)
    trained = {manifest.name: folder for folder, manifest in registry.latest("reward-model")}
    specs = [registered_spec(name, trained) for name in config.models if name not in published]
    if not specs and not published:
        raise ConfigError(
            f"pairs={config.pairs}: its rows have no scores: type models=[plain-wordpiece-0]"
        )
    cache = config.paths.cache
    models = [open_reward(spec, cache=cache) for spec in specs]
    scores = {name: rewards.tolist() for name, rewards in published.items()}
    versions = [[model.name, of_model(model)] for model in models]
    decisive = [config.name, __version__, pairs_digest(pairs), scores, versions, config.confidence]
    key = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
    if finished := store.find("comparison", key):
        log.info("this is compared already: %s (force=true compares again)", finished[0])
        print_path(finished[0])
        return
    inputs += [reference for model in models for reference in reward_inputs(registry, model)[0]]
    with store.track(name=f"compare {config.name}", inputs=inputs) as mirror:
        results = accuracy(
            models,
            pairs,
            batch_size=config.batch_size,
            device=device_of(config.trainer, cache),
            keep=Path(cache) / "rewards",
            confidence=config.confidence,
            source=source,
            progress=config.progress,
        )
        counts = {"models": len(models) + len(published), "pairs": len(pairs)}
        overall = {name: n for name, n in results[0].summary.items() if name.endswith(f"/{ALL}")}
        artifact = Artifact(
            "comparison",
            config.name,
            key=key,
            inputs=inputs,
            summary={**counts, "source": source, **overall},
            labels={model.name: model.description.label or model.name for model in models},
        )
        folder, _ = publish(registry, mirror, artifact, results, progress=config.progress)
    _print_accuracies(results[0].table)
    print_headlines(results, asked="preferences", title=f"{config.name}: {len(pairs):,} pairs")
    print_path(folder)


def _find_pairs(source: str, registry: Registry) -> tuple[str | None, list[str]]:
    """The file of the pairs, None for the embedded ones; and the reference of an artifact that they
    come from. InputError where the registry has none of this name."""
    if not source.startswith(SCORED_PAIRS):
        return None if source == "embedded" else source, []
    artifacts = {
        manifest.reference: (folder, manifest)
        for folder, manifest in registry.manifests("scored-pairs")
    }
    manifest = find_artifact(source, [manifest for _, manifest in artifacts.values()])
    folder, _ = artifacts[manifest.reference]
    registry.verify(folder)
    return str(folder / PARQUET), [manifest.reference]


def _print_accuracies(table: pd.DataFrame) -> None:
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
