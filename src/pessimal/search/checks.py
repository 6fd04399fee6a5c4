"""Checks of a search's result, each passed or failed.

Numbers that others measured, each with its verdict. `noise` is the bound on one reward's numerical error, everywhere: two
rewards within twice of it are tied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from pessimal.search.certificate import Certificate

HOLDS, TIE, FAILS, ABSENT = "holds", "tie", "does not hold", "not applicable"


@dataclass(frozen=True)
class Check:
    """One check of a result."""

    number: int
    """The column `rung` of the table."""
    check: str
    measured: str
    verdict: str
    """holds, tie, does not hold, not applicable."""
    meaning: str
    """What it says, and what it does not."""


def one_token(hits: int, restarts: int, evaluations: float) -> Check:
    """Does greedy coordinate gradient find the best single token, which the scan knows?"""
    return Check(
        1,
        "one token: the scan's best",
        f"{hits} of {restarts} restarts, median {evaluations:,.0f} evaluations",
        HOLDS if hits == restarts else FAILS,
        "Greedy coordinate gradient alone, from random tokens, against the best of all single tokens. Where it misses, "
        "gradients mislead in this model; what is reported rests on exhaustive passes too.",
    )


def two_tokens(gradient: float | None, exact: float | None, *, noise: float) -> Check:
    """Values of the gradient search and of the exact search over pairs of the best tokens."""
    check = "two tokens: the exact search over pairs of the best"
    meaning = (
        "Against every pair where all were gone through; otherwise against all pairs of tokens that do well with some "
        "partner, where the best of all may be left out."
    )
    if gradient is None or exact is None:
        return Check(2, check, "", ABSENT, meaning)
    ahead = gradient - exact
    return Check(
        2, check, f"gradient search − exact: {ahead:+.4g}", HOLDS if ahead >= -2 * noise else FAILS, meaning
    )


def locally_best(certificate: Certificate) -> Check:
    """The 1-opt certificate."""
    verdict = {"1-opt": HOLDS, "tie": TIE}.get(certificate.verdict, FAILS)
    return Check(
        3,
        "no single change is better",
        f"{certificate.verdict}; smallest margin {certificate.smallest_margin:.3g} (noise {certificate.noise:.2g})",
        verdict,
        f"All {certificate.allowed:,} allowed tokens were tried at each position, in float32. "
        + (
            "That is every response."
            if len(certificate.response) == 1
            else "A local statement: two changes at once may be better."
        ),
    )


def spread(values: Sequence[float], *, noise: float) -> Check:
    """How many restarts end at the best value."""
    best = max(values)
    reached = sum(value >= best - 2 * noise for value in values)
    worst = min(values)
    return Check(
        4,
        "restarts agree",
        f"{reached} of {len(values)} end at the best; the others fall short by up to {best - worst:.3g}",
        HOLDS if reached > 1 or len(values) == 1 else FAILS,
        "After polish. Where several starts end at one response, a better one is less likely, never excluded.",
    )


def scored_again(drift: float, margin: float) -> Check:
    """The result's reward by the model's own forward, float32, batch 1, no cache."""
    return Check(
        5,
        "scored again by the model's own forward",
        f"differs by {drift:.2g}; margin to the best neighbour {margin:.3g}",
        HOLDS if margin > 2 * drift else TIE,
        "One input, no cache, float32. The margin must exceed the drift of both, else the two responses are tied.",
    )


def retokenizes(holds: bool) -> Check:
    """ids → text → template → ids."""
    return Check(
        6,
        "a text gives this response",
        "yes" if holds else "no",
        HOLDS if holds else FAILS,
        "ids → text → template → ids in the whole conversation. Where it does not hold, no text typed by a person gets "
        "this reward; mode=text searches those that do.",
    )


def beats(own: float, baselines: Mapping[str, float], *, budget: int, noise: float) -> Check:
    """Values of the baselines at the same budget of candidate evaluations."""
    check, meaning = (
        "better than the baselines",
        "At the same number of candidate evaluations. Equal is not better: such a search found no more than the "
        "baseline did.",
    )
    if not baselines:
        return Check(7, check, "", ABSENT, meaning)
    ahead = {name: own - value for name, value in baselines.items()}
    margins = ", ".join(f"{name} {difference:+.3g}" for name, difference in ahead.items())
    smallest = min(ahead.values())
    verdict = HOLDS if smallest > 2 * noise else TIE if smallest >= -2 * noise else FAILS
    return Check(7, check, f"ahead of {margins} at {budget:,} evaluations", verdict, meaning)


def as_table(checks: Sequence[Check]) -> pd.DataFrame:
    """One row a check: rung, check, measured, verdict, meaning."""
    return pd.DataFrame([vars(check) for check in checks]).rename(columns={"number": "rung"})
