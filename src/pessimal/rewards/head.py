"""A reward model: a network whose head gives a number, or one number of several.

Knows the options of such a model and how they go together. `reward_model` knows its weights.
"""

from dataclasses import field
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic.dataclasses import dataclass

from pessimal.errors import ConfigError
from pessimal.rewards.spec import ALL, StepSpec

if TYPE_CHECKING:
    from pessimal.rewards.base import Reward


class Reading(Enum):
    """At which token a reward is read."""

    end = "end"
    """At the last token, whichever it is."""
    own = "own"
    """Where the model's own class reads it: at the last token that is not the pad token."""


@dataclass
class HeadSpec(StepSpec):
    """A reward model: a number that is read off a network's last hidden state, or given by its own
    forward."""

    has_head: ClassVar[bool] = True

    kind: str = "head"
    output: Any = None
    """The output that is the reward, for a model that has several: its number, counted from 0 (URM:
    0), or its label; `all` scans each of them in one pass, as a model of its own."""
    labels: list[str] = field(default_factory=list)
    """Names of the outputs in their order, where the model's configuration has none."""
    read: Reading | None = None
    """Where the reward is read if a conversation ends in the pad token: end, or own (where the
    model's own class reads it); null reads the end, and says by how much the two differ."""
    negate: bool = False
    """For a model that gives costs, of which less is better: the reward is their negative."""

    def check(self) -> None:
        super().check()
        if self.step_token is not None and (self.read is not None or self.output == ALL):
            raise ConfigError("model.step_token goes without model.read and model.output=all")

    def open(self, folder: Path | None, *, cache: str) -> "Reward":
        """The reward model in a folder. ConfigError, ModelError where its head cannot be read as
        asked."""
        # Not before: torch comes with it; and by name, since it imports these options.
        return import_module("pessimal.rewards.reward_model").open_checkpoint(self, folder)
