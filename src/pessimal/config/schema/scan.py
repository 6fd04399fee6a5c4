"""Options of the verbs that make or score with one model: scan, check and train."""

import copy
from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from annotated_types import Ge, Interval
from omegaconf import MISSING
from pydantic.dataclasses import dataclass

from pessimal.catalogue import ANSWERS, answers
from pessimal.config.schema.explain import ComparisonsSpec
from pessimal.config.schema.shared import PromptedConfig, TaskConfig
from pessimal.conversation import Context, Prefixed, Prompt, read_prefixes, with_prefixes
from pessimal.errors import ConfigError
from pessimal.options import Count, Options, existing_file
from pessimal.rewards.endpoint import forms_of
from pessimal.rewards.named import language_model_of
from pessimal.rewards.server import ServerOptions
from pessimal.rewards.spec import KINDS, CheckpointSpec, Dtype, Mode, ModelSpec
from pessimal.scoring.spec import Strategy, TrainerSpec
from pessimal.training.spec import PreferenceRecipe

if TYPE_CHECKING:
    from pessimal.scoring.candidates import Candidates

CENSUS = "census"
"""candidates of a grader: every token, number and format."""
TAKEN = {choice.value for kind in (Dtype, Mode) for choice in kind} | set(KINDS)
TAKEN |= {"plain", "published", "reward", "vocabulary"}
"""Words that an artifact's name has for other things than its candidates."""
FREQUENT, SCREENED = 5000, 1000
"""Tokens that a CPU scans behind real answers, and that one device of any kind scans before them,
where each takes a whole answer, unless another number is given."""


class Slot(Enum):
    """Where candidates stand in real answers."""

    after = "after"
    before = "before"


@dataclass
class CandidatesSpec(Options):
    """What is scored as the answer."""

    _prefix: ClassVar[str] = "candidates"

    name: str = "vocabulary"
    """`vocabulary` for every token; otherwise a name for the list of items."""
    path: str | None = None
    """Items, one a line (.txt), or the column `name` of a table (.csv)."""
    texts: list[str] = field(default_factory=list)
    """The items themselves, in place of a file."""
    most: Annotated[int, Ge(0)] | None = None
    """The number of most frequent tokens of a vocabulary or a census, and of a vocabulary the
    special ones besides; 0 for all. null takes all, but in real answers on a CPU 5,000, and before
    real answers on one device the 1,000 that the gradient says to add most."""
    ids: list[int] = field(default_factory=list)
    """Of a vocabulary with `most`: ids of tokens that are scored besides."""

    def check(self) -> None:
        if self.ids and not self.most:
            raise ConfigError("candidates.ids adds to the most frequent: give candidates.most=N")
        if self.name in ("vocabulary", CENSUS):
            if self.path is not None or self.texts:
                raise ConfigError("candidates.path and .texts are of candidates=items")
            return
        if self.most:
            raise ConfigError(f"candidates.most={self.most} is of a vocabulary: leave it out")
        if (self.path is None) == (not self.texts):
            raise ConfigError(f"{self.name!r} needs candidates.path=FILE or candidates.texts=[A,B]")
        if self.path is not None:
            existing_file("candidates.path", self.path)
        check_free("candidates.name", self.name)

    def read(self) -> "Candidates | None":
        """The list of items; None for the vocabulary, which the model brings."""
        from pessimal.scoring.candidates import items, listed  # torch

        if self.name in ("vocabulary", CENSUS):
            return None
        if self.path is None:
            return listed(self.texts, name=self.name, where=f"candidates={self.name}")
        return items(Path(self.path).expanduser(), name=self.name)


def check_free(option: str, name: str) -> None:
    """ConfigError where a list's name has a word that stands for something else in the names of
    score tables."""
    if TAKEN.intersection(name.split("--")):
        raise ConfigError(f"{option}={name} means something else here: give another name")


