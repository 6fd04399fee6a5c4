"""Options of the verbs whose input is results or rollouts: import, compare, rollouts, report, runs
and push."""

import re
from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge
from pydantic.dataclasses import dataclass

from pessimal.config.schema.explain import as_text
from pessimal.config.schema.scan import check_free
from pessimal.config.schema.shared import TaskConfig, check_writable
from pessimal.errors import ConfigError, did_you_mean
from pessimal.options import (
    Count,
    Files,
    Level,
    OneOf,
    Options,
    Texts,
    existing_file,
    parse_duration,
)
from pessimal.rewards.spec import Mode
from pessimal.scoring.spec import TrainerSpec


class ImportFormat(Enum):
    """Layouts of published score files."""

    eloeverything = "eloeverything"
    """elo_rank, elo_score, name, elo_matches, then one column a model."""
    factorial54 = "factorial54"
    """response, then one column for each of 54 prompts; one file a model."""
    vocabulary = "vocabulary"
    """token_id, token_name, token_decoded, then one column a prompt; one file a model."""
    checkpoints = "checkpoints"
    """token_id, token_name, token_decoded, then one column step-N for each checkpoint of a model;
    one prompt."""
    pairs = "pairs"
    """Pairs of answers with their rewards: prompt, two responses, a label, scores by model."""


USELESS = {
    "prompt": ("factorial54", "vocabulary", "pairs"),
    "model_name": ("eloeverything",),
    "set": ("vocabulary", "checkpoints"),
    "tokens": ("eloeverything", "factorial54", "pairs"),
    "score": ("pairs",),
}
"""Options, and the formats whose files say themselves what they would."""


class Score(Enum):
    """Kinds of imported numbers."""

    reward = "reward"
    log_probability = "log_probability"


@dataclass
class ImportConfig(TaskConfig):
    """`pessimal import`: published score files into score tables."""

    format: ImportFormat | None = None
    """Layout of the files, CSV or parquet."""
    path: Files = None
    """The file; for formats with one file a model also a folder, a pattern or a list."""
    prompt: str | None = None
    """Key of the prompt that an EloEverything file or a file of checkpoints was scored with; taken
    from the file's name where that is a known key or its wording."""
    prompts: dict[str, Any] = field(default_factory=dict)
    """Wordings by key, where they are known."""
    model_name: str | None = None
    """The model that a file is of, also typed model=NAME: OWNER/NAME, or the label of a known one;
    by default taken from the file's name."""
    set: str | None = None
    """Name of the list of items, or of the pairs; by default eloeverything, what begins the name of
    a factorial54 file, or the name of the first file of pairs."""
    score: Score | None = None
    """The kind of the numbers: reward, or log_probability of a language model. Rewards where not
    given, but what looks like log-probabilities is then refused."""
    tokens: str | None = None
    """A list of terms (a CSV file with the column token_decoded): only the tokens with these texts,
    of vocabularies and checkpoints."""

    def check(self) -> None:
        if self.format is None or self.path is None:
            raise ConfigError("type: pessimal import format=eloeverything path=greatest.csv")
        for option, formats in USELESS.items():
            if getattr(self, option) is not None and self.format.value in formats:
                typed = option.removesuffix("_name")
                raise ConfigError(f"{typed}= says nothing of {self.format.value}: leave it out")
        if self.set is not None:
            if not re.fullmatch(r"[\w.-]+", self.set):
                raise ConfigError(f"set={self.set!r}: a name has letters, digits, . _ and - only")
            check_free("set", self.set)
        if self.tokens is not None:
            existing_file("tokens", self.tokens)


class Join(Enum):
    """When a token of one model and a token of another are the same."""

    auto = "auto"
    """As `stripped` where vocabularies differ, else as `exact`."""
    exact = "exact"
    """Their texts are the same, white space included."""
    stripped = "stripped"
    """Their texts are the same without outer white space; of a model's several such tokens the
    barest counts."""


@dataclass
class IdentityAxis(Options):
    """Terms that name groups of people along one axis."""

    about: str = ""
    """A description of the terms, in neutral words; shown on the page."""
    source: str = ""
    """Where the list comes from."""
    terms: list[str] = field(default_factory=list)
    """Words in lower case, each one word."""


