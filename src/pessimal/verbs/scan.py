"""`pessimal scan`: one model, every candidate, every prompt; a score table each, published as soon
as it is whole."""

import contextlib
import functools
import logging
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from pessimal.catalogue import run_of
from pessimal.config.schema import ScanConfig
from pessimal.errors import ConfigError
from pessimal.rewards.base import Reward, TextReward
from pessimal.rewards.load import open_model
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import Candidates, items, listed, rows_of, vocabulary
from pessimal.scoring.loop import Loop, wait_for_all
from pessimal.scoring.scan import forget_work, identify, locked, scan, scan_texts
from pessimal.tables import ScoreProvenance, ScoreTable, read_score_table
from pessimal.tables.extremes import extremes
from pessimal.tables.score_table import LOG_PROBABILITY, read_provenance
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest, Registry, safe_name
from pessimal.verbs.common import (
    fetch,
    model_inputs,
    publish_table,
    quiet_libraries,
    registry_of,
    tracked,
)
from pessimal.verbs.scan_table import print_extremes, print_tables
from pessimal.verbs.trainer import begin_process, is_first_process, make_trainer

log = logging.getLogger(__name__)


def run(config: ScanConfig) -> None:
    """Scan `config.model` on every prompt; tables that are finished already are named, not made
    again.

    Where there are several processes, each runs this: all score, the first publishes.
    """
    quiet_libraries()
    first = begin_process(config.trainer)
    registry = registry_of(config)
    given = _listed(config)
    model = open_model(
        config.model, fetch(config.model, cache=config.paths.cache, progress=config.progress)
    )
    candidates = given or vocabulary(model.tokenizer, size=rows_of(model))
    if first and not given:
        _report_rows_without_token(model)
    work = Path(config.paths.cache) / "scans"
    keys, todo, before = _unfinished(config, registry, model, candidates, work)
    with contextlib.ExitStack() as locks:
        if first:
            for provenance in todo:
                locks.enter_context(locked(work, provenance))
            # What another command has published since is not scanned again.
            todo = [i for i in todo if config.force or not registry.find("score-table", i.key())]
        if todo:
            _scan_all(
                config, registry, model, candidates, todo, before=before, work=work, first=first
            )
    if first:
        folders = [found[0] for key in keys if (found := registry.find("score-table", key))]
        print_extremes(model.name, folders)
        print_tables(registry, folders)


def _scan_all(
    config: ScanConfig,
    registry: Registry,
    model: Reward,
    candidates: Candidates,
    todo: list[ScoreProvenance],
    *,
    before: Path | None,
    work: Path,
    first: bool,
) -> None:
    """Scan what is to be done, one prompt after the other; the `first` process publishes. `before`
    is the last table that was finished already."""
    live = LiveScan()
    ask = _ask(config, model, candidates, todo, work=work, live=live)
    inputs, source = model_inputs(registry, model)
    with tracked(config, name=f"scan {model.name}", inputs=inputs, first=first) as mirror:
        live.mirror = mirror
        round_trips = _round_trips(read_score_table(before)) if before else None
        for provenance in todo:
            begun = time.monotonic()
            table = ask(provenance, round_trips)
            round_trips = _round_trips(table)
            if first:
                live.finish(len(table.rows), time.monotonic() - begun)
                figures = _figures(table)
                folder, manifest = publish_table(
                    config,
                    registry,
                    table,
                    run_id=mirror.run_id,
                    inputs=inputs,
                    summary=figures | source,
                )
                _report(mirror, table, figures, folder, manifest)
                log.debug("%s", folder / "scores.parquet")
            wait_for_all()
            if first:
                forget_work(work, provenance)


