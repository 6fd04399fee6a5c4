"""`pessimal.accuracy`: how often the better of two answers has the higher reward."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pessimal.analyses.preferences import ALL
from pessimal.api.load import device_of, to_reward
from pessimal.api.store import Artifact, Store, publishing, registered_spec, reward_inputs, store_at
from pessimal.config.schema.tables import SCORED_PAIRS
from pessimal.errors import ConfigError
from pessimal.explaining.pairs import (
    PARQUET,
    accuracy_results,
    labelled_pairs,
    pair_frame,
    pairs_digest,
    published_rewards,
    score_pairs,
)
from pessimal.progress import counted, quiet_libraries
from pessimal.rewards.base import Reward
from pessimal.rewards.checkpoint_files import of_model
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.texts import Scorers
from pessimal.tables.comparisons import Comparison
from pessimal.tables.result import Results
from pessimal.version import __version__

log = logging.getLogger(__name__)


def accuracy(
    models: Reward | str | Path | Sequence[Any] | Any = (),
    pairs: str | Path | Sequence[Comparison] | None = None,
    *,
    batch_size: int | None = None,
    device: "torch.device | None" = None,
    keep: str | Path | None = None,
    confidence: float = 0.95,
    source: str = "",
    name: str = "comparison",
    store: Store | str | Path | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
    **options,
) -> Results:
    """Accuracy of each model: how often the better of two answers has the higher reward.

    Args:
        models: one, or a list of several, of `load` or `reward`, or what these take.
        pairs: a file of labelled pairs (.jsonl, .jsonl.gz, .json, .parquet), such as RewardBench's;
            by default the 210 pairs that come with pessimal. Models whose rewards stand in its
            rows take part too.
        batch_size: conversations a batch; found from the memory there is where None.
        device: where the models run; by default where one in memory is, else the CPU.
        keep: folder in which rewards are kept as they come, so that a second call does not ask for
            them again.
        confidence: level of the intervals.
        source: what the pairs are, for the notes; by default the file.
        name: of the artifact.
        store: registry in which a `comparison` is published; pairs may then be `scored-pairs/NAME`
            of it, and models those that were trained under their names.
        cache: folder for models that are fetched.
        options: of `load` or `reward`.

    Returns:
        Results `preferences` (accuracy by model and category), `preference_differences` and
        `margin_agreement` of several models, `margin_length`, and two tables: `preference_pairs`,
        ranked against their labels, and `scored_pairs`, every reward; none but the folder where
        the store has them already.

    Raises:
        ConfigError: no model is given, or two have one name.
        InputError: the file cannot be read, or none of its pairs has a label.
    """
    quiet_libraries()
    several = models if isinstance(models, list | tuple) else [models]
    inputs: list[str] = []
    store = store_at(store)
    if isinstance(pairs, str) and pairs.startswith(SCORED_PAIRS) and store is not None:
        [(folder, manifest)] = store.registry.choose("scored-pairs", [pairs])
        inputs, source, pairs = [manifest.reference], manifest.name, folder / PARQUET
    if pairs is None or isinstance(pairs, str | Path):
        source = source or ("those of pessimal" if pairs is None else Path(pairs).name)
        pairs = labelled_pairs(None if pairs is None else str(pairs), n=None)
    published = published_rewards(pairs)
    asked = [model for model in several if not (isinstance(model, str) and model in published)]
    rewards = [_open(model, store, cache, options) for model in asked]
    names = [*published, *(model.name for model in rewards)]
    if not names:
        raise ConfigError("no model is given, and no pair has scores: type models=[NAME]")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two models are called {twice[0]!r}: leave one out, or rename it")
    key = None
    if store is not None:
        scores = {model: values.tolist() for model, values in published.items()}
        versions = [[reward.name, of_model(reward)] for reward in rewards]
        decisive = [name, __version__, pairs_digest(pairs), scores, versions, confidence]
        key = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
        if finished := store.find("comparison", key):
            log.info("this is compared already: %s (force=true compares again)", finished[0])
            return Results(folder=finished[0])
        every = [reward_inputs(store.registry, model)[0] for model in rewards]
        inputs += [reference for references in every for reference in references]
    tables = [pair_frame(scores, pairs, model=model) for model, scores in published.items()]
    texts = [pair.conversation(text) for pair in pairs[:8] for text in pair.responses]
    with (
        publishing(store, name=f"compare {name}", inputs=inputs, progress=progress) as publish,
        counted("labelled pairs", unit="responses", bar=progress) as counter,
    ):
        for model in rewards:
            counter.begin(model.name, total=2 * len(pairs))
            place, kept = device or device_of(model), Path(keep) if keep else None
            scorers = Scorers(texts, place, batch_size, kept, counter)
            # No name holds a scorer: the next model is loaded once this one is freed.
            tables.append(
                score_pairs(scorers.make_scorer(model, sample=16)[1], pairs, model=model.name)
            )
        results = accuracy_results(tables, pairs, source=source, confidence=confidence)
        summary = {
            figure: n for figure, n in results[0].summary.items() if figure.endswith(f"/{ALL}")
        }
        counts = {"models": len(names), "pairs": len(pairs), "source": source}
        labels = {model.name: model.description.label or model.name for model in rewards}
        return publish(
            Artifact("comparison", name, key, inputs, {**counts, **summary}, labels), results
        )


def _open(model: Any, store: Store | None, cache: str, options: Mapping[str, Any]) -> Reward:
    """A reward of what is typed for it, which a store may know."""
    if store is not None and isinstance(model, str) and not options:
        return open_reward(registered_spec(store.registry, model), cache=cache)
    return to_reward(model, **options)