@dataclass
class WordingSpec(Options):
    """A factorial of wordings: every combination of the levels is a prompt whose key is the levels
    joined by `_`."""

    _prefix: ClassVar[str] = "wording"

    factors: dict[str, list[str]] = field(default_factory=dict)
    """Levels by factor, in the order in which they stand in the key."""

    def check(self) -> None:
        if taken := sorted(set(self.factors) & {"token", "model", "wording", "frame", "rest"}):
            raise ConfigError(f"wording.factors: {taken[0]} means something else here: rename it")
        levels = [level for names in self.factors.values() for level in names]
        if empty := [factor for factor, names in self.factors.items() if not names]:
            raise ConfigError(f"wording.factors.{empty[0]} has no levels")
        if twice := sorted({level for level in levels if levels.count(level) > 1}):
            raise ConfigError(f"wording.factors: the level {twice[0]!r} is named twice")
        if wrong := [level for level in levels if "_" in level or not level]:
            raise ConfigError(f"wording.factors: {wrong[0]!r} holds `_`, which joins levels")


SCORED_PAIRS = "scored-pairs/"
"""Begins the reference of pairs that were imported with their rewards."""
TABLES_ALONE = (
    *("tables", "explanations", "searches", "prompts", "reference", "sets", "mode"),
    *("paper", "replicates", "permutations", "top", "rbo_persistence", "rbo_depth", "join"),
    *("frequencies", "quantised", "words", "policy", "mitigations", "only"),
    "analyses",
)
"""Options of `compare` that say nothing of pairs of answers."""


@dataclass
class CompareConfig(TaskConfig):
    """`pessimal compare`: models with one another, with prompts and with people."""

    name: str = "comparison"
    """Name of the artifact."""
    tables: Files = None
    """Score tables: a file, a folder, a pattern or a list of these; by default the registry's."""
    explanations: list[str] = field(default_factory=list)
    """Instead of score tables, explanations of the registry: their names, or [all]."""
    searches: list[str] = field(default_factory=list)
    """Instead of score tables, searches of the registry: their names, or [all]; what each found is
    scored by every model of the registry, or by `models`."""
    models: list[str] = field(default_factory=list)
    """Only these models, by any of their names, folders or addresses; all of them where empty. With
    pairs of answers, the models that score them."""
    prompts: dict[str, Any] = field(default_factory=dict)
    """Only these prompts; all of them where empty."""
    reference: Annotated[str | None, OneOf((None, "published"))] = None
    """Beside the chosen models, the ten published ones, on the items and prompts that both were
    scored on; their scores are in the registry once they are imported."""
    sets: list[str] = field(default_factory=list)
    """Only these candidate sets, `vocabulary` or the name of a list of items; all of them where
    empty."""
    mode: Mode | None = None
    """Only scans of this mode. Where it is not given, a model scanned in several is represented by
    ids (else text, else paper), and a section of its own compares its modes."""
    paper: bool = False
    """Follow the published procedure where ours differs."""
    replicates: Annotated[int, Ge(100)] = 1000
    """Bootstrap replicates behind each interval of compared explanations."""
    permutations: Annotated[int, Ge(100)] = 10_000
    """Node permutations behind each p-value of the representational similarity analysis."""
    confidence: Level = 0.95
    """Level of the intervals."""
    top: Count = 20
    """Tokens named at each end."""
    rbo_persistence: Level = 0.9
    """p of rank-biased overlap, the chance that a reader goes on to the next rank."""
    rbo_depth: Count = 132
    """Depth of rank-biased overlap, in ranks."""
    join: Join = Join.auto
    """The rule by which tokens of different models are the same: exact texts, or texts without
    outer white space; auto takes these where vocabularies differ."""
    lexicons: dict[str, str] = field(default_factory=dict)
    """Sentiment lexicons by name: afinn, textblob, or a CSV file with the columns word and
    valence."""
    frequencies: str = "wordfreq"
    """Word frequencies: wordfreq, a CSV file with the columns word and per_million, or the British
    National Corpus list as it is given out (1_1_all_alpha.txt)."""
    identity: dict[str, IdentityAxis] = field(default_factory=dict)
    """Identity terms by axis."""
    quantised: dict[str, str] = field(default_factory=dict)
    """Models in full precision by the names of their quantised selves, such as +quantised.Q=M;
    NAME-nf4, NAME-AWQ and the like are taken for NAME quantised without it."""
    words: list[str] = field(default_factory=list)
    """Words to look at by name: what the step between two language models does to them, and their
    ranks over checkpoints."""
    policy: str | None = None
    """A language model whose log-probabilities were scanned: what optimising each reward would do
    to it is forecast."""
    mitigations: list[str] = field(default_factory=list)
    """Other rewards that are forecast beside each: without:FEATURE (the feature's line taken away),
    null_space:AXIS (the direction of its identity terms projected out of the states; identity: of
    all axes) or mix:MODEL (half of each)."""
    polarity: dict[str, Annotated[int, OneOf((1, -1))]] = field(default_factory=dict)
    """1 for a prompt that good words answer, -1 for one that bad words do, by prompt key or by a
    level in the key."""
    pairs: Any = field(default_factory=list)
    """Instead of score tables, labelled pairs of answers, which every model of `models` scores: a
    file (.jsonl, .jsonl.gz, .json, .parquet), embedded (the 210 that come with pessimal), or
    scored-pairs/NAME, which was imported. Of score tables: prompts that are compared two by two,
    such as [[best,worst],[mine,yours]]; by default those of opposite polarity."""
    batch_size: Count | None = None
    """Conversations per batch where models score pairs of answers; null finds it from the memory
    there is."""
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    """The device on which models score pairs of answers."""
    wording: WordingSpec = field(default_factory=WordingSpec)
    """Prompts that are one question in many wordings."""
    only: Texts = field(default_factory=list)
    """The analyses that are run, such as agreement or [agreement,geometry]; all where empty."""
    analyses: list[Any] = field(default_factory=list)
    """Analyses of your own, beside all others: [module:function], of functions under `@analysis`,
    or [{_target_: module.function, KEY: VALUE}], of a function that returns one; those of installed
    packages (entry point `pessimal.analyses`) are always there."""

    def check(self) -> None:
        if self.mitigations and self.policy is None:
            raise ConfigError("mitigations are of a forecast, which needs a policy: policy=NAME")
        names = ("searches", "explanations", "tables", "reference")
        apart = [name for name in names if getattr(self, name)]
        if apart[1:] and apart[0] in names[:2]:
            raise ConfigError(f"{apart[0]} are compared apart: leave out {apart[1]}=")
        if isinstance(self.pairs, str):
            self._check_answers()
        elif wrong := [pair for pair in self.pairs if not _is_pair(pair)]:
            typed = f"[{','.join(map(str, wrong[0]))}]" if isinstance(wrong[0], list) else wrong[0]
            raise ConfigError(f"pairs: {typed} is no pair; type pairs=[[best,worst]], or FILE")

    def _check_answers(self) -> None:
        """ConfigError for options that say nothing of pairs of answers, and for a file that is not
        there."""
        plain = CompareConfig()
        if extra := [name for name in TABLES_ALONE if getattr(self, name) != getattr(plain, name)]:
            raise ConfigError(f"{extra[0]}= says nothing of pairs={self.pairs}: leave it out")
        self.trainer.check_alone("pairs are scored on one device of one machine")
        if self.pairs == "embedded" and not self.models:
            raise ConfigError("pairs=embedded: whose accuracy? Type models=[NAME]")
        if self.pairs != "embedded" and not self.pairs.startswith(SCORED_PAIRS):
            existing_file("pairs", self.pairs)


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and pair[0] != pair[1]


