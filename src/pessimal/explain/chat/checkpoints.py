"""Where the files of a Hub repository or a local folder are.

Knows folders and names. Does not know what kind of model they hold.
"""

import re
from pathlib import Path

from pessimal.errors import ConfigError, ModelError
from pessimal.models.digests import missing_shards
from pessimal.models.hub import snapshot

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|[A-Za-z0-9][\w.-]*")


def check_named(model: str | None, revision: str | None, *, kind: str, example: str) -> str:
    """The model as given; ConfigError where none is, or it can be neither a folder nor a repository."""
    if not model:
        raise ConfigError(
            f"perturber.model is missing: give {kind}, a Hub repository or a local folder, such as perturber.model={example}"
        )
    if Path(model).expanduser().is_dir():
        if revision is not None:
            raise ConfigError(
                f"perturber.revision={revision!r} was given for the local folder {model!r}, which has none: leave it out"
            )
        return model
    if not _HUB_ID.fullmatch(model):
        raise ConfigError(
            f"perturber.model={model!r} is neither a folder on this machine nor a Hub repository of the form org/name"
        )
    return model


def folder_of(model: str, revision: str | None) -> Path:
    """The files on this machine, fetched from the Hub where they are not; ModelError where they cannot be had."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        folder = snapshot(model, revision, local="perturber.model=DIR")
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} holds no config.json; give the folder that `save_pretrained` wrote: perturber.model=DIR"
        )
    if not list(folder.glob("*.safetensors")):
        raise ModelError(f"{folder} holds no *.safetensors; weights are read from nothing else")
    if missing := missing_shards(folder):
        raise ModelError(
            f"{folder} lacks {', '.join(missing[:5])}, weights that its index names: copy it again"
        )
    return folder
