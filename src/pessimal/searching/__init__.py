"""Searching responses of several tokens for the best and the worst: pieces that see an objective,
never a model.

The room, from the inside out:

    objective     what is maximised, and the counter that every evaluation goes through
    allowed       which tokens a response may be made of
    round_trip    which responses a text gives
    gcg           greedy coordinate gradient: `gcg(counter, start, options, *, allowed, budget,
        generator, retokenizes)`
    baselines     random single changes, coordinate ascent, beam
    exact         all responses, pairs, exhaustive sweeps, the certificate
    procedure     stage by stage: `search(stages, problem, spec, *, seed) -> list[Final]`
    exhaustive    every pair of a vocabulary, as a job that processes share
    context       what all this needs of a model; and the searches of a study's trial
    checks        what holds of a result, what fails, what was not tried
    results       the tables and Results of one search
    run           all of it on one model: `search(model, prompts, *, length, …) -> Found`

This face imports no torch, since a configuration names these choices.
"""

from enum import Enum


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
