"""Options of `pessimal explain`."""

import re
from dataclasses import field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Interval
from omegaconf import MISSING
from pydantic.dataclasses import dataclass

from pessimal.config.schema.shared import TaskConfig
from pessimal.errors import ConfigError, ModelError
from pessimal.explaining.attribute import OVERALL, PLACEBO, Edit
from pessimal.options import Count, Level, OneOf, Options, Text
from pessimal.rewards.named import language_model_of
from pessimal.rewards.spec import CheckpointSpec, ModelSpec
from pessimal.scoring.spec import TrainerSpec

if TYPE_CHECKING:
    from pessimal.tables.comparisons import Loaded

PAIR = ("prompt", "chosen", "rejected")
"""Options whose values are texts, taken as they are typed."""


class Source(Enum):
    """Where comparisons come from."""

    embedded = "embedded"
    """Sixty everyday comparisons that were written for this package."""
    pairs = "pairs"
    """Pairs of a good answer and a bad one in seven categories, written for this package."""
    jsonl = "jsonl"
    """A file of one's own, in our format, TRL's or that of a published data set."""
    helpsteer2 = "helpsteer2"
    """nvidia/HelpSteer2."""
    hh_rlhf = "hh_rlhf"
    """Anthropic/hh-rlhf."""


@dataclass
class ComparisonsSpec(Options):
    """The comparisons that are explained."""

    _prefix: ClassVar[str] = "comparisons"

    name: str | None = None
    """Short name of the set, used in artifact names; of a file its own name where none is given."""
    source: Source = Source.embedded
    """Where they come from."""
    path: str | None = None
    """File (jsonl), or for a Hub dataset another repository or a local copy of it."""
    revision: str | None = None
    """Commit of the Hub dataset."""
    split: str = "train"
    """Split of the Hub dataset."""
    subset: str | None = None
    """Folder of the Hub dataset, such as helpful-base."""
    n: Count | None = None
    """The number of comparisons, drawn at random by `seed`; null takes all."""
    single_turn: bool = False
    """Only conversations of one turn."""

    def check(self) -> None:
        if self.source is Source.jsonl and not self.path:
            raise ConfigError("comparisons=jsonl needs a file: type comparisons.path=FILE")
        if self.source in (Source.embedded, Source.pairs) and self.path:
            raise ConfigError("comparisons.path goes with a file: type comparisons=jsonl")

    def load(self, *, skip_bad: bool = False) -> "Loaded":
        """The comparisons, of one turn where these alone are asked for, and what was left out."""
        from pessimal.tables.comparisons import load  # pandas

        loaded = load(
            self.source.value,
            path=Path(self.path).expanduser() if self.path else None,
            revision=self.revision,
            split=self.split,
            subset=self.subset,
            skip_bad=skip_bad,
        )
        if not self.single_turn:
            return loaded
        one_turn = [c for c in loaded.comparisons if [turn.role for turn in c.turns] == ["user"]]
        return replace(loaded, comparisons=tuple(one_turn))


@dataclass
class AttributeSpec(Options):
    """An attribute along which responses are changed."""

    description: Text = MISSING
    """A response with more of it, described in one sentence."""
    polarity: Annotated[int, OneOf((1, -1))] = 1
    """1 where more of it makes a response better, -1 where more makes it worse."""
    more: list[Edit] = field(default_factory=list)
    """Rules that give a response more of it, all applied in their order."""
    less: list[Edit] = field(default_factory=list)
    """Rules that give a response less of it."""
    detect: str | None = None
    """Regular expression whose matches are counted as its amount, for the judge."""
    english: bool = False
    """Its rules are for English: a response that does not read as English is left alone."""


class JudgeKind(Enum):
    """Who says whether an edit did what was asked."""

    rules = "rules"
    """Detectors of the attributes, independent of the rules that perturb."""
    llm = "llm"
    """The endpoint of `judge_model`, blind to which text is the edited one."""
    local = "local"
    """The language model `judge_model` on this machine, as blind."""


