"""The push: everything in the registry that W&B does not have yet, sent, and asked back of the
server.

A run that a task recorded and never sent is sent as it is, with its configuration, curves and
figures; what no such run has goes in runs made again from the manifests, one for each command that
published, so that W&B's table of runs compares them.
"""

import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pessimal.errors import InputError, WorkError
from pessimal.tracking.client import (
    Target,
    aliases_of,
    as_artifact,
    begin_run,
    clean,
    connect,
    connected,
    find_artifact,
    folder_of,
    link_inputs,
    mirrored_reference,
    recorded_runs,
    settle,
    within,
)
from pessimal.tracking.registry import Manifest, Registry

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

Published = tuple[Path, Manifest]

JOBS = {
    "score-table": "scan",
    "comparison": "compare",
    "search-result": "search",
    "study": "search",
    "explanation": "explain",
    "reward-model": "train",
    "report": "report",
    "conformance": "check",
}
"""The verb that publishes each type; W&B's job type, as a run of the verb itself has it."""
_LOOK_SECONDS = 4.0
"""Between two looks at whether the server is still there while runs are sent."""
PATIENCE = 60.0
"""Seconds that a push may take, besides 10 for each artifact and one for each 100 kB."""


@dataclass(frozen=True)
class Pushed:
    """What came of a push."""

    path: str
    """ENTITY/PROJECT at the server."""
    verdicts: dict[str, str]
    """By reference, from the server after everything was sent: `ok`, or `missing: …` or `mismatch:
    …` with what is wrong and what to do."""
    sent: list[str]
    """References of artifacts that were not there before."""
    unknown_inputs: list[str]
    """References of inputs that W&B does not have, so that their lineage is not recorded."""

    @property
    def wrong(self) -> list[str]:
        """References of artifacts that are not there as they are here."""
        return [reference for reference, verdict in self.verdicts.items() if verdict != "ok"]


def choose(registry: Registry, *, types: Sequence[str], names: Sequence[str]) -> list[Published]:
    """The artifacts of these types and names (all where empty), their files checked; InputError
    where there are none or where a file is not what was published."""
    everything = registry.manifests()
    chosen = [
        (folder, m)
        for folder, m in everything
        if (not types or m.type in types) and (not names or m.name in names)
    ]
    if not chosen:
        known = sorted({f"{m.type}/{m.name}" for _, m in everything})
        raise InputError(
            f"type={list(types)} name={list(names)}: there is no such artifact in {registry.root}. "
            f"There are: {', '.join(known[:8]) or 'none yet; type: pessimal scan'}"
            f"{' …' if len(known) > 8 else ''}"
        )
    for folder, _ in chosen:
        registry.verify(folder)
    return chosen


def push(published: Sequence[Published], target: Target) -> Pushed:
    """Send what is missing, record the lineage, and compare every artifact's manifest at W&B with
    the files here (their bytes are not read back).

    Raises:
        WorkError: there is no server or no such key; the server stopped answering; or it is slower
            than a minute, 10 seconds an artifact, and 100 kB a second.
    """
    settle(target.folder)
    size = sum((folder / file).stat().st_size for folder, m in published for file in m.files)
    deadline = time.monotonic() + PATIENCE + 10 * len(published) + size / 100_000

    def ask(api: "wandb.Api", some: Sequence[Published]) -> dict[str, str]:
        return within(
            deadline - time.monotonic(),
            lambda: {m.reference: verdict(api, folder, m, path=path) for folder, m in some},
            what="asking for the artifacts",
        )

    with connected() as api:
        path = f"{target.entity or api.default_entity}/{target.project}"
        verdicts = ask(api, published)
        missing = [pair for pair in published if verdicts[pair[1].reference].startswith("missing")]
        log.info("%s: %d of %d artifacts are to be sent", path, len(missing), len(published))
        if missing:
            _send(api, missing, target, path=path, deadline=deadline)
            verdicts |= ask(api, missing)
        there = [pair for pair in published if verdicts[pair[1].reference] == "ok"]
        unknown = within(
            deadline - time.monotonic(),
            lambda: _link(api, there, path=path),
            what="recording the lineage",
        )
    return Pushed(path, verdicts, [m.reference for _, m in missing], unknown)


def verdict(api: "wandb.Api", folder: Path, manifest: Manifest, *, path: str) -> str:
    """Whether W&B's list of an artifact's files and their md5 is that of the files here (see
    `Pushed.verdicts`).

    Raises whatever the client raises where the server does not answer: that an artifact is missing
    is only said by one that does.
    """
    name = f"{path}/{mirrored_reference(manifest.reference)}"
    remote = find_artifact(api, name)
    if remote is None:
        return f"missing: {name} is not there"
    here, there = (
        {file: entry.digest for file, entry in artifact.manifest.entries.items()}
        for artifact in (as_artifact(folder, manifest), remote)
    )
    wrong = sorted(file for file in here | there if here.get(file) != there.get(file))
    if not wrong and remote.type == manifest.type:
        return "ok"
    return (
        f"mismatch: {name} is there with other files ({remote.type}: {', '.join(wrong[:4])}). "
        "Nothing is overwritten: where it was made from another registry, choose another "
        "tracking.project; else delete this version at W&B and push again"
    )


