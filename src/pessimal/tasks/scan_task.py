"""`pessimal scan`: one model, every candidate, every prompt; a score table each, published as soon as it is whole."""

import functools
import logging
from pathlib import Path

import pytorch_lightning as pl
import torch

from pessimal.analysis.extremes import extremes
from pessimal.config.schema import ScanConfig, TrainerSpec
from pessimal.errors import ConfigError
from pessimal.models.frame import find_frame
from pessimal.models.load import RewardModel, open_model
from pessimal.scoring.candidates import Candidates, items, vocabulary
from pessimal.scoring.mode import Mode
from pessimal.scoring.scan import ScanSettings, forget_work, identify, scan
from pessimal.tables import ScoreIdentity, ScoreTable, read_score_table
from pessimal.tasks.common import fetch, publish_table, quiet_libraries, registry_of, tracked
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest, Registry, safe_name

log = logging.getLogger(__name__)


def run(config: ScanConfig) -> None:
    """Scan `config.model` on every prompt; tables that are finished already are named, not made again."""
    quiet_libraries()
    if config.trainer.threads:
        torch.set_num_threads(config.trainer.threads)
    _check_accelerator(config.trainer)
    registry = registry_of(config)
    listed = _listed(config)
    model = open_model(config.model, fetch(config.model, cache=config.paths.cache, progress=config.progress))
    candidates = listed or vocabulary(model.tokenizer, size=model.embedding_rows)
    todo = _unfinished(config, registry, model, candidates)
    if not todo:
        return
    double_bos = config.mode is Mode.paper
    frames = {i.prompt: find_frame(model.tokenizer, i.prompt_text, double_bos=double_bos) for i in todo}

    work = Path(config.paths.cache) / "scans"
    settings = ScanSettings(batch_size=config.batch_size, certain=config.certain, progress=config.progress)
    network = model.network()
    with tracked(config, name=f"scan {model.name}") as mirror:
        for identity in todo:
            if config.force:
                forget_work(work, identity)
            table = scan(
                model,
                network,
                identity,
                candidates,
                frames[identity.prompt],
                settings=settings,
                work=work,
                trainer=functools.partial(_trainer, config.trainer, root=config.paths.cache),
            )
            figures = _figures(table)
            folder, manifest = publish_table(config, registry, table, run_id=mirror.run_id, summary=figures)
            forget_work(work, identity)
            _tell(mirror, table, figures, folder, manifest)
            log.info("%s", folder / "scores.parquet")


def _check_accelerator(spec: TrainerSpec) -> None:
    here = {"cpu", "auto"} | ({"gpu", "cuda"} if torch.cuda.is_available() else set())
    if torch.backends.mps.is_available():
        here |= {"gpu", "mps"}
    if spec.accelerator not in here:
        raise ConfigError(
            f"trainer.accelerator={spec.accelerator!r}, but this machine has: {', '.join(sorted(here))}; type trainer=cpu"
        )


def _listed(config: ScanConfig) -> Candidates | None:
    """The list of items, read before any model is fetched; None for the vocabulary, which the model brings."""
    if config.candidates.name == "vocabulary":
        return None
    return items(Path(config.candidates.path).expanduser(), name=config.candidates.name)


def _unfinished(
    config: ScanConfig, registry: Registry, model: RewardModel, candidates: Candidates
) -> list[ScoreIdentity]:
    """What is still to be scanned; says what is finished, and refuses a name that stands for another model."""
    newest = {manifest.name: (folder, manifest) for folder, manifest in registry.latest("score-table")}
    todo = []
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
            continue
        if name in newest and not config.force:
            other = read_score_table(newest[name][0]).identity
            if other.weights_digest != identity.weights_digest:
                raise ConfigError(
                    f"{model.name!r} stands for other weights in this registry ({newest[name][0]}). Name this model: "
                    f"model.name={model.name}-2; or, if it is the same one trained on, make a new version: force=true"
                )
        todo.append(identity)
    return todo


def _trainer(spec: TrainerSpec, callbacks, *, root: str) -> pl.Trainer:
    return pl.Trainer(
        accelerator=spec.accelerator,
        devices=1,
        callbacks=callbacks,
        default_root_dir=root,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=True,
    )


def _figures(table: ScoreTable) -> dict:
    """What a list of runs should show for one prompt."""
    rows = table.rows
    return {
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
