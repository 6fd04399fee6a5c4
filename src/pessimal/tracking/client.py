"""The W&B client, tamed: where it writes, what may be sent, and whether a server answers.

Knows wandb's environment and its ways of failing. Does not know runs, artifacts or the registry.
"""

import base64
import json
import math
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pessimal.errors import WorkError

T = TypeVar("T")

PATIENCE = 12.0
"""Seconds that W&B may hold up a command beyond the command's own work."""

_PROBE = b'{"query":"query Viewer { viewer { id entity } }"}'
_PROBE_SECONDS = 5.0


def environment(folder: Path) -> dict[str, str]:
    """The variables that keep everything wandb writes under `folder`: by default staged bytes go into the user's data
    folder, and where that is gone `wandb sync` says "Finished" having uploaded nothing."""
    return {
        "WANDB_DIR": str(folder),
        "WANDB_DATA_DIR": str(folder / "data"),
        "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_SILENT": "true",
    }


def settle(folder: Path) -> None:
    """Let this process' wandb write under `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment(folder))


def within(seconds: float, call: Callable[[], T], *, what: str) -> T:
    """What `call` returns or raises; TimeoutError naming `what` where that takes longer than `seconds`.

    The client has calls without any limit of time, and others whose limit is minutes. What does not come back in time
    goes on in a thread that dies with this process.
    """
    outcome: list[Callable[[], T]] = []

    def work() -> None:
        try:
            result = call()
            outcome.append(lambda: result)
        except BaseException as error:
            failure = error

            def again() -> T:
                raise failure

            outcome.append(again)

    thread = threading.Thread(target=work, daemon=True, name=f"wandb {what}")
    thread.start()
    thread.join(max(seconds, 0.01))
    if not outcome:
        raise TimeoutError(f"{what} took longer than {seconds:.0f} seconds")
    return outcome[0]()


def clean(value: Any) -> Any:
    """`value` as JSON that the client and a server take: half surrogates written out as \\ud800 (the client refuses an
    artifact whose metadata has one), numbers that are none as null, unknown objects as text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [clean(item) for item in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return clean(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float) else clean(str(value))


def base_url() -> str:
    """The server that wandb would ask, without a slash at its end."""
    import wandb

    return str(os.environ.get("WANDB_BASE_URL") or wandb.setup().settings.base_url).rstrip("/")


def check_server() -> None:
    """Raise WorkError, within about ten seconds, where the server cannot be reached, is at fault, or knows no such key."""
    url, key = base_url(), _key()
    request = urllib.request.Request(
        f"{url}/graphql", data=_PROBE, headers={"Content-Type": "application/json"}
    )
    if key:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"api:{key}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=_PROBE_SECONDS) as answer:
            viewer = (json.load(answer).get("data") or {}).get("viewer")
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise _unknown_key(url) from error
        raise WorkError(
            f"the W&B server {url} answers HTTP {error.code}, a fault of its own; try again later"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise WorkError(
            f"the W&B server {url} cannot be reached ({reason}). Look at the network, and at WANDB_BASE_URL where the "
            "server is your own"
        ) from error
    if not viewer:
        raise _unknown_key(url)


def connect():
    """A `wandb.Api` for a server that is there and takes the key; WorkError within 15 seconds where it is not."""
    import wandb

    check_server()
    try:
        return within(PATIENCE - _PROBE_SECONDS, lambda: wandb.Api(timeout=10), what="asking the W&B server")
    except Exception as error:
        raise WorkError(f"the W&B server {base_url()} did not let the client in: {error}") from error


def _key() -> str | None:
    """The API key that wandb would send, or None; never asked for at the terminal."""
    from wandb.sdk.lib import wbauth

    session = wbauth.authenticate_session(
        host=base_url(), source="pessimal", prompt=False, update_session=False
    )
    if session is None:
        raise WorkError(
            f"there is no API key for the W&B server {base_url()}; type: wandb login, or set WANDB_API_KEY"
        )
    return getattr(session, "api_key", None)


def _unknown_key(url: str) -> WorkError:
    return WorkError(
        f"the W&B server {url} does not know this API key; type: wandb login --relogin, or set WANDB_API_KEY"
    )