def _send(
    api: "wandb.Api",
    published: Sequence[Published],
    target: Target,
    *,
    path: str,
    deadline: float,
) -> None:
    """Send the runs that tasks recorded, then what those lack by runs made again."""
    runs: dict[str, list[Published]] = {}
    for pair in sorted(published, key=lambda pair: pair[1].created):
        # What was published without tracking gets a run each, under an id that is the same whenever
        # it is pushed.
        runs.setdefault(pair[1].run_id or _made_up(pair[1].reference), []).append(pair)
    _sync([folder for id in runs for folder in recorded_runs(target, id)], target, deadline)
    with tempfile.TemporaryDirectory(prefix="push-", dir=target.folder) as place:
        made = []
        for id, run in runs.items():
            left = [pair for pair in run if verdict(api, *pair, path=path).startswith("missing")]
            if left:
                if _run_exists(api, f"{path}/{id}"):  # what is written there would be replaced
                    id = _made_up(id, *(manifest.reference for _, manifest in left))
                made.append(_write_run(id, left, replace(target, folder=Path(place))))
        _sync(made, target, deadline)


def _made_up(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _write_run(id: str, published: Sequence[Published], target: Target) -> Path:
    """Record an offline run with these artifacts, as the verb would have called it; returns its
    folder."""
    manifests = [manifest for _, manifest in published]
    first = manifests[0]
    job = JOBS.get(first.type, first.type)
    models = dict.fromkeys(str(m.summary["model"]) for m in manifests if m.summary.get("model"))
    prompts = {str(m.summary["prompt"]): None for m in manifests if m.summary.get("prompt")}
    config: dict[str, Any] = {
        "task": job,
        "config_hash": first.config_hash,
        "inputs": list(dict.fromkeys(reference for m in manifests for reference in m.inputs)),
        "artifacts": [m.reference for m in manifests],
        "prompts": prompts,
        "code": {"commit": first.commit, "dirty": first.dirty},
    }
    if len(models) == 1:  # where a run of the verb itself has it
        config["model"] = {"name": next(iter(models))}
    name = f"{job} {' '.join(models) if first.type == 'score-table' and models else first.name}"
    run = begin_run(
        replace(target, tags=[*target.tags, "pushed"]),
        id,
        mode="offline",
        job_type=job,
        name=name[:128],
        config=clean(config),
        # What is on this screen, in this checkout and on this machine now is not of the run.
        settings={"console": "off", "disable_git": True, "x_disable_stats": True},
    )
    for folder, m in published:
        prompt = m.summary.get("prompt") if m.type == "score-table" else None
        prefix = f"{prompt}/" if prompt else ""
        run.summary.update(clean({f"{prefix}{key}": value for key, value in m.summary.items()}))
        run.log_artifact(as_artifact(folder, m), aliases=aliases_of(m))
    run.finish()
    return folder_of(run)


def _sync(run_folders: Sequence[Path], target: Target, deadline: float) -> None:
    """`wandb sync` runs, all at once, as starting it takes longer than a run.

    Raises:
        WorkError: it fails, the server stops answering, or the deadline passes.
    """
    if not run_folders:
        return
    command = [sys.executable, "-m", "wandb", "sync", "--include-online", "--yes"]
    # WANDB_MODE is of runs that are made; and this process' service is not to be waited for.
    variables = {k: v for k, v in os.environ.items() if k not in ("WANDB_MODE", "WANDB_SERVICE")}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*command, *map(str, run_folders)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=run_folders[0],  # it makes a folder `wandb` where it stands
            env=variables | {"WANDB_DIR": str(target.folder)},
        )
        try:
            while process.poll() is None:
                try:
                    process.wait(_LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    connect()
                    if time.monotonic() > deadline:
                        raise TimeoutError("sending the runs took too long") from None
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            output.seek(0)
            end = output.read().decode(errors="replace").strip()[-300:]
            raise WorkError(f"wandb sync failed: {end}")


def _link(api: "wandb.Api", published: Sequence[Published], *, path: str) -> list[str]:
    """Record at W&B what every run was made from, and let `latest` stand at the registry's newest
    version: the client moves it to whatever it sends last. Returns references of inputs that W&B
    does not have."""
    unknown: list[str] = []
    for folder, manifest in published:
        artifact = api.artifact(f"{path}/{mirrored_reference(manifest.reference)}")
        newest = max(int(p.name[1:]) for p in folder.parent.glob("v*") if p.name[1:].isdigit())
        if manifest.version == newest and "latest" not in artifact.aliases:
            artifact.aliases.append("latest")
            artifact.save()
        if manifest.inputs and (run := artifact.logged_by()) is not None:
            unknown += link_inputs(api, f"{path}/{run.id}", manifest.inputs)
    return list(dict.fromkeys(unknown))


def _run_exists(api: "wandb.Api", path: str) -> bool:
    try:
        api.run(path)
    except Exception as error:  # one that is not there is a CommError like any other
        if "Could not find run" in str(error):
            return False
        raise
    return True
