"""`pessimal scan`: one model, every candidate, every prompt; a score table each, published as soon as it is whole."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from pessimal.analysis.extremes import extremes
from pessimal.config.schema import ScanConfig
from pessimal.errors import ConfigError
from pessimal.models.load import RewardModel, open_model
from pessimal.models.spec import Score
from pessimal.scoring.candidates import Candidates, items, vocabulary
from pessimal.scoring.language_model import answers_of, context_of, scan_language_model
from pessimal.scoring.mode import Mode
from pessimal.scoring.passes import Loop, wait_for_all
from pessimal.scoring.scan import claimed, forget_work, identify, scan
from pessimal.tables import ScoreIdentity, ScoreTable, read_score_table
from pessimal.tables.score_table import LOG_PROBABILITY, read_identity
from pessimal.tasks.common import fetch, publish_table, quiet_libraries, registry_of, tracked
from pessimal.tasks.trainer import begin_process, is_first_process, make_trainer
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest, Registry, safe_name

log = logging.getLogger(__name__)


def run(config: ScanConfig) -> None:
    """Scan `config.model` on every prompt; tables that are finished already are named, not made again.

    Where there are several processes, each runs this: all score, the first publishes.
    """
    quiet_libraries()
    first = begin_process(config.trainer)
    registry = registry_of(config)
    listed = _listed(config)
    model = open_model(config.model, fetch(config.model, cache=config.paths.cache, progress=config.progress))
    candidates = listed or vocabulary(model.tokenizer, size=model.embedding_rows)
    if first and not listed:
        _tell_what_has_no_row(model)
    work = Path(config.paths.cache) / "scans"
    todo, before = _unfinished(config, registry, model, candidates, work)
    with contextlib.ExitStack() as claims:
        if first:
            for identity in todo:
                claims.enter_context(claimed(work, identity))
            # What another command has published since is not scanned again.
            todo = [i for i in todo if config.force or not registry.find("score-table", i.key())]
        if todo:
            _scan_all(config, registry, model, candidates, todo, before=before, work=work, first=first)


def _scan_all(
    config: ScanConfig,
    registry: Registry,
    model: RewardModel,
    candidates: Candidates,
    todo: list[ScoreIdentity],
    *,
    before: Path | None,
    work: Path,
    first: bool,
) -> None:
    """Scan what is to be done, one prompt after the other; the `first` process publishes. `before` is the last table
    that was finished already."""
    begin = _language_model if model.spec.score is Score.log_probability else _reward_model
    ask = begin(config, model, candidates, todo, work=work)
    with tracked(config, name=f"scan {model.name}", first=first) as mirror:
        survivors = _survivors(read_score_table(before)) if before else None
        for identity in todo:
            table = ask(identity, survivors)
            survivors = _survivors(table)
            if first:
                figures = _figures(table)
                folder, manifest = publish_table(
                    config, registry, table, run_id=mirror.run_id, summary=figures
                )
                _tell(mirror, table, figures, folder, manifest)
                log.info("%s", folder / "scores.parquet")
            wait_for_all()
            if first:
                forget_work(work, identity)


Ask = Callable[[ScoreIdentity, np.ndarray | None], ScoreTable]
"""Scores what an identity says, given which tokens survived in another prompt's frame (or None)."""


def _reward_model(
    config: ScanConfig,
    model: RewardModel,
    candidates: Candidates,
    todo: list[ScoreIdentity],
    *,
    work: Path,
) -> Ask:
    """Find every prompt's frame, then load the network."""
    double_bos = config.mode is Mode.paper
    frames = {i.prompt: model.frame(i.prompt_text, double_bos=double_bos) for i in todo}
    loop = Loop(
        trainer=make_trainer(config.trainer, root=config.paths.cache),
        batch_size=config.batch_size,
        progress=config.progress,
        ignore_finished=config.force,
    )
    networks = functools.cache(model.network)
    networks(model.spec.dtype)  # a checkpoint that cannot be loaded is told before a run is opened

    def ask(identity: ScoreIdentity, survivors: np.ndarray | None) -> ScoreTable:
        return scan(
            model,
            networks,
            identity,
            candidates,
            frames[identity.prompt],
            work=work,
            loop=loop,
            known_survivors=survivors,
        )

    return ask


