"""Which code ran: the git commit of the checkout that this package is in, and whether files differ
from it."""

import functools
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1]
_SECONDS = 10
"""For one question to git."""


class Checkout(NamedTuple):
    """What is recorded of the code; both None where the package is in no checkout (a wheel), or
    there is no git."""

    commit: str | None = None
    """40 hexadecimal digits."""
    dirty: bool | None = None
    """Whether the package or its configuration differs from the commit, new files included."""


@functools.cache
def checkout(package: Path = PACKAGE) -> Checkout:
    """The commit and state of the code in `package`, as they were when this process first asked."""
    try:
        # A wheel may lie in an environment that lies in somebody's checkout: only code that git
        # tracks counts.
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        root = Path(_git(package, "rev-parse", "--show-toplevel"))
        changes = _git(root, "status", "--porcelain", "--", str(package), "conf")
        return Checkout(_git(package, "rev-parse", "HEAD"), bool(changes))
    except (OSError, subprocess.SubprocessError):
        return Checkout()


def _git(folder: Path, *arguments: str) -> str:
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    }
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=_SECONDS, env=environment
    )
    return done.stdout.strip()