@dataclass
class ScanConfig(PromptedConfig):
    """`pessimal scan`: score every candidate on every prompt with one model."""

    model: ModelSpec = MISSING
    tasks: str | None = None
    """JSONL file of tasks in place of prompts: a line each, {"prompt": "…", "id": …, COLUMN: …};
    its columns are what a trainer's function is given besides."""
    prefixes: str | None = None
    """File of personas by key, as of prompts_path, such as `doctor: You are a doctor.`: each prompt
    is also asked behind each of them, and behind a control of as many words; `compare` pairs
    them."""
    policy: str | None = None
    """A language model, as typed for a model: its log-probabilities are scanned first, and then its
    tokens, as texts where the reward has other ones; `compare policy=NAME` forecasts from both. The
    census of a grader takes its tokenizer alone: tokens, and whether its prompts end in
    `<think>`."""
    answers: Count | None = None
    """Of policy: how many answers it writes that are scored in place of its tokens, drawn by
    `seed`."""
    answer_tokens: Count = 8
    """Of policy: most tokens of such an answer."""
    slot: Slot | None = None
    """Put candidates after or before real answers, in place of answering prompts."""
    contexts: str | None = None
    """Of slot: JSONL file of real answers: messages, or prompt and answer (and rejected), or
    comparisons. Without slot, its messages have {slot} once, where candidates stand."""
    comparisons: ComparisonsSpec = field(default_factory=ComparisonsSpec)
    """Of slot: where real answers come from without `contexts`; of each the preferred one."""
    n_contexts: Count | None = 20
    """Real answers, drawn at random by `seed`; null takes all."""
    candidates: CandidatesSpec = field(default_factory=CandidatesSpec)
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    mode: Mode | None = None
    """What stands in the response slot: ids (exactly the token), text (as typed), paper (as
    published); null takes ids for a vocabulary, text for items and for what takes texts alone."""
    batch_size: Count | None = None
    """Candidates per batch; null finds it from the memory there is."""
    certain: Annotated[int, Ge(0)] = 100
    """k: how many of the best and of the worst are made certain after a low-precision scan, by
    scoring the tails again in float32; 0 leaves it as it is."""
    states: bool | None = None
    """Keep the last hidden states and input embeddings of words, of the model that reward training
    began from (model.base_path): `compare` then says what random heads on them would show. null
    keeps them but for log-probabilities of a vocabulary: one forward gives these all, and states
    take one a word."""

    @property
    def screens(self) -> bool:
        """Whether the gradient chooses the tokens; several processes might choose several."""
        whole = self.candidates.name == "vocabulary" and self.candidates.most is None
        can = "gradient" in self.model.can and self.trainer.alone
        return self.slot is Slot.before and whole and can

    @cached_property
    def policy_spec(self) -> CheckpointSpec:
        """The policy as a model. ConfigError where there is none of this name."""
        return language_model_of(self.policy or "")

    def asked(self) -> dict[str, tuple[Prompt, Prefixed | None]]:
        """The prompts by key, alone and behind the personas."""
        return with_prefixes(self.prompts, read_prefixes(self.prefixes) if self.prefixes else {})

    def questions(self) -> tuple[Mapping[str, Prompt | Context], dict[str, Prefixed]]:
        """The questions by key: real answers that candidates are put into, or prompts, alone and
        behind the personas; and the personas."""
        from pessimal.scoring.contexts import of_comparison, read_contexts, sample  # pandas

        slot = self.slot and self.slot.value
        if self.contexts is not None:
            answers = read_contexts(self.contexts, slot)
        elif slot is not None:
            comparisons = self.comparisons.load().comparisons
            answers = {each.key: of_comparison(each, slot) for each in comparisons}
        else:
            prompts = self.asked().items()
            personas = {key: persona for key, (_, persona) in prompts if persona is not None}
            return {key: prompt for key, (prompt, _) in prompts}, personas
        return sample(answers, self.n_contexts, seed=self.seed), {}

    def check(self) -> None:
        self.resolve()

    def resolve(self) -> Self:
        """The same with what follows from it decided: prompts of tasks, candidates, mode, states.

        Raises:
            ConfigError: the options do not go together, or a file among them cannot be read.
        """
        resolved = copy.copy(self)
        resolved._decide()
        return resolved

    def _decide(self) -> None:
        from pessimal.rewards.callable import prompts_of, read_tasks, true_answers  # pandas

        tasks = [] if self.tasks is None else read_tasks(self.tasks)
        if self.tasks is not None:
            self.prompts, self.model = prompts_of(tasks), self.model.with_tasks(self.tasks)
        census, grades = self.candidates.name == CENSUS, self.model.grades_tasks
        if census and not (tasks and grades):
            raise ConfigError("candidates=census is of a function: FILE.py:FUNCTION tasks=FILE")
        vocabulary = self.candidates.name == "vocabulary"
        if self.slot is not None or self.contexts is not None:
            for name in ("tasks", "prefixes", "policy"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"{name}= goes with prompts: leave out slot=, contexts=")
            if self.contexts is not None:
                existing_file("contexts", self.contexts)
            if self.trainer.strategy is Strategy.sharded:
                raise ConfigError("slot=, contexts= with trainer=sharded: type trainer=gpu")
            if self.states:
                raise ConfigError("states of words are kept of prompts: leave out states=true")
            self.states = False
            is_typed = self.candidates.most is not None or self.screens
            whole = vocabulary and self.model.has_vocabulary
            if whole and not is_typed and self.trainer.accelerator == "cpu":
                self.candidates = replace(self.candidates, most=FREQUENT)
        if vocabulary and grades and self.answers is None:  # of tasks with true answers
            census = any(true_answers(tasks))
        if self.policy is not None and not census:
            _ = self.policy_spec
        if self.answers is not None:
            if self.policy is None or not vocabulary:
                raise ConfigError("answers= are a policy's: policy=NAME, without candidates=")
            if self.mode not in (None, Mode.text):
                raise ConfigError(f"mode={self.mode.value}: answers are texts; leave it out")
            self.mode = Mode.text
        if not self.asked():
            raise ConfigError("no prompts given; type for example prompts=core")
        if census:
            self.candidates, self.mode = replace(self.candidates, name=CENSUS), Mode.text
            return
        if vocabulary and self.policy is None and not self.model.has_vocabulary:
            self.candidates, vocabulary = CandidatesSpec(ANSWERS, None, answers()), False
        ids = vocabulary and "ids" in self.model.can
        self.mode = self.mode or (Mode.ids if ids else Mode.text)
        if self.mode is Mode.ids and not vocabulary:
            raise ConfigError("items are texts: type mode=text (or candidates=vocabulary)")
        self.model.check_scan(self.mode, of_vocabulary=vocabulary)
        kind = self.model.kind
        if "ids" not in self.model.can:
            self.trainer.check_alone(f"model.kind={kind} runs no network here")
        if self.trainer.strategy is Strategy.sharded and not self.model.can_be_sharded:
            raise ConfigError(f"trainer=sharded splits what model.kind={kind} reads: trainer=ddp")


