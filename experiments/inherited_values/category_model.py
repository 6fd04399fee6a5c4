"""Does the base, or the framing, move a category's rank: the published mixed model, contrasts of
bases and of single models within each category and framing, and tests with models as units.

Knows the table of `dictionaries.median_ranks`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize, stats

from pessimal.errors import TableError
from pessimal.statistics import benjamini_hochberg, holm, holm_confidence

FRAMINGS = {1: "positive", -1: "negative"}


class Lineages(NamedTuple):
    """Models of one group, those that were trained from one another taken together: they are no
    independent trainings, and a permutation moves them as one."""

    means: np.ndarray
    """(lineages,) mean of each lineage's models."""
    sizes: np.ndarray
    """(lineages,) models in each."""

    @classmethod
    def of(cls, by_model: pd.Series, lineages: Mapping[str, str] | None) -> "Lineages":
        """Of numbers by model; one that `lineages` does not name is its own."""
        named = [(lineages or {}).get(model, model) for model in by_model.index]
        groups = by_model.groupby(named, sort=False)
        return cls(groups.mean().to_numpy(), groups.size().to_numpy(dtype=float))

    @property
    def mean(self) -> float:
        """Over models."""
        return float(self.means @ self.sizes / self.sizes.sum())


class _Term(NamedTuple):
    """A product of factors at a level; "" where the factor takes no part."""

    base: str
    category: str
    framing: str

    @property
    def name(self) -> str:
        parts = [f"{factor} {level}" for factor, level in self._asdict().items() if level]
        return " × ".join(parts) or "intercept"


def framings_of(prompts: Iterable[str], polarity: Mapping[str, int]) -> list[str]:
    """ "positive" or "negative" for each prompt."""
    return [FRAMINGS[polarity[prompt]] for prompt in prompts]


