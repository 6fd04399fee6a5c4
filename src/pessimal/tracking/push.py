"""The push: everything in the registry that W&B does not have yet, sent, and asked back of the
server.

A run that a task recorded and never sent is sent as it is, with its configuration, curves and
figures; what no such run has goes in runs made again from the manifests, one for each command that
published, so that W&B's table of runs compares them.
"""

import base64
import hashlib
import logging
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pessimal.errors import InputError, WorkError
from pessimal.tables.files import sha256_of
from pessimal.tracking.client import (
    Target,
    alias_of,
    as_artifact,
    check_server,
    check_sync,
    clean,
    client_faults,
    connect,
    find_artifact,
    link_inputs,
    mirrored_reference,
    offline_run,
    recorded_runs,
    settle,
    sync_process,
)
from pessimal.tracking.registry import MANIFEST, Manifest, Registry

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
"""Between two looks at whether the server is still there while a run is sent."""


@dataclass(frozen=True)
class Verdict:
    """What the server has of one artifact."""

    reference: str
    """`type/name:vN` in the registry."""
    state: str
    """`ok`, `missing` or `mismatch`."""
    message: str = ""
    """What is wrong and what to do; empty where nothing is."""


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
    """References of inputs that W&B does not have, so that their lineage is not recorded."""

    @property
    def wrong(self) -> list[str]:
        """References of artifacts that are not there as they are here."""
        return [one.reference for one in self.verdicts if one.state != "ok"]


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
            f"There are: "
            f"{', '.join(known[:8]) or 'none yet; type: pessimal scan'}{' …' if len(known) > 8 else ''}"
        )
    for folder, _ in chosen:
        registry.verify(folder)
    return chosen


def push(published: Sequence[Published], target: Target) -> Pushed:
    """Send what is missing, record the lineage, and verify everything.

    Raises:
        WorkError: there is no server, no such key, or the server stopped answering; within 15
            seconds of that.
    """
    settle(target.folder)
    api = connect()
    path = f"{target.entity or api.default_entity}/{target.project}"
    with client_faults():
        verdicts = {m.reference: verdict(api, folder, m, path=path) for folder, m in published}
        missing = [pair for pair in published if verdicts[pair[1].reference].state == "missing"]
        log.info("%s: %d of %d artifacts are to be sent", path, len(missing), len(published))
        if missing:
            _send(api, missing, target, path=path)
            verdicts |= {m.reference: verdict(api, folder, m, path=path) for folder, m in missing}
        there = [pair for pair in published if verdicts[pair[1].reference].state == "ok"]
        unknown = _link(api, there, path=path)
    return Pushed(path, list(verdicts.values()), [m.reference for _, m in missing], unknown)


def verdict(api, folder: Path, manifest: Manifest, *, path: str) -> Verdict:
    """Compare W&B's version with the files on this disk: state, type, manifest, file count and md5
    of every file.

    Raises whatever the client raises where the server does not answer: that an artifact is missing
    is only said by one that does.
    """
    name, reference = f"{path}/{mirrored_reference(manifest.reference)}", manifest.reference
    remote = find_artifact(api, name)
    if remote is None:
        return Verdict(reference, "missing", f"{name} is not there")
    if remote.metadata.get("manifest_sha256") != sha256_of(folder / MANIFEST):
        made = f"({remote.type}, {remote.metadata.get('created')})"
        return Verdict(
            reference,
            "mismatch",
            f"{name} is there, but was made from another registry {made}; nothing is overwritten: "
            f"choose another "
            "tracking.project, or delete it at W&B",
        )
    if wrong := _differences(remote, folder, manifest):
        what = "; ".join(wrong[:4])
        return Verdict(
            reference, "mismatch", f"{name}: {what}. Delete this version at W&B and push again"
        )
    return Verdict(reference, "ok")


def _differences(remote, folder: Path, manifest: Manifest) -> list[str]:
    expected, files = [*manifest.files, MANIFEST], remote.manifest.entries
    pairs = {
        "state": (remote.state, "COMMITTED"),
        "type": (remote.type, manifest.type),
        "number of files": (remote.file_count, len(expected)),
    }
    wrong = [
        f"its {what} is {is_}, not {should}"
        for what, (is_, should) in pairs.items()
        if is_ != should
    ]
    if missing := sorted(set(expected) - set(files)):
        wrong.append(f"without {', '.join(missing[:3])}")
    if foreign := sorted(set(files) - set(expected)):
        wrong.append(f"with {', '.join(foreign[:3])} besides")
    known = [name for name in expected if name in files]
    return wrong + [
        f"{name} differs" for name in known if files[name].digest != _md5_of(folder / name)
    ]