def _language_model(
    config: ScanConfig,
    model: RewardModel,
    candidates: Candidates,
    todo: list[ScoreIdentity],
    *,
    work: Path,
) -> Ask:
    """Find every prompt's context, and how items go on from it, then load the network. Nothing of one forward is worth
    keeping under `work`."""
    contexts = {i.prompt: context_of(model, i.prompt_text) for i in todo}
    answers = {prompt: answers_of(model, context, candidates) for prompt, context in contexts.items()}
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    network = model.network()

    def ask(identity: ScoreIdentity, _survivors: np.ndarray | None) -> ScoreTable:
        return scan_language_model(
            model,
            network,
            identity,
            candidates,
            contexts[identity.prompt],
            answers=answers[identity.prompt],
            device=device,
            batch_size=config.batch_size,
        )

    return ask


def _listed(config: ScanConfig) -> Candidates | None:
    """The list of items, read before any model is fetched; None for the vocabulary, which the model brings."""
    if config.candidates.name == "vocabulary":
        return None
    return items(Path(config.candidates.path).expanduser(), name=config.candidates.name)


def _tell_what_has_no_row(model: RewardModel) -> None:
    beyond = {i: token for token, i in model.tokenizer.get_vocab().items() if i >= model.embedding_rows}
    if beyond:
        log.warning(
            "%d tokens of the tokenizer of %s have no row in its embedding of %d, and no score: they are left out (such as %r)",
            len(beyond),
            model.name,
            model.embedding_rows,
            beyond[min(beyond)],
        )


def _unfinished(
    config: ScanConfig, registry: Registry, model: RewardModel, candidates: Candidates, work: Path
) -> tuple[list[ScoreIdentity], Path | None]:
    """What is still to be scanned, and the last finished table before all that; says what is finished, and refuses a
    name that stands for another model."""
    newest = {manifest.name: (folder, manifest) for folder, manifest in registry.latest("score-table")}
    todo, before = [], None
    for key, text in config.prompts.items():
        identity = identify(
            model,
            prompt=key,
            prompt_text=text,
            candidates=candidates,
            mode=config.mode,
            certain=config.certain,
        )
        name = safe_name(identity.name)
        found = registry.find("score-table", identity.key())
        if found and not config.force:
            log.info("%s on %s is scanned already: %s (force=true scans it again)", model.name, key, found[0])
            if newest[name][1].version != found[1].version:
                log.warning(
                    "%s is newer and of other content: `compare` takes that one. Name this one to compare it: tables=%s",
                    newest[name][0],
                    found[0],
                )
            if is_first_process():
                forget_work(work, identity, published=found[0])
            before = before if todo else found[0]
            continue
        todo.append(identity)
    if todo and not config.force:
        _check_name(model, todo, newest.values())
    return todo, before


def _check_name(
    model: RewardModel, todo: Sequence[ScoreIdentity], newest: Iterable[tuple[Path, Manifest]]
) -> None:
    """ConfigError where the newest scan of another prompt, precision, mode or candidate set under the model's name, or
    whatever is published under a name that is to be given, is of another model: a comparison would mix the two."""
    names = {safe_name(identity.name) for identity in todo}
    mine = todo[0]
    for folder, manifest in newest:
        if manifest.name not in names and manifest.summary.get("model") != model.name:
            continue
        other = read_identity(folder)
        # Imported scores carry the digest of their file in place of the weights'.
        comparable = manifest.name in names or (other.source == "scan" and other.score == mine.score)
        same = (other.weights_digest, other.config_digest) == (mine.weights_digest, mine.config_digest)
        if comparable and not same:
            raise ConfigError(
                f"{model.name!r} stands for other weights, or another configuration, in this registry ({folder}). Name this "
                f"model: model.name={model.name}-2; or, if it is the same one trained on, make a new version: force=true"
            )


def _survivors(table: ScoreTable) -> np.ndarray | None:
    """Which tokens survived (n,), for the next prompt; a scan that was killed goes on with the last finished table's,
    as if it had not been killed. None for items."""
    survives = table.rows["survives"]
    return None if survives.isna().any() else survives.to_numpy(dtype=bool)


def _figures(table: ScoreTable) -> dict:
    """What a list of runs should show for one prompt."""
    rows = table.rows
    kind = {"score": LOG_PROBABILITY} if table.identity.score == LOG_PROBABILITY else {}
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


def _tell(mirror: Mirror, table: ScoreTable, figures: dict, folder: Path, manifest: Manifest) -> None:
    prompt = table.identity.prompt
    mirror.summary({f"{prompt}/{name}": value for name, value in figures.items()})
    mirror.table(f"{prompt}/extremes", extremes(table.rows, k=20))
    mirror.artifact(
        folder,
        manifest,
        {"model": table.identity.model, "prompt": prompt, "mode": table.identity.mode, "key": manifest.key}
        | table.measured,
    )