def category_model(
    medians: pd.DataFrame,
    *,
    polarity: Mapping[str, int],
    bases: Mapping[str, str] | None = None,
    lineages: Mapping[str, str] | None = None,
    permutations: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Median rank regressed on base × category × framing, with a random intercept per model (REML),
    as published.

    Treatment coding: the reference is the first base and category in order of name, and the
    positive framing. The published standard errors take a model's prompts for independent draws
    beyond one intercept, and are far too small where models differ in how they take to a
    *category*. So beside them stand numbers whose unit is the model: its own contrast, averaged
    over its prompts, compared between bases (pooled t) or with zero. Models of one lineage are one
    unit. The permutation test relabels the lineages' bases (in all ways, where there are no more
    than `permutations`), or flips the signs of contrasts; two-sided, ties count against the term.
    Terms are not corrected for their number.

    Args:
        medians: of `dictionaries.median_ranks`.
        polarity: 1 or −1 by prompt.
        bases: base by model; None for a model without base terms.
        lineages: lineage by model; one that is not named is its own.
        permutations, seed: at most so many relabellings; of sampled ones.

    Returns:
        One row per coefficient: term, base, category, framing ("" where the term has none),
            estimate, se, z, p_value,
        low, high (of the mixed model), models_se, models_p, models_low, models_high (of the
        contrasts), permutation_p, smallest_p (that so few lineages allow), relabellings, lineages,
        n (units),
        models, prompts, intercept_variance, residual_variance, singular (the intercept variance is
        zero: ordinary least squares), reference.

    Raises:
        TableError: fewer than two models, or a fit without residuals.

    Source: follow-up to Christian et al. (2026), Big Two: three-way −19.83 (standard error 2.50).
    """
    table = _units(medians, polarity, bases)
    levels, terms = _coding(table)
    estimates, covariance, intercept_variance, residual_variance = _fit(table, terms)
    se = np.sqrt(np.diag(covariance))
    z = estimates / se
    reach = stats.norm.ppf((1 + confidence) / 2) * se
    rng = np.random.default_rng(seed)
    mixed = {"estimate": estimates, "se": se, "z": z, "p_value": 2 * stats.norm.sf(abs(z))}
    mixed |= {"low": estimates - reach, "high": estimates + reach}
    between = [
        _between_models(table, term, levels, lineages, permutations, confidence, rng)
        for term in terms
    ]
    rows = pd.DataFrame(terms).assign(**mixed).join(pd.DataFrame(between))
    rows.insert(0, "term", [term.name for term in terms])
    return rows.assign(
        n=len(table),
        models=table["model"].nunique(),
        prompts=table["prompt"].nunique(),
        intercept_variance=intercept_variance,
        residual_variance=residual_variance,
        singular=intercept_variance == 0,
        reference=", ".join(f"{factor} {names[0]}" for factor, names in levels.items() if names[0]),
    )


def base_contrasts(
    medians: pd.DataFrame,
    *,
    polarity: Mapping[str, int],
    bases: Mapping[str, str],
    lineages: Mapping[str, str] | None = None,
    permutations: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Do models of one base rank a category's words before those of another, on prompts of one
    framing?

    The estimate is the mean median rank of the one base's models less that of the other's;
    negative: ranked better. Its unit is the model, whose prompts are averaged, and models of one
    lineage are one unit: pooled t interval, and a permutation test over all relabellings of the
    lineages' bases (two-sided, ties count against the contrast). Beside it stand the same contrast
    in the mixed model of `category_model`, whose
    standard error takes a model's prompts for independent draws, and the published figure's Welch
    test, which takes every model × prompt for one. All p values are corrected for the contrasts of
    the table, and low_adjusted and high_adjusted are the interval at the level of p_adjusted.

    Args:
        medians: of `dictionaries.median_ranks`.
        polarity: 1 or −1 by prompt.
        bases: base by model; two bases at least.
        lineages: lineage by model; one that is not named is its own.
        permutations, seed: at most so many relabellings; of sampled ones.

    Returns:
        One row per category, framing and pair of bases: category, framing, base, reference, n
            (models × prompts), models, lineages,
        prompts, estimate, se, low, high, low_adjusted, high_adjusted, p, p_adjusted (Holm),
        smallest_p (that so few lineages allow), relabellings, mixed_se, mixed_low, mixed_high,
        mixed_p, mixed_p_adjusted (Holm),
        welch_p, welch_p_bonferroni.

    Raises:
        TableError: fewer than two models, or a fit without residuals.

    Source: follow-up to Christian et al. (2026), Figure 1.
    """
    table = _units(medians, polarity, bases)
    _, terms = _coding(table)
    estimates, covariance, _, _ = _fit(table, terms)
    reach, rng, rows = stats.norm.ppf((1 + confidence) / 2), np.random.default_rng(seed), []
    pairs: list[list[Lineages]] = []
    framings = sorted(table["framing"].unique(), reverse=True)  # positive first
    for framing, category in product(framings, sorted(table["category"].unique())):
        cell = table[(table["framing"] == framing) & (table["category"] == category)]
        ranks = {level: part["median_rank"] for level, part in cell.groupby("base")}
        means = cell.groupby(["base", "model"])["median_rank"].mean()
        for reference, base in combinations(sorted(table["base"].unique()), 2):
            compared = [base, reference]
            units = [ranks[level].to_numpy() for level in compared]
            groups = [Lineages.of(means[level], lineages) for level in compared]
            tested = _relabelled(groups[0], groups[1], permutations, rng)
            pairs.append(groups)
            both = pd.DataFrame({"base": compared, "category": category, "framing": framing})
            one, other = _design(both, terms)
            apart = one - other
            mixed, se = float(apart @ estimates), float(np.sqrt(apart @ covariance @ apart))
            rows.append(
                {
                    "category": category,
                    "framing": framing,
                    "base": base,
                    "reference": reference,
                    "n": sum(map(len, units)),
                    "models": int(sum(group.sizes.sum() for group in groups)),
                    "lineages": sum(len(group.means) for group in groups),
                    "prompts": cell["prompt"].nunique(),
                    **pooled_interval(groups, confidence)._asdict(),
                    "p": tested.pop("permutation_p"),
                    **tested,
                    "mixed_se": se,
                    "mixed_low": mixed - reach * se,
                    "mixed_high": mixed + reach * se,
                    "mixed_p": 2 * stats.norm.sf(abs(mixed) / se),
                    "welch_p": _welch(*units),
                }
            )
    contrasts = pd.DataFrame(rows)
    tests = contrasts["welch_p"].notna().sum()
    levels = holm_confidence(contrasts["p"], confidence)
    wide = [pooled_interval(groups, level) for groups, level in zip(pairs, levels, strict=True)]
    return contrasts.assign(
        low_adjusted=[one.low for one in wide],
        high_adjusted=[one.high for one in wide],
        p_adjusted=holm(contrasts["p"]),
        mixed_p_adjusted=holm(contrasts["mixed_p"]),
        welch_p_bonferroni=(contrasts["welch_p"] * tests).clip(upper=1),
    )


