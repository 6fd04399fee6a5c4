"""The options of a search, with their ranges; imports no torch, since a configuration names
them."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, ClassVar

from annotated_types import Ge, Interval, Lt

from pessimal.errors import ConfigError
from pessimal.options import Count, Options, Share, existing_file

LONGEST = 16
Whole = Annotated[int, Ge(0)]


class Goal(Enum):
    """Which end of the reward is searched for: optimal (the highest) or pessimal (the lowest)."""

    optimal = "optimal"
    pessimal = "pessimal"

    @property
    def sign(self) -> int:
        return 1 if self is Goal.optimal else -1


class Filter(Enum):
    """Which tokens a response may be made of; several filters hold together."""

    no_special = "no_special"
    """Without control tokens and unused entries."""
    ascii = "ascii"
    """Tokens whose text is printable ASCII."""
    words = "words"
    """Tokens whose text is a word: letters, with or without a space before them."""


class Method(Enum):
    """How the best response is looked for."""

    auto = "auto"
    """All responses where the budget allows it; else gradients, random changes and exhaustive
    sweeps."""
    exhaustive = "exhaustive"
    """Every response of two tokens, whatever it costs."""


@dataclass
class SearchSpec(Options):
    """The search itself. Budgets are counted in candidate evaluations; a gradient counts as
    three."""

    _prefix: ClassVar[str] = "search"

    length: Annotated[int, Interval(ge=1, le=LONGEST)] = 4
    """Tokens of the response, 1 to 16."""
    goal: Goal = Goal.optimal
    """optimal (the highest reward) or pessimal (the lowest)."""
    method: Method = Method.auto
    """auto, or exhaustive: every response of two tokens, whatever it costs."""
    evaluations: Count = 250_000
    """Budget of the whole search: start, gradient, random changes and polish. Where it pays for all
    responses, all are tried. Certificate and baselines come on top."""
    allowed: list[Filter] = field(default_factory=lambda: [Filter.no_special])
    """Which tokens are allowed: no_special, ascii, words; [] allows every token."""
    allowed_path: str | None = None
    """A file of allowed tokens, one a line, as they are decoded or as the vocabulary writes them;
    or token ids."""
    baselines: int | bool = 20_000
    """Evaluations of each baseline (random changes, coordinate ascent, beam); 0 or false for none,
    true for as many as the search took."""
    check_gradient: bool = False
    """Check the gradient too: does it alone find the best single token, and how does it rank the
    single changes of a random response?"""
    from_registry: bool = True
    """Begin from the best response that the registry holds for the same model, prompts, goal,
    length, mode and tokens; false for searches that know nothing of one another."""
    restarts: Count = 8
    """Starts of greedy coordinate gradient: the registry's best, beam winners, the best token
    repeated, random ones."""
    polish: Count = 8
    """How many of the best responses are polished by exhaustive coordinate sweeps, as far as the
    budget goes."""
    gradient_share: Share = 0.1
    """Share of the budget for greedy coordinate gradient."""
    random_share: Share = 0.6
    """Share of the budget for random single changes."""
    beam_width: Whole = 4
    """Responses kept at each length by the beam that gives the first starts, as far as a tenth of
    the budget goes; 0 leaves it out."""
    pairs: Whole = 300
    """m: for two tokens, the pruned look is at the m best first by the m best second tokens, as far
    as a third of the budget goes; 0 leaves it out."""
    search_width: Count = 128
    """Candidates evaluated a step."""
    top_k: Count = 256
    """Candidates kept for each position by the gradient."""
    step_size: Count = 2
    """Positions that one step replaces, at the beginning; 1 after `step_size_until` of the
    budget."""
    step_size_until: Share = 0.8
    """Share of the budget after which one position is replaced a step."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Share of the earlier gradients kept in the running mean, 0 to below 1."""
    buffer_size: Whole = 4
    """Best responses kept as points to go on from, where nothing new is left near the best; 0 goes
    on from the best candidate of the last step."""
    keep: Count = 1000
    """How many of the best and of the worst pairs an exhaustive search keeps."""

    def check(self) -> None:
        """Baselines are a number or a switch; shares leave something to polish; only pairs are
        exhausted."""
        if not isinstance(self.baselines, int) or self.baselines < 0:
            raise ConfigError(
                f"search.baselines={self.baselines!r}: give the evaluations of each baseline, such "
                "as search.baselines=20000, or true (as many as the search took) or false"
            )
        if self.gradient_share + self.random_share > 1:
            raise ConfigError(
                f"search.gradient_share={self.gradient_share} and "
                f"search.random_share={self.random_share} are more than the whole budget together"
            )
        if self.method is Method.exhaustive and self.length != 2:
            raise ConfigError(
                "search.method=exhaustive goes through every response of two tokens, not of "
                f"{self.length}; type search.length=2. (One token is always exhaustive: it is the "
                "scan)"
            )
        if self.allowed_path is not None:
            existing_file("search.allowed_path", self.allowed_path)
