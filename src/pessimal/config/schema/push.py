"""Options of `pessimal push`."""

from dataclasses import dataclass
from typing import Any

from pessimal.config.schema.shared import TaskConfig
from pessimal.errors import ConfigError


@dataclass
class PushConfig(TaskConfig):
    """`pessimal push`: the registry to W&B, asked back; where to is `tracking.project` and `tracking.entity`."""

    type: Any = None
    """Only artifacts of this type, or of a list of types; all where null."""
    name: Any = None
    """Only artifacts of this name, or of a list of names, every version; all where null."""

    def __post_init__(self):
        self.type = _listed("type", self.type)
        self.name = _listed("name", self.name)


def _listed(option: str, given: Any) -> list[str]:
    """A string, a list of strings or null as a list."""
    listed = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise ConfigError(f"{option}={given!r}: give a string or a list of strings, such as {option}=[a,b]")
    return listed
