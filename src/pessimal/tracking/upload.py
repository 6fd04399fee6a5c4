"""The child process that takes an offline run to a W&B server while it is being written, and looks whether it arrived.

`python -m pessimal.tracking.upload RUN_FOLDER`; gets one line of JSON on stdin when the run is written (a closed
stdin means that the task died, and ends it); gives one line of JSON on stdout, how it went. A process of its own:
whatever a network does, the task only ever writes to its own disk.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pessimal.errors import WorkError
from pessimal.tracking.client import check_server, connect, environment


def main() -> None:
    """Upload the run in the folder named on the command line."""
    try:
        check_server()
        with tempfile.TemporaryFile() as said:
            sync = sync_process(sys.argv[1], said=said, live=True)
            line = sys.stdin.readline()
            if not line:
                sync.kill()
                return
            if sync.wait():
                said.seek(0)
                raise WorkError(f"wandb sync failed: {said.read().decode(errors='replace').strip()[-300:]}")
        result = {"ok": True, **_look(json.loads(line))}
    except Exception as error:
        result = {"ok": False, "message": str(error) or type(error).__name__}
    print(json.dumps(result), flush=True)


def sync_process(
    *run_folders: str,
    said,
    live: bool = False,
    folder: Path | None = None,
) -> subprocess.Popen:
    """`wandb sync` of runs, which writes its output into the file `said`; `live` while a run is being written.
    `folder` is where wandb writes, the environment's where null. To another project than the run's own it would not go
    whole: `wandb sync --project` leaves the artifacts where they were recorded for.
    """
    verb = ["beta", "sync", "--live"] if live else ["sync", "--include-synced"]
    return subprocess.Popen(
        [sys.executable, "-m", "wandb", *verb, "--yes", *run_folders],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        cwd=run_folders[0],  # it makes a folder `wandb` where it stands
        env={**os.environ, **(environment(folder) if folder else {})},
    )


def _look(written: dict) -> dict:
    """Whether the run's artifacts are there, `wandb sync` being content with having sent none; and their inputs, which
    cannot be set in an offline run."""
    api = connect()
    path = f"{written['entity'] or api.default_entity}/{written['project']}"
    run = api.run(f"{path}/{written['run_id']}")
    there = {artifact.metadata.get("manifest_sha256") for artifact in run.logged_artifacts()}
    missing = [name for name, digest in written["artifacts"] if digest not in there]
    if missing:
        raise WorkError(f"these artifacts did not arrive: {', '.join(missing)}")
    return {"url": run.url, "unknown_inputs": link_inputs(api, run, path=path, inputs=written["inputs"])}


def link_inputs(
    api, run, *, path: str, inputs: Sequence[str], known: dict[str, Any] | None = None
) -> list[str]:
    """Record at W&B what a run was made from (`NAME:registry-vN` each); returns those that are not in W&B. `known` keeps what
    was looked up, for other runs."""
    known = {} if known is None else known
    linked = {
        f"{artifact.name.partition(':')[0]}:{alias}"
        for artifact in run.used_artifacts()
        for alias in artifact.aliases
    }
    for name in inputs:
        if name in linked:
            continue
        if name not in known:
            known[name] = find_artifact(api, f"{path}/{name}")
        if known[name] is not None:
            run.use_artifact(known[name])
    return [name for name in inputs if name not in linked and known[name] is None]


def find_artifact(api, name: str):
    """The artifact `ENTITY/PROJECT/NAME:ALIAS`, or None where the server says that there is none."""
    from wandb.errors import CommError

    try:
        return api.artifact(name)
    except (CommError, ValueError):
        if api.artifact_exists(name):  # raises where the server did not answer
            raise
        return None


if __name__ == "__main__":
    main()
