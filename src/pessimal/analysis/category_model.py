"""Does the base, or the framing, move a category's rank: the published mixed model, and tests with models as units.

Knows the table of `categories.median_ranks`.
"""

from collections.abc import Mapping
from itertools import combinations, product
from math import comb
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize, stats

from pessimal.analysis.categories import FRAMINGS, framings_of
from pessimal.errors import TableError

LARGEST_RATIO = 1e6  # of intercept to residual variance, where the search for the highest likelihood ends


class _Term(NamedTuple):
    """A product of factors at a level; "" where the factor takes no part."""

    base: str
    category: str
    framing: str

    @property
    def name(self) -> str:
        parts = [f"{factor} {level}" for factor, level in self._asdict().items() if level]
        return " × ".join(parts) or "intercept"


class _Fit(NamedTuple):
    """A fitted mixed model."""

    estimates: np.ndarray
    se: np.ndarray
    intercept_variance: float
    residual_variance: float


def category_model(
    medians: pd.DataFrame,
    *,
    frames: Mapping[str, int],
    bases: Mapping[str, str] | None = None,
    permutations: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Median rank regressed on base × category × framing, with a random intercept per model (REML), as published.

    Treatment coding: the reference is the first base and the first category in order of name, and the positive
    framing; a lower rank number is a better rank, so a negative coefficient is a liking. Factors with one level are left
    out. The published standard errors treat a model's prompts as independent draws beyond one shared intercept; models
    that differ in how they take to a *category* break that, and the errors are then far too small. So beside them stand
    numbers whose unit is the model: each model's own contrast, averaged over its prompts, compared between the bases
    (Student's pooled t) or, for terms without a base, against zero among the models of the reference base. The
    estimate is the same, as the design is balanced. Their permutation test relabels the bases of the models (all relabellings
    where there are no more than `permutations`), or flips the signs of contrasts; two-sided, ties count against the
    term. With few models p cannot go below `smallest_p`. Terms are not corrected for their number.

    Args:
        medians: of `categories.median_ranks`.
        frames: 1 or −1 by prompt.
        bases: base by model; None for a model without category × base terms.
        permutations: at most so many relabellings.
        confidence: of all intervals.
        seed: of sampled relabellings.

    Returns:
        One row per coefficient: term, base, category, framing ("" where the term has none), estimate, se, z, p_value,
        low, high (of the mixed model), models_se, models_p, models_low, models_high (of the contrasts), permutation_p,
        smallest_p, relabellings, n (units), models, prompts, intercept_variance, residual_variance, singular (the
        intercept variance is zero, and the fit is ordinary least squares), reference.

    Raises:
        TableError: fewer than two models or two levels of anything, models without a base, or an incomplete design.

    Source: follow-up to Christian et al. (2026), Big Two: three-way −19.83 (standard error 2.50).
    """
    table = _units(medians, frames, bases)
    levels = {factor: _ordered(table, factor) for factor in _Term._fields}
    terms = _terms(levels)
    design = np.stack([_column(table, term) for term in terms], axis=1)
    if len(table) <= len(terms):
        raise TableError(
            f"{len(table)} median ranks cannot carry {len(terms)} coefficients and a variance; give more models or prompts."
        )
    fit = _fit(table["median_rank"].to_numpy(), design, table["model"].to_numpy())
    z = fit.estimates / fit.se
    reach = stats.norm.ppf((1 + confidence) / 2) * fit.se
    rng = np.random.default_rng(seed)
    rows = []
    for place, term in enumerate(terms):
        rows.append(
            {
                "term": term.name,
                **term._asdict(),
                "estimate": fit.estimates[place],
                "se": fit.se[place],
                "z": z[place],
                "p_value": 2 * stats.norm.sf(abs(z[place])),
                "low": fit.estimates[place] - reach[place],
                "high": fit.estimates[place] + reach[place],
                **_between_models(
                    table, term, levels, permutations=permutations, confidence=confidence, rng=rng
                ),
            }
        )
    return pd.DataFrame(rows).assign(
        n=len(table),
        models=table["model"].nunique(),
        prompts=table["prompt"].nunique(),
        intercept_variance=fit.intercept_variance,
        residual_variance=fit.residual_variance,
        singular=fit.intercept_variance == 0,
        reference=", ".join(f"{factor} {found[0]}" for factor, found in levels.items() if found[0]),
    )


def _units(medians: pd.DataFrame, frames: Mapping[str, int], bases: Mapping[str, str] | None) -> pd.DataFrame:
    """The table with its three factors; TableError where the design is not complete."""
    models, prompts, categories = (medians[name].unique() for name in ("model", "prompt", "category"))
    if len(models) < 2:
        raise TableError(f"One model ({models[0]}) has no random intercept; scan at least two.")
    cells = medians[["model", "prompt", "category"]].drop_duplicates()
    if len(cells) != len(medians) or len(cells) != len(models) * len(prompts) * len(categories):
        raise TableError(
            f"{len(medians)} median ranks of {len(models)} models, {len(prompts)} prompts and {len(categories)} categories: "
            "each combination is needed once. Leave out models or prompts that are not complete."
        )
    if bases is not None and (unknown := sorted(set(models) - set(bases))):
        raise TableError(f"No base for {', '.join(unknown)}; state it, or leave `bases` out.")
    base = medians["model"].map(bases) if bases is not None else ""
    return medians.assign(base=base, framing=framings_of(medians["prompt"], frames))


def _ordered(table: pd.DataFrame, factor: str) -> list[str]:
    """Levels of a factor, the reference first; one "" for a factor that does not vary."""
    found = list(table[factor].unique())
    if len(found) < 2:
        return [""]
    return [level for level in FRAMINGS.values() if level in found] if factor == "framing" else sorted(found)


def _terms(levels: Mapping[str, list[str]]) -> list[_Term]:
    """Intercept, main effects, then interactions, as the usual formula gives them."""
    choices = [["", *found[1:]] for found in levels.values()]
    terms = [_Term(*choice) for choice in product(*choices)]
    order = [tuple(bool(level) for level in term) for term in terms]
    rank = {kind: (sum(kind), tuple(not used for used in kind)) for kind in order}
    return [term for _, term in sorted(zip(order, terms, strict=True), key=lambda pair: rank[pair[0]])]


def _column(table: pd.DataFrame, term: _Term) -> np.ndarray:
    """The term's column of the design matrix."""
    column = np.ones(len(table))
    for factor, level in term._asdict().items():
        if level:
            column = column * (table[factor] == level).to_numpy()
    return column


def _fit(outcome: np.ndarray, design: np.ndarray, models: np.ndarray) -> _Fit:
    """Restricted maximum likelihood with one random intercept per model: a search along one number.

    Not statsmodels' MixedLM, which gives the same numbers where its optimiser arrives; on the published data its L-BFGS
    ends in a singular fit that calls itself converged, with an intercept of −19 ± 19 million.
    """
    group = np.unique(models, return_inverse=True)[1]
    sizes = np.bincount(group)
    both = np.column_stack([design, outcome])
    means = np.stack([np.bincount(group, weights=column) / sizes for column in both.T], axis=1)
    freedom = len(outcome) - design.shape[1]

    def at(ratio: float) -> tuple[float, np.ndarray, np.ndarray, float]:
        """Minus twice the restricted likelihood, coefficients, their covariance as a multiple of the variance, variance."""
        shrink = 1 - 1 / np.sqrt(1 + sizes * ratio)
        white = both - (shrink[:, None] * means)[group]
        x, y = white[:, :-1], white[:, -1]
        inverse = np.linalg.inv(x.T @ x)
        beta = inverse @ (x.T @ y)
        residual = float(np.sum((y - x @ beta) ** 2)) / freedom
        deviance = freedom * np.log(residual) + np.log1p(sizes * ratio).sum() - np.linalg.slogdet(inverse)[1]
        return deviance, beta, inverse, residual

    if at(0)[3] <= 1e-12:
        raise TableError(
            "The median ranks do not vary within a model, framing and category: there is no residual to test with."
        )
    # The top may be at 0 or just beside it: first a logarithmic grid, then between its points.
    grid = np.r_[0, np.geomspace(1e-8, LARGEST_RATIO, 141)]
    place = int(np.argmin([at(ratio)[0] for ratio in grid]))
    ratio = grid[place]
    if place > 0:
        bounds = grid[place - 1], grid[min(place + 1, len(grid) - 1)]
        ratio = optimize.minimize_scalar(
            lambda value: at(value)[0], bounds=bounds, method="bounded", options={"xatol": 1e-9 * bounds[1]}
        ).x
    _, beta, inverse, residual = at(ratio)
    return _Fit(beta, np.sqrt(residual * np.diag(inverse)), float(ratio * residual), residual)


def _between_models(
    table: pd.DataFrame,
    term: _Term,
    levels: Mapping[str, list[str]],
    *,
    permutations: int,
    confidence: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    """The term's estimate with models as units: its standard error, t interval, and permutation test."""
    contrasts, base = _contrasts(table, term, levels)
    missing = dict.fromkeys(("models_se", "models_p", "models_low", "models_high"), np.nan)
    one = contrasts[base == (term.base or levels["base"][0])].to_numpy()
    other = contrasts[base == levels["base"][0]].to_numpy() if term.base else None
    if term.name == "intercept":
        tested = {"permutation_p": np.nan, "smallest_p": np.nan, "relabellings": 0}
    elif other is None:
        tested = _flipped(one, permutations, rng)
    else:
        tested = _relabelled(one, other, permutations, rng)
    estimate = one.mean() - (other.mean() if other is not None else 0)
    freedom = len(one) - 1 + (len(other) - 1 if other is not None else 0)
    if freedom < 1:
        return missing | tested
    squares = np.sum((one - one.mean()) ** 2)
    weight = 1 / len(one)
    if other is not None:
        squares += np.sum((other - other.mean()) ** 2)
        weight += 1 / len(other)
    se = np.sqrt(squares / freedom * weight)
    reach = stats.t.ppf((1 + confidence) / 2, freedom) * se
    p = 2 * stats.t.sf(abs(estimate) / se, freedom) if se > 0 else np.nan
    return {
        "models_se": se,
        "models_p": p,
        "models_low": estimate - reach,
        "models_high": estimate + reach,
        **tested,
    }


def _contrasts(
    table: pd.DataFrame, term: _Term, levels: Mapping[str, list[str]]
) -> tuple[pd.Series, pd.Series]:
    """For each model its difference (of differences) of mean median ranks that the term is about; and its base."""
    means = table.groupby(["model", "category", "framing"])["median_rank"].mean()
    found = 0
    category = {term.category: 1, levels["category"][0]: -1} if term.category else {levels["category"][0]: 1}
    framing = {term.framing: 1, levels["framing"][0]: -1} if term.framing else {levels["framing"][0]: 1}
    for (of_category, a), (of_framing, b) in product(category.items(), framing.items()):
        part = means
        if of_category:
            part = part.xs(of_category, level="category", drop_level=False)
        if of_framing:
            part = part.xs(of_framing, level="framing", drop_level=False)
        found = found + a * b * part.groupby("model").mean()
    return found, table.groupby("model")["base"].first().reindex(found.index)


def _relabelled(
    one: np.ndarray, other: np.ndarray, permutations: int, rng: np.random.Generator
) -> dict[str, float]:
    """The difference of two groups' means, over all ways to label as many models."""
    both, n = np.concatenate([one, other]), len(one)
    count = comb(len(both), n)
    exact = count <= permutations
    if exact:
        chosen = np.array(list(combinations(range(len(both)), n)))
    else:
        chosen = np.argsort(rng.random((permutations, len(both))), axis=1)[:, :n]
    first = both[chosen].sum(axis=1)
    differences = first / n - (both.sum() - first) / len(other)
    return _p_value(one.mean() - other.mean(), differences, exact=exact)


def _flipped(values: np.ndarray, permutations: int, rng: np.random.Generator) -> dict[str, float]:
    """The mean, over all ways to turn the signs of the models' contrasts round."""
    exact = 2 ** len(values) <= permutations
    if exact:
        flips = np.array(list(product((1, -1), repeat=len(values))))
    else:
        flips = rng.choice((1, -1), size=(permutations, len(values)))
    return _p_value(values.mean(), flips @ values / len(values), exact=exact)


def _p_value(observed: float, draws: np.ndarray, *, exact: bool) -> dict[str, float]:
    """Two-sided; `smallest_p` is what the largest difference among the draws would have got."""
    close = 1e-9 * max(1.0, np.abs(draws).max())  # rounding must not make a tie a defeat
    extreme = int((np.abs(draws) >= abs(observed) - close).sum())
    largest = int((np.abs(draws) >= np.abs(draws).max() - close).sum())
    more = 0 if exact else 1
    return {
        "permutation_p": (extreme + more) / (len(draws) + more),
        "smallest_p": (largest if exact else 1) / (len(draws) + more),
        "relabellings": len(draws),
    }