class TrainerLoop(Enum):
    """Trainers whose calls of a reward model are known."""

    trl = "trl"
    verl = "verl"
    openrlhf = "openrlhf"


@dataclass
class CheckConfig(PromptedConfig):
    """`pessimal check`: is a model's score the same whatever the batch, the padding, the path and
    the precision? With `url`: is it served right? With `loop`: does a trainer send what the model's
    template says?"""

    model: ModelSpec = MISSING
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    sample: Annotated[int, Ge(8)] = 64
    """Random tokens of the vocabulary that are asked as responses; a quarter as many longer ones
    come on top."""
    batch_size: Annotated[int, Ge(2)] = 16
    """Responses of a batch, where batches are compared with one by one."""
    dtypes: list[Dtype] = field(default_factory=lambda: list(Dtype))
    """Precisions compared with float32, which must be among them; the model is loaded once for
    each. [] for none."""
    strict: bool = False
    """Exit with 1 where a check fails. Otherwise a failed check is a finding, and the exit code is
    0."""
    url: str | None = None
    """Address of a server that should give this model's rewards, such as http://localhost:8000: its
    answers are checked, and its faults named."""
    endpoint: ServerOptions = field(default_factory=ServerOptions)
    """How this server is asked; its address is `url`."""
    forms: list[str] = field(default_factory=list)
    """What it is sent: ids, messages (which it puts through its chat template), text, pairs (a
    prompt and a response); [] for all that its API takes, but text where it takes messages."""
    raw: bool = False
    """Ask a vLLM server for logits and no added special tokens, as `model.kind=endpoint` does;
    false takes its defaults, as most clients do."""
    requests: Annotated[int, Interval(ge=50, le=200)] = 200
    """Most inputs that are sent to the server."""
    loop: TrainerLoop | None = None
    """A trainer whose loop should have the model read what its template says: trl, verl or
    openrlhf."""
    policy: str | None = None
    """Of loop: the policy's tokenizer: a name of conf/model, a Hub repository or a local folder."""

    def check(self) -> None:
        self.model.require("check", "ids")
        if (self.loop is None) != (self.policy is None) or (self.loop and self.url is not None):
            raise ConfigError("loop= goes with policy= and without url=: loop=trl policy=org/name")
        if (self.loop or self.url) and not self.model.has_head:
            raise ConfigError(f"loop= and url= are of models with a head, not {self.model.kind}")
        if self.url is not None:
            if not isinstance(next(iter(self.prompts.values()), ""), str):
                raise ConfigError("url= sends a user's turn, no conversation: prompts=greatest")
            if self.endpoint.api is not None:
                self.check_forms(self.endpoint.api)
        if not self.prompts:
            raise ConfigError("no prompt given; type for example prompts=greatest")
        if self.dtypes and Dtype.float32 not in self.dtypes:
            names = ",".join(dtype.value for dtype in self.dtypes)
            raise ConfigError(f"dtypes are compared with float32: dtypes=[float32,{names}]")
        self.trainer.check_alone("check runs on one device of one machine")

    def check_forms(self, api: str | None) -> None:
        """ConfigError where an API gives no rewards of whole inputs, or takes no such form."""
        takes = forms_of(api)
        if wrong := [form for form in self.forms if form not in takes]:
            raise ConfigError(f"forms={wrong[0]}: endpoint.api={api} takes {', '.join(takes)}")


