"""Options of the verbs that make or score with one model: scan, check and train."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge, Interval
from omegaconf import MISSING

from pessimal.config.schema.shared import TaskConfig
from pessimal.errors import ConfigError, did_you_mean
from pessimal.options import Count, Options, Prompts, existing_file
from pessimal.rewards.spec import Dtype, EndpointSpec, Kind, Mode, ModelSpec
from pessimal.scoring.spec import Strategy, TrainerSpec
from pessimal.training.spec import PreferenceRecipe

SERVED = {
    "vllm-classify": ("ids", "messages", "text"),
    "vllm-pooling": ("ids", "messages", "text"),
    "sglang-classify": ("ids", "text"),
    "sglang-score": ("ids", "text"),
}
"""What the APIs of a reward model's server take."""
TAKEN = {choice.value for kind in (Dtype, Mode, Kind) for choice in kind}
TAKEN |= {"plain", "published", "reward"}
"""Words that an artifact's name has for other things than its candidates."""


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

    def check(self) -> None:
        if self.name == "vocabulary":
            if self.path is not None or self.texts:
                raise ConfigError(
                    "candidates.path or candidates.texts was given for the vocabulary, which needs "
                    "none. For a list type: candidates=items candidates.path=FILE"
                )
            return
        if (self.path is None) == (not self.texts):
            raise ConfigError(
                f"the item list {self.name!r} needs candidates.path=FILE, or the items themselves: "
                "candidates.texts=[love,hate]"
            )
        if self.path is not None:
            existing_file("candidates.path", self.path)
        if taken := TAKEN.intersection(self.name.split("--")):
            raise ConfigError(
                f"candidates.name={self.name}: in the names of score tables {taken.pop()!r} stands "
                "for something else, and these items could be taken for a scan of the vocabulary. "
                "Give the list another name"
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
    """What stands in the response slot: ids (exactly the token), text (as typed), paper (as
    published)."""
    batch_size: Count | None = None
    """Candidates per batch; null finds it from the memory there is."""
    certain: Annotated[int, Ge(0)] = 100
    """k: how many of the best and of the worst are made certain after a low-precision scan, by
    scoring the tails again in float32; 0 leaves it as it is."""
    states: bool | None = None
    """Keep the last hidden states of words, of the model that reward training began from
    (model.base_path): `compare` then says what random heads on them would show. null keeps them but
    for log-probabilities of a vocabulary: one forward gives these all, and states take one a
    word."""

    def check(self) -> None:
        if not self.prompts:
            raise ConfigError(
                "no prompts given; type for example prompts=core or prompts=[greatest,worst]"
            )
        vocabulary = self.candidates.name == "vocabulary"
        if self.mode is Mode.ids and not vocabulary:
            raise ConfigError(
                "mode=ids scores token ids; items are texts: type mode=text (or "
                "candidates=vocabulary)"
            )
        kind = self.model.kind
        if "ids" not in kind.can:
            if self.mode is not Mode.text:
                raise ConfigError(
                    f"mode={self.mode.value} with model.kind={kind.value}, which takes texts. Type "
                    "mode=text"
                )
            if vocabulary and self.model.tokenizer is None:
                raise ConfigError(
                    f"model.kind={kind.value} has no vocabulary of its own: type "
                    "model.tokenizer=DIR_OR_ID to scan one, or a list of texts, candidates=items "
                    "candidates.path=FILE"
                )
            self.trainer.check_alone(f"model.kind={kind.value} runs no network here")
        if kind in (Kind.log_probability, Kind.implicit):
            wanted = Mode.ids if vocabulary else Mode.text
            if self.mode is not wanted:
                raise ConfigError(
                    f"mode={self.mode.value} with model.kind={kind.value}: a language model is "
                    "asked for token ids of its vocabulary and for the texts of items, here "
                    f"{self.candidates.name}. Type mode={wanted.value}"
                )
            if self.trainer.strategy is Strategy.sharded:
                raise ConfigError(
                    f"trainer=sharded with model.kind={kind.value}: its probabilities are read off "
                    "the whole output embedding. Type trainer=gpu, or trainer=ddp for several cards"
                )
        if kind is Kind.judge and self.mode is Mode.paper:
            raise ConfigError(
                "mode=paper is the published procedure for reward models; a judge is asked in "
                "mode=ids or mode=text"
            )


@dataclass
class CheckConfig(TaskConfig):
    """`pessimal check`: is a model's score the same whatever the batch, the padding, the path and
    the precision? With `url`: is it served right?"""

    model: ModelSpec = MISSING
    prompts: Prompts = field(default_factory=dict)
    """The user turn; the first where several are given."""
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
    endpoint: EndpointSpec = field(default_factory=EndpointSpec)
    """How this server is asked; its address is `url`."""
    forms: list[str] = field(default_factory=list)
    """What it is sent: ids, messages (which it puts through its chat template), text; [] for all
    that its API takes, but text where it takes messages."""
    raw: bool = False
    """Ask a vLLM server for logits and no added special tokens, as `model.kind=endpoint` does;
    false takes its defaults, as most clients do."""
    base: str | None = None
    """Hub repository or local folder of the reward model that training began from: shows whether a
    server left out an adapter's head."""
    requests: Annotated[int, Interval(ge=50, le=200)] = 200
    """Most inputs that are sent to the server."""

    def check(self) -> None:
        self.model.require("check", "ids")
        if self.url is not None:
            self._check_served()
        if not self.prompts:
            raise ConfigError("no prompt given; type for example prompts=greatest")
        if self.dtypes and Dtype.float32 not in self.dtypes:
            names = ",".join(dtype.value for dtype in self.dtypes)
            raise ConfigError(
                f"dtypes=[{names}]: precisions are compared with float32, which is missing. Type "
                f"dtypes=[float32,{names}], or dtypes=[] to leave this out"
            )
        self.trainer.check_alone("check runs on one device of one machine")

    def _check_served(self) -> None:
        if self.model.kind is not Kind.head:
            raise ConfigError(
                f"url={self.url}: servers are checked against reward models with a head, and "
                f"model.kind is {self.model.kind.value}. Leave out url, or give the sequence "
                "classifier that is served"
            )
        if self.endpoint.api not in SERVED:
            raise ConfigError(
                f"endpoint.api={self.endpoint.api} gives no rewards of whole inputs: type one of "
                f"{', '.join(SERVED)}.{did_you_mean(self.endpoint.api, SERVED)}"
            )
        if wrong := [form for form in self.forms if form not in SERVED[self.endpoint.api]]:
            raise ConfigError(
                f"forms={wrong[0]}: endpoint.api={self.endpoint.api} takes "
                f"{', '.join(SERVED[self.endpoint.api])}"
            )

    def sent(self) -> list[str]:
        """The forms that the server is sent."""
        takes = SERVED[self.endpoint.api]
        return self.forms or [form for form in takes if form != "text" or "messages" not in takes]


@dataclass
class TrainConfig(TaskConfig):
    """`pessimal train`: make a reward model, of the demo family or (`recipe=human_elo`) from a
    language model and people's preferences."""

    model: ModelSpec = MISSING
    recipe: PreferenceRecipe | None = None
    """How to train on people's preferences, from conf/recipe; null makes the demo family's
    `model`."""
    base: str | None = None
    """Of recipe: the language model that training begins from: a name of conf/model, such as
    smollm2, a Hub repository or a local folder."""
    data: str | None = None
    """Of recipe: CSV file with the columns name, elo_score and elo_matches, such as
    EloEverything's."""
    trainer: TrainerSpec = field(default_factory=TrainerSpec)

    def check(self) -> None:
        if self.recipe is not None:
            for option, what in (("base", "smollm2"), ("data", "FILE")):
                if getattr(self, option) is None:
                    raise ConfigError(
                        f"recipe={self.recipe.name} needs {option}: type for example "
                        f"{option}={what}"
                    )
            existing_file("data", self.data or "")
            self.trainer.check_alone("a training runs on one device")
            return
        for option in ("base", "data"):
            if getattr(self, option) is not None:
                raise ConfigError(
                    f"{option}={getattr(self, option)} goes with a recipe: type recipe=human_elo"
                )
        if self.model.recipe is None:
            raise ConfigError(
                f"model={self.model.name} is not of the demo family, and has no recipe. Type for "
                "example: pessimal train model=alder-wordpiece-0; or, to train on people's "
                "preferences: pessimal train recipe=human_elo base=smollm2 data=FILE"
            )