def model_contrasts(
    medians: pd.DataFrame, *, polarity: Mapping[str, int], confidence: float = 0.95
) -> pd.DataFrame:
    """Does one model rank a category's words before another model, on prompts of one framing?

    Both models answer the same prompts: a paired t test. Its unit is the adjective, the first part
    of a key of the factorial (`best_world_one`), as wordings that share one are alike; a key of
    another kind is a unit of its own. It says whether the difference of these two models holds over
    questions like these, and nothing about other models of their kind. Beside it stands the
    published test, which takes every prompt for one and the models' for unrelated.

    Args:
        medians: of `dictionaries.median_ranks`.
        polarity: 1 or −1 by prompt.

    Returns:
        One row per category, framing and pair of models: category, framing, model, reference, n
            (prompts), units, estimate
        (mean over units of the median rank of the model less that of the reference; negative:
        ranked better), se, low, high, low_adjusted, high_adjusted (at the level of p_adjusted), p,
        p_adjusted (Holm), welch_p, welch_p_fdr (Benjamini &
        Hochberg). One unit has no interval and no p.

    Raises:
        TableError: fewer than two models.

    Source: follow-up to Christian et al. (2026), Figure 2.
    """
    table, rows = _units(medians, polarity, None), []
    framings = sorted(table["framing"].unique(), reverse=True)  # positive first
    for framing, category in product(framings, sorted(table["category"].unique())):
        cell = table[(table["framing"] == framing) & (table["category"] == category)]
        where = {"category": category, "framing": framing}
        ranks = cell.pivot(index="prompt", columns="model", values="median_rank")
        for reference, model in combinations(ranks, 2):
            by_unit = (ranks[model] - ranks[reference]).groupby(lambda key: key.split("_")[0])
            apart = Lineages.of(by_unit.mean(), None)  # each unit one of its own
            sizes = {"n": len(ranks), "units": len(apart.means)}
            pooled = pooled_interval([apart], confidence)._asdict()
            welch = _welch(ranks[model].to_numpy(), ranks[reference].to_numpy())
            compared = {"model": model, "reference": reference}
            rows.append(where | compared | sizes | pooled | {"welch_p": welch})
    contrasts = pd.DataFrame(rows)
    rates = benjamini_hochberg(contrasts["welch_p"])
    low, high = corrected_bounds(
        contrasts["estimate"], contrasts["se"], contrasts["units"] - 1, contrasts["p"], confidence
    )
    return contrasts.assign(
        low_adjusted=low, high_adjusted=high, p_adjusted=holm(contrasts["p"]), welch_p_fdr=rates
    )


def corrected_bounds(
    estimates: pd.Series, se: pd.Series, freedom: Any, p: pd.Series, confidence: float
) -> tuple[pd.Series, pd.Series]:
    """Student's intervals at the level at which Holm corrects each p; missing where there is no
    p. `freedom` is one number or a column."""
    levels = pd.Series(holm_confidence(p, confidence), index=p.index).where(p.notna())
    # A fit without any degree of freedom has no error, and so no interval.
    reach = stats.t.ppf((1 + levels) / 2, np.maximum(freedom, 1)) * se
    return estimates - reach, estimates + reach


def _welch(one: np.ndarray, other: np.ndarray) -> float:
    """p of Welch's t test; NaN where a group has one value or neither varies."""
    # Not scipy's: it warns where one group does not vary.
    if min(len(one), len(other)) < 2 or not (np.ptp(one) or np.ptp(other)):
        return np.nan
    parts = np.array([group.var(ddof=1) / len(group) for group in (one, other)])
    freedom = parts.sum() ** 2 / (parts**2 / [len(one) - 1, len(other) - 1]).sum()
    return float(2 * stats.t.sf(abs(one.mean() - other.mean()) / np.sqrt(parts.sum()), freedom))


def _coding(table: pd.DataFrame) -> tuple[dict[str, list[str]], list[_Term]]:
    """Levels by factor, the reference first; and the terms of the model with all their
    interactions."""
    levels = {factor: _ordered(table, factor) for factor in _Term._fields}
    choices = product(*(["", *names[1:]] for names in levels.values()))
    terms = [_Term(*choice) for choice in choices]
    # As a formula's.
    return levels, sorted(terms, key=lambda t: (sum(map(bool, t)), [not level for level in t]))


