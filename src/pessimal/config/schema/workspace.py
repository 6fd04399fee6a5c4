"""Options of `pessimal workspace`."""

from dataclasses import dataclass, field

from pessimal.config.schema.shared import TaskConfig
from pessimal.errors import ConfigError


@dataclass
class WorkspaceConfig(TaskConfig):
    """`pessimal workspace`: save a W&B workspace, and if asked a report, over the runs of `tracking.project`."""

    prompts: dict[str, str] = field(default_factory=dict)
    """Prompts whose figures are drawn, by their keys."""
    attributes: list[str] = field(default_factory=list)
    """Attributes of explanations whose flip rates are drawn; all together where empty."""
    report: bool = False
    """Save a W&B report of the same panels too."""

    def __post_init__(self):
        if not self.tracking.entity:
            raise ConfigError(
                "a workspace belongs to a user or team: type tracking.entity=NAME, and tracking.project=NAME where it is not "
                f"{self.tracking.project!r}"
            )
