"""`pessimal import`: published score files into score tables, so that real models can be compared without a GPU."""

import logging
from pathlib import Path

from pessimal.config.schema import ImportConfig, ImportFormat
from pessimal.errors import InputError
from pessimal.tables import ModelDescription, ScoreTable
from pessimal.tables.published import read_eloeverything, read_factorial54, read_vocabulary
from pessimal.verbs.common import publish_table, registry_of, tracked
from pessimal.verbs.progress import steps
from pessimal.verbs.publish import print_path, show

log = logging.getLogger(__name__)

_SUFFIX = {
    ImportFormat.factorial54: ".parquet",
    ImportFormat.vocabulary: ".csv",
    ImportFormat.eloeverything: ".csv",
}


def run(config: ImportConfig) -> None:
    """Read the files that `path` names; publish one score table for each (model, prompt) that is not there yet."""
    files, tables = _files(config), []
    with steps(f"reading {len(files)} files", len(files)) as step:
        for file in files:
            step(file.name)
            tables += _read(config, file)
    registry = registry_of(config)
    known = set() if config.force else {manifest.key for _, manifest in registry.manifests("score-table")}
    new = [table for table in tables if table.provenance.key() not in known]
    if len(new) < len(tables):
        log.info(
            "%d of %d tables were imported before (force=true imports them again)",
            len(tables) - len(new),
            len(tables),
        )
    if not new:
        print_path(registry.root / "score-table")
        return
    with (
        tracked(config, name=f"import {config.format.value}") as mirror,
        steps(f"importing {len(new)} tables", len(new)) as step,
    ):
        for table in new:
            step(f"{table.provenance.model} on {table.provenance.prompt}")
            folder, manifest = publish_table(config, registry, table, run_id=mirror.run_id)
            mirror.artifact(folder, manifest, manifest.summary | {"source": table.provenance.source})
        mirror.summary({"tables": len(new), "rows": sum(len(t.rows) for t in new)})
    show(f"{len(new)} score tables of {len({t.provenance.model for t in new})} models")
    print_path(registry.root / "score-table")


def _files(config: ImportConfig) -> list[Path]:
    files = []
    for path in map(Path, config.path):
        found = sorted(path.glob(f"*{_SUFFIX[config.format]}")) if path.is_dir() else [path]
        if not found:
            raise InputError(
                f"path={str(path)!r} holds no {_SUFFIX[config.format]} files; format={config.format.value} needs one"
            )
        files += found
    return files


def _read(config: ImportConfig, file: Path) -> list[ScoreTable]:
    models = {
        spec.path: ModelDescription(
            base=spec.base,
            developer=spec.developer,
            parameters=spec.parameters,
            rank=spec.rank,
            label=spec.name,
        )
        for spec in config.published.values()
    }
    if config.format is ImportFormat.eloeverything:
        prompt = config.prompt or "greatest"
        if prompt not in config.prompts:
            log.info(
                "the wording of %s is not stated; to state it: +prompts.%s='the user turn'", prompt, prompt
            )
        return read_eloeverything(file, prompt=prompt, prompts=config.prompts, models=models)
    if config.format is ImportFormat.factorial54:
        return read_factorial54(file, prompts=config.prompts, models=models)
    return read_vocabulary(file, model=config.model_name, prompts=config.prompts, models=models)