class Part(Enum):
    """Parts of a response."""

    answer = "answer"
    """All outside of <think>…</think>."""
    thought = "thought"
    """All inside."""
    all = "all"


@dataclass
class RolloutColumns:
    """Columns of rollouts by what they hold, where they are not recognised."""

    prompt: str | None = None
    """The prompt: a text, or a conversation."""
    response: str | None = None
    """The response: the text that the policy wrote."""
    reward: str | None = None
    """The reward."""
    truth: str | None = None
    """A trusted reward, as a number."""
    answer: str | None = None
    """The true answer, as a text."""
    group: str | None = None
    """Rollouts that are compared have the same value; those of one prompt by default."""
    step: str | None = None
    """The step of training."""
    advantage: str | None = None
    """The trainer's own advantage."""
    response_a: str | None = None
    """The first response of a pair."""
    response_b: str | None = None
    """The second response of a pair."""
    label: str | None = None
    """A pair's better response."""
    preference: str | None = None
    """By how much, or with what probability, one response of a pair is preferred."""


@dataclass
class RolloutsConfig(TaskConfig):
    """`pessimal rollouts FILE`: what a reward pays for in rollouts, what it pays for wrongly, what
    training on it will amplify."""

    file: str | None = None
    """The file that a trainer wrote, or a folder with one for each step; typed as the word behind
    the verb."""
    columns: RolloutColumns = field(default_factory=RolloutColumns)
    """Columns by what they hold, where they are not recognised."""
    where: Part = Part.answer
    """The part of a response that counts: answer, thought (inside <think>), or all."""
    reward: Texts = field(default_factory=list)
    """The grader, FILE.py:FUNCTION or whatever a model is typed as, which is asked about corrupted
    rollouts; several are compared on the same rollouts."""
    tasks: str | None = None
    """JSONL file of prompts with the columns that the grader is given; by default each prompt with
    its true answer."""
    tokenizer: str | None = None
    """The policy's, a name of conf/model, a Hub repository or a folder: features are then texts of
    one to five of its tokens, and their number is a length."""
    budget: str | None = None
    """Time that the grader may be asked for, such as 10m; as long as it takes by default."""
    scaled: bool = True
    """The trainer divides advantages by their standard deviation, as GRPO does; not Dr. GRPO and
    RLOO."""
    private: bool = False
    """Publish no text of a rollout: neither in the registry nor at W&B."""
    name: str | None = None
    """Name of the artifact; the file's own by default."""
    strict: bool = True
    """Exit with 1 where the reward fails, and with 3 where there is neither truth nor answer."""

    def check(self) -> None:
        if self.file is None:
            raise ConfigError("rollouts of what? Type: pessimal rollouts completions.parquet")
        if not Path(self.file).expanduser().is_dir():
            existing_file("file", self.file)
        if self.tasks is not None:
            existing_file("tasks", self.tasks)
        if self.budget is not None:
            parse_duration(self.budget)


