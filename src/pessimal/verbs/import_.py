"""`pessimal import`: published score files into score tables, so that real models can be compared
without a GPU."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

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
    Known,
    read_checkpoints,
    read_eloeverything,
    read_factorial54,
    read_vocabulary,
)
from pessimal.tables.score_table import read_provenance
from pessimal.tables.word_lists import read_terms
from pessimal.texts import safe_name
from pessimal.tracking.registry import Registry
from pessimal.verbs.common import registry_of, store_of, tracked
from pessimal.verbs.printing import print_path, show

log = logging.getLogger(__name__)

PATTERNS = {
    ImportFormat.eloeverything: ("*.csv",),
    ImportFormat.factorial54: ("*.parquet", f"*{REWARDS}*.csv"),
    ImportFormat.vocabulary: ("*.csv",),
    ImportFormat.checkpoints: (f"*{ACROSS}*.parquet", f"*{ACROSS}*.csv"),
    ImportFormat.pairs: tuple(f"*{suffix}" for suffix in SUFFIXES),
}
"""Which files of a folder are of a format. Of two that differ in the ending alone, the first is
read."""


def run(config: ImportConfig) -> None:
    """Read the files that `path` names; publish one score table for each (model, prompt) that is
    not there yet, or pairs of answers with their rewards."""
    if config.format is ImportFormat.pairs:
        from pessimal.verbs.import_ import import_pairs  # torch

        import_pairs(config, _files(config))
        return
    files, known, tables = _files(config), _known(config), []
    with steps(f"reading {len(files)} files", len(files), bar=config.progress) as step:
        for file in files:
            step(file.name)
            tables += _read(config, file, known)
    _check_one_set(config, tables)
    tables = _each_once(tables)
    registry = registry_of(config)
    old = (
        set()
        if config.force
        else {manifest.key for _, manifest in registry.manifests("score-table")}
    )
    new = [table for table in tables if table.provenance.key() not in old]
    if len(new) < len(tables):
        log.info(
            "%d of %d tables were imported before (force=true imports them again)",
            len(tables) - len(new),
            len(tables),
        )
    if not new:
        print_path(registry.root / "score-table")
        return
    _check_supersedes(config, registry, new)
    unstated = sorted({t.provenance.prompt for t in new if t.provenance.prompt_text is None})
    if unstated:
        log.info(
            "the wording of %s is not stated; to state it: +prompts.%s='the user turn'",
            ", ".join(unstated),
            unstated[0],
        )
    with (
        tracked(config, name=f"import {format_of(config).value}") as mirror,
        steps(f"importing {len(new)} tables", len(new), bar=config.progress) as step,
    ):
        for table in new:
            step(f"{table.provenance.model} on {table.provenance.prompt}")
            publish_table(registry, mirror, table, more={"source": table.provenance.source})
        mirror.summary({"tables": len(new), "rows": sum(len(t.rows) for t in new)})
    show(f"{len(new)} score tables of {len({t.provenance.model for t in new})} models")
    print_path(registry.root / "score-table")


def format_of(config: ImportConfig) -> ImportFormat:
    """The layout of the files; the configuration has checked that it is given."""
    assert config.format is not None
    return config.format


def _files(config: ImportConfig) -> list[Path]:
    """The files that `path` names, each once."""
    files: dict[Path, None] = {}
    for path in map(Path, config.path):
        found = [path]
        if path.is_dir():
            by_stem: dict[str, Path] = {}
            for file in (
                file
                for pattern in PATTERNS[format_of(config)]
                for file in sorted(path.glob(pattern))
            ):
                if by_stem.setdefault(file.stem, file) != file:
                    log.info(
                        "%s is left out: %s stands beside it", file.name, by_stem[file.stem].name
                    )
            found = sorted(by_stem.values())
        if not found:
            raise InputError(
                f"path={str(path)!r} holds no files {' or '.join(PATTERNS[format_of(config)])}, as "
                f"format={format_of(config).value} needs"
            )
        files |= dict.fromkeys(found)
    for option, value in (("model", config.model_name), ("prompt", config.prompt)):
        if (
            value is not None
            and len(files) > 1
            and not (option == "prompt" and _has_models(config))
        ):
            raise ConfigError(
                f"{option}={value} is said of one file, and path names {len(files)}: "
                f"{', '.join(f.name for f in files)[:200]}. Import them one by one"
            )
    return list(files)


def _has_models(config: ImportConfig) -> bool:
    """Whether several files of one prompt can be of several models."""
    return config.format is ImportFormat.checkpoints


def _known(config: ImportConfig) -> Known:
    models = {
        entry["path"]: ModelDescription(
            base=entry.get("base"),
            developer=entry.get("developer"),
            parameters=entry.get("parameters"),
            rank=entry.get("rank"),
            label=entry["name"],
            about=entry.get("about"),
        )
        for entry in hub_entries()
    }
    tokens = (
        None if config.tokens is None else frozenset(read_terms(Path(config.tokens).expanduser()))
    )
    prompts = {key: plain_text(prompt_of(one)) for key, one in config.prompts.items()}
    return Known(prompts, models, config.score and config.score.value, tokens)


def _read(config: ImportConfig, file: Path, known: Known) -> list[ScoreTable]:
    if config.format is ImportFormat.eloeverything:
        return read_eloeverything(file, prompt=config.prompt, known=known, items=config.set)
    if config.format is ImportFormat.factorial54:
        return read_factorial54(file, known=known, model=config.model_name, items=config.set)
    if config.format is ImportFormat.checkpoints:
        return read_checkpoints(file, prompt=config.prompt, known=known, model=config.model_name)
    return read_vocabulary(file, known=known, model=config.model_name)


def _check_one_set(config: ImportConfig, tables: Sequence[ScoreTable]) -> None:
    """InputError where files that hold the same items would become lists of different names:
    `compare` would not put them side by side."""
    names: dict[str, dict[str, str]] = {}
    for provenance in (table.provenance for table in tables):
        names.setdefault(provenance.candidates_digest, {}).setdefault(
            provenance.candidates, provenance.source
        )
    for by_name in names.values():
        if len(by_name) > 1:
            which = " and ".join(f"{name!r} ({file})" for name, file in by_name.items())
            raise InputError(
                f"files with the same items would become {len(by_name)} lists, {which}, and not be "
                "compared with one another. Name the list: set=NAME"
            )


def _each_once(tables: Sequence[ScoreTable]) -> list[ScoreTable]:
    """The tables without those that are the same; InputError where two different ones have one
    name."""
    by_name: dict[str, ScoreTable] = {}
    for table in tables:
        first = by_name.setdefault(table.name, table)
        if first.provenance.key() != table.provenance.key():
            raise InputError(
                f"{first.provenance.source} and {table.provenance.source} both hold {table.name}. "
                "Leave one of them out, or import them one by one, each with its set=NAME or "
                "model=NAME"
            )
    return list(by_name.values())


def _check_supersedes(config: ImportConfig, registry: Registry, new: Sequence[ScoreTable]) -> None:
    """InputError where a table would take the place of one of other candidates in the registry; of
    the same candidates, only a warning. `force=true` is leave to do either."""
    latest = {manifest.name: folder for folder, manifest in registry.latest("score-table")}
    changed = []
    for table in new:
        folder = latest.get(safe_name(table.name))
        if folder is None or config.force:
            continue
        before = read_provenance(folder)
        if before.candidates_digest != table.provenance.candidates_digest:
            another = "model=NAME" if before.candidates == "vocabulary" else "set=NAME"
            raise InputError(
                f"{table.provenance.source} would take the place of {folder}, which has the same "
                f"name and other candidates (from {before.source}). Type {another} to give it "
                "another name, or force=true to supersede it"
            )
        changed.append(table.name)
    if changed:
        log.warning(
            "%d tables take the place of others of the same candidates, such as %s",
            len(changed),
            changed[0],
        )


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
        raise InputError(f"{file}: the scores of {twice[0]!r} are in an earlier file. Omit one")
    swapped = before.responses != pair.responses
    scores = {
        model: (second, first) if swapped else (first, second)
        for model, (first, second) in pair.scores.items()
    }
    return replace(before, scores={**before.scores, **scores})