@dataclass
class ServeConfig(TaskConfig):
    """`pessimal serve`: any reward behind /get_reward, /classify and /v1/score, for trainers that
    want an address."""

    model: ModelSpec = MISSING
    host: str = "127.0.0.1"
    """Address that is listened at; 0.0.0.0 for all of this machine's. There is no key: let nobody
    else reach it."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 8000
    """0 for any that is free."""
    trainer: TrainerSpec = field(default_factory=TrainerSpec)

    def check(self) -> None:
        self.model.require("serve", "text")
        self.trainer.check_alone("serve runs on one device of one machine")


@dataclass
class TrainConfig(TaskConfig):
    """`pessimal train`: make a reward model of people's ratings from a language model."""

    recipe: PreferenceRecipe = field(default_factory=PreferenceRecipe)
    """How it is trained, from conf/recipe."""
    base: str | None = None
    """The language model that training begins from: a name of conf/model, such as smollm2, a Hub
    repository or a local folder."""
    data: str | None = None
    """CSV file with the columns name, elo_score and elo_matches, such as EloEverything's."""
    trainer: TrainerSpec = field(default_factory=TrainerSpec)

    def check(self) -> None:
        for option, value in (("base", "smollm2"), ("data", "FILE")):
            if getattr(self, option) is None:
                raise ConfigError(f"train needs {option}: type for example {option}={value}")
        existing_file("data", self.data or "")
        self.trainer.check_alone("a training runs on one device")
