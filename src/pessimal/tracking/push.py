"""The push: everything in the registry that W&B does not have yet, sent and then verified.

Knows the registry, replayed runs and verdicts. A run that a task recorded and never sent is sent as it is, with its
configuration, curves and figures; what no such run has is replayed from the manifests.
"""

import logging
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pessimal.errors import InputError, WorkError
from pessimal.tracking.client import PATIENCE, check_server, connect, settle
from pessimal.tracking.mirrored import mirrored_reference
from pessimal.tracking.recorded import recorded_runs
from pessimal.tracking.registry import Manifest, Registry
from pessimal.tracking.replay import Published, by_run, inputs_of, second_id, write_run
from pessimal.tracking.upload import link_inputs, sync_process
from pessimal.tracking.verify import Verdict, verdict

log = logging.getLogger(__name__)

_LOOK_SECONDS = 4.0
"""Between two looks at whether the server is still there while a run is sent."""


@dataclass(frozen=True)
class Target:
    """Where things go."""

    project: str
    entity: str | None
    """Null: the key's own."""
    group: str | None
    tags: list[str]
    folder: Path
    """Everything wandb writes; also where runs that tasks recorded are."""


@dataclass(frozen=True)
class Pushed:
    """What came of a push."""

    path: str
    """ENTITY/PROJECT at the server."""
    verdicts: list[Verdict]
    """One an artifact, from the server after everything was sent."""
    sent: list[str]
    """References of artifacts that were not there before."""
    unknown_inputs: list[str]
    """Inputs (`NAME:registry-vN`) that W&B does not have, so that their lineage is not recorded."""

    @property
    def whole(self) -> bool:
        """Whether every artifact is there and the same."""
        return all(one.state == "ok" for one in self.verdicts)


def choose(registry: Registry, *, types: Sequence[str], names: Sequence[str]) -> list[Published]:
    """The artifacts of these types and names (all where empty), their files checked; InputError where there are none
    or where a file is not what was published."""
    everything = registry.manifests()
    chosen = [
        pair
        for pair in everything
        if (not types or pair[1].type in types) and (not names or pair[1].name in names)
    ]
    if not chosen:
        known = sorted({f"{m.type}/{m.name}" for _, m in everything})
        raise InputError(
            f"type={list(types)} name={list(names)}: there is no such artifact in {registry.root}. There are: "
            f"{', '.join(known[:8]) or 'none yet; type: pessimal scan'}{' …' if len(known) > 8 else ''}"
        )
    for folder, _ in chosen:
        registry.verify(folder)
    return chosen


def push(published: Sequence[Published], target: Target) -> Pushed:
    """Send what is missing, record the lineage, and verify everything.

    Raises:
        WorkError: there is no server, no such key, or the server stopped answering; within 15 seconds of that.
    """
    settle(target.folder)
    api = connect()
    path = f"{target.entity or api.default_entity}/{target.project}"
    try:
        newest = _newest(published)
        verdicts = _verdicts(api, published, newest, path=path)
        missing = [pair for pair in published if verdicts[pair[1].reference].state == "missing"]
        log.info("%s: %d of %d artifacts are to be sent", path, len(missing), len(published))
        if missing:
            _send(api, by_run(missing), target, path=path)
            verdicts |= _verdicts(api, missing, newest, path=path)
        there = [pair for pair in published if verdicts[pair[1].reference].same]
        unknown = _link(api, there, path=path)
        moved = [pair for pair in there if verdicts[pair[1].reference].state != "ok"]
        for _, manifest in moved:
            _point_latest(api, manifest, path=path)
        verdicts |= _verdicts(api, moved, newest, path=path)
    except (WorkError, InputError):
        raise
    except Exception as error:  # the client has many, and their texts are for its own developers
        check_server()
        raise WorkError(f"the W&B client stopped: {type(error).__name__}: {error}") from error
    return Pushed(path, list(verdicts.values()), [m.reference for _, m in missing], unknown)


