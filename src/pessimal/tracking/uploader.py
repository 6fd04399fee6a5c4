"""The task's side of an upload: starts the child, never waits for it but at the end, and says once how it went.

Knows processes and pipes. What the child does is `pessimal.tracking.upload`'s business.
"""

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from pessimal.tracking.client import environment

log = logging.getLogger(__name__)


class Uploader:
    """The upload of one offline run."""

    def __init__(self, folder: Path, run_folder: Path, *, patience: float):
        self._run_folder = run_folder
        self._patience = patience
        self._reported = False
        self._said = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pessimal.tracking.upload", str(run_folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment(folder)},
            start_new_session=True,  # Ctrl-C is the task's; and what it started can be ended together
        )

    def look(self) -> None:
        """Warn, once and without waiting, where the child has given up."""
        if not self._reported and self._read(0.0):
            self._report(json.loads(self._said))

    def conclude(self, written: dict) -> None:
        """Send that the run is written, and what must be at the server; wait for the upload as long as patience
        lasts. Then the child is ended: the offline copy stays."""
        if self._reported:  # it gave up before
            self.close()
            return
        with contextlib.suppress(OSError):  # the child may be gone, and says why on its stdout
            self._process.stdin.write(json.dumps(written).encode() + b"\n")
            self._process.stdin.flush()
        result = (
            json.loads(self._said)
            if self._read(self._patience)
            else {"ok": False, "message": f"the upload did not finish within {self._patience:.0f} seconds"}
        )
        self._report(result)
        self.close()

    def close(self) -> None:
        """End the child and what it started."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def _read(self, seconds: float) -> bool:
        """Whether the child's whole line is there, at most so many seconds from now; its silent end counts as one."""
        until = time.monotonic() + seconds
        while not self._said.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(until - time.monotonic(), 0.0))
            if not ready:
                return False
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                self._said = b'{"ok": false, "message": "the upload ended without a word"}\n'
            self._said += piece
        return True

    def _report(self, result: dict) -> None:
        self._reported = True
        if not result["ok"]:
            log.warning(
                "Weights & Biases did not get this run: %s. Nothing is lost: every result is in the registry, and the run "
                "is recorded here. When the server can be reached, type: wandb sync %s",
                result["message"],
                self._run_folder,
            )
            return
        log.info("Weights & Biases: %s", result["url"])
        if result["unknown_inputs"]:
            log.warning(
                "Weights & Biases does not have what this run was made from: %s. To send it: pessimal push",
                ", ".join(result["unknown_inputs"][:8]),
            )
