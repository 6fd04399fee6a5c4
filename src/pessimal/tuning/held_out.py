"""Tuned options against the defaults, on prompts and from starts that no trial saw, at the same budget.

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
    """One row a held-out prompt and start: prompt, seed, tuned, defaults, difference, and the seconds of both.

    Both search from the same start, so their difference is paired. Tuned options that are the defaults are not run twice.
    """
    tuning = config.tuning
    todo = searches(tuning.held_out, starts(config.seed, tuning.held_out_seeds, held_out=True))
    ours = with_options(config, tuned)
    defaults = _values(config, todo, prepare)
    tuned = defaults if ours.search == config.search else _values(ours, todo, prepare)
    table = pd.DataFrame(todo, columns=["prompt", "seed"])
    table["tuned"], table["tuned_seconds"] = zip(*tuned, strict=True)
    table["defaults"], table["defaults_seconds"] = zip(*defaults, strict=True)
    table["difference"] = table["tuned"] - table["defaults"]
    return table[["prompt", "seed", "tuned", "defaults", "difference", "tuned_seconds", "defaults_seconds"]]


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Mean differences tuned − defaults with 95 % intervals, a row a prompt and one, `all`, over the prompts.

    Starts on one prompt are alike, so the row `all` rests on the prompts: its n is their number, its interval is Student's
    over their means (which hold what starts and prompts vary by), its p is of the test that flips the signs of these means,
    exact up to 14 prompts. A prompt's own row rests on its starts and speaks of that prompt alone. With one held-out prompt
    so does the row `all`. An interval of one number is not given.
    """
    rows = [
        _row(prompt, own, units=own["difference"].to_numpy())
        for prompt, own in table.groupby("prompt", sort=False)
    ]
    means = np.array([row["difference"] for row in rows])
    units = means if len(means) > 1 else table["difference"].to_numpy()
    p = sign_flip(units, two_sided=True, permutations=PERMUTATIONS, seed=0) if len(units) > 1 else np.nan
    overall = _row(ALL, table, units=units) | {"p": p}
    return pd.DataFrame([*rows, overall])


def _values(config: SearchConfig, todo: list[tuple[str, int]], prepare: Prepare) -> list[tuple[float, float]]:
    context = prepare(config, config.tuning.held_out)
    return [
        timed_search(context, prompt, seed=seed, budget=config.tuning.evaluations) for prompt, seed in todo
    ]


def _row(prompt: str, table: pd.DataFrame, *, units: np.ndarray) -> dict:
    """Means over `table`; the interval by the spread of `units`, whose mean is the difference."""
    n = len(units)
    half = float("nan")
    if n > 1:
        half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * units.std(ddof=1) / np.sqrt(n)
    difference = float(units.mean())
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
