"""The options of a search, with their ranges; imports no torch, since a configuration names
them."""

from dataclasses import field
from enum import Enum
from typing import Annotated, ClassVar

from annotated_types import Ge, Interval, Lt
from pydantic.dataclasses import dataclass

from pessimal.conversation import MARK
from pessimal.errors import ConfigError
from pessimal.options import Count, Options, Share, existing_file

LONGEST = 16
LEAST = 20
"""Evaluations that a search needs: samples of the noise, a start, a step."""


class Goal(Enum):
    """The end of the reward that is searched: optimal (the highest) or pessimal (the lowest)."""

    optimal = "optimal"
    pessimal = "pessimal"

    @property
    def sign(self) -> int:
        return 1 if self is Goal.optimal else -1


class Filter(Enum):
    """The tokens that a response may be made of; several filters hold together."""

    no_special = "no_special"
    """Without control tokens and unused entries."""
    ascii = "ascii"
    """Tokens whose text is printable ASCII."""
    words = "words"
    """Tokens whose text is a word: letters, with or without a space before them."""


class Slot(Enum):
    """Where a response stands, if it is not the whole answer."""

    after = "after"
    """Behind a given answer."""
    before = "before"
    """In front of it."""
    edit = "edit"
    """In it: each token of the response replaces one of the answer's, or is put in."""


class Method(Enum):
    """The way in which responses are looked for."""

    all = "all"
    """All responses where the budget pays for them, proofs, and of sweeps, the gradient's draws and
    random changes what lately gained most."""
    gcg = "gcg"
    """Greedy coordinate gradient alone, as published, from a random response."""


class Certify(Enum):
    """The single changes of the result that are tried before it is published."""

    rest = "rest"
    """All where a third of the budget pays for them; else the gradient's best of each position, a
    twentieth of the budget and what is left."""
    full = "full"
    """All: the budget keeps as much for them."""
    none = "none"
    """None: nothing is proven."""


@dataclass
class SearchSpec(Options):
    """The search itself. Budgets are counted in candidate evaluations; a gradient counts as
    three."""

    _prefix: ClassVar[str] = "search"

    length: Annotated[int, Interval(ge=1, le=LONGEST)] = 4
    """Tokens of the response, 1 to 16."""
    goal: Goal = Goal.optimal
    """optimal (the highest reward) or pessimal (the lowest)."""
    method: Method = Method.all
    """all (all means together: every response where the budget pays for them, sweeps, the
    gradient's draws, random changes) or gcg (greedy coordinate gradient alone)."""
    slot: Slot | None = None
    """Where the response stands: after or before a given answer; edit (changes of the answer, as
    many as `length` says, each a token replaced or put in); null for the whole answer, or for the
    mark {slot} in it."""
    answer: str | None = None
    """The given answer of slot, maybe with the mark {slot} in place of `slot`; `contexts` gives
    many."""
    fluency: Annotated[float, Ge(0)] = 0.0
    """β, in units of reward a nat: what is searched is the reward (of goal=pessimal its negative)
    plus β times the log-probability that `policy` gives what stands in the slot and behind it."""
    evaluations: Annotated[int, Ge(LEAST)] = 250_000
    """Budget of the whole search, certificate and samples of the numerical noise included, at least
    20. Where it pays for all responses, all are tried. Baselines come on top."""
    certificate: Certify = Certify.rest
    """rest (all single changes of the result are tried where a third of the budget pays for them,
    else the gradient's best of each position), full (all) or none."""
    allowed: list[Filter] = field(default_factory=lambda: [Filter.no_special])
    """The tokens allowed: no_special, ascii, words; [] allows every token."""
    allowed_path: str | None = None
    """A file of allowed tokens, one a line, as they are decoded or as the vocabulary writes them;
    or token ids."""
    baselines: int | bool = 20_000
    """Evaluations of the baseline, random single changes; 0 or false for none, true for as many as
    the search may take."""
    from_registry: bool = True
    """Begin from the best response that the registry holds for the same model, prompts, goal,
    length, mode and tokens; false for searches that know nothing of one another."""
    search_width: Count = 64
    """Candidates evaluated in a step of the gradient."""
    top_k: Count = 256
    """Candidates kept for each position by the gradient."""
    step_size: Count = 2
    """Positions that one step replaces, at the beginning; 1 after `step_size_until` of the
    budget."""
    step_size_until: Share = 0.8
    """Share of the budget after which one position is replaced a step."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Share of the earlier gradients kept in the running mean, 0 to below 1."""

    def check(self) -> None:
        """Baselines are a number or a switch; a slot has an answer."""
        if not isinstance(self.baselines, int) or self.baselines < 0:
            how = "give evaluations, such as search.baselines=20000, or true or false"
            raise ConfigError(f"search.baselines={self.baselines!r}: {how}")
        if self.answer is not None and (self.slot is None) == (self.answer.count(MARK) != 1):
            slot = self.slot and self.slot.value
            raise ConfigError(
                f"search.answer={self.answer!r:.60} with search.slot={slot}: give search.slot "
                f"(after, before, edit), or write {MARK} into the answer once"
            )
        if self.slot is Slot.edit and not self.answer:
            raise ConfigError("search.slot=edit changes a given answer: type search.answer=TEXT")
        if self.allowed_path is not None:
            existing_file("search.allowed_path", self.allowed_path)


@dataclass
class TuningSpec(Options):
    """A study of the search's options by Optuna (`pessimal search -m hparams_search=gcg`)."""

    _prefix: ClassVar[str] = "tuning"

    study: str | None = None
    """Name of the study; METHOD-MODEL-GOAL-LENGTH where null."""
    storage: str | None = None
    """The SQLite file that the study is kept in (FILE.db or sqlite:///FILE.db);
    paths.root/studies/NAME.db where null."""
    prompts: list[str] = field(default_factory=list)
    """Keys of the prompts that options are tuned on: a trial is a search of each."""
    held_out: list[str] = field(default_factory=list)
    """Keys of the prompts that the tuned options are compared with the defaults on."""
