"""Precisions against one another: what rewards lose in bfloat16 and float16. Arithmetic over rewards only."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from pessimal.models.spec import Dtype
from pessimal.scoring.conformance.check import Check, at_most, does_not_apply, largest_difference
from pessimal.scoring.trust import allowed

TOP = 10


def precision_table(rewards: Mapping[tuple[Dtype, str], np.ndarray]) -> pd.DataFrame:
    """One row for each precision and path, against the float32 rewards of the model's own forward.

    `rewards` are float64 (n,) by precision and name of the path; ("float32", "own-forward") must be among them.
    Columns: `dtype`, `path`, `largest_difference` and `mean_difference` (absolute, in standard deviations of the
    float32 rewards), `spearman`, `top_10_overlap` (share; ties in the sample's order), `distinct` (different rewards),
    `n`.
    """
    exact = rewards[Dtype.float32, "own-forward"]
    spread = _spread(exact)
    return pd.DataFrame(
        [
            {
                "dtype": dtype.value,
                "path": path,
                "largest_difference": largest_difference(values, exact) / spread,
                "mean_difference": float(np.abs(values - exact).mean()) / spread,
                "spearman": _spearman(values, exact),
                "top_10_overlap": len(_top(values) & _top(exact)) / min(TOP, len(exact)),
                "distinct": len(np.unique(values)),
                "n": len(values),
            }
            for (dtype, path), values in rewards.items()
        ]
    )


def precision_check(
    dtype: Dtype, table: pd.DataFrame | None, exact: np.ndarray | None, problem: str | None
) -> Check:
    """The row of one low precision; `problem` is why it could not be measured."""
    name = f"dtype_{dtype.value}"
    what = f"In {dtype.value} the rewards of a scan are those in float32, up to rounding."
    if problem is not None:
        return does_not_apply(name, what, problem, unit="SD")
    row = table[table["dtype"] == dtype.value].iloc[-1]  # the fastest path comes last
    summary = (
        f"Rank correlation with float32 {row['spearman']:.4f}; {row['top_10_overlap'] * min(TOP, row['n']):.0f} of the "
        f"top {min(TOP, row['n'])} the same; {row['distinct']} distinct rewards of {row['n']}."
    )
    if not np.isfinite(row["largest_difference"]):
        summary = f"In {dtype.value} some rewards are not numbers: they overflow."
    return at_most(
        name,
        what,
        row["largest_difference"],
        allowed(exact, dtype=dtype) / _spread(exact),
        n=int(row["n"]),
        unit="SD",
        note=f"{summary} Scans score the best and worst again in float32 (certain=100); for the ranks between them type "
        f"model.dtype={'bfloat16' if dtype is Dtype.float16 else 'float16'} if that passes, or model.dtype=float32",
        otherwise=summary,
    )


def _spread(exact: np.ndarray) -> float:
    return float(exact.std()) or 1.0


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    if len(a) < 2 or a.std() == 0 or b.std() == 0 or not np.isfinite(a).all():
        return float("nan")
    return float(spearmanr(a, b).statistic)


def _top(rewards: np.ndarray) -> set[int]:
    return set(np.argsort(-rewards, kind="stable")[:TOP].tolist())