def _send(api, runs: Mapping[str, list[Published]], target: Target, *, path: str) -> None:
    """Send the runs that tasks recorded, then what those lack by runs made again: one `wandb sync` each, as starting it
    takes longer than a run."""
    recorded = [
        run
        for id in runs
        if not _run_exists(api, f"{path}/{id}")
        for run in recorded_runs(target.folder, id, project=target.project, entity=target.entity)
    ]
    _sync(recorded, target)
    with tempfile.TemporaryDirectory(prefix="push-", dir=target.folder) as folder:
        made = []
        for id, run in runs.items():
            left = [pair for pair in run if not recorded or verdict(api, *pair, path=path).state == "missing"]
            if left:
                taken = _run_exists(api, f"{path}/{id}")
                made.append(_replay(second_id(id, left) if taken else id, left, target, folder=Path(folder)))
        _sync(made, target)


def _replay(id: str, published: list[Published], target: Target, *, folder: Path) -> Path:
    return write_run(
        id,
        published,
        folder=folder,
        project=target.project,
        entity=target.entity,
        group=target.group,
        tags=target.tags,
    )


def _newest(published: Sequence[Published]) -> dict[tuple[str, str], int]:
    """The newest version in the registry by type and name, chosen or not; read from the folders beside the chosen."""
    return {
        (manifest.type, manifest.name): max(
            int(beside.name[1:]) for beside in folder.parent.glob("v*") if beside.name[1:].isdigit()
        )
        for folder, manifest in published
    }


def _verdicts(
    api, published: Sequence[Published], newest: Mapping[tuple[str, str], int], *, path: str
) -> dict[str, Verdict]:
    """What the server has of each, by reference; the newest version of a name must be its `latest`."""
    return {
        m.reference: verdict(api, folder, m, path=path, latest=newest[m.type, m.name] == m.version)
        for folder, m in published
    }


def _point_latest(api, manifest: Manifest, *, path: str) -> None:
    """Let `latest` stand at the registry's newest version: the client moves it to whatever it sends last."""
    artifact = api.artifact(f"{path}/{mirrored_reference(manifest.reference)}")
    artifact.aliases.append("latest")
    artifact.save()


def _sync(run_folders: list[Path], target: Target) -> None:
    """`wandb sync` runs; WorkError where it fails, or where the server stops answering."""
    if not run_folders:
        return
    with tempfile.TemporaryFile() as said:
        process = sync_process(*map(str, run_folders), said=said, folder=target.folder)
        silent_since = None
        try:
            while process.poll() is None:
                try:
                    process.wait(_LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    silent_since = _still_silent(silent_since)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            said.seek(0)
            raise WorkError(f"wandb sync failed: {said.read().decode(errors='replace').strip()[-300:]}")


def _still_silent(since: float | None) -> float | None:
    """Since when the server has not answered, or None where it does; WorkError once patience is at an end."""
    begin = time.monotonic()
    try:
        check_server()
    except WorkError as error:
        since = since or begin
        if time.monotonic() - since > PATIENCE - 2 * _LOOK_SECONDS:
            raise WorkError(
                f"{error}. What was sent by then is there; the same command sends the rest"
            ) from error
        return since
    return None


def _link(api, published: Sequence[Published], *, path: str) -> list[str]:
    """Record at W&B what every run was made from; returns inputs that it does not have."""
    unknown: dict[str, None] = {}
    known: dict[str, Any] = {}
    for folder, manifest in published:
        if not manifest.inputs:
            continue
        run = api.artifact(f"{path}/{mirrored_reference(manifest.reference)}").logged_by()
        inputs = [mirrored_reference(reference) for reference in inputs_of([(folder, manifest)])]
        if run is not None:
            unknown |= dict.fromkeys(link_inputs(api, run, path=path, inputs=inputs, known=known))
    return list(unknown)


def _run_exists(api, path: str) -> bool:
    from wandb.errors import CommError

    try:
        api.run(path)
    except (ValueError, CommError) as error:
        if "Could not find run" in str(error):
            return False
        raise
    return True
