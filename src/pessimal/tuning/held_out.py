"""Tuned options against the defaults, on prompts and from starts that no trial saw, at the same
budget.

Knows a context and paired differences. Does not know studies.
"""

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.config.schema import SearchConfig
from pessimal.statistics import sign_flip
from pessimal.tuning.space import Options, with_options
from pessimal.tuning.trial import Prepare, searches, starts, timed_search

ALL = "all"
CONFIDENCE = 0.95
PERMUTATIONS = 2**14
"""Patterns of signs behind the p: all of them, up to 14 prompts."""


def compare(config: SearchConfig, tuned: Options, prepare: Prepare) -> pd.DataFrame:
    """One row a held-out prompt and start: prompt, seed, tuned, defaults, difference, and the
    seconds of both.

    Both search from the same start, so their difference is paired. Tuned options that are the
    defaults are not run twice.
    """
    tuning = config.tuning
    todo = searches(tuning.held_out, starts(config.seed, tuning.held_out_seeds, held_out=True))

    def values(own: SearchConfig) -> list[tuple[float, float]]:
        context = prepare(own, tuning.held_out)
        return [
            timed_search(context, prompt, seed=seed, budget=tuning.evaluations)
            for prompt, seed in todo
        ]

    defaults, ours = values(config), with_options(config, tuned)
    best = defaults if ours.search == config.search else values(ours)
    both = zip(todo, best, defaults, strict=True)
    rows = [
        (*which, own, usual, own - usual, own_s, usual_s)
        for which, (own, own_s), (usual, usual_s) in both
    ]
    columns = [
        "prompt",
        "seed",
        "tuned",
        "defaults",
        "difference",
        "tuned_seconds",
        "defaults_seconds",
    ]
    return pd.DataFrame(rows, columns=columns)


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Mean differences tuned − defaults with 95 % intervals, a row a prompt and one, `all`, over
    the prompts.

    Starts on one prompt are alike, so the row `all` rests on the prompts: its n is their number,
    its interval is Student's over their means (which hold what starts and prompts vary by), its p
    is of the test that flips the signs of these means, exact up to 14 prompts. A prompt's own row
    rests on its starts and speaks of that prompt alone. With one held-out prompt so does the row
    `all`. An interval of one number is not given.
    """
    rows = [
        _row(key, own, units=own["difference"]) for key, own in table.groupby("prompt", sort=False)
    ]
    means = pd.Series([row["difference"] for row in rows])
    units = means if len(means) > 1 else table["difference"]
    options = {"two_sided": True, "permutations": PERMUTATIONS, "seed": 0}
    p = sign_flip(units.to_numpy(), **options) if len(units) > 1 else np.nan
    return pd.DataFrame([*rows, _row(ALL, table, units=units) | {"p": p}])


def _row(prompt: str, table: pd.DataFrame, *, units: pd.Series) -> dict:
    """Means over `table`; the interval by the spread of `units`, whose mean is the difference."""
    n, difference = len(units), float(units.mean())
    half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * units.sem() if n > 1 else np.nan
    return {
        "prompt": prompt,
        "n": n,
        "starts": len(table),
        "tuned": table["tuned"].mean(),
        "defaults": table["defaults"].mean(),
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
        "ties": int((table["difference"] == 0).sum()),
        "tuned_seconds": table["tuned_seconds"].mean(),
        "defaults_seconds": table["defaults_seconds"].mean(),
    }
