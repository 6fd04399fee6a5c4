"""`pessimal scan`: one model, every candidate, every prompt; a score table each, published as soon as it is whole."""

import functools
import logging
from pathlib import Path

import pytorch_lightning as pl
import torch

from pessimal.analysis.extremes import extremes
from pessimal.config.schema import ScanConfig, TrainerSpec
from pessimal.models.load import open_model
from pessimal.scoring.candidates import Candidates, items, vocabulary
from pessimal.scoring.scan import ScanSettings, forget_work, identify, scan
from pessimal.tables import ScoreTable, write_score_table
from pessimal.tasks.common import config_hash, fetch, quiet_libraries, registry_of, tracked
from pessimal.tracking.mirror import Mirror

log = logging.getLogger(__name__)


def run(config: ScanConfig) -> None:
    """Scan `config.model` on every prompt; tables that are finished already are named, not made again."""
    quiet_libraries()
    if config.trainer.threads:
        torch.set_num_threads(config.trainer.threads)
    registry = registry_of(config)
    model = open_model(config.model, fetch(config.model, cache=config.paths.cache, progress=config.progress))
    candidates = _candidates(config, model)
    identities = {
        key: identify(model, prompt=key, prompt_text=text, candidates=candidates, mode=config.mode)
        for key, text in config.prompts.items()
    }
    todo = dict(identities)
    for key, identity in identities.items():
        found = registry.find("score-table", identity.key())
        if found and not config.force:
            log.info("%s on %s is scanned already: %s (force=true scans it again)", model.name, key, found[0])
            del todo[key]
    if not todo:
        return

    work = Path(config.paths.cache) / "scans"
    settings = ScanSettings(
        batch_size=config.batch_size, certain=config.certain, seed=config.seed, progress=config.progress
    )
    network = model.network()
    with tracked(config, name=f"scan {model.name}") as mirror:
        for identity in todo.values():
            if config.force:
                forget_work(work, identity)
            table = scan(
                model,
                network,
                identity,
                candidates,
                settings=settings,
                work=work,
                trainer=functools.partial(_trainer, config.trainer, root=config.paths.cache),
            )
            folder, manifest = registry.publish(
                "score-table",
                table.name,
                lambda staging, table=table: write_score_table(table, staging / "scores.parquet"),
                key=identity.key(),
                config_hash=config_hash(config),
                run_id=mirror.run_id,
                summary=_summary(table),
            )
            forget_work(work, identity)
            _tell(mirror, table, folder, manifest)
            log.info("%s", folder / "scores.parquet")


def _candidates(config: ScanConfig, model) -> Candidates:
    if config.candidates.name == "vocabulary":
        return vocabulary(model.tokenizer, size=model.embedding_rows)
    return items(Path(config.candidates.path).expanduser(), name=config.candidates.name)


def _trainer(spec: TrainerSpec, callbacks, *, root: str) -> pl.Trainer:
    return pl.Trainer(
        accelerator=spec.accelerator,
        devices=spec.devices,
        strategy=spec.strategy,
        num_nodes=spec.num_nodes,
        callbacks=callbacks,
        default_root_dir=root,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=True,
    )


def _summary(table: ScoreTable) -> dict:
    """The figures a list of runs should show for one prompt."""
    rows = table.rows
    return {
        "model": table.identity.model,
        "prompt": table.identity.prompt,
        "n": len(rows),
        "optimal": rows.loc[rows["reward"].idxmax(), "text"],
        "pessimal": rows.loc[rows["reward"].idxmin(), "text"],
        "mean": float(rows["reward"].mean()),
        "standard_deviation": float(rows["reward"].std(ddof=0)),
        "certified_share": float(rows["certified"].mean()),
        "survives_share": None if rows["survives"].isna().all() else float(rows["survives"].mean()),
        "trust_largest_difference": (table.measured["trust"] or {}).get("largest_difference"),
    }


def _tell(mirror: Mirror, table: ScoreTable, folder: Path, manifest) -> None:
    prompt = table.identity.prompt
    mirror.summary(
        {
            f"{prompt}/{name}": value
            for name, value in _summary(table).items()
            if name not in ("model", "prompt")
        }
    )
    mirror.table(f"{prompt}/extremes", extremes(table.rows, k=20))
    mirror.artifact(
        folder,
        manifest,
        {"model": table.identity.model, "prompt": prompt, "mode": table.identity.mode, "key": manifest.key}
        | table.measured,
    )
