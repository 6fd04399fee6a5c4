"""How far models agree on which attributes matter: every pair of models, by Kendall's tau-b, with uncertainty.

Knows the table of outcomes. Does not know which attributes matter (see `flip_rate`). Unlike `compare.agreement` the
items are a handful of attributes, each estimated from comparisons, so it is the comparisons that are resampled.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from pessimal.explain.attribute import PLACEBO
from pessimal.explain.flip_rate import USED, Sums, sums
from pessimal.explain.metrics import check_resampling, draws, percentiles
from pessimal.explain.outcomes import as_table, check_outcomes, groups

RETURNED = ["perturber", "model_a", "model_b", "measure", "tau", "low", "high", "attributes", "comparisons"]
RETURNED += ["defined", "reason"]


def model_agreement(
    table: pd.DataFrame, *, replicates: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Kendall's tau-b between the attribute vectors of every two models: flip rates, and mean changes of the margin.

    Both vectors are taken from the comparisons that both models decided, and attributes of which both have a valid
    perturbation there; the placebo is none. Mean changes keep their sign, as −1 and +1 standard deviations are opposite
    tastes. The models may prefer different responses, so the edited texts differ where they do. Ties, which flip rates have
    many of, are corrected for; where a vector is constant no tau is defined, and it is NaN with the reason, not 0.

    Intervals are percentile bootstraps: these comparisons are drawn with all of their rows of both models, and both vectors
    and tau are computed anew; draws in which tau is not defined are left out (`defined` says how many are not). A draw adds
    noise to vectors that have some already, so replicates lie nearer to 0 than the estimate, and with few comparisons the
    interval may not hold it. The attributes are taken as given: nothing is said about others.

    Args:
        table: of outcomes, of two models or more.
        replicates: bootstrap draws of comparisons.
        confidence: of the intervals.
        seed: of the draws; every pair starts from it anew.

    Returns:
        One row per perturber, unordered pair of models in the order of the table, and measure: perturber, model_a, model_b,
        measure ("flip rate", "change"), tau, low, high, attributes, comparisons (that both decided), defined (share of draws
        in which tau is), reason (why there is no tau; empty otherwise).

    Raises:
        TableError: a column is missing, a perturbation is there twice, or no such bootstrap.

    Source: Jiang et al. 2025 (tau between models); Kendall 1945 (ties).
    """
    check_outcomes(table, columns=USED)
    check_resampling(replicates=replicates, confidence=confidence)
    rows = []
    scored = table[table["attribute"] != PLACEBO]
    for (perturber,), made in groups(scored, ["perturber"]):
        by_model = {model: own for (model,), own in groups(made, ["model"])}
        for a, b in combinations(by_model, 2):
            x, y, clusters = _shared(by_model[a], by_model[b])
            weights = draws(len(clusters), replicates=replicates, seed=seed) if clusters else np.empty((0, 0))
            for measure, of_x, of_y in (("flip rate", x.flips, y.flips), ("change", x.change, y.change)):
                one, other = x.of(of_x), y.of(of_y)
                tau = float(tau_b(one, other))
                drawn = np.empty(0)
                if len(clusters) > 1 and len(x.attributes) > 1:
                    drawn = tau_b(x.replicated(of_x, weights), y.replicated(of_y, weights))
                low, high = (np.nan, np.nan) if np.isnan(tau) else percentiles(drawn, confidence=confidence)
                rows.append(
                    {
                        "perturber": perturber,
                        "model_a": a,
                        "model_b": b,
                        "measure": measure,
                        "tau": tau,
                        "low": low,
                        "high": high,
                        "attributes": len(x.attributes),
                        "comparisons": len(clusters),
                        "defined": float(np.mean(~np.isnan(drawn))) if len(drawn) else np.nan,
                        "reason": no_tau({a: one, b: other}) if np.isnan(tau) else "",
                    }
                )
    return as_table(rows, RETURNED)


def tau_b(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kendall's tau-b along the last axis, many at once; x and y (…, n) broadcast against one another.

    A value that is NaN in either is left out of that tau. NaN where fewer than two are left, or one side is constant.
    For vectors of up to some hundred: all pairs are formed, O(n²).
    """
    x, y = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    first, second = np.triu_indices(x.shape[-1], k=1)
    of_x = np.sign(x[..., first] - x[..., second])  # (…, pairs)
    of_y = np.sign(y[..., first] - y[..., second])
    missing = np.isnan(of_x) | np.isnan(of_y)
    of_x, of_y = np.where(missing, 0, of_x), np.where(missing, 0, of_y)
    untied = np.sqrt((of_x**2).sum(axis=-1) * (of_y**2).sum(axis=-1))
    net = (of_x * of_y).sum(axis=-1)
    return np.divide(net, untied, out=np.full(np.shape(net), np.nan), where=untied > 0)


def no_tau(vectors: dict[str, np.ndarray]) -> str:
    """Why there is no tau between two named vectors."""
    known = ~np.any([np.isnan(values) for values in vectors.values()], axis=0)
    if known.sum() < 2:
        return f"{int(known.sum())} attributes in common; two are needed"
    constant = [name for name, values in vectors.items() if np.ptp(values[known]) == 0]
    return f"the same value for every attribute: {', '.join(constant)}"


def shared_attributes(one: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """Attributes that both tables ask about, without the placebo, in the order of the first."""
    both = set(other["attribute"]) - {PLACEBO}
    return [name for name in dict.fromkeys(one["attribute"]) if name in both]


def _shared(a: pd.DataFrame, b: pd.DataFrame) -> tuple[Sums, Sums, Sequence[str]]:
    """Sums of two models over the comparisons that both decided, and attributes of which both have something valid."""
    clusters = sorted(set(a["comparison"]) & set(b["comparison"]))
    names = shared_attributes(a, b)
    x, y = sums(a, clusters, names), sums(b, clusters, names)
    both = (x.valid.sum(axis=0) > 0) & (y.valid.sum(axis=0) > 0)
    kept = [name for name, has in zip(names, both, strict=True) if has]
    return sums(a, clusters, kept), sums(b, clusters, kept), clusters
