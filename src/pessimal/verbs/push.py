"""`pessimal push`: the registry to W&B. What W&B does not have yet is sent; every artifact's
manifest is asked back of the server and compared.

Artifacts go in online runs, one for each command that published, so that W&B's table of runs
compares them. A run that a task recorded and never sent, with its curves, is sent by `wandb sync`.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pessimal.config.schema import PushConfig
from pessimal.errors import InputError, WorkError
from pessimal.tracking.mirror import (
    PATIENCE,
    Target,
    as_artifact,
    begin_run,
    clean,
    connected,
    log_artifact,
    mirrored_reference,
    settle,
)
from pessimal.tracking.registry import CONFIG, Manifest, Registry
from pessimal.verbs.common import registry_of, target_of, write_out

log = logging.getLogger(__name__)


def run(config: PushConfig) -> None:
    """Send what W&B does not have, print a line an artifact, and fail where one is not there
    whole."""
    registry = registry_of(config)
    published = choose(registry, types=config.type, names=config.name)
    pushed = push(published, target_of(config))
    for reference, verdict in pushed.verdicts.items():
        state, _, message = verdict.partition(": ")
        how = "sent" if reference in pushed.sent else "was there"
        write_out(f"{state:<9}{reference}  {message or how}")
    if pushed.unknown_inputs:
        message = "W&B does not have these inputs: %s. To send all there is: pessimal push"
        log.warning(message, ", ".join(pushed.unknown_inputs[:8]))
    if pushed.wrong:
        counts = f"{len(pushed.wrong)} of {len(published)} artifacts"
        wrong = ", ".join(pushed.wrong[:8])
        raise WorkError(f"{counts} are not at {pushed.path} as they are here: {wrong}. Push again")
    log.info("%s: %d artifacts, all there and the same", pushed.path, len(published))


if TYPE_CHECKING:
    import wandb


Published = tuple[Path, Manifest]
_BYTES_PER_SECOND = 100_000
"""The slowest upload that a push waits for."""


@dataclass(frozen=True)
class Pushed:
    """The outcome of a push."""

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
    pairs = registry.manifests(*types)
    pairs = [pair for pair in pairs if not names or pair[1].name in names]
    if not pairs:
        raise InputError(f"no such artifact is in {registry.root}. To list all: pessimal runs")
    for folder, _ in pairs:
        registry.verify(folder)
    return pairs


def push(published: Sequence[Published], target: Target) -> Pushed:
    """Send what is missing, record the lineage, and compare every artifact's manifest at W&B with
    the files here (their bytes are not read back).

    Raises:
        WorkError: there is no server or no such key, or the server stopped answering.
    """
    settle(target.folder)
    with connected() as api:
        path = f"{target.entity or api.default_entity}/{target.project}"
        verdicts = {m.reference: verdict(api, folder, m, path=path) for folder, m in published}
        missing = [p for p in published if verdicts[p[1].reference].startswith("missing")]
        log.info("%s: %d of %d artifacts are to be sent", path, len(missing), len(published))
        runs: dict[str, list[Published]] = {}
        for folder, manifest in sorted(missing, key=lambda pair: pair[1].created):
            # What was published without tracking gets a run each.
            runs.setdefault(manifest.run_id or manifest.reference, []).append((folder, manifest))
        for artifacts in runs.values():
            _send(artifacts, target)
        verdicts |= {m.reference: verdict(api, folder, m, path=path) for folder, m in missing}
        sound = [p for p in published if verdicts[p[1].reference] == "ok"]
        unknown = _link(api, sound, path=path)
    return Pushed(path, verdicts, [m.reference for _, m in missing], unknown)


def verdict(api: "wandb.Api", folder: Path, manifest: Manifest, *, path: str) -> str:
    """Whether W&B's list of an artifact's files and their md5 is that of the files here (see
    `Pushed.verdicts`).

    Raises whatever the client raises where the server does not answer: that an artifact is missing
    is only said by one that does.
    """
    name = f"{path}/{mirrored_reference(manifest.reference)}"
    if not api.artifact_exists(name):
        return f"missing: {name} is not there"
    remote = api.artifact(name)
    artifacts = (as_artifact(folder, manifest), remote)
    local, server = ({(n, e.digest) for n, e in a.manifest.entries.items()} for a in artifacts)
    wrong = sorted({file for file, _ in local ^ server})
    if not wrong and remote.type == manifest.type:
        return "ok"
    return (
        f"mismatch: {name} is there with other files ({remote.type}: {', '.join(wrong[:4])}). "
        "Choose another tracking.project, or delete this version at W&B and push again"
    )


def _send(published: Sequence[Published], target: Target) -> None:
    """Send these artifacts in a run with the configuration that they were published with."""
    folder, first = published[0]
    config = json.loads((folder / CONFIG).read_text()) if CONFIG in first.files else {}
    references = [manifest.reference for _, manifest in published]
    job = config.get("task", first.type)
    config |= {"config_hash": first.config_hash, "artifacts": references}
    about = {"job_type": job, "name": f"{job} {first.name}"[:128], "config": clean(config)}
    # Its own, so that it never replaces the run of the task; the same whenever it is pushed.
    id = hashlib.sha256("\n".join(references).encode()).hexdigest()[:8]
    # What is on this screen, in this checkout and on this machine now is not of the run.
    quiet = {"console": "off", "disable_git": True, "x_disable_stats": True}
    target = replace(target, tags=[*target.tags, "pushed"])
    size = sum((folder / file).stat().st_size for folder, m in published for file in m.files)
    seconds = PATIENCE + size / _BYTES_PER_SECOND
    run = begin_run(target, mode="online", id=id, patience=3 * seconds, settings=quiet, **about)
    for folder, m in published:
        prefix = f"{m.summary.get('prompt')}/" if m.type == "score-table" else ""
        run.summary.update(clean({f"{prefix}{key}": value for key, value in m.summary.items()}))
        log_artifact(run, folder, m)
    run.finish()


def _link(api: "wandb.Api", published: Sequence[Published], *, path: str) -> list[str]:
    """Record at W&B what every run was made from, which wandb refuses to record in an offline run,
    and let `latest` stand at the registry's newest version: the client moves it to whatever it
    sends last. Returns references of inputs that W&B does not have."""
    unknown: list[str] = []
    for folder, manifest in published:
        artifact = api.artifact(f"{path}/{mirrored_reference(manifest.reference)}")
        newest = max(int(p.name[1:]) for p in folder.parent.glob("v*") if p.name[1:].isdigit())
        if manifest.version == newest and "latest" not in artifact.aliases:
            artifact.aliases.append("latest")
            artifact.save()
        if not manifest.inputs or (run := artifact.logged_by()) is None:
            continue
        for reference in manifest.inputs:
            name = f"{path}/{mirrored_reference(reference)}"
            if api.artifact_exists(name):
                run.use_artifact(api.artifact(name))
            else:
                unknown.append(reference)
    return list(dict.fromkeys(unknown))
