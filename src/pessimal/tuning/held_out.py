"""Tuned options against the defaults, on prompts and from starts that no trial saw, at the same
budget.

Knows a searchable model and paired differences. Does not know studies.
"""

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.searching.spec import SearchSpec
from pessimal.statistics import sign_flip
from pessimal.tuning.study import (
    Prepare,
    StudySpec,
    Values,
    planned_searches,
    timed_search,
    with_options,
)

ALL = "all"
CONFIDENCE = 0.95
PERMUTATIONS = 2**14
"""Patterns of signs behind the p: all of them, up to 14 prompts."""


def compare(spec: StudySpec, options: Values, prepare: Prepare) -> pd.DataFrame:
    """One row a held-out prompt and start: prompt, seed, tuned, defaults, difference, and the
    seconds of both.

    Both search from the same start, so their difference is paired. Tuned options that are the
    defaults are not run twice.
    """
    tuning = spec.tuning
    planned = planned_searches(
        tuning.held_out, seed=spec.seed, count=tuning.held_out_seeds, held_out=True
    )

    def results(search: SearchSpec) -> list[tuple[float, float]]:
        model = prepare(search, tuning.held_out)
        return [timed_search(model, *pair, budget=tuning.evaluations) for pair in planned]

    table = pd.DataFrame(planned, columns=["prompt", "seed"])
    tuned, defaults = with_options(spec.search, options), results(spec.search)
    table[["defaults", "defaults_seconds"]] = defaults
    table[["tuned", "tuned_seconds"]] = defaults if tuned == spec.search else results(tuned)
    table["difference"] = table["tuned"] - table["defaults"]
    values, seconds = ["tuned", "defaults", "difference"], ["tuned_seconds", "defaults_seconds"]
    return table[["prompt", "seed", *values, *seconds]]


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Mean differences tuned − defaults with 95 % intervals, a row a prompt and one, `all`, over
    the prompts.

    Starts on one prompt are alike, so the row `all` rests on the prompts: its n is their number,
    its interval is Student's over their means (which hold what starts and prompts vary by), its p
    is of the test that flips the signs of these means, exact up to 14 prompts. A prompt's own row
    rests on its starts and speaks of that prompt alone. With one held-out prompt so does the row
    `all`. An interval of one number is not given.
    """
    by_prompt = table.groupby("prompt", sort=False)
    rows = [_row(str(key), part, units=part["difference"]) for key, part in by_prompt]
    means = by_prompt["difference"].mean()
    units = means if len(means) > 1 else table["difference"]
    p = np.nan
    if len(units) > 1:
        p = sign_flip(units.to_numpy(), two_sided=True, permutations=PERMUTATIONS, seed=0)
    return pd.DataFrame([*rows, _row(ALL, table, units=units) | {"p": p}])


def _row(prompt: str, table: pd.DataFrame, *, units: pd.Series) -> dict[str, object]:
    """Means over `table`; the interval by the spread of `units`, whose mean is the difference."""
    n, difference = len(units), float(units.mean())
    half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * units.sem() if n > 1 else np.nan
    return {
        "prompt": prompt,
        "n": n,
        "starts": len(table),
        **table[["tuned", "defaults"]].mean(),
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
        "ties": int((table["difference"] == 0).sum()),
        **table[["tuned_seconds", "defaults_seconds"]].mean(),
    }
