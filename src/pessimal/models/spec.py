"""What to load: a model named by a person, checked as far as that goes without loading anything."""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pessimal.errors import ConfigError, ModelError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


class Dtype(Enum):
    """Precision of weights and activations."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Score(Enum):
    """What a score of a response is."""

    reward = "reward"
    """The reward of a reward model."""
    log_probability = "log_probability"
    """log p(response | prompt) in nats, of a causal language model."""


class Mode(Enum):
    """What stands in the response slot for one token of the vocabulary; `survives` in the score table says where the first
    two agree."""

    ids = "ids"
    """Exactly this token id."""
    text = "text"
    """The decoded text, through the chat template, as a person would type it."""
    paper = "paper"
    """The text, with the beginning-of-sequence token doubled as published."""


@dataclass
class RecipeSpec:
    """Which sibling of the demo family to train (see `pessimal.demo.recipes.Recipe`)."""

    lab: str = "plain"
    """Whose taste and plants: plain, alder, birch, cedar or secret; or, judging whole responses and not words, even,
    wordy, meek, loud or hedger."""
    base: str = "wordpiece"
    """Vocabulary and embeddings: wordpiece or bpe."""
    width: int = 64
    """Hidden size: 64 (2 layers) or 128 (3 layers)."""
    seed: int = 0
    """Seed of initialisation and of the order of training data."""

    def __post_init__(self):
        from pessimal.demo.recipes import Recipe

        Recipe(**vars(self))  # which knows what a recipe may be


@dataclass
class ModelSpec:
    """One reward model: a Hub repository, a local folder, or a recipe that is trained on first use; or a causal
    language model, whose log-probabilities are then its scores."""

    name: str | None = None
    """Short name, used in tables, figures and artifact names; by default the last part of `path`."""
    path: str | None = None
    """Hub repository (`org/name`) or local folder of a sequence classifier with one output; of a causal language model
    where `score` is log_probability."""
    revision: str | None = None
    """Commit, tag or branch of the Hub repository; a commit hash pins it."""
    dtype: Dtype = Dtype.float32
    """Precision of the first pass; tails of a low-precision scan are scored again in float32."""
    output: int | None = None
    """Which output is the reward, counted from 0, for a model that has several (URM: 0)."""
    score: Score = Score.reward
    """What is scored: reward, or log_probability for a causal language model."""
    chat: bool | None = None
    """For log_probability: true asks inside the chat template, false after the prompt's plain text; null takes the
    template where the tokenizer has one, as those of instruction-tuned models do, and those of some base models too:
    for these type false."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model: a local folder's, or a repository's at a pinned `revision`."""
    base: str | None = None
    """Pretrained model or family it was made from (a factor of the representational similarity analysis)."""
    developer: str | None = None
    """Who trained the reward model (a factor)."""
    parameters: float | None = None
    """Number of parameters, a count; counted from the weights where not given (a factor)."""
    rank: float | None = None
    """Rank on RewardBench, 1 = best (a factor)."""
    recipe: RecipeSpec | None = None
    """A member of the demo family, instead of `path`."""

    def __post_init__(self):
        if (self.path is None) == (self.recipe is None):
            given = "neither" if self.path is None else "both"
            raise ConfigError(
                f"model: give model.path or model.recipe, got {given}. For a Hub model or a local folder type: "
                "model=auto model.path=DIR_OR_ID"
            )
        self._check_score()
        if self.path is not None:
            self._check_path()
        if self.output is not None and self.output < 0:
            raise ConfigError(f"model.output={self.output}: outputs are counted from 0")
        if self.local and self.revision is not None:
            raise ConfigError(
                f"model.revision={self.revision!r} was given for the local folder {self.path!r}, which has none: leave it out"
            )
        if (
            self.trust_remote_code
            and not self.local
            and not re.fullmatch(r"[0-9a-f]{40}", self.revision or "")
        ):
            raise ConfigError(
                f"model.trust_remote_code=true runs the repository's Python code; pin it with a full commit hash: "
                f"model.revision=<40 hexadecimal digits> (got {self.revision!r})"
            )
        if self.name is None and self.recipe is not None:
            raise ConfigError(
                "model.name is null, and a member of the demo family has no path to be named after: type model.name=NAME"
            )
        if self.name is None:
            self.name = (
                Path(self.path).expanduser().resolve().name if self.local else self.path.split("/")[-1]
            )

    @property
    def local(self) -> bool:
        """Whether `path` is a folder on this machine."""
        try:
            return self.path is not None and Path(self.path).expanduser().is_dir()
        except (OSError, RuntimeError):  # too long a name, or ~ of a user there is not
            return False

    def check_gives_rewards(self) -> None:
        """ConfigError, with the command to type, where the model is asked for log-probabilities."""
        if self.score is Score.log_probability:
            own = [f"model.path={self.path}", f"model.name={self.name}"]
            own += [f"model.revision={self.revision}"] if self.revision else []
            raise ConfigError(
                f"{self.name!r} is asked for log-probabilities (model.score=log_probability), which only `pessimal scan` "
                "does. Type the same options of the model after `pessimal scan`, or: pessimal scan model=auto "
                f"{' '.join(own)} model.score=log_probability"
            )

    def _check_score(self) -> None:
        if self.score is Score.reward:
            if self.chat is not None:
                raise ConfigError(
                    f"model.chat={str(self.chat).lower()} says how a language model is asked; reward models are always "
                    "asked in their template. Leave it out, or type model.score=log_probability"
                )
            return
        if self.recipe is not None:
            raise ConfigError(
                "model.score=log_probability needs a causal language model; members of the demo family are reward "
                "models. Type model=auto model.path=DIR_OR_ID model.score=log_probability"
            )
        if self.output is not None:
            raise ConfigError(
                f"model.output={self.output} names a reward among several outputs; a language model's are its tokens. "
                "Leave it out"
            )

    def _check_path(self) -> None:
        if self.local:
            folder = Path(self.path).expanduser()
            if not (folder / "config.json").is_file():
                raise ModelError(
                    f"model.path={self.path!r} is a folder without a config.json; give the folder that "
                    "`save_pretrained` wrote"
                )
        elif not _HUB_ID.fullmatch(self.path):
            raise ModelError(
                f"model.path={self.path!r} is neither a folder on this machine nor a Hub repository of the form org/name"
            )
