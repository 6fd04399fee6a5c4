"""Options of `pessimal explain`."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from omegaconf import MISSING

from pessimal.config.schema.shared import TaskConfig, TrainerSpec, demo_recipe
from pessimal.config.schema.values import at_least
from pessimal.errors import ConfigError
from pessimal.explain.attribute import PLACEBO
from pessimal.explain.source import Source
from pessimal.models.spec import ModelSpec


@dataclass
class ComparisonsSpec:
    """What is explained."""

    name: str | None = None
    """Short name of the set, used in artifact names; of a file its own name where none is given."""
    source: Source = Source.embedded
    """embedded, jsonl, helpsteer2 or hh_rlhf."""
    path: str | None = None
    """File (jsonl), or for a Hub dataset another repository or a local copy of it."""
    revision: str | None = None
    """Commit of the Hub dataset."""
    split: str = "train"
    """Split of the Hub dataset."""
    subset: str | None = None
    """Folder of the Hub dataset, such as helpful-base."""
    n: int | None = None
    """How many, drawn at random by `seed`; null takes all."""
    single_turn: bool = False
    """Only conversations of one turn."""


class PerturberKind(Enum):
    """Who changes the responses."""

    rules = "rules"
    """Deterministic English rules, offline."""
    llm = "llm"
    """A language model behind an OpenAI-compatible endpoint, in two steps."""
    local = "local"
    """A causal language model of the Hub or of this machine, in the same two steps."""
    random = "random"
    """Random deletions, swaps and replacements of words: a baseline."""
    blank_filling = "blank_filling"
    """A masked language model fills blanks: a baseline."""
    placebo = "placebo"
    """Edits that keep the meaning: the null."""


@dataclass
class PerturberSpec:
    """Who changes the responses, and how."""

    kind: PerturberKind = PerturberKind.rules
    """rules, llm, local, random, blank_filling or placebo."""
    model: str | None = None
    """llm: the model's name at the endpoint; local, blank_filling: a Hub repository or a folder."""
    revision: str | None = None
    """local, blank_filling: commit of the Hub repository."""
    base_url: str | None = None
    """llm: address of the endpoint, such as http://localhost:8000/v1; null is OpenAI's."""
    api_key_variable: str | None = "OPENAI_API_KEY"
    """llm: environment variable that holds the key; null sends none."""
    temperature: float = 1.0
    """llm, local, blank_filling: of sampling; 0 always takes the likeliest."""
    max_tokens: int = 1024
    """llm, local: most tokens of one answer."""
    requests_per_minute: float = 300.0
    """llm: most calls a minute."""
    concurrency: int = 8
    """llm: most calls at once."""
    timeout: float = 60.0
    """llm: seconds that one call may take."""
    stop_after: int = 5
    """llm: calls in a row that fail for good, after which the work stops; what was answered is kept."""
    retries: int = 5
    """llm: how often a failed call is repeated."""
    attempts: int = 3
    """llm, local: answers asked for, each with another seed, until one is of the asked shape."""
    allow_unanswered: bool = False
    """llm: publish also where questions got no answer after all retries."""
    min_locality: float = 0.0
    """llm, local: least share of an edit inside the words identified; below it the model is asked once more."""
    price_in: float | None = None
    """llm: price of a million tokens that are sent, for the dry run."""
    price_out: float | None = None
    """llm: price of a million tokens that come back."""
    share: float = 0.15
    """random, blank_filling: share of the words that are changed."""

    def __post_init__(self):
        needs = (PerturberKind.llm, PerturberKind.local, PerturberKind.blank_filling)
        if self.kind in needs and not self.model:
            example = "NAME_AT_THE_ENDPOINT" if self.kind is PerturberKind.llm else "HUB_ID_OR_FOLDER"
            raise ConfigError(f"perturber={self.kind.value} needs a model: type perturber.model={example}")
        at_least(
            1,
            **{
                "perturber.concurrency": self.concurrency,
                "perturber.stop_after": self.stop_after,
                "perturber.max_tokens": self.max_tokens,
            },
        )
        at_least(1, **{"perturber.attempts": self.attempts})
        at_least(0, **{"perturber.retries": self.retries})
        for name in ("min_locality", "share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"perturber.{name}={getattr(self, name)} is no share between 0 and 1")
        for name in ("requests_per_minute", "timeout"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"perturber.{name}={getattr(self, name)} must be above 0")
        if self.temperature < 0:
            raise ConfigError(
                f"perturber.temperature={self.temperature}: 0 is greedy, more is wilder; not below 0"
            )


@dataclass
class EditSpec:
    """One rule of an attribute of your own; give exactly one of `find`, `prepend` and `append`."""

    find: str | None = None
    """Regular expression; every match is replaced by `put`, case ignored."""
    put: str = ""
    """What takes its place."""
    prepend: str | None = None
    """Text put before the response."""
    append: str | None = None
    """Text put behind the response."""


@dataclass
class AttributeSpec:
    """An attribute along which responses are changed."""

    description: str = MISSING
    """What a response has that has more of it: one sentence."""
    polarity: int = 1
    """1 where more of it makes a response better, -1 where more makes it worse."""
    more: list[EditSpec] = field(default_factory=list)
    """Rules that give a response more of it."""
    less: list[EditSpec] = field(default_factory=list)
    """Rules that give a response less of it."""
    detect: str | None = None
    """Regular expression whose matches are counted as its amount, for the judge."""


class JudgeKind(Enum):
    """Who says whether an edit did what was asked."""

    rules = "rules"
    """Detectors of the attributes, independent of the rules that perturb."""
    llm = "llm"
    """The endpoint of `judge_model`, blind to which text is the edited one."""


@dataclass
class ExplainConfig(TaskConfig):
    """`pessimal explain`: which changes of a response flip a model's preference."""

    model: ModelSpec = MISSING
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    comparisons: ComparisonsSpec = field(default_factory=ComparisonsSpec)
    contrast: dict[str, AttributeSpec] = field(default_factory=dict)
    """Attributes by name."""
    perturber: PerturberSpec = field(default_factory=PerturberSpec)
    judge: JudgeKind = JudgeKind.rules
    """rules or llm."""
    judge_model: str | None = None
    """The judge's name at `perturber.base_url`, for judge=llm."""
    seeds: int = 1
    """Perturbations of each kind."""
    placebos: int = 4
    """Edits that keep the meaning, for each response, beside the attributes: the null that flips are held against."""
    tie: float | None = None
    """Margins no larger than this are ties, in units of reward; null takes what the rewards' numerical error allows."""
    shrink: bool = True
    """Look for the smallest part of each counterfactual that still flips, and the largest change that does not."""
    exact_hunks: int = 8
    """Up to so many separate changes every subset is tried; beyond, the largest are reverted first."""
    batch_size: int | None = None
    """Conversations per batch; null finds it from the memory there is."""
    replicates: int = 2000
    """Bootstrap replicates behind each interval."""
    permutations: int = 10_000
    """Sign flips behind each p-value."""
    confidence: float = 0.95
    """Level of the intervals."""
    examples: int = 6
    """Comparisons shown in full."""
    dry_run: bool = False
    """llm: say how many calls it would take and what they would cost, show examples, and stop."""

    def __post_init__(self):
        self.model.check_gives_rewards()
        if not self.contrast:
            raise ConfigError(
                "no attributes given; type for example contrast=[default] or contrast=[verbosity]"
            )
        if PLACEBO in self.contrast:
            raise ConfigError(
                f"contrast.{PLACEBO}: that name stands for edits that keep the meaning; choose another"
            )
        for name, attribute in self.contrast.items():
            self._check_attribute(name, attribute)
        at_least(1, seeds=self.seeds, examples=self.examples)
        sampled = (PerturberKind.llm, PerturberKind.local, PerturberKind.blank_filling)
        if self.seeds > 1 and self.perturber.kind in sampled and self.perturber.temperature == 0:
            raise ConfigError(
                f"seeds={self.seeds} with perturber.temperature=0: every seed would give the same text, and standard errors over seeds a "
                "false 0. Type seeds=1, or a temperature above 0"
            )
        at_least(0, placebos=self.placebos, exact_hunks=self.exact_hunks)
        at_least(100, replicates=self.replicates, permutations=self.permutations)
        if not 0 < self.confidence < 1:
            raise ConfigError(
                f"confidence={self.confidence} is no level between 0 and 1; type for example 0.95"
            )
        if self.tie is not None and not self.tie >= 0:
            raise ConfigError(f"tie={self.tie} is no margin; give 0 or more, in units of reward")
        if self.exact_hunks > 12:
            raise ConfigError(
                f"exact_hunks={self.exact_hunks} would try {2**self.exact_hunks:,} subsets each; at most 12"
            )
        if self.batch_size is not None:
            at_least(1, batch_size=self.batch_size)
        if self.trainer.devices * self.trainer.num_nodes > 1:
            raise ConfigError(
                f"trainer.devices={self.trainer.devices} trainer.num_nodes={self.trainer.num_nodes}: explaining asks for a few thousand "
                "rewards, on one device of one machine. Leave them out"
            )
        self._check_comparisons()
        self._check_judge()
        if self.model.recipe is not None:
            demo_recipe(self.model)

    def _check_attribute(self, name: str, attribute: AttributeSpec) -> None:
        where = f"contrast.{name}"
        if attribute.polarity not in (1, -1):
            raise ConfigError(
                f"{where}.polarity={attribute.polarity}: 1 (more is better) or -1 (more is worse)"
            )
        if not str(attribute.description).strip():
            raise ConfigError(
                f"{where}.description is empty; say in a sentence what a response has that has more of it"
            )
        for end in ("more", "less"):
            for i, edit in enumerate(getattr(attribute, end)):
                given = [key for key in ("find", "prepend", "append") if getattr(edit, key) is not None]
                if len(given) != 1:
                    raise ConfigError(
                        f"{where}.{end}[{i}] gives {' and '.join(given) or 'nothing'}; give one of find (with put), "
                        "prepend and append"
                    )

    def _check_comparisons(self) -> None:
        spec = self.comparisons
        if spec.name is None:
            spec.name = Path(spec.path).name.split(".")[0] if spec.path else spec.source.value
        if spec.n is not None:
            at_least(1, **{"comparisons.n": spec.n})
        if spec.source is Source.jsonl and not spec.path:
            raise ConfigError("comparisons=jsonl needs a file: type comparisons.path=FILE")
        if spec.source is Source.embedded and spec.path:
            raise ConfigError(
                "comparisons.path was given for the embedded comparisons, which need none. For a file type: "
                "comparisons=jsonl comparisons.path=FILE"
            )

    def _check_judge(self) -> None:
        if self.judge is JudgeKind.llm and not self.judge_model:
            raise ConfigError("judge=llm needs a model: type judge_model=NAME_AT_THE_ENDPOINT")
        if self.dry_run and self.perturber.kind is not PerturberKind.llm:
            raise ConfigError(
                f"dry_run=true says what perturber=llm would cost; perturber={self.perturber.kind.value} is free"
            )
