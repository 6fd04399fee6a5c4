"""`pessimal import format=pairs`: pairs of answers with the rewards that models have given them."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pessimal.config.schema import ImportConfig
from pessimal.errors import InputError
from pessimal.explaining.pairs import PARQUET, UNKNOWN, pairs_digest, scored_rows
from pessimal.tables.comparisons import Comparison, load
from pessimal.verbs.common import store_of
from pessimal.verbs.publish import print_path, show

log = logging.getLogger(__name__)


def import_pairs(config: ImportConfig, files: Sequence[Path]) -> None:
    """Publish the pairs of the files, each once, with every model's rewards: a `scored-pairs`
    artifact, unless the same is there."""
    pairs: dict[object, Comparison] = {}
    for file in files:
        for pair in _read_scored(file, config.model_name):
            identity = pair.turns, frozenset(pair.responses)
            pairs[identity] = _join_scores(pairs.get(identity), pair, file)
    table = scored_rows(list(pairs.values()))
    models = [name.removesuffix(":a") for name in table if name.endswith(":a")]
    name = config.set or files[0].name.split(".")[0]
    content = table.to_json(orient="records")
    key = hashlib.sha256(f"{pairs_digest(list(pairs.values()))}{content}".encode()).hexdigest()
    store = store_of(config)
    if published := store.find("scored-pairs", key):
        log.info("this was imported before: %s (force=true imports it again)", published[0])
        print_path(published[0])
        return
    summary = {"pairs": len(pairs), "models": len(models), "source": files[0].name}
    with store.track(name="import pairs") as mirror:
        folder, manifest = mirror.publish(
            store.registry,
            "scored-pairs",
            name,
            lambda staging: table.to_parquet(staging / PARQUET, index=False),
            key=key,
            summary=summary,
        )
        mirror.summary(summary)
    show(f"{len(pairs):,} pairs with the rewards of {', '.join(models)}")
    show(f"To compare: pessimal compare pairs=scored-pairs/{manifest.name}")
    print_path(folder)


def _read_scored(file: Path, model: str | None) -> list[Comparison]:
    """The pairs of a file, the scores of its one model under the name `model` where that is given.

    Raises:
        InputError: no row has scores, or those of several models are given one name.
    """
    pairs = list(load("jsonl", path=file, option="path").comparisons)
    models = {name for pair in pairs for name in pair.scores}
    if not models:
        raise InputError(
            f'{file}: no row has scores. A row has prompt, responses, preferred and "scores": '
            '{"MODEL": [a, b]}; or columns MODEL:a and MODEL:b; or scores_chosen and '
            "scores_rejected; or JudgeBench's judgments with scores"
        )
    if model is None:
        return pairs
    if len(models) > 1:
        raise InputError(
            f"model={model} is said of one model, and {file} has scores of {len(models)}: "
            f"{', '.join(sorted(models))[:200]}. Leave model out"
        )
    (only,) = models
    return [replace(pair, scores={model: pair.scores.get(only, UNKNOWN)}) for pair in pairs]


def _join_scores(before: Comparison | None, pair: Comparison, file: Path) -> Comparison:
    """A pair with the scores of an earlier file as well. InputError where both have one model's."""
    if before is None:
        return pair
    if twice := sorted(before.scores.keys() & pair.scores.keys()):
        raise InputError(
            f"{file}: the scores of {twice[0]!r} were in an earlier file. Leave one out"
        )
    swapped = before.responses != pair.responses
    scores = {
        model: (second, first) if swapped else (first, second)
        for model, (first, second) in pair.scores.items()
    }
    return replace(before, scores={**before.scores, **scores})