def _design(table: pd.DataFrame, terms: Iterable[_Term]) -> np.ndarray:
    """Whether each row (n) has all levels of each term (m): (n, m)."""
    levels = table[[*_Term._fields]].to_numpy(dtype=object)
    wanted = np.array([*terms], dtype=object)
    return ((levels[:, None] == wanted) | (wanted == "")).all(axis=2).astype(float)


def _units(
    medians: pd.DataFrame, polarity: Mapping[str, int], bases: Mapping[str, str] | None
) -> pd.DataFrame:
    """The table with its three factors; TableError where there is one model."""
    models = medians["model"].unique()
    if len(models) < 2:
        raise TableError(f"One model ({models[0]}) has no random intercept; scan at least two.")
    base = medians["model"].map(bases) if bases is not None else ""
    return medians.assign(base=base, framing=framings_of(medians["prompt"], polarity))


def _ordered(table: pd.DataFrame, factor: str) -> list[str]:
    """Levels of a factor, the reference first; one "" for a factor that does not vary."""
    names = sorted(table[factor].unique(), reverse=factor == "framing")  # positive, negative
    return names if len(names) > 1 else [""]


def _fit(
    table: pd.DataFrame, terms: Sequence[_Term]
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Restricted maximum likelihood with one intercept per model: estimates, their covariance, both
    variances.

    A search along one number, the ratio of the variances. Not statsmodels' `MixedLM`: its gradient
    methods stop at standard errors that are off by 1e-6 to .7 and fail at a variance of 0. Powell's
    at the tightest tolerance gives the same estimates (1e-14), standard errors to 2e-8 and the
    variance to 1e-6, with a warning at each fit, in 3 to 10 times as long.
    """
    if len(table) <= len(terms):
        raise TableError(
            f"{len(table)} median ranks cannot carry {len(terms)} coefficients: give more models"
        )
    design, outcome = _design(table, terms), table["median_rank"].to_numpy()
    group = np.unique(table["model"], return_inverse=True)[1]
    sizes = np.bincount(group)
    both = np.column_stack([design, outcome])
    means = np.stack([np.bincount(group, weights=column) / sizes for column in both.T], axis=1)
    freedom = len(outcome) - design.shape[1]

    def at(ratio: float) -> tuple[float, np.ndarray, np.ndarray, float]:
        """Minus twice the restricted likelihood, estimates, their covariance as a multiple of the
        variance, variance."""
        white = both - ((1 - 1 / np.sqrt(1 + sizes * ratio))[:, None] * means)[group]
        x, y = white[:, :-1], white[:, -1]
        inverse = np.linalg.inv(x.T @ x)
        beta = inverse @ (x.T @ y)
        residual = float(np.sum((y - x @ beta) ** 2)) / freedom
        deviance = freedom * np.log(residual) + np.log1p(sizes * ratio).sum()
        return deviance - np.linalg.slogdet(inverse)[1], beta, inverse, residual

    if at(0)[3] <= 1e-12:
        raise TableError(
            "The median ranks do not vary within a model, framing and category: no residual"
        )
    # The top may be at 0 or just beside it: first a logarithmic grid, then between its points.
    grid = np.r_[0, np.geomspace(1e-8, 1e6, 141)]
    best = int(np.argmin([at(ratio)[0] for ratio in grid]))
    ratio = grid[best]
    if best > 0:
        bounds = grid[best - 1], grid[min(best + 1, len(grid) - 1)]
        options = {"xatol": 1e-9 * bounds[1]}
        ratio = optimize.minimize_scalar(lambda x: at(x)[0], bounds=bounds, options=options).x
    _, beta, inverse, residual = at(ratio)
    return beta, residual * inverse, float(ratio * residual), residual


def _between_models(
    table: pd.DataFrame,
    term: _Term,
    levels: Mapping[str, list[str]],
    lineages: Mapping[str, str] | None,
    permutations: int,
    confidence: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    """The term's estimate with models as units (those of its base and of the reference, or all of
    the reference): its standard error, t interval, and permutation test."""
    contrasts, base = _contrasts(table, term, levels)
    compared = [term.base, levels["base"][0]] if term.base else [levels["base"][0]]
    groups = [Lineages.of(contrasts[base == level], lineages) for level in compared]
    if term.name == "intercept":
        tested = {"permutation_p": np.nan, "smallest_p": np.nan, "relabellings": 0}
    elif term.base:
        tested = _relabelled(groups[0], groups[1], permutations, rng)
    else:
        tested = _flipped(groups[0], permutations, rng)
    pooled = pooled_interval(groups, confidence)._asdict()
    del pooled["estimate"]  # as the mixed model's
    units = {f"models_{name}": number for name, number in pooled.items()}
    return units | {"lineages": sum(len(group.means) for group in groups)} | tested


class Pooled(NamedTuple):
    """A mean, or a difference of two, with its t interval."""

    estimate: float
    se: float
    p: float
    low: float
    high: float


def pooled_interval(groups: Sequence[Lineages], confidence: float) -> Pooled:
    """The mean over models of one group, or the first's less the second's, with the variance of all
    lineages' means, which is taken to be the same whatever their size. Without an interval where no
    group has two lineages."""
    freedom = sum(len(group.means) - 1 for group in groups)
    estimate = groups[0].mean - (groups[1].mean if len(groups) > 1 else 0)
    shares = [group.sizes / group.sizes.sum() for group in groups]
    squares = sum(float(np.sum((group.means - group.mean) ** 2)) for group in groups)
    # E Σ (m − Σ w m)² = σ² (l − 2 + l Σ w²) of l lineages with weights w; l − 1 of equal ones.
    expected = sum(len(w) - 2 + len(w) * float(w @ w) for w in shares)
    if not freedom:
        return Pooled(estimate, np.nan, np.nan, np.nan, np.nan)
    se = np.sqrt(squares / expected * sum(float(w @ w) for w in shares))
    reach = stats.t.ppf((1 + confidence) / 2, freedom) * se
    p = 2 * stats.t.sf(abs(estimate) / se, freedom) if se > 0 else np.nan
    return Pooled(estimate, se, p, estimate - reach, estimate + reach)


def _contrasts(
    table: pd.DataFrame, term: _Term, levels: Mapping[str, list[str]]
) -> tuple[pd.Series, pd.Series]:
    """For each model its difference (of differences) of mean median ranks that the term is about;
    and its base."""
    means = table.groupby(["model", "category", "framing"])["median_rank"].mean()
    for factor in ("category", "framing"):
        level, reference = getattr(term, factor), levels[factor][0]
        if not reference:  # it does not vary
            means = means.droplevel(factor)
        elif level:
            means = means.xs(level, level=factor) - means.xs(reference, level=factor)
        else:
            means = means.xs(reference, level=factor)
    return means, table.groupby("model")["base"].first()


def _relabelled(
    one: Lineages, other: Lineages, permutations: int, rng: np.random.Generator
) -> dict:
    """The difference of two groups' means over models, over all ways to label as many lineages."""
    n = len(one.means)
    sizes = np.concatenate([one.sizes, other.sizes])
    sums = np.concatenate([one.means, other.means]) * sizes
    if exact := comb(len(sums), n) <= permutations:
        chosen = np.array(list(combinations(range(len(sums)), n)))
    else:
        chosen = np.argsort(rng.random((permutations, len(sums))), axis=1)[:, :n]
    first, models = sums[chosen].sum(axis=1), sizes[chosen].sum(axis=1)
    differences = first / models - (sums.sum() - first) / (sizes.sum() - models)
    return _p_value(one.mean - other.mean, differences, exact=exact)


def _flipped(units: Lineages, permutations: int, rng: np.random.Generator) -> dict[str, float]:
    """The mean over models, over all ways to turn the signs of the lineages' contrasts round."""
    if exact := 2 ** len(units.means) <= permutations:
        flips = np.array(list(product((1, -1), repeat=len(units.means))))
    else:
        flips = rng.choice((1, -1), size=(permutations, len(units.means)))
    draws = flips @ (units.means * units.sizes) / units.sizes.sum()
    return _p_value(units.mean, draws, exact=exact)


def _p_value(observed: float, draws: np.ndarray, *, exact: bool) -> dict[str, float]:
    """Two-sided; `smallest_p` is what the largest difference among the draws would have got."""
    # Not scipy's permutation_test: it doubles the smaller tail, and takes no group of one model.
    close = 1e-9 * max(1.0, np.abs(draws).max())  # rounding must not make a tie a defeat
    extreme = int((np.abs(draws) >= abs(observed) - close).sum())
    largest = int((np.abs(draws) >= np.abs(draws).max() - close).sum())
    more = int(not exact)
    return {
        "permutation_p": (extreme + more) / (len(draws) + more),
        "smallest_p": (largest if exact else 1) / (len(draws) + more),
        "relabellings": len(draws),
    }