class LiveScan:
    """Sends to W&B how fast a scan is, while it lasts: `scan/*` against the candidates scored so
    far, of all prompts."""

    def __init__(self):
        self.mirror = Mirror()
        self.before, self.done = 0, 0
        """Candidates scored in passes that have ended, and in this one."""

    def report(self, done: int, rate: float, batch_size: int) -> None:
        """So many candidates of this pass are scored, so many a second."""
        if done < self.done:
            self.before, self.done = self.before + self.done, 0
        self.done = done
        self._send({"scan/candidates_per_second": rate, "scan/batch_size": batch_size})

    def finish(self, n: int, seconds: float) -> None:
        """A prompt's n candidates took so many seconds, checks and second passes included."""
        self.before, self.done = self.before + (self.done or n), 0
        self._send({"scan/seconds": seconds})

    def _send(self, values: dict[str, float]) -> None:
        self.mirror.metrics(
            {"scan/candidates": self.before + self.done, "scan/memory_gb": _memory_gb(), **values}
        )


def _memory_gb() -> float:
    """The most memory that this process has had: on its card where it has one, else on the
    machine."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


Ask = Callable[[ScoreProvenance, np.ndarray | None], ScoreTable]
"""Scores what a provenance says, given which tokens make the round trip in another prompt's frame
(or None)."""


def _ask(
    config: ScanConfig,
    model: Reward,
    candidates: Candidates,
    todo: list[ScoreProvenance],
    *,
    work: Path,
    live: LiveScan,
) -> Ask:
    """Find what stands around the answers to every prompt, then load the network: what cannot be
    asked or loaded fails before a run is opened."""
    if isinstance(model, TextReward):
        return lambda i, _known: scan_texts(
            model,
            i,
            candidates,
            work=work,
            progress=config.progress,
            report=live.report,
            again=config.force,
        )
    double = config.mode is Mode.paper
    frames = {
        i.prompt: [
            part.conversations.frame(i.prompt_text, double_bos=double) for part in model.parts
        ]
        for i in todo
    }
    if (
        not candidates.is_vocabulary
    ):  # an item that cannot be asked is named now: a list is read in no time
        for i in todo:
            model.parts[0].conversations.ids(
                i.prompt_text, candidates.rows["text"].tolist(), double_bos=double
            )
    trainer = make_trainer(config.trainer, root=config.paths.cache)
    loop = Loop(
        trainer=trainer,
        batch_size=config.batch_size,
        progress=config.progress,
        find_threads=config.trainer.threads is None,
        ignore_finished=config.force,
        report=live.report,
    )
    networks = functools.cache(model.network)
    for which in sorted({part.network for part in model.parts}):
        networks(model.spec.dtype, which)
    return lambda i, known: scan(
        model,
        networks,
        i,
        candidates,
        frames[i.prompt],
        work=work,
        loop=loop,
        known_round_trips=known,
    )


def _listed(config: ScanConfig) -> Candidates | None:
    """The list of items, read before any model is fetched; None for the vocabulary, which the model
    brings."""
    if config.candidates.name == "vocabulary":
        return None
    spec = config.candidates
    if spec.texts:
        return listed(spec.texts, name=spec.name, where=f"candidates={spec.name}")
    return items(Path(spec.path).expanduser(), name=spec.name)


def _report_rows_without_token(model: Reward) -> None:
    rows = rows_of(model)
    beyond = {i: token for token, i in model.tokenizer.get_vocab().items() if i >= rows}
    if beyond:
        log.warning(
            "%d tokens of the tokenizer of %s have no row in its embedding of %d, and no score: "
            "they are left out (such as %r)",
            len(beyond),
            model.name,
            rows,
            beyond[min(beyond)],
        )


def _unfinished(
    config: ScanConfig, registry: Registry, model: Reward, candidates: Candidates, work: Path
) -> tuple[list[str], list[ScoreProvenance], Path | None]:
    """The keys of all tables that are asked for; what is still to be scanned, and the last finished
    table before all that. Says what is finished, and refuses a name that stands for another
    model."""
    newest = {
        manifest.name: (folder, manifest) for folder, manifest in registry.latest("score-table")
    }
    keys, todo, finished, before = [], [], [], None
    for key, text in config.prompts.items():
        provenance = identify(
            model,
            prompt=key,
            prompt_text=text,
            candidates=candidates,
            mode=config.mode,
            certain=config.certain,
        )
        name = safe_name(provenance.name)
        keys.append(provenance.key())
        found = registry.find("score-table", provenance.key())
        if found and not config.force:
            finished.append(key)
            if newest[name][1].version != found[1].version:
                log.warning(
                    "%s is newer and of other content: `compare` takes that one. Name this one to "
                    "compare it: tables=%s",
                    newest[name][0],
                    found[0],
                )
            if is_first_process():
                forget_work(work, provenance, published=found[0])
            before = before if todo else found[0]
            continue
        todo.append(provenance)
    if finished and is_first_process():
        log.info(
            "%s is scanned already on %s (force=true scans again)", model.name, ", ".join(finished)
        )
    if todo and not config.force:
        _check_name(model, todo, newest.values())
    return keys, todo, before


def _check_name(
    model: Reward, todo: Sequence[ScoreProvenance], newest: Iterable[tuple[Path, Manifest]]
) -> None:
    """ConfigError where the newest scan of another prompt, precision, mode or candidate set under
    the model's name, or whatever is published under a name that is to be given, is of another
    model: a comparison would mix the two."""
    names = {safe_name(provenance.name) for provenance in todo}
    mine = todo[0]
    for folder, manifest in newest:
        if manifest.name not in names and manifest.summary.get("model") != model.name:
            continue
        other = read_provenance(folder)
        # Imported scores carry the digest of their file in place of the weights'.
        comparable = manifest.name in names or (
            other.source == "scan" and other.score == mine.score
        )
        same = _what_scored(other) == _what_scored(mine)
        if comparable and not same:
            raise ConfigError(
                f"{model.name!r} stands for other weights, or another configuration, in this "
                f"registry ({folder}). Name this "
                f"model: model.name={run_of(model.name)}-2; or, if it is the same one trained on, "
                f"make a new version: force=true"
            )


def _what_scored(provenance: ScoreProvenance) -> tuple:
    """Which model's scores a table holds."""
    return provenance.weights_digest, provenance.config_digest, provenance.kind


