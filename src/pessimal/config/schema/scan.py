"""Options of `pessimal scan`."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from pessimal.config.schema.shared import Strategy, TaskConfig, TrainerSpec, demo_recipe
from pessimal.config.schema.values import at_least, existing_file
from pessimal.errors import ConfigError
from pessimal.models.spec import Dtype, ModelSpec, Score
from pessimal.scoring.mode import Mode

_TAKEN = {choice.value for kind in (Dtype, Mode, Score) for choice in kind} | {"plain", "published"}
"""Words that an artifact's name has for other things than its candidates."""


@dataclass
class CandidatesSpec:
    """What is scored as the answer."""

    name: str = "vocabulary"
    """`vocabulary` for every token; otherwise a name for the list of items."""
    path: str | None = None
    """Items, one a line (.txt), or the column `name` of a table (.csv)."""


@dataclass
class ScanConfig(TaskConfig):
    """`pessimal scan`: score every candidate on every prompt with one model."""

    model: ModelSpec = MISSING
    prompts: dict[str, str] = field(default_factory=dict)
    """The user turns, verbatim, by key."""
    candidates: CandidatesSpec = field(default_factory=CandidatesSpec)
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    mode: Mode = Mode.ids
    """What stands in the response slot: ids (exactly the token), text (as typed), paper (as published)."""
    batch_size: int | None = None
    """Candidates per batch; null finds it from the memory there is."""
    certain: int = 100
    """k: how many of the best and of the worst are made certain after a low-precision scan, by scoring the tails again
    in float32; 0 leaves it as it is."""

    def __post_init__(self):
        if not self.prompts:
            raise ConfigError("no prompts given; type for example prompts=core or prompts=[greatest,worst]")
        for key, text in self.prompts.items():
            if not text.strip():
                raise ConfigError(f"prompts.{key} is empty; a prompt is the question that the model is asked")
        at_least(0, certain=self.certain)
        if self.batch_size is not None:
            at_least(1, batch_size=self.batch_size)
        if self.candidates.name == "vocabulary":
            if self.candidates.path is not None:
                raise ConfigError(
                    "candidates.path was given for the vocabulary, which needs none. For a list type: "
                    "candidates=items candidates.path=FILE"
                )
        elif self.candidates.path is None:
            raise ConfigError(f"the item list {self.candidates.name!r} needs candidates.path=FILE")
        else:
            existing_file("candidates.path", self.candidates.path)
            self._check_name_of_items()
        if self.mode is Mode.ids and self.candidates.name != "vocabulary":
            raise ConfigError(
                "mode=ids scores token ids; items are texts: type mode=text (or candidates=vocabulary)"
            )
        if self.model.score is Score.log_probability:
            self._check_language_model()
        if self.model.recipe is not None:
            demo_recipe(self.model)

    def _check_name_of_items(self) -> None:
        if taken := _TAKEN.intersection(self.candidates.name.split("--")):
            raise ConfigError(
                f"candidates.name={self.candidates.name}: in the names of score tables {taken.pop()!r} stands for something "
                "else, and these items could be taken for a scan of the vocabulary. Give the list another name"
            )

    def _check_language_model(self) -> None:
        wanted = Mode.ids if self.candidates.name == "vocabulary" else Mode.text
        if self.mode is not wanted:
            raise ConfigError(
                f"mode={self.mode.value} with model.score=log_probability: a language model is asked for token ids of its "
                f"vocabulary and for the texts of items, here {self.candidates.name}. Type mode={wanted.value}"
            )
        alone = self.trainer.devices * self.trainer.num_nodes == 1
        if not alone or self.trainer.strategy is not Strategy.auto:
            raise ConfigError(
                f"trainer.devices={self.trainer.devices} trainer.num_nodes={self.trainer.num_nodes} "
                f"trainer.strategy={self.trainer.strategy.value} with model.score=log_probability: one forward gives a "
                "whole vocabulary, on one device of one machine. Leave them out"
            )
