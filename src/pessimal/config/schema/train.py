"""Options of `pessimal train`."""

from dataclasses import dataclass

from omegaconf import MISSING

from pessimal.config.schema.shared import TaskConfig, demo_recipe
from pessimal.errors import ConfigError
from pessimal.models.spec import ModelSpec


@dataclass
class TrainConfig(TaskConfig):
    """`pessimal train`: make a reward model of the demo family."""

    model: ModelSpec = MISSING

    def __post_init__(self):
        if self.model.recipe is None:
            raise ConfigError(
                f"train makes members of the demo family, and model {self.model.name!r} has no recipe. Type for "
                "example: pessimal train model=alder-wordpiece-0"
            )
        demo_recipe(self.model)
