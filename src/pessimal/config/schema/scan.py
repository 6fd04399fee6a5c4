"""Options of the verbs that ask or make one model: scan, search, check, audit, serve, train."""

import copy
from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from annotated_types import Ge, Interval
from omegaconf import MISSING
from pydantic.dataclasses import dataclass

from pessimal.catalogue import ANSWERS, answers
from pessimal.config.schema.explain import ComparisonsSpec
from pessimal.config.schema.shared import PromptedConfig, TaskConfig
from pessimal.conversation import Context, Prefixed, Prompt, add_prefixes, read_prefixes
from pessimal.errors import ConfigError, did_you_mean
from pessimal.options import Count, Options, existing_file, listed, parse_duration
from pessimal.rewards.endpoint import forms_of
from pessimal.rewards.named import language_model_of
from pessimal.rewards.server import ServerOptions
from pessimal.rewards.spec import KINDS, CheckpointSpec, Dtype, Mode, ModelSpec
from pessimal.scoring.spec import Strategy, TrainerSpec
from pessimal.searching.spec import SearchSpec, TuningSpec
from pessimal.searching.spec import Slot as SearchSlot
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
    """The answers that are scored."""

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
    """Ids of tokens of a vocabulary with `most` that are scored besides."""

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
        from pessimal.scoring.candidates import item_candidates, read_items  # torch

        if self.name in ("vocabulary", CENSUS):
            return None
        if self.path is None:
            return item_candidates(self.texts, name=self.name, where=f"candidates={self.name}")
        return read_items(Path(self.path).expanduser(), name=self.name)


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
    """The number of answers that the policy writes and that are scored in place of its tokens,
    drawn by `seed`."""
    answer_tokens: Count = 8
    """The most tokens of an answer of the policy."""
    slot: Slot | None = None
    """Put candidates after or before real answers, in place of answering prompts."""
    contexts: str | None = None
    """JSONL file of real answers, for slot: messages, or prompt and answer (and rejected), or
    comparisons. Without slot, its messages have {slot} once, where candidates stand."""
    comparisons: ComparisonsSpec = field(default_factory=ComparisonsSpec)
    """The source of real answers for slot, without `contexts`; of each the preferred one."""
    n_contexts: Count | None = 20
    """Real answers, drawn at random by `seed`; null takes all."""
    candidates: CandidatesSpec = field(default_factory=CandidatesSpec)
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    mode: Mode | None = None
    """The content of the response slot: ids (exactly the token), text (as typed), paper (as
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

    def all_prompts(self) -> dict[str, tuple[Prompt, Prefixed | None]]:
        """The prompts by key, alone and behind the personas."""
        return add_prefixes(self.prompts, read_prefixes(self.prefixes) if self.prefixes else {})

    def questions(self) -> tuple[Mapping[str, Prompt | Context], dict[str, Prefixed]]:
        """The questions by key: real answers that candidates are put into, or prompts, alone and
        behind the personas; and the personas."""
        from pessimal.scoring.contexts import comparison_context, read_contexts, sample  # pandas

        slot = self.slot and self.slot.value
        if self.contexts is not None:
            answers = read_contexts(Path(self.contexts).expanduser(), slot)
        elif slot is not None:
            comparisons = self.comparisons.load().comparisons
            answers = {each.key: comparison_context(each, slot) for each in comparisons}
        else:
            prompts = self.all_prompts().items()
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
            self.prompts, self.model = prompts_of(tasks), self.model.add_tasks(self.tasks)
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
        if not self.all_prompts():
            raise ConfigError("no prompts given; type for example prompts=core")
        if census:
            self.candidates, self.mode = replace(self.candidates, name=CENSUS), Mode.text
            return
        if vocabulary and self.policy is None and not self.model.has_vocabulary:
            self.candidates, vocabulary = CandidatesSpec(ANSWERS, None, answers()), False
        ids = vocabulary and "ids" in self.model.can
        self.mode = self.mode or (Mode.ids if ids else Mode.text)
        if self.mode is Mode.ids and not vocabulary:
            other = " (or candidates=vocabulary)" * self.model.has_vocabulary
            raise ConfigError(f"items are texts: type mode=text{other}")
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
    """Options of this server; its address is `url`."""
    forms: list[str] = field(default_factory=list)
    """Forms of the inputs: ids, messages (which it puts through its chat template), text, pairs (a
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
    """The policy's tokenizer, for loop: a name of conf/model, a Hub repository or a local
    folder."""

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
    """The recipe of the training, from conf/recipe."""
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


@dataclass
class SearchConfig(PromptedConfig):
    """`pessimal search`: the best or the worst response of a given length, with a certificate."""

    model: ModelSpec = MISSING
    prompt: Any = "greatest"
    """Key of the prompt; a list of keys maximises the mean reward over them."""
    contexts: str | None = None
    """JSONL file of real answers, as `scan contexts=` reads them: the mean reward over half of them
    is searched, in `search.slot` of each or where they have the mark {slot}; the others are held
    out."""
    n_contexts: Count | None = 20
    """The number of contexts, drawn at random by `seed`; null takes all."""
    held_out: list[str] = field(default_factory=list)
    """Keys of prompts that what is found is scored on besides."""
    policy: str | None = None
    """A language model, as typed for a model, of search.fluency."""
    search: SearchSpec = field(default_factory=SearchSpec)
    tuning: TuningSpec = field(default_factory=TuningSpec)
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    mode: Mode = Mode.ids
    """The responses that count: ids (any token ids), text (only those that a text gives: ids → text
    → template → ids)."""
    batch_size: Count | None = None
    """Candidates per batch; null finds it from the memory there is."""

    def check(self) -> None:
        """The prompts are there, and the search can be run as asked, on this kind of model and
        trainer."""
        for key in (*self.prompt_keys, *self.held_out, *self.tuning.prompts, *self.tuning.held_out):
            if key not in self.prompts:
                guess, names = did_you_mean(key, self.prompts), ", ".join(self.prompts)
                message = f"there is no prompt {key!r} here.{guess} There are: {names}"
                raise ConfigError(f"{message}. To add it: +prompts.{key}='the user turn'")
        if self.contexts is not None:
            existing_file("contexts", self.contexts)
            if (
                self.search.answer is not None
                or self.search.slot is SearchSlot.edit
                or self.held_out
            ):
                raise ConfigError("contexts= goes without search.answer, slot=edit and held_out")
        elif self.search.slot is not None and self.search.answer is None:
            raise ConfigError("search.slot needs search.answer=TEXT or contexts=FILE")
        if self.tuning.prompts and self.contexts:
            raise ConfigError("a study tunes on prompts: leave out contexts")
        if (self.policy is None) == bool(self.search.fluency):
            raise ConfigError("search.fluency=β and policy=NAME go together")
        if self.mode is Mode.paper:
            raise ConfigError("mode=paper is of published scans; type mode=ids or mode=text")
        if self.trainer.strategy is Strategy.sharded:
            raise ConfigError("trainer=sharded has no gradients of a whole network: trainer=gpu")
        if self.trainer.devices * self.trainer.num_nodes > 1:
            raise ConfigError(f"trainer.devices={self.trainer.devices}: a search takes one device")
        self.model.require("search", "ids", "gradient")
        if self.mode is Mode.text:
            self.model.check_text_search()

    @cached_property
    def policy_spec(self) -> CheckpointSpec:
        """The policy as a model. ConfigError where there is none of this name."""
        return language_model_of(self.policy or "")

    @property
    def prompt_keys(self) -> list[str]:
        """The prompts whose mean reward is searched."""
        example = "a key, such as prompt=greatest, or several: prompt=[greatest,best]"
        return list(dict.fromkeys(listed("prompt", self.prompt, example=example, minimum=1)))


@dataclass
class AuditConfig(PromptedConfig):
    """`pessimal audit`: one command before a training, a verdict per check. Exit code 1 where a
    check fails, 3 where a core check could not be measured."""

    model: ModelSpec = MISSING
    name: str | None = None
    """Name of the artifact; the model's own where not given."""
    budget: str = "10m"
    """Time that it may take, as estimated before it begins: 90s, 10m, 2h. What does not fit is left
    out, and the command that would do it is printed."""
    pairs: str | None = None
    """File of labelled pairs of answers (.jsonl, .jsonl.gz, .json, .parquet) on which accuracy is
    measured: rows of HelpSteer2, HH-RLHF, RewardBench, RM-Bench or JudgeBench, or with prompt,
    chosen and rejected. null takes the 210 pairs that come with pessimal."""
    tasks: str | None = None
    """JSONL file of a grader's tasks with their true answers, which it is asked in place of
    pairs."""
    rollouts: str | None = None
    """File or folder of a policy's rollouts, as a trainer wrote it: does the reward pay wrong
    ones?"""
    strict: bool = True
    """Exit with 3 where a core check could not be measured; false exits with 0."""
    url: str | None = None
    """Address of a server that should give this model's rewards."""
    endpoint: ServerOptions = field(default_factory=ServerOptions)
    """Options of this server; its address is `url`."""
    loop: TrainerLoop | None = None
    """A trainer whose loop should have the model read what its template says; with `policy`."""
    policy: str | None = None
    """A language model: optimising the reward is forecast for it, and its tokenizer is the loop's,
    and that of a grader's census."""
    baseline: str | None = None
    """An earlier audit of the registry, audit/NAME or audit/NAME:vN: what changed since by more
    than another seed of one training changes it."""
    n_contexts: Annotated[int, Ge(6)] = 8
    """Real answers that tokens are added to."""
    evaluations: Count = 10_000
    """Most evaluations of the search."""
    length: Count = 3
    """Tokens of the response that is searched for."""
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    page: bool = True
    """Write the page, too: a `report` of the same name."""

    @property
    def seconds(self) -> float:
        """The budget."""
        return parse_duration(self.budget)

    def resolve(self) -> Self:
        """The same with the prompts of its tasks, which its function is given."""
        if self.tasks is None:
            return self
        from pessimal.rewards.callable import prompts_of, read_tasks  # which load pandas

        resolved = copy.copy(self)
        resolved.prompts = prompts_of(read_tasks(self.tasks))
        resolved.model = self.model.add_tasks(self.tasks)
        return resolved

    def check(self) -> None:
        _ = self.seconds
        kind, can = self.model.kind, self.model.can
        if self.tasks is not None and not self.model.grades_tasks:
            raise ConfigError(f"tasks= are asked of FILE.py:FUNCTION, not of model.kind={kind}")
        if self.pairs is not None:
            existing_file("pairs", self.pairs)
        if self.rollouts is not None and not Path(self.rollouts).expanduser().is_dir():
            existing_file("rollouts", self.rollouts)
        if not self.model.is_reward:
            raise ConfigError("log-probabilities are no reward: type model.kind=judge, =implicit")
        if "gradient" not in can:
            takes = "tasks of a grader" if self.tasks is not None else f"model.kind={kind}"
            names = ("pairs",) if self.tasks is not None else ("policy",)
            for name in ("url", "loop", "baseline", *names):
                if getattr(self, name) is not None:
                    raise ConfigError(f"{name}= says nothing of {takes}: leave it out")
        if not self.resolve().prompts:
            raise ConfigError("no prompts given; type for example prompts=core")
        if "gradient" not in can:
            return
        if self.loop is not None and self.policy is None:
            raise ConfigError("loop goes with policy. Type for example loop=trl policy=org/name")
        if self.trainer.strategy is Strategy.sharded:
            raise ConfigError("trainer=sharded: an audit searches by gradients; type trainer=gpu")
        self.trainer.check_alone("audit runs on one device of one machine")