@dataclass
class ReportConfig(TaskConfig):
    """`pessimal report`: one HTML page."""

    name: str = "report"
    """Name of the artifact."""
    title: str = "What these reward models want"
    """Heading of the page."""
    artifacts: list[str] = field(default_factory=list)
    """References such as comparison/quickstart, comparison/quickstart:v0, search-result/NAME,
    study/NAME or explanation/NAME; the newest comparison where empty."""
    notes: list[str] = field(default_factory=list)
    """Paragraphs of Markdown for the page's foot: whose data these are, under which licence."""
    space: str | None = None
    """A folder that gets the page too, as a static Space of Hugging Face serves it: index.html, and
    a README.md that says so."""
    explorer: bool = True
    """Carry every token's rewards and ranks, to be searched on the page: 0.5 MB a model and prompt
    at 128,000 tokens."""
    explorer_prompts: list[str] = field(default_factory=list)
    """Prompts in the explorer; those that the most models were asked where empty."""

    def check(self) -> None:
        if self.space is None:
            return
        check_writable("space", self.space)
        readme = Path(self.space).expanduser() / "README.md"
        if readme.is_file() and "sdk: static" not in readme.read_text(encoding="utf-8"):
            words = "a README.md of something else; give an empty folder"
            raise ConfigError(f"space={self.space!r} has {words}")


class RunsAction(Enum):
    """Actions on the registry; typed as a word after `runs`."""

    list = "list"
    """One line an artifact."""
    show = "show"
    """One artifact: manifest, files, what it was made from, what was made from it."""
    diff = "diff"
    """The differences of two artifacts."""
    verify = "verify"
    """Is every byte as it was published? Exit code 1 where one is not."""


class RunsFormat(Enum):
    """Formats of the output."""

    table = "table"
    """For people; cut to the width of the terminal."""
    json = "json"
    csv = "csv"
    """A list, a difference, or a table of one artifact; safe to open in a spreadsheet."""


NAMES = {
    RunsAction.list: (0, 0, "pessimal runs name='plain-*'"),
    RunsAction.show: (1, 1, "pessimal runs show score-table/plain-bpe-0--greatest"),
    RunsAction.diff: (2, 2, "pessimal runs diff plain-bpe-0--greatest plain-bpe-0--worst"),
    RunsAction.verify: (0, 1, "pessimal runs verify plain-bpe-0--greatest"),
}
"""The least and the largest number of names of each, and an example."""
FILTERS = ("type", "of_model", "prompt", "name")


