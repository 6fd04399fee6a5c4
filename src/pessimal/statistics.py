"""Inference that several rooms need: tests by permutation, correction for many tests.

Knows numbers. Does not know what they were measured on.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

LEVEL = 0.05
"""Level of corrected p values: up to it an effect is called significant, in headlines, figures and
cards alike."""


def holm(p: pd.Series) -> pd.Series:
    """p values corrected for how many there are (Holm 1979: any dependence); missing ones stay
    missing, uncounted."""
    # Not statsmodels' multipletests: it collects garbage at every call, .1 s each where tables are
    # in memory.
    ordered = p.dropna().sort_values(kind="stable")
    stepped = ordered.to_numpy(dtype=float) * np.arange(len(ordered), 0, -1)
    corrected = np.minimum(np.maximum.accumulate(stepped), 1) if len(ordered) else stepped
    return pd.Series(corrected, index=ordered.index, dtype=float).reindex(p.index)


def benjamini_hochberg(p: pd.Series) -> np.ndarray:
    """p values at their false discovery rate; NaN is no test and counts for nothing."""
    from scipy import stats  # half a second, which a command that only reads need not wait for

    adjusted, tested = np.full(len(p), np.nan), p.notna().to_numpy()
    if tested.any():
        adjusted[tested] = stats.false_discovery_control(p.to_numpy(dtype=float)[tested])
    return adjusted


CORRECTIONS: dict[str, Callable] = {"Holm": holm, "Benjamini-Hochberg": benjamini_hochberg}


def correct_p(
    table: pd.DataFrame, columns: Sequence[str], family: Sequence[str] = (), *, method: str = "Holm"
) -> tuple[pd.Series, pd.Series]:
    """The larger p of these columns, row by row, corrected over the rows of each family (those
    alike in the columns `family`, all rows without one); and the number of tests in a row's
    family."""
    larger = table[list(columns)].max(axis=1).astype(float)
    keys = [table[name] for name in family] or np.zeros(len(table))
    families = larger.groupby(keys, sort=False, dropna=False)
    return families.transform(CORRECTIONS[method]), families.transform("count")


def holm_confidence(p: pd.Series, confidence: float) -> np.ndarray:
    """(n,) the confidence at which the interval of each test says what its p says that `holm`
    corrected: 1 − (1 − confidence) / m, where correction multiplies this p by m."""
    corrected, tests = holm(p), max(int(p.notna().sum()), 1)
    exact = (p > 0) & (corrected < 1)
    times = (corrected / p.where(exact)).fillna(tests).to_numpy(dtype=float)
    return 1 - (1 - confidence) / times


def sign_flip(differences: np.ndarray, *, two_sided: bool, permutations: int, seed: int) -> float:
    """p of a mean (n,) that is not above 0 (two-sided: not 0), were each number as likely to have
    had the other sign.

    Exact where there are no more than `permutations` patterns of signs. NaN where there are no
    numbers.

    Source: Phipson & Smyth 2010 (the p of drawn permutations).
    """
    if not len(differences):
        return np.nan
    moved = differences[differences != 0]  # zeros change nothing, but double the number of patterns
    if not len(moved):
        return 1.0
    if len(moved) == 1:  # scipy wants two; the two patterns are the number and its negative
        return 1.0 if two_sided or moved[0] < 0 else 0.5
    from scipy import stats  # half a second, which a command that only reads need not wait for

    tested = stats.permutation_test(
        (moved,),
        lambda x, axis: np.abs(np.sum(x, axis=axis)) if two_sided else np.sum(x, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=1000,
        alternative="greater",
        rng=np.random.default_rng(seed),
    )
    return float(tested.pvalue)