@dataclass
class ExplainConfig(TaskConfig):
    """`pessimal explain`: which changes of a response flip a model's preference."""

    model: ModelSpec = MISSING
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    prompt: str | None = None
    """One pair instead of a set: the question. Give `chosen` and `rejected` as well."""
    chosen: str | None = None
    """One response to `prompt`."""
    rejected: str | None = None
    """Another response to `prompt`."""
    comparisons: ComparisonsSpec = field(default_factory=ComparisonsSpec)
    skip_bad: bool = False
    """jsonl: leave out rows that cannot be read, and count them; else the first is an error."""
    contrast: dict[str, AttributeSpec] = field(default_factory=dict)
    """Attributes by name."""
    perturber: dict[str, Any] = field(default_factory=dict)
    """Who changes the responses: `_target_`, the path of a class, and its options, from
    conf/perturber."""
    judge: JudgeKind = JudgeKind.rules
    """Who says whether an edit did what was asked."""
    judge_model: str | None = None
    """llm: the judge's name at its endpoint. local: a name of conf/model such as smollm2, a folder
    or a Hub repository."""
    judge_base_url: str | None = None
    """Address of the judge's endpoint; null is the perturber's, or OpenAI's."""
    fluency: str | None = None
    """Causal language model under which edits are to be fluent: a name of conf/model such as
    smollm2, a folder or a Hub repository. Its perplexity of each edit over that of the response is
    measured; null does not."""
    both_ways: bool = True
    """Change responses to the better and to the worse on both sides. A model that likes what
    polarity calls worse only flips in the second half; without it there are half as many edits,
    those of the published method."""
    seeds: Count = 1
    """Perturbations of each kind."""
    placebos: Annotated[int, Ge(0)] = 4
    """Edits that keep the meaning, for each response, beside the attributes: the null that flips
    are held against."""
    overall: Annotated[int, Ge(0)] = 0
    """llm, local: edits that make a response better or worse in whatever way, for each response,
    beside the attributes."""
    tie: Annotated[float, Ge(0)] | None = None
    """Margins no larger than this are ties, in units of reward; null takes what the rewards'
    numerical error allows."""
    shrink: bool = True
    """Look for the smallest part of each counterfactual that still flips, and the largest change
    that does not."""
    exact_hunks: Annotated[int, Interval(ge=0, le=12)] = 8
    """Up to so many separate changes every subset is tried (2 to that power); beyond, the largest
    are reverted first."""
    batch_size: Count | None = None
    """Conversations per batch; null finds it from the memory there is."""
    replicates: Annotated[int, Ge(100)] = 2000
    """Bootstrap replicates behind each interval."""
    permutations: Annotated[int, Ge(100)] = 10_000
    """Sign flips behind each p-value."""
    confidence: Level = 0.95
    """Level of the intervals."""
    examples: Count = 6
    """Comparisons shown in full."""
    dry_run: bool = False
    """llm, local: say how many calls it would take and what they would cost, show examples, and
    stop."""

    def language_model(self, option: str) -> CheckpointSpec:
        """The model of `fluency` or `judge_model`, asked for log-probabilities. ConfigError,
        ModelError where there is none of that name."""
        try:
            return language_model_of(getattr(self, option))
        except (ConfigError, ModelError) as error:
            raise type(error)(f"{option}={getattr(self, option)}: {error}") from error

    @property
    def pair(self) -> tuple[str, str, str] | None:
        """prompt, chosen and rejected of one pair."""
        if self.prompt is None or self.chosen is None or self.rejected is None:
            return None
        return self.prompt, self.chosen, self.rejected

    def check(self) -> None:
        from pessimal.explaining.perturbers import check_options  # pandas comes with it

        self.model.require("explain", "text")
        spec = self.comparisons
        if (
            spec.name is None
        ):  # not in its own check, which the defaults pass before a file is named
            spec.name = Path(spec.path).name.split(".")[0] if spec.path else spec.source.value
        if self.skip_bad and spec.source is not Source.jsonl:
            raise ConfigError("skip_bad=true goes with comparisons=jsonl comparisons.path=FILE")
        missing = [name for name in PAIR if getattr(self, name) is None]
        if missing and len(missing) < len(PAIR):
            raise ConfigError(f"one pair needs prompt, chosen and rejected; add {missing[0]}=TEXT")
        if not self.contrast:
            raise ConfigError("no attributes given; type for example contrast=[default]")
        if taken := {PLACEBO, OVERALL} & set(self.contrast):
            raise ConfigError(f"contrast.{min(taken)}: this name is of edits along no attribute")
        perturber = check_options(self.perturber)
        if self.seeds > 1 and self.perturber.get("temperature") == 0:
            raise ConfigError("perturber.temperature=0 gives all seeds the same text: type seeds=1")
        if (self.overall or self.dry_run) and not hasattr(perturber, "dry_run"):
            option = "overall" if self.overall else "dry_run"
            typed = f"{option}={getattr(self, option)}"
            raise ConfigError(f"{typed}: this perturber asks no model, and is free: perturber=llm")
        if self.judge is not JudgeKind.rules and not self.judge_model:
            model = "NAME_AT_THE_ENDPOINT" if self.judge is JudgeKind.llm else "DIR_OR_ID"
            raise ConfigError(f"judge={self.judge.value} needs a model: type judge_model={model}")
        if self.fluency is not None:
            if not missing:
                raise ConfigError(f"fluency={self.fluency} is of a set, not of one: leave it out")
            self.language_model("fluency")
        if self.judge is JudgeKind.local:
            self.language_model("judge_model")
        self.trainer.check_alone("explain runs on one device of one machine")


def as_typed(override: str) -> str:
    """A text of a pair as Hydra reads it back, whatever it holds: quotes, commas, `${`. One in
    quotes stays as it is."""
    key, _, text = override.partition("=")
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if key not in PAIR or quoted or text == "null":
        return override
    return f"{key}={as_text(text)}"


def as_text(text: str) -> str:
    """A text in quotes, from which Hydra reads it back."""
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)  # else an interpolation
    text = re.sub(r'(\\*)"', r'\1\1\\"', text)
    text = re.sub(r"(\\+)$", r"\1\1", text)
    return f'"{text}"'
