"""What to load: a model named by a person, checked as far as that goes without loading anything; and by which names the
models that have a file in `conf/model` are known."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from pessimal.config import CONF
from pessimal.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import pandas as pd

_STEP = re.compile(r"@step-\d+$")
"""Ends the name of a checkpoint (`tables.published.read_checkpoints`)."""
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


@cache
def models_table() -> "pd.DataFrame":
    """The Hub models that have a file in `conf/model`: label, repository, base, developer, size, rank.

    `size` is the nominal number of parameters in billions, `rank` the rank on RewardBench (1 = best; missing for language
    models). In order of rank, then of label.

    Source: Christian et al. 2025, Table 1, for the ten reward models.
    """
    import pandas as pd

    rows = []
    for file in sorted((CONF / "model").glob("*.yaml")):
        entry = OmegaConf.to_container(OmegaConf.load(file))
        if _HUB_ID.fullmatch(str(entry.get("path"))):
            rows.append(
                {
                    "label": entry.get("name", file.stem),
                    "repository": entry["path"],
                    "base": entry.get("base"),
                    "developer": entry.get("developer"),
                    "size": float(entry["parameters"]) / 1e9 if entry.get("parameters") else None,
                    "rank": entry.get("rank"),
                }
            )
    columns = ["label", "repository", "base", "developer", "size", "rank"]
    table = pd.DataFrame(rows, columns=columns).astype({"size": float, "rank": float})
    return table.sort_values(["rank", "label"], kind="stable", ignore_index=True)


def spellings(repository: str, label: str | None = None) -> tuple[str, ...]:
    """The names that a model goes by: its repository `OWNER/NAME`, as files are named after it (`OWNER--NAME`,
    `OWNER_NAME`), and where it has a label, that and the bare `NAME`."""
    names = [repository, repository.replace("/", "--"), repository.replace("/", "_")]
    if label is not None:
        names += [label, repository.split("/")[-1]]
    return tuple(dict.fromkeys(names))


@cache
def known_model(name: str) -> dict | None:
    """The row of `models_table` that a name is of, in any of its spellings; None where there is none."""
    rows = models_table().to_dict("records")
    return next((row for row in rows if name in spellings(row["repository"], row["label"])), None)


def described(model: str, given: Mapping[str, object]) -> dict[str, object]:
    """What is known of a model: base, developer, parameters (a count), rank. What is `given` comes first, then what
    `conf/model` says of a model of this name."""
    row = known_model(model) or {}
    size = row.get("size")
    known = {**row, "parameters": size * 1e9 if size else None}
    return {name: known.get(name) if value is None else value for name, value in given.items()}


def names_of(model: str) -> tuple[str, ...]:
    """Every name that finds the score tables of `model`, which stands there under one of them. A checkpoint is found by
    its own name and by that of its run."""
    step = _STEP.search(model)
    run = model[: step.start()] if step else model
    row = known_model(run)
    names = spellings(row["repository"], row["label"]) if row else spellings(run)
    return (*names, *(name + step[0] for name in names)) if step else names


def answering(asked: Sequence[str], there: Iterable[str]) -> list[str]:
    """Models `asked` for under any of their names, as the models that are `there` are called; a name that none answers to
    stays as it is."""
    names = {model: names_of(model) for model in sorted(set(there))}
    found = {name: [model for model in names if name in names[model]] for name in asked}
    return list(dict.fromkeys(model for name in asked for model in found[name] or [name]))