def _round_trips(table: ScoreTable) -> np.ndarray | None:
    """Which tokens make the round trip (n,), for the next prompt; a scan that was killed goes on
    with the last finished table's, as if it had not been killed. None for items."""
    survives = table.rows["survives"]
    return None if survives.isna().any() else survives.to_numpy(dtype=bool)


def _figures(table: ScoreTable) -> dict:
    """What a list of runs should show for one prompt."""
    rows = table.rows
    kind = {"kind": table.provenance.kind}
    if table.provenance.score == LOG_PROBABILITY:
        kind["score"] = LOG_PROBABILITY
    return kind | {
        "n": len(rows),
        "optimal": rows.loc[rows["reward"].idxmax(), "text"],
        "pessimal": rows.loc[rows["reward"].idxmin(), "text"],
        "mean": float(rows["reward"].mean()),
        "standard_deviation": float(rows["reward"].std(ddof=0)),
        "certified_share": float(rows["certified"].mean()),
        "survives_share": None if rows["survives"].isna().all() else float(rows["survives"].mean()),
        "trust_largest_difference": (table.measured["trust"] or {}).get("largest_difference"),
    }


def _report(
    mirror: Mirror, table: ScoreTable, figures: dict, folder: Path, manifest: Manifest
) -> None:
    prompt = table.provenance.prompt
    mirror.summary({f"{prompt}/{name}": value for name, value in figures.items()})
    mirror.table(f"{prompt}/extremes", extremes(table.rows, k=20))
    mirror.artifact(
        folder,
        manifest,
        {
            "model": table.provenance.model,
            "prompt": prompt,
            "mode": table.provenance.mode,
            "key": manifest.key,
        }
        | table.measured,
    )