@dataclass
class RunsConfig(TaskConfig):
    """`pessimal runs [show NAME | diff A B | verify [NAME]]`: what is in the registry."""

    action: RunsAction = RunsAction.list
    """list, show, diff or verify."""
    names: list[str] = field(default_factory=list)
    """Artifacts that are shown, compared or verified: name, name:v0, type/name, type/name:v0, or a
    W&B run's id."""
    type: str | None = None
    """Only artifacts of this type, such as score-table. Here and below * and ? stand for
    anything."""
    of_model: str | None = None
    """Only those of this model; typed as model=NAME, which Hydra alone would take for its group of
    that name."""
    prompt: str | None = None
    """Only those of this prompt."""
    name: str | None = None
    """Only those of this name, such as 'plain-*'."""
    where: str | None = None
    """A condition on fields and figures, as pandas' DataFrame.query reads it, such as 'n > 1000 and
    mean < 0'; a figure with a dot in its name stands in backticks."""
    all: bool = False
    """Older versions too."""
    sort: str = "name"
    """name (type, name, version), a field such as created, or a figure."""
    descending: bool = False
    """From the largest to the smallest, from the newest to the oldest."""
    format: RunsFormat = RunsFormat.table
    """table, json or csv."""
    table: str | None = None
    """With show and format=csv: the table of the artifact, such as agreement; null where it has
    only one."""

    def check(self) -> None:
        lowest, highest, example = NAMES[self.action]
        if not lowest <= len(self.names) <= highest:
            wanted = (
                f"{lowest} name{'s' * (lowest > 1)}"
                if lowest == highest
                else f"up to {highest} name"
            )
            count = f"{len(self.names)} were given ({', '.join(self.names) or 'none'})"
            raise ConfigError(f"runs {self.action.value} takes {wanted}, and {count}: {example}")
        filters = [name for name in (*FILTERS, "where") if getattr(self, name) is not None]
        if filters and self.action is not RunsAction.list:
            typed = filters[0].removeprefix("of_")
            raise ConfigError(f"{typed}= chooses what is listed; type for example: {example}")
        if self.action is RunsAction.verify and self.format is RunsFormat.csv:
            raise ConfigError("runs verify has format=table or format=json; leave out format=csv")
        if self.table and (self.action is not RunsAction.show or self.format is not RunsFormat.csv):
            raise ConfigError("table= is for CSV: pessimal runs show NAME format=csv table=TABLE")


@dataclass
class PushConfig(TaskConfig):
    """`pessimal push`: the registry to W&B, asked back; where to is `tracking.project` and
    `tracking.entity`."""

    type: Texts = field(default_factory=list)
    """Only artifacts of this type, or of a list of types; all where null."""
    name: Texts = field(default_factory=list)
    """Only artifacts of this name, or of a list of names, every version; all where null."""


QUIET = (
    "hydra.run.dir=.",
    "hydra.output_subdir=null",
    "hydra.job_logging.root.handlers=[console]",
    "~hydra.job_logging.handlers.file",
)
"""Hydra keeps a folder of every run; looking at a registry leaves none, also where nothing can be
written."""
_NAME = re.compile(r"[A-Za-z0-9._:/-]+")
_FREE = {*FILTERS, "where", "sort", "table"}


def runs_overrides(
    words: Sequence[str], overrides: Sequence[str], options: Sequence[str]
) -> list[str]:
    """The overrides for `runs` and the bare words after it: an action, then names.

    Values that Hydra would stumble over (n>1000) are put into the quotes that it wants.

    Raises:
        ConfigError: the first word is no action, a name is none, or a sweep is asked for.
    """
    if {"-m", "--multirun"} & set(options):
        raise ConfigError("runs lists a registry, and has nothing to sweep; leave out -m")
    actions = [action.value for action in RunsAction]
    quoted = [_quoted(override) for override in overrides]
    if not words:
        return [*quoted, *QUIET]
    action, *names = words
    if action not in actions:
        hint = f" To list these: pessimal runs 'name={action}*'" * bool(_NAME.fullmatch(action))
        guess = did_you_mean(action, actions) or hint
        raise ConfigError(f"after runs comes show, diff or verify, not {action!r}.{guess}")
    if wrong := [name for name in names if not _NAME.fullmatch(name)]:
        raise ConfigError(f"runs {action}: {wrong[0]!r} is no artifact's name: type TYPE/NAME:v0")
    return [*quoted, f"action={action}", f"names=[{','.join(map(as_text, names))}]", *QUIET]


def _quoted(override: str) -> str:
    """The override as Hydra is to read it: its value in quotes where it is free text."""
    if override.startswith("model="):
        override = f"of_{override}"
    key, _, value = override.partition("=")
    if key not in _FREE or value == "null" or value[:1] in ("[", '"', "'"):
        return override
    return f"{key}={as_text(value)}"
