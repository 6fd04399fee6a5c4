"""Nulls and coverage of what `compare` says about agreement: τ's interval, MRQAP.

python experiments/nulls/agreement.py

Each function draws made-up data whose truth is known and returns a table; about six minutes of
one core in all.
"""

import numpy as np
import pandas as pd

from pessimal.analyses.nulls import intervals
from pessimal.analyses.ranks import kendall, ranked, spearman
from pessimal.analyses.rsa import rsa
from pessimal.statistics import holm

LEVEL = 0.05


def two_columns(
    n: int, tau: float, *, ties: bool, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A bivariate normal sample with this Kendall's τ (Greiner's relation); with ties rounded to
    half standard deviations.

    Samples in which a column does not vary are drawn again.
    """
    r = np.sin(np.pi * tau / 2)
    while True:
        x, y = rng.normal(size=(2, n))
        y = r * x + np.sqrt(1 - r * r) * y
        x, y = (np.round(x * 2) / 2, np.round(y * 2) / 2) if ties else (x, y)
        if np.ptp(x) > 0 and np.ptp(y) > 0:
            return x, y


def tau_coverage(
    sizes: tuple[int, ...] = (10, 20, 30, 50, 100, 200), *, replicates: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Coverage of the 95 % intervals of τ-b and of Spearman's ρ, as `compare` gives them.

    Returns:
        One row per statistic, n, tau (before rounding) and ties: coverage, given
        (share of samples with an interval). Monte Carlo error at 2,000 replicates: .005.
    """
    rows = []
    for ties in (False, True):
        for tau in (0.2, 0.5, 0.8):
            large = [
                ranked(column)
                for column in two_columns(400_000, tau, ties=ties, rng=np.random.default_rng(seed))
            ]
            truth = np.array([kendall(*large).estimate, spearman(*large).estimate])
            for n in sizes:
                rng = np.random.default_rng([seed, n, int(10 * tau), ties])
                found = [
                    _held(two_columns(n, tau, ties=ties, rng=rng), truth) for _ in range(replicates)
                ]
                ours, given = np.mean(found, axis=0)  # (2,) each
                rows += [
                    {
                        "statistic": name,
                        "n": n,
                        "tau": tau,
                        "ties": ties,
                        "coverage": ours[i] / given[i],
                        "given": given[i],
                    }
                    for i, name in enumerate(("kendall", "spearman"))
                ]
    return pd.DataFrame(rows)


def _held(columns: tuple[np.ndarray, np.ndarray], truth: np.ndarray) -> np.ndarray:
    """Whether the intervals of τ and ρ hold the truth, and whether there are any: (2, 2)."""
    ranks = [ranked(column) for column in columns]
    _, low, high = intervals([kendall(*ranks), spearman(*ranks)])
    return np.array([(low <= truth) & (truth <= high), ~np.isnan(low)])


def mrqap_level(*, models: int = 10, repeats: int = 400, seed: int = 0) -> pd.DataFrame:
    """Type I error of MRQAP over four factors at once: any p at most .05, uncorrected and by Holm's
    method.

    Models share with all their pairs what is theirs alone, so dyads are dependent, and follow no
    factor.

    Returns:
        One row per test (`beta_p`, `mantel_p`): each (one factor), any, any_holm.
    """
    found = {name: [] for name in ("beta_p", "mantel_p")}
    rows, columns = np.triu_indices(models, k=1)
    for again in range(repeats):
        rng = np.random.default_rng([seed, again])
        known = pd.DataFrame(
            {
                "base": rng.choice(["a", "b"], size=models),
                "developer": rng.choice(list("uvwx"), size=models),
                "parameters": 1e9 * 2.0 ** rng.integers(0, 5, size=models),
                "rank": rng.permutation(40)[:models] + 1.0,
            }
        )
        own, similarity = rng.normal(size=models), np.eye(models)
        similarity[rows, columns] = 0.1 * (rng.normal(size=len(rows)) + own[rows] + own[columns])
        similarity = pd.DataFrame(np.triu(similarity) + np.triu(similarity, k=1).T)
        table = rsa(similarity, known, permutations=199, seed=again)
        for name, tested in found.items():
            p = table[name].dropna()
            tested.append([(p <= LEVEL).mean(), (p <= LEVEL).any(), (holm(p) <= LEVEL).any()])
    shares = {name: np.mean(tested, axis=0) for name, tested in found.items()}
    return (
        pd.DataFrame(shares, index=["each", "any", "any_holm"]).T.rename_axis("test").reset_index()
    )


if __name__ == "__main__":
    for made in (tau_coverage, mrqap_level):
        print(f"\n{made.__name__}\n{made().round(3).to_string(index=False)}")
