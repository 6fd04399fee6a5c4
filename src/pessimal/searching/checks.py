"""The checklist of a search's result: each claim holds, ties, fails or was not tried, with its
limit.

Numbers that others measured, each with its verdict. `noise` is the bound on one reward's numerical
error, everywhere: two rewards within twice of it are tied.
"""

from collections.abc import Mapping, Sequence

HOLDS, TIE, FAILS, NOT_TRIED = "holds", "tie", "fails", "not tried"
# Up to so many responses, a budget that pays for all of them is offered.
_OFFERED = 10_000_000
ALL_SCORED = "every response was scored or ruled out"
CHECKS = {
    ALL_SCORED: "Where all were, the best is the best of all. Otherwise it is the best found: a "
    "response whose tokens do well only together may be better and be missed.",
    "no single change is better": "Where it holds, every allowed token was tried at each position, "
    "in float32. Two changes at once may be better.",
    "several starts end at this response": "Where sweeps bring no more. Where several do, a better "
    "response is less likely, never excluded.",
    "scored again by the model's own forward": "One input, no cache, float32. The margin must "
    "exceed the drift of both, else the two responses are tied.",
    "a text gives this response": "ids → text → template → ids in the whole conversation. Where it "
    "fails, no text typed by a person gets this reward; mode=text searches those that do.",
    "better than baselines at equal budgets": "Equal is not better: such a search found no more "
    "than the baseline did with as many candidate evaluations.",
}
"""Each claim, and what it says and does not."""


def all_responses(
    responses: int,
    *,
    scored: bool,
    needs: int | None,
    forwards: int | None = None,
) -> tuple[str, str]:
    """Were all responses of this length scored? `needs`: a budget that pays for all and for the
    certificate, None where none does; `forwards`: those of best-first search that rule all others
    out."""
    if scored and forwards is not None:
        return HOLDS, f"{forwards:,} forwards rule out all others of {responses:.0e}"
    if scored:
        return HOLDS, f"all {responses:,}"
    measured = f"{responses:,} responses" if responses < 10**12 else f"{responses:.0e} responses"
    if needs is not None and responses <= _OFFERED:
        measured += f"; search.evaluations={needs} scores all"
    return NOT_TRIED, measured


def one_opt(
    verdict: str, *, tried: int, of: int, margin: float, noise: float, exact: bool
) -> tuple[str, str]:
    """The outcome of the certificate, and the number of single changes tried."""
    if not tried and exact:
        return HOLDS, ALL_SCORED
    if not tried:
        return NOT_TRIED, f"0 of {of:,} changes tried; search.certificate=rest tries them"
    share = f"all {of:,}" if tried == of else f"{tried:,} of {of:,} ({tried / of:.1%})"
    measured = f"{verdict}: {share} changes tried; smallest margin {margin:.3g} (noise {noise:.2g})"
    verdicts = {"1-opt": HOLDS, "tie": TIE, "partly tried": NOT_TRIED}
    return verdicts.get(verdict, FAILS), measured


def spread(values: Sequence[float], *, noise: float, exact: bool) -> tuple[str, str]:
    """The number of climbs that end at the best value."""
    if exact or len(values) < 2:
        return NOT_TRIED, ALL_SCORED if exact else f"{len(values)} ended within the budget"
    best = max(values)
    reached = sum(value >= best - 2 * noise for value in values)
    measured = f"{reached} of {len(values)}"
    if reached < len(values):
        measured += f"; the others fall short by up to {best - min(values):.3g}"
    return HOLDS if reached > 1 else FAILS, measured


def scored_again(drift: float, margin: float) -> tuple[str, str]:
    """The result's reward by the model's own forward, float32, batch 1, no cache."""
    measured = f"differs by {drift:.2g}; margin to the best neighbour {margin:.3g}"
    return HOLDS if margin > 2 * drift else TIE, measured


def beats(
    own: float,
    others: Mapping[str, float],
    *,
    budget: int,
    spent: int,
    noise: float,
    exact: bool,
    begun_from: str = "",
) -> tuple[str, str]:
    """Values of the baselines after `budget` evaluations each, against the search's own best after
    `spent`. A search that began from what is known (`begun_from`) is compared with nothing."""
    if exact:
        return NOT_TRIED, ALL_SCORED
    if begun_from:
        return NOT_TRIED, f"it began from {begun_from}; search.from_registry=false compares"
    if not others:
        return NOT_TRIED, "search.baselines=true runs them"
    ahead = {name: own - value for name, value in others.items()}
    margins = ", ".join(f"{name} {difference:+.3g}" for name, difference in ahead.items())
    measured = f"ahead of {margins}; {budget:,} evaluations each"
    smallest = min(ahead.values())
    if smallest < -2 * noise:
        return FAILS, measured
    if budget < spent:
        more = f"the search {spent:,}: search.baselines=true gives them as many"
        return NOT_TRIED, f"{measured}, {more}"
    return HOLDS if smallest > 2 * noise else TIE, measured
