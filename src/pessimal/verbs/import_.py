"""`pessimal import`: published score files into score tables, so that real models can be compared
without a GPU."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pessimal.api.store import publish_table
from pessimal.catalogue import hub_entries
from pessimal.config.schema import ImportConfig, ImportFormat
from pessimal.conversation import plain_text, prompt_of
from pessimal.errors import ConfigError, InputError
from pessimal.explaining.pairs import PARQUET, UNKNOWN, pairs_digest, scored_rows
from pessimal.progress import steps
from pessimal.tables import ModelDescription, ScoreTable
from pessimal.tables.comparisons import SUFFIXES, Comparison, load
from pessimal.tables.published import (
    ACROSS,
    REWARDS,
    Facts,
    read_checkpoints,
    read_eloeverything,
    read_factorial54,
    read_vocabulary,
)
from pessimal.tables.score_table import read_provenance
from pessimal.tables.word_lists import read_terms
from pessimal.texts import safe_name
from pessimal.tracking.registry import Registry
from pessimal.verbs.common import print_path, show, store_of

log = logging.getLogger(__name__)

PATTERNS = {
    ImportFormat.eloeverything: ("*.csv",),
    ImportFormat.factorial54: ("*.parquet", f"*{REWARDS}*.csv"),
    ImportFormat.vocabulary: ("*.csv",),
    ImportFormat.checkpoints: (f"*{ACROSS}*.parquet", f"*{ACROSS}*.csv"),
    ImportFormat.pairs: tuple(f"*{suffix}" for suffix in SUFFIXES),
}
"""Patterns of the files of a format. Of two that differ in the ending alone, the first is
read."""

READERS: dict[ImportFormat, Callable[..., list[ScoreTable]]] = {
    ImportFormat.eloeverything: read_eloeverything,
    ImportFormat.factorial54: read_factorial54,
    ImportFormat.vocabulary: read_vocabulary,
    ImportFormat.checkpoints: read_checkpoints,
}


def run(config: ImportConfig) -> None:
    """Read the files that `path` names; publish one score table for each (model, prompt) that is
    not there yet, or pairs of answers with their rewards."""
    assert config.format is not None  # checked by the configuration
    files = _files(config, config.format)
    if config.format is ImportFormat.pairs:
        return import_pairs(config, files)
    typed = {"prompt": config.prompt, "model": config.model_name, "items": config.set}
    options: dict[str, Any] = {name: value for name, value in typed.items() if value is not None}
    options["facts"], read = _facts(config), list[ScoreTable]()
    with steps(f"reading {len(files)} files", len(files), bar=config.progress) as step:
        for file in files:
            step(file.name)
            read += READERS[config.format](file, **options)
    tables, store = _distinct(read), store_of(config)
    registry = store.registry
    published = [] if config.force else registry.manifests("score-table")
    keys = {manifest.key for _, manifest in published}
    new = [table for table in tables if table.provenance.key() not in keys]
    if (old := len(tables) - len(new)) > 0:
        message = "%d of %d tables were imported before (force=true imports them again)"
        log.info(message, old, len(tables))
    if not new:
        return print_path(registry.root / "score-table")
    if not config.force:
        _check_supersedes(registry, new)
    if unstated := sorted({t.provenance.prompt for t in new if t.provenance.prompt_text is None}):
        message = "the wording of %s is not stated; to state it: +prompts.%s='the user turn'"
        log.info(message, ", ".join(unstated), unstated[0])
    with (
        store.track(name=f"import {config.format.value}") as mirror,
        steps(f"importing {len(new)} tables", len(new), bar=config.progress) as step,
    ):
        for table in new:
            step(f"{table.provenance.model} on {table.provenance.prompt}")
            publish_table(registry, mirror, table, more={"source": table.provenance.source})
        mirror.summary({"tables": len(new), "rows": sum(len(t.rows) for t in new)})
    show(f"{len(new)} score tables of {len({t.provenance.model for t in new})} models")
    print_path(registry.root / "score-table")


def _files(config: ImportConfig, format: ImportFormat) -> list[Path]:
    """The files that `path` names, each once."""
    patterns, files = PATTERNS[format], dict[Path, None]()
    for path in map(Path, config.path):
        stems = {path.stem: path}
        if path.is_dir():
            stems = {}
            for file in (file for pattern in patterns for file in sorted(path.glob(pattern))):
                if (first := stems.setdefault(file.stem, file)) != file:
                    log.info("%s is left out: %s stands beside it", file.name, first.name)
        if not stems:
            raise InputError(f"path={str(path)!r} holds no files {' or '.join(patterns)}")
        files |= dict.fromkeys(sorted(stems.values()))
    single = {"model": config.model_name}  # several files of checkpoints may be of one prompt
    if format is not ImportFormat.checkpoints:
        single["prompt"] = config.prompt
    if len(files) > 1 and (typed := [(k, v) for k, v in single.items() if v is not None]):
        names = ", ".join(file.name for file in files)[:200]
        option, value = typed[0]
        raise ConfigError(f"{option}={value} is of one file: import them one by one ({names})")
    return list(files)


def _facts(config: ImportConfig) -> Facts:
    names = ("base", "developer", "parameters", "rank", "about")
    models = {
        entry["path"]: ModelDescription(
            label=entry["name"], **{name: entry.get(name) for name in names}
        )
        for entry in hub_entries()
    }
    terms = None
    if config.tokens is not None:
        terms = frozenset(read_terms(Path(config.tokens).expanduser()))
    prompts = {key: plain_text(prompt_of(prompt)) for key, prompt in config.prompts.items()}
    return Facts(prompts, models, config.score and config.score.value, terms)


def _distinct(tables: Sequence[ScoreTable]) -> list[ScoreTable]:
    """The tables, each once.

    Raises:
        InputError: files with the same items would become lists of different names, which `compare`
            would not put side by side; or two different tables have one name.
    """
    lists: dict[str, ScoreTable] = {}
    names: dict[str, ScoreTable] = {}
    for table in tables:
        b = table.provenance
        a = lists.setdefault(b.candidates_digest, table).provenance
        if a.candidates != b.candidates:
            two_lists = f"2 lists, {a.candidates!r} ({a.source}) and {b.candidates!r} ({b.source})"
            raise InputError(f"the same items would become {two_lists}: type set=NAME")
        a = names.setdefault(table.name, table).provenance
        if a.key() != b.key():
            sources = f"{a.source} and {b.source}"
            raise InputError(f"{sources} both hold {table.name}: give one its set= or model=")
    return list(names.values())


def _check_supersedes(registry: Registry, new: Sequence[ScoreTable]) -> None:
    """InputError where a table would take the place of one of other candidates in the registry; of
    the same candidates, only a warning."""
    latest = {manifest.name: folder for folder, manifest in registry.latest("score-table")}
    changed = []
    for table in new:
        if (folder := latest.get(safe_name(table.name))) is None:
            continue
        before = read_provenance(folder)
        if before.candidates_digest != table.provenance.candidates_digest:
            another = "model=NAME" if before.candidates == "vocabulary" else "set=NAME"
            names = f"{folder} has the same name and other candidates"
            raise InputError(f"{names}: type {another} or force=true")
        changed.append(table.name)
    if changed:
        message = "%d tables take the place of others of the same candidates, such as %s"
        log.warning(message, len(changed), changed[0])


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
            *(store.registry, "scored-pairs", name),
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
    models = sorted({name for pair in pairs for name in pair.scores})
    if not models:
        raise InputError(f'{file}: no row has scores, as "scores": {{"MODEL": [a, b]}} or MODEL:a')
    if model is None:
        return pairs
    if len(models) > 1:
        listing = ", ".join(models)[:200]
        raise InputError(f"model={model} is of one model, and {file} has {listing}: leave it out")
    return [replace(pair, scores={model: pair.scores.get(models[0], UNKNOWN)}) for pair in pairs]


def _join_scores(before: Comparison | None, pair: Comparison, file: Path) -> Comparison:
    """A pair with the scores of an earlier file as well. InputError where both have one model's."""
    if before is None:
        return pair
    if twice := sorted(before.scores.keys() & pair.scores.keys()):
        raise InputError(f"{file}: the scores of {twice[0]!r} are in an earlier file. Omit one")
    swapped = before.responses != pair.responses
    scores = {model: (b, a) if swapped else (a, b) for model, (a, b) in pair.scores.items()}
    return replace(before, scores={**before.scores, **scores})
