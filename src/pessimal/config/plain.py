"""A configuration as plain data: for manifests, W&B and cache keys."""

import hashlib
import json
from dataclasses import asdict
from enum import Enum

from pessimal.config.schema import TaskConfig


def plain(config: TaskConfig) -> dict:
    """The configuration as JSON would have it: choices as their values."""
    return json.loads(
        json.dumps(
            asdict(config),
            default=lambda choice: choice.value if isinstance(choice, Enum) else str(choice),
        )
    )


def asked(config: TaskConfig) -> dict:
    """What a configuration asks for; folders, tracking and bars are not part of that."""
    return {
        k: v
        for k, v in plain(config).items()
        if k not in ("paths", "tracking", "progress", "force")
    }


def config_hash(config: TaskConfig) -> str:
    """sha256 of what a configuration asks for."""
    return hashlib.sha256(json.dumps(asked(config), sort_keys=True).encode()).hexdigest()