def _md5_of(path: Path) -> str:
    """md5 of a file's bytes in base64, as W&B gives it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return base64.b64encode(digest.digest()).decode()


def _send(api, published: Sequence[Published], target: Target, *, path: str) -> None:
    """Send the runs that tasks recorded, then what those lack by runs made again: one `wandb sync`
    each, as starting it takes longer than a run."""
    runs: dict[str, list[Published]] = {}
    for pair in sorted(published, key=lambda pair: pair[1].created):
        # What was published without tracking gets a run each, under an id that is the same whenever
        # it is pushed.
        runs.setdefault(pair[1].run_id or _made_up(pair[1].reference), []).append(pair)
    recorded = [
        folder
        for id in runs
        if not _run_exists(api, f"{path}/{id}")
        for folder in recorded_runs(target, id)
    ]
    _sync(recorded, target)
    with tempfile.TemporaryDirectory(prefix="push-", dir=target.folder) as place:
        made = []
        for id, run in runs.items():
            left = [
                pair
                for pair in run
                if not recorded or verdict(api, *pair, path=path).state == "missing"
            ]
            if left:
                if _run_exists(
                    api, f"{path}/{id}"
                ):  # writing into it would replace its configuration
                    id = _made_up(id, *(manifest.reference for _, manifest in left))
                made.append(_write_run(id, left, replace(target, folder=Path(place))))
        settle(target.folder)
        _sync(made, target)


def _made_up(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _write_run(id: str, published: Sequence[Published], target: Target) -> Path:
    """Record an offline run with these artifacts, as the verb would have called it; returns its
    folder."""
    manifests = [manifest for _, manifest in published]
    first = manifests[0]
    job = JOBS.get(first.type, first.type)
    models = list(
        dict.fromkeys(str(m.summary["model"]) for m in manifests if m.summary.get("model"))
    )
    config = {
        "task": job,
        "config_hash": first.config_hash,
        "inputs": list(dict.fromkeys(reference for m in manifests for reference in m.inputs)),
        "artifacts": [m.reference for m in manifests],
        "prompts": {str(m.summary["prompt"]): None for m in manifests if m.summary.get("prompt")},
        "code": {"commit": first.commit, "dirty": first.dirty},
        **(
            {"model": {"name": models[0]}} if len(models) == 1 else {}
        ),  # where a run of the verb itself has it
    }
    name = f"{job} {' '.join(models) if first.type == 'score-table' and models else first.name}"
    # What is on this screen, in this checkout and on this machine now is not of the run.
    quiet = {"console": "off", "disable_git": True, "x_disable_stats": True}
    target = replace(target, tags=[*target.tags, "pushed"])
    run = offline_run(
        target, id, job_type=job, name=name[:128], config=clean(config), settings=quiet
    )
    run_folder = Path(run.dir).parent
    for folder, m in published:
        prefix = (
            f"{m.summary['prompt']}/" if m.type == "score-table" and m.summary.get("prompt") else ""
        )
        run.summary.update(clean({f"{prefix}{key}": value for key, value in m.summary.items()}))
        run.log_artifact(as_artifact(folder, m), aliases=[alias_of(m)])
    run.finish()
    return run_folder


def _sync(run_folders: Sequence[Path], target: Target) -> None:
    """`wandb sync` runs; WorkError where it fails, or where the server stops answering."""
    if not run_folders:
        return
    with tempfile.TemporaryFile() as said:
        process = sync_process(*run_folders, said=said, folder=target.folder)
        try:
            while process.poll() is None:
                try:
                    process.wait(_LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    check_server()
        except WorkError as error:
            raise WorkError(
                f"{error}. What was sent by then is there; the same command sends the rest"
            ) from error
        finally:
            process.kill()
            process.wait()
        check_sync(process, said)


def _link(api, published: Sequence[Published], *, path: str) -> list[str]:
    """Record at W&B what every run was made from, and let `latest` stand at the registry's newest
    version: the client moves it to whatever it sends last. Returns references of inputs that W&B
        does not have."""
    unknown: list[str] = []
    known: dict[str, Any] = {}
    for folder, manifest in published:
        artifact = api.artifact(f"{path}/{mirrored_reference(manifest.reference)}")
        newest = max(int(p.name[1:]) for p in folder.parent.glob("v*") if p.name[1:].isdigit())
        if manifest.version == newest and "latest" not in artifact.aliases:
            artifact.aliases.append("latest")
            artifact.save()
        if manifest.inputs and (run := artifact.logged_by()) is not None:
            unknown += link_inputs(api, run, path=path, inputs=manifest.inputs, known=known)
    return list(dict.fromkeys(unknown))


def _run_exists(api, path: str) -> bool:
    from wandb.errors import CommError

    try:
        api.run(path)
    except (ValueError, CommError) as error:
        if "Could not find run" in str(error):
            return False
        raise
    return True
