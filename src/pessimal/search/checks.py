"""The checklist of a search's result: each claim holds, ties, fails or was not tried, with its limit.

Numbers that others measured, each with its verdict. `noise` is the bound on one reward's numerical error, everywhere: two
rewards within twice of it are tied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pessimal.search.exact import Certificate

HOLDS, TIE, FAILS, NOT_TRIED = "holds", "tie", "fails", "not tried"
# Up to so many responses, a budget that pays for all of them is offered.
_OFFERED = 10_000_000
ALL_SCORED = "every response was scored"


@dataclass(frozen=True)
class Check:
    """One line of the checklist."""

    rung: int
    """Its number."""
    check: str
    """The claim."""
    measured: str
    verdict: str
    """holds, tie, fails, not tried."""
    meaning: str
    """What it says, and its limit."""


def one_token(hits: int | None, restarts: int, evaluations: float) -> Check:
    """Does greedy coordinate gradient find the best single token? `hits`: how many restarts do; None where not tried."""
    if hits is None:
        verdict, measured = NOT_TRIED, "search.check_gradient=true tries it"
    else:
        verdict = HOLDS if hits == restarts else FAILS
        measured = f"{hits} of {restarts} restarts, median {evaluations:,.0f} evaluations"
    return Check(
        1,
        "the gradient alone finds the best single token",
        measured,
        verdict,
        "From random tokens, against the best of all single tokens. Where it fails, gradients mislead in this model; the "
        "result rests on random changes and exhaustive sweeps too.",
    )


def all_responses(tried: int, responses: int, *, length: int, pruned: int | None = None) -> Check:
    """Were all responses of this length scored? `pruned`: pairs that a pruned look went through."""
    if tried >= responses:
        verdict, measured = HOLDS, f"all {responses:,}"
    else:
        verdict = NOT_TRIED
        measured = f"{responses:,} responses" if responses < 10**12 else f"{responses:.0e} responses"
        if pruned is not None:
            measured = f"pruned: {pruned:,} of {responses:,} pairs"
        if responses <= _OFFERED:
            measured += f"; search.evaluations={responses} scores all"
        elif length == 2:
            measured += "; search.method=exhaustive scores all"
    return Check(
        2,
        "every response was scored",
        measured,
        verdict,
        "Where all were, the best is the best of all. Otherwise it is the best found: a response whose tokens do well only together may be "
        "better and be missed.",
    )


def locally_best(certificate: Certificate) -> Check:
    """The 1-opt certificate."""
    verdict = {"1-opt": HOLDS, "tie": TIE}.get(certificate.verdict, FAILS)
    local = (
        "That is every response." if len(certificate.response) == 1 else "Two changes at once may be better."
    )
    return Check(
        3,
        "no single change is better",
        f"{certificate.verdict}; smallest margin {certificate.smallest_margin:.3g} (noise {certificate.noise:.2g})",
        verdict,
        f"All {certificate.allowed:,} allowed tokens were tried at each position, in float32. {local}",
    )


def spread(values: Sequence[float], *, noise: float, exact: bool) -> Check:
    """How many polished starts end at the best value."""
    check = "several starts end at this response"
    meaning = "After polish. Where several do, a better response is less likely, never excluded."
    if exact or len(values) < 2:
        measured = ALL_SCORED if exact else f"{len(values)} polished within the budget"
        return Check(4, check, measured, NOT_TRIED, meaning)
    best = max(values)
    reached = sum(value >= best - 2 * noise for value in values)
    short = f"; the others fall short by up to {best - min(values):.3g}" if reached < len(values) else ""
    return Check(4, check, f"{reached} of {len(values)}{short}", HOLDS if reached > 1 else FAILS, meaning)


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
        "ids → text → template → ids in the whole conversation. Where it fails, no text typed by a person gets "
        "this reward; mode=text searches those that do.",
    )


def beats(
    own: float,
    others: Mapping[str, float],
    *,
    budget: int,
    spent: int,
    noise: float,
    exact: bool,
    begun_from: str = "",
) -> Check:
    """Values of the baselines after `budget` evaluations each, against the search's own best after `spent`. A search that
    began from what is known (`begun_from`) is compared with nothing."""
    check = "better than baselines at equal budgets"
    meaning = "Equal is not better: such a search found no more than the baseline did with as many candidate evaluations."
    if exact or begun_from or not others:
        why = "search.baselines=true runs them"
        if begun_from:
            why = f"it began from {begun_from}; search.from_registry=false compares"
        return Check(7, check, ALL_SCORED if exact else why, NOT_TRIED, meaning)
    ahead = {name: own - value for name, value in others.items()}
    margins = ", ".join(f"{name} {difference:+.3g}" for name, difference in ahead.items())
    smallest, equal = min(ahead.values()), budget >= spent
    if smallest < -2 * noise:
        verdict = FAILS
    else:
        verdict = NOT_TRIED if not equal else HOLDS if smallest > 2 * noise else TIE
    each = f"{budget:,} evaluations each" + (
        "" if equal else f", the search {spent:,}: search.baselines=true gives them as many"
    )
    return Check(7, check, f"ahead of {margins}; {each}", verdict, meaning)
