"""The child process that takes an offline run to a W&B server while it is being written, and looks
whether it arrived.

`python -m pessimal.tracking.upload RUN_FOLDER WANDB_FOLDER`; gets one line of JSON on stdin when
the run is written (a closed stdin means that the task died, and ends it); gives one line of JSON on
stdout, how it went. A process of its own: whatever a network does, the task only ever writes to its
own disk.
"""

import json
import sys
import tempfile
from pathlib import Path

from pessimal.errors import WorkError
from pessimal.tracking.client import (
    check_server,
    check_sync,
    connect,
    link_inputs,
    settle,
    sync_process,
)


def main() -> None:
    """Upload the run in the folder named on the command line."""
    run_folder, folder = map(Path, sys.argv[1:])
    try:
        settle(folder)
        check_server()
        with tempfile.TemporaryFile() as said:
            sync = sync_process(run_folder, said=said, folder=folder, live=True)
            line = sys.stdin.readline()
            if not line:
                sync.kill()
                return
            check_sync(sync, said)
        result = look(json.loads(line))
    except Exception as error:
        result = {"message": str(error) or type(error).__name__}
    print(json.dumps(result), flush=True)


def look(written: dict) -> dict:
    """Whether a run's artifacts are there, `wandb sync` being content with having sent none; and
    link its inputs."""
    api = connect()
    path = f"{written['entity'] or api.default_entity}/{written['project']}"
    run = api.run(f"{path}/{written['run_id']}")
    there = {artifact.metadata.get("manifest_sha256") for artifact in run.logged_artifacts()}
    missing = [name for name, digest in written["artifacts"] if digest not in there]
    if missing:
        raise WorkError(f"these artifacts did not arrive: {', '.join(missing)}")
    unknown = link_inputs(api, run, path=path, inputs=written["inputs"], known={})
    return {"url": run.url, "unknown_inputs": unknown}


if __name__ == "__main__":
    main()
