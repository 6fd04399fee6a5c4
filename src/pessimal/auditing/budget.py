"""How much of an audit fits into its budget, reckoned before it begins.

Pure arithmetic. Knows the parts of an audit and what each costs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pessimal.scoring.trust import SAMPLE, noise_sample

SAMPLES, SCANS = (64, 16, 8), (None, 20_000, 5_000, 2_000)
ADDITIONS = (*SCANS, 500)
"""Tokens that are checked, scanned and added to real answers, the most first (None: all)."""
PAIRS, MIN_EVALUATIONS = (None, 500, 200, 100, 50), 2_000
"""Labelled pairs that are asked, the most first (None: all); evaluations of the smallest search."""
CHECK_PASSES = 12
"""Times that a check runs whole inputs, in batches or one by one; loading is reckoned with it."""
SCAN_PASSES = 2
"""Whole inputs that a scan runs for each of its sample before the first token: the trust check and
a judge's answers; of many tokens those of the numerical error come on top."""
POLICY_TEXTS = 50_000
"""Texts that a policy's vocabulary is reckoned as."""
ANALYSIS_SECONDS, PAGE_SECONDS = 4e-4, 8.0
"""Measured seconds that analyses take per scanned token and prompt; figures and the page."""
NEEDS = {
    "check": ("read",),
    "pairs": ("prefers",),
    "scan": ("one_word", "frequency", "identity"),
    "additions": ("additions",),
    "push": ("push",),
    "forecast": ("forecast",),
}
"""Checks and facts that a part is needed for, in the order in which parts are served from the
budget: the core checks first."""
SHARES = (0.1, 0.4, 0.6, 0.8, 0.9, 1.0)
"""Share of the time left that each part may take."""


@dataclass(frozen=True)
class Work:
    """What an audit is asked to do."""

    prompts: int
    pairs: int
    """Labelled pairs."""
    n_contexts: int
    """Real answers that tokens are added to."""
    vocabulary: int
    """Tokens or words that can be scanned."""
    length: int
    """Tokens of a searched response."""
    evaluations: int
    """Most evaluations of the search."""
    policy: bool = False
    """Whether optimising the reward is forecast for a policy."""


@dataclass(frozen=True)
class Scope:
    """How much of an audit fits into its budget, by part."""

    sizes: dict[str, Any]
    """Tokens that are checked, pairs, tokens that are scanned on each prompt (and whether states of
    words are kept) and added to real answers (None for all); evaluations of the search; whether a
    policy is forecast; 0 for what does not fit."""
    seconds: dict[str, float]
    """Seconds of each part, or of the smallest size of it where it does not fit."""


def fit_budget(
    work: Work,
    budget: float,
    *,
    rate: float,
    whole: float,
    scans: Iterable[int | None] | None = None,
    is_scanned: bool = False,
    is_network: bool = True,
) -> Scope:
    """How much fits into the budget; parts are served in the order of `NEEDS`.

    Args:
        work: what is asked.
        budget: seconds.
        rate: single tokens per second.
        whole: seconds of a whole input.
        scans: how many tokens may be scanned (None for all), the most first, if not SCANS.
        is_scanned: whether the registry has the scans of the whole vocabulary.
        is_network: whether it has states, which take a second forward, and can be searched.
    """

    def sizes_of(choices: Iterable[int | None], most: int) -> dict[int | None, float]:
        sizes = dict.fromkeys(n if n and n < most else None for n in choices)
        return {n: float(n or most) for n in sizes}

    def setup(size: float) -> float:
        """Seconds of one scan before its first token."""
        n = noise_sample(int(size))
        return is_network * (SCAN_PASSES * SAMPLE + (n if n > SAMPLE else 0)) * whole

    prompts, searches = work.prompts, {work.evaluations, MIN_EVALUATIONS}
    analysis = prompts * ANALYSIS_SECONDS
    parts: dict[str, dict[Any, float]] = {
        "check": {n: CHECK_PASSES * (n + max(n // 4, 8)) * whole for n in SAMPLES},
        "pairs": {n: 2 * size * whole for n, size in sizes_of(PAIRS, work.pairs).items()},
        "scan": {
            (n, states): prompts * (not is_scanned) * (setup(size) + size * (1 + states) / rate)
            + size * analysis
            for n, size in sizes_of(scans or SCANS, work.vocabulary).items()
            for states in ((True, False) if is_network and n == min(SCANS[1:]) else (is_network,))
        },
        "additions": {
            n: work.n_contexts * (setup(size) + size / rate)
            for n, size in sizes_of(ADDITIONS, work.vocabulary).items()
        },
        "push": {
            n: n * work.length / rate
            for n in sorted(searches, reverse=True)
            if n <= work.evaluations
        },
        "forecast": {True: POLICY_TEXTS / rate},
    }
    if not is_network:
        del parts["check"], parts["push"]
    if not (work.policy and is_network):
        del parts["forecast"]
    left, sizes, seconds = budget, {}, {}
    for part, share in zip(NEEDS, SHARES, strict=True):
        if part not in parts:
            continue
        choices = parts[part]
        fits = [choice for choice, cost in choices.items() if cost <= share * left]
        sizes[part] = fits[0] if fits else 0
        seconds[part] = choices[fits[0]] if fits else min(choices.values())
        left -= seconds[part] if fits else 0
    return Scope(sizes, seconds)
