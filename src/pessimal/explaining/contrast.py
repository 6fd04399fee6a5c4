"""The attributes that a configuration describes, with the rules and detectors of each."""

from collections.abc import Mapping
from typing import Any

from pessimal.errors import ConfigError
from pessimal.explaining.attribute import Attribute
from pessimal.explaining.judges.rules import RuleJudge


def read_attributes(contrast: Mapping[str, Mapping[str, Any]]) -> list[Attribute]:
    """The attributes of conf/contrast, by name, as objects.

    Raises:
        ConfigError: the rules or the detector of one, which is named, cannot be read.
    """
    attributes = []
    for name, options in contrast.items():
        try:
            attributes.append(Attribute.of(name, options))
        except ConfigError as error:
            raise ConfigError(f"contrast.{name}: {error}") from error
    RuleJudge.check(attributes)  # its detectors are asked whoever judges
    return attributes
