"""Options of the verbs that make or score with one model: scan, check and train."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge
from omegaconf import MISSING

from pessimal.config.schema.shared import TaskConfig, TrainerSpec
from pessimal.config.schema.values import Count, Options, Prompts, existing_file
from pessimal.errors import ConfigError
from pessimal.rewards.spec import Dtype, Mode, ModelSpec, Score

TAKEN = {choice.value for kind in (Dtype, Mode, Score) for choice in kind} | {"plain", "published"}
"""Words that an artifact's name has for other things than its candidates."""


@dataclass
class CandidatesSpec(Options):
    """What is scored as the answer."""

    _prefix: ClassVar[str] = "candidates"

    name: str = "vocabulary"
    """`vocabulary` for every token; otherwise a name for the list of items."""
    path: str | None = None
    """Items, one a line (.txt), or the column `name` of a table (.csv)."""

    def check(self) -> None:
        if self.name == "vocabulary":
            if self.path is not None:
                raise ConfigError(
                    "candidates.path was given for the vocabulary, which needs none. For a list type: "
                    "candidates=items candidates.path=FILE"
                )
            return
        if self.path is None:
            raise ConfigError(f"the item list {self.name!r} needs candidates.path=FILE")
        existing_file("candidates.path", self.path)
        if taken := TAKEN.intersection(self.name.split("--")):
            raise ConfigError(
                f"candidates.name={self.name}: in the names of score tables {taken.pop()!r} stands for something else, and "
                "these items could be taken for a scan of the vocabulary. Give the list another name"
            )


@dataclass
class ScanConfig(TaskConfig):
    """`pessimal scan`: score every candidate on every prompt with one model."""

    model: ModelSpec = MISSING
    prompts: Prompts = field(default_factory=dict)
    """The user turns, verbatim, by key."""
    candidates: CandidatesSpec = field(default_factory=CandidatesSpec)
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    mode: Mode = Mode.ids
    """What stands in the response slot: ids (exactly the token), text (as typed), paper (as published)."""
    batch_size: Count | None = None
    """Candidates per batch; null finds it from the memory there is."""
    certain: Annotated[int, Ge(0)] = 100
    """k: how many of the best and of the worst are made certain after a low-precision scan, by scoring the tails again
    in float32; 0 leaves it as it is."""

    def check(self) -> None:
        if not self.prompts:
            raise ConfigError("no prompts given; type for example prompts=core or prompts=[greatest,worst]")
        vocabulary = self.candidates.name == "vocabulary"
        if self.mode is Mode.ids and not vocabulary:
            raise ConfigError(
                "mode=ids scores token ids; items are texts: type mode=text (or candidates=vocabulary)"
            )
        if self.model.score is not Score.log_probability:
            return
        wanted = Mode.ids if vocabulary else Mode.text
        if self.mode is not wanted:
            raise ConfigError(
                f"mode={self.mode.value} with model.score=log_probability: a language model is asked for token ids of its "
                f"vocabulary and for the texts of items, here {self.candidates.name}. Type mode={wanted.value}"
            )
        self.trainer.check_alone(
            "with model.score=log_probability one forward gives a whole vocabulary, on one device of one machine"
        )


@dataclass
class CheckConfig(TaskConfig):
    """`pessimal check`: is a model's score the same whatever the batch, the padding, the path and the precision?"""

    model: ModelSpec = MISSING
    prompts: Prompts = field(default_factory=dict)
    """The user turn; the first where several are given."""
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    sample: Annotated[int, Ge(8)] = 64
    """Random tokens of the vocabulary that are asked as responses; a quarter as many longer ones come on top."""
    batch_size: Annotated[int, Ge(2)] = 16
    """Responses of a batch, where batches are compared with one by one."""
    dtypes: list[Dtype] = field(default_factory=lambda: list(Dtype))
    """Precisions compared with float32, which must be among them; the model is loaded once for each. [] for none."""
    strict: bool = False
    """Exit with 1 where a check fails. Otherwise a failed check is a finding, and the exit code is 0."""

    def check(self) -> None:
        self.model.check_gives_rewards()
        if not self.prompts:
            raise ConfigError("no prompt given; type for example prompts=greatest")
        if self.dtypes and Dtype.float32 not in self.dtypes:
            names = ",".join(dtype.value for dtype in self.dtypes)
            raise ConfigError(
                f"dtypes=[{names}]: precisions are compared with float32, which is missing. Type "
                f"dtypes=[float32,{names}], or dtypes=[] to leave this out"
            )
        self.trainer.check_alone("check runs on one device of one machine")


@dataclass
class TrainConfig(TaskConfig):
    """`pessimal train`: make a reward model of the demo family."""

    model: ModelSpec = MISSING

    def check(self) -> None:
        if self.model.recipe is None:
            raise ConfigError(
                f"train makes members of the demo family, and model {self.model.name!r} has no recipe. Type for "
                "example: pessimal train model=alder-wordpiece-0"
            )
