"""What the values of a study's trials depend on, so that one study never mixes values that cannot be compared.

Knows a search's configuration. Does not know trials.
"""

import json
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from pessimal import __version__
from pessimal.config.schema import SearchConfig
from pessimal.errors import ConfigError
from pessimal.tables.files import sha256_of
from pessimal.tuning.space import TUNABLE, Space

# Parts of a model's specification that describe it and change no reward.
_DESCRIPTIONS = ("name", "base", "developer", "parameters", "rank", "trust_remote_code", "score", "chat")


def study_spec(config: SearchConfig, space: Space) -> dict[str, Any]:
    """What is searched, on what, from how many starts, at what budget, and the defaults and the values of options."""
    search, tuning = config.search, config.tuning
    allowed_path = Path(search.allowed_path).expanduser() if search.allowed_path else None
    return _plain(
        {
            "model": {key: value for key, value in asdict(config.model).items() if key not in _DESCRIPTIONS},
            "mode": config.mode,
            "search": {
                "length": search.length,
                "goal": search.goal,
                "allowed": search.allowed,
                "allowed_path": sha256_of(allowed_path) if allowed_path else None,
                **{option: getattr(search, option) for option in TUNABLE},
            },
            "tuning": {
                "prompts": {key: config.prompts[key] for key in tuning.prompts},
                "seeds": tuning.seeds,
                "evaluations": tuning.evaluations,
            },
            "seed": config.seed,
            "params": space.described(),
            "pessimal": __version__,
        }
    )


def check_same(begun: dict[str, Any], now: dict[str, Any], *, name: str, file: Path) -> None:
    """ConfigError naming every difference between the study that was begun and what is asked for now."""
    before, after = _flat(begun), _flat(now)
    differences = [
        f"{key} was {before.get(key)!r} and is now {after.get(key)!r}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    if differences:
        raise ConfigError(
            f"the study {name!r} in {file} was begun for something else: {'; '.join(differences)}. Its trials' values could "
            f"not be compared with new ones. Begin another: tuning.study={name}-2; or give the options it was begun with"
        )


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda v: v.value if isinstance(v, Enum) else str(v)))


def _flat(value: Any, *, at: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {at: value}
    inside: dict[str, Any] = {}
    for key, part in value.items():
        inside |= _flat(part, at=f"{at}.{key}" if at else key)
    return inside
