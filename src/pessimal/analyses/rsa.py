"""Where models lie with respect to one another, and why: a map in the plane on which near means
alike, and representational similarity analysis: does agreement follow base, developer, size, rank?

The unit is the dyad, a pair of models, and dyads that share a model are dependent; so every p value
comes from permuting models, never from counting dyads.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.stats import zscore

from pessimal.analyses.agreement import tau_matrix
from pessimal.analyses.analysis import Needs, Options, analysis, map_prompts, quoted, strongest
from pessimal.analyses.nulls import permutation_p
from pessimal.errors import TableError
from pessimal.plots import Heatmap, Scatter
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.tables.table_set import TableSet
from pessimal.texts import signed

FACTORS = ("base", "developer", "parameters", "rank")
WORDS = {"base": "base", "developer": "developer", "parameters": "size", "rank": "rank"}
ESTIMATED = "estimated"
STARTS = 64
"""On the paper's ten models a single start ends up to 16 % above the least stress and finds it 3
times in 20."""
UNKNOWN = "not stated"
TINY = 1e-9  # what rounding leaves of a vector of standardised dyads that should be zero


def model_matrices(descriptors: pd.DataFrame, *, paper: bool = False) -> dict[str, pd.DataFrame]:
    """Similarity of every two models in each of four respects, unit diagonal.

    Base and developer: 1 if the same, else 0. Rank: 1 / (1 + |Δ rank|). Parameters: 1 / (1 + |Δ
    log₂ parameters|), so twice the size counts the same at every scale; with `paper`, 1 / (1 + |Δ
    parameters in billions|) as published, which cannot tell models of a few million apart. A factor
    that is not known for every model is left out.

    Args:
        descriptors: indexed by model: base, developer (str), parameters (count), rank (float).
        paper: size as published.

    Raises:
        TableError: a parameter count is not positive.

    Source: Christian et al. 2025, Figure 2C. Its "base" is the family (Gemma, Llama), whatever the
        version or
    size: only that reading reproduces the published coefficients.
    """
    if (descriptors["parameters"] <= 0).any():
        bad = descriptors.index[descriptors["parameters"] <= 0]
        raise TableError(
            f"Parameter counts must be positive; they are not for {', '.join(map(str, bad))}."
        )
    parameters = descriptors["parameters"].astype(float)
    size = parameters / 1e9 if paper else np.log2(parameters)
    matrices = {}
    for factor in FACTORS:
        if descriptors[factor].isna().any():
            continue
        values = (size if factor == "parameters" else descriptors[factor]).to_numpy()
        a, b = values[:, None], values[None, :]
        alike = a == b if factor in ("base", "developer") else 1 / (1 + np.abs(a - b))
        models = descriptors.index
        matrices[factor] = pd.DataFrame(alike.astype(float), index=models, columns=models)
    return matrices


def rsa(
    similarity: pd.DataFrame,
    descriptors: pd.DataFrame,
    *,
    permutations: int = 10_000,
    seed: int = 0,
    paper: bool = False,
) -> pd.DataFrame:
    """Regress the similarity of models on what they have in common, over all dyads at once.

    Multiple regression quadratic assignment (MRQAP) with double semi-partialling: a factor's
    residuals on the other factors are permuted over models, and t statistics are compared. This
    keeps its level when factors are correlated and dyads dependent. Mantel's test takes each factor
    alone, permuting the similarity. Both are two-sided, p = (k + 1) / (permutations + 1); with few
    models few permutations differ and p cannot be small (4 models: 24).

    Args:
        similarity: model × model, such as Kendall's tau; the diagonal is not used.
        descriptors: indexed by model, holding at least these models (see `model_matrices`).
        permutations: of the models.
        paper: the factors as published.

    Returns:
        One row per factor: factor, beta (standardised, multiple regression), beta_p (MRQAP),
        partial_r (partial correlation, tested by the
        same p; NaN where the other factors explain everything), mantel_r, mantel_p, n_models,
        n_dyads, r_squared, status ("estimated", or why the factor was left out; its numbers are
        then NaN).

    Raises:
        TableError: too few dyads, or nothing that varies.

    Source: Christian et al. 2025, Figure 2C; Dekker, Krackhardt & Snijders 2007 for the test.
    """
    models = list(similarity.index)
    if permutations < 100:
        smallest = 1 / (permutations + 1)
        raise TableError(
            f"permutations={permutations} cannot give a p value below {smallest:.2f}; use 10000."
        )
    matrices = model_matrices(descriptors.loc[models], paper=paper)
    status = _usable(matrices, n_models=len(models))
    factors = [factor for factor, state in status.items() if state == ESTIMATED]
    n_models, n_dyads = len(models), len(models) * (len(models) - 1) // 2
    if not factors or n_dyads < len(factors) + 2:
        reasons = "; ".join(f"{factor}: {reason}" for factor, reason in status.items())
        raise TableError(
            f"No regression is possible with {n_models} models ({n_dyads} pairs). {reasons}."
        )
    outcome = similarity.to_numpy(dtype=float)
    if np.ptp(_dyads(outcome)) == 0:
        raise TableError("All pairs of models are equally similar; there is nothing to explain.")

    shuffles = np.argsort(np.random.default_rng(seed).random((permutations, n_models)), axis=1)
    y = zscore(_dyads(outcome))
    x = zscore(np.stack([_dyads(matrices[f].to_numpy()) for f in factors], axis=1))
    beta = np.linalg.lstsq(x, y, rcond=None)[0]  # everything has mean 0: no intercept
    y_shuffled = zscore(_shuffled(outcome, shuffles), axis=1)  # (permutations, dyads)
    rows = []
    for k in range(len(factors)):
        partial = _semi_partial_test(y, x[:, k], np.delete(x, k, axis=1), shuffles)
        mantel_r = np.mean(x[:, k] * y)
        mantel_p = permutation_p(mantel_r, y_shuffled @ x[:, k] / n_dyads)
        rows.append((beta[k], *partial, mantel_r, mantel_p))
    columns = ["beta", "beta_p", "partial_r", "mantel_r", "mantel_p"]
    table = pd.DataFrame(rows, pd.Index(factors, name="factor"), columns)
    counts = {"n_models": n_models, "n_dyads": n_dyads, "r_squared": np.var(x @ beta) / np.var(y)}
    table = table.reindex(FACTORS).assign(**counts, status=list(status.values()))
    return table.reset_index()


def _usable(matrices: dict[str, pd.DataFrame], *, n_models: int) -> dict[str, str]:
    """For each factor `ESTIMATED`, or the reason why it is left out."""
    status = dict.fromkeys(FACTORS, "left out: not known for every model")
    columns = [np.ones(n_models * (n_models - 1) // 2)]
    for factor, matrix in matrices.items():
        values = _dyads(matrix.to_numpy())
        if np.ptp(values) < 1e-9:
            status[factor] = "left out: the same for every pair of models"
        elif np.linalg.matrix_rank(np.stack([*columns, values])) == len(columns):
            status[factor] = "left out: follows from the factors before it"
        else:
            status[factor] = ESTIMATED
            columns.append(values)
    return status


def _semi_partial_test(
    y: np.ndarray, x: np.ndarray, controls: np.ndarray, shuffles: np.ndarray
) -> tuple[float, float]:
    """MRQAP's p value and the partial correlation of factor x (dyads,) beside controls (dyads,
    factors)."""
    design = np.column_stack([np.ones(len(controls)), controls])
    # Takes a vector to its residuals.
    annihilator = np.eye(len(controls)) - design @ np.linalg.pinv(design)
    residual_y, residual_x = annihilator @ y, annihilator @ x
    scale = np.linalg.norm(residual_y)
    if scale < TINY:  # the other factors leave nothing to explain
        return 1.0, np.nan
    square = np.zeros((shuffles.shape[1], shuffles.shape[1]))
    square[np.triu_indices(len(square), k=1)] = residual_x
    permuted = _shuffled(square + square.T, shuffles) @ annihilator  # (permutations, dyads)
    length = np.linalg.norm(permuted, axis=1)
    # Of very few models, a permutation can make the factor a copy of the others: no regression.
    permuted, length = permuted[length > TINY], length[length > TINY]
    # The partial correlation orders permutations as |t| does and needs no division by a residual
    # variance.
    along = permuted @ residual_y
    observed = residual_x @ residual_y / (np.linalg.norm(residual_x) * scale)
    return permutation_p(observed, along / (length * scale)), float(observed)


def _dyads(square: np.ndarray) -> np.ndarray:
    """The upper triangle of a model × model matrix, row by row, (dyads,)."""
    return square[np.triu_indices(len(square), k=1)]


def _shuffled(square: np.ndarray, shuffles: np.ndarray) -> np.ndarray:
    """The dyads of a symmetric matrix with its models permuted, (permutations, dyads)."""
    rows, columns = np.triu_indices(len(square), k=1)
    return square[shuffles[:, rows], shuffles[:, columns]]


@analysis("rsa", Needs(models=4), place=60)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """For each prompt: the tau-b of every two models, regressed on what the two have in common.

    Tables:
        rsa: What agreement follows, a row a factor.
            - as everywhere: n_models, prompt, candidates
            - factor: what two models may have in common
            - beta: standardised coefficient of the multiple regression over pairs of models
            - beta_p: of beta, by node permutations (MRQAP)
            - partial_r: partial correlation, tested by the same p
            - mantel_r: correlation of this factor alone (Mantel)
            - mantel_p: its p, by node permutations
            - mantel_p_corrected: mantel_p corrected by Holm
            - beta_p_corrected: beta_p corrected by Holm
            - n_dyads: pairs of models
            - r_squared: of all factors together
            - status: estimated, or why the factor was left out
        rsa_matrices: The matrices behind `rsa`, a row a pair of models and factor.
            - as everywhere: model_a, model_b, prompt, candidates
            - factor: the factor or the agreement
            - value: similarity of the two models by it
    """
    matrices: dict[str, pd.DataFrame] = {}
    failed: list[str] = []

    def regress(prompt: str) -> pd.DataFrame:
        tau = tau_matrix(tables, prompt)
        table = rsa(
            tau,
            tables.descriptors,
            permutations=options.permutations,
            seed=options.seed,
            paper=options.paper,
        )
        factors = model_matrices(tables.descriptors.loc[tau.index], paper=options.paper)
        by_word = {WORDS[factor]: matrix for factor, matrix in factors.items()}
        matrices[prompt] = _stack_pairs({"τ": tau, **by_word})
        return table

    table = map_prompts(tables, regress, failed=failed)
    effect = Effect(
        "mantel_r", "Mantel's r", p="mantel_p_corrected", null=0.0, n="n_models", of="models"
    )
    coefficient = replace(effect, column="beta", label="β", p="beta_p_corrected")
    table = coefficient.correct(effect.correct(table))
    by_word = table.assign(factor=table["factor"].map(WORDS))
    is_estimated = by_word["status"] == ESTIMATED
    estimated, left_out = by_word[is_estimated], by_word[~is_estimated]
    first = estimated[estimated["prompt"] == estimated["prompt"].iloc[0]]
    best = strongest(first, "mantel_r", "mantel_p_corrected")
    corrected = best["mantel_p_corrected"]
    p = f"p = {corrected:.3f}" if corrected >= 0.001 else "p < 0.001"
    number = f"r = {signed(best['mantel_r'], '.2f')}, {p} (Holm; {best['n_models']} models)"
    verdict = "models alike in one property are not found to agree more; nearest, "
    verdict += f"{best['factor']}: {number}."
    if corrected <= LEVEL:
        how = "more" if best["mantel_r"] > 0 else "less"
        verdict = f"models alike in {best['factor']} agree {how}: {number}; "
        verdict += f"β = {signed(best['beta'], '.2f')} beside the other factors."
    notes = [*dict.fromkeys(f"{row.factor} {row.status}" for row in left_out.itertuples())]
    summary = {
        f"{row.prompt}/rsa/{row.factor}/{name}": float(value)
        for row in table.dropna(subset="beta").itertuples()
        for name, value in (("beta", row.beta), ("p", row.beta_p))
    }
    result = Result(
        "rsa",
        table,
        f"On {quoted(best['prompt'])}, {verdict}",
        # What models have in common comes after whatever was tested of what they want.
        weight=weight_of(best["mantel_r"], share=1 / 2),
        estimate=effect.estimate_row(best),
        effect=effect,
        method="rsa",
        notes=(*notes, *failed),
        summary=summary,
    )
    where = {"prompt": best["prompt"]}
    plot = Heatmap(value="value", panel="factor", symmetric=True, order=True, where=where)
    return [
        result,
        Result("rsa_matrices", map_prompts(tables, matrices.get), plot=plot, method="rsa"),
    ]


def _stack_pairs(matrices: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Matrices of the same models under one another, each pair once: model_a, model_b, factor,
    value."""
    models = next(iter(matrices.values())).index
    a, b = np.triu_indices(len(models), k=1)
    pairs = pd.DataFrame({"model_a": models[a], "model_b": models[b]})
    return pd.concat(
        pairs.assign(factor=f, value=_dyads(m.to_numpy())) for f, m in matrices.items()
    )


def mds(dissimilarity: pd.DataFrame, *, seed: int = 0) -> tuple[pd.DataFrame, float]:
    """A map of the models: metric multidimensional scaling, SMACOF, the best of `STARTS` random
    starts.

    The map is centred, turned so that x carries most of its variance, and flipped so that on each
    axis the model farthest from the centre is on the positive side: one matrix, one picture.
    Compare two maps up to Procrustes only.

    Args:
        dissimilarity: three models or more × the same, such as 1 − Kendall's tau; zero diagonal.

    Returns:
        model, x, y (in units of dissimilarity), and Kruskal's normalised stress-1: the root of the
        squared misfit over the squared map distances; 0 exact, .05 good, .1 fair, .2 poor.

    Source: Christian et al. 2025, Figure 2B.
    """
    from sklearn import config_context
    from sklearn.manifold import MDS

    scaling = MDS(
        n_components=2,
        metric="precomputed",
        metric_mds=True,
        init="random",
        n_init=STARTS,
        max_iter=1000,
        random_state=seed,
        normalized_stress=True,
    )
    with config_context(assume_finite=True, skip_parameter_validation=True):
        places = scaling.fit_transform(dissimilarity.to_numpy(dtype=float, copy=True))
    x, y = _oriented(places).T
    table = pd.DataFrame({"model": list(dissimilarity.index), "x": x, "y": y})
    return table, float(scaling.stress_)


def _oriented(places: np.ndarray) -> np.ndarray:
    """Points (models, 2), centred, on their principal axes, with the farthest point of each axis
    positive."""
    centred = places - places.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ axes.T
    farthest = turned[np.abs(turned).argmax(axis=0), range(2)]
    return turned * np.where(farthest < 0, -1.0, 1.0)


@analysis("geometry", Needs(models=3), place=50)
def analyse_map(tables: TableSet, options: Options) -> list[Result]:
    """A map of the models for each prompt, of 1 − Kendall's tau-b.

    Tables:
        mds: A map of the models by 1 − τ.
            - as everywhere: model, prompt, candidates
            - x: place, in units of 1 − τ
            - y: place, in units of 1 − τ
            - stress: Kruskal's stress-1 of the map; 0 is exact, .2 poor
    """

    def draw_map(prompt: str) -> pd.DataFrame:
        places, stress = mds(1 - tau_matrix(tables, prompt), seed=options.seed)
        return places.assign(stress=stress)

    table = map_prompts(tables, draw_map, models=3)
    if table.empty:
        return []
    prompt = table["prompt"].iloc[0]
    tau = tau_matrix(tables, prompt)
    with_others = (tau.sum() - 1) / (len(tau) - 1)
    outlier = with_others.idxmin()
    descriptors = tables.descriptors[["developer", "base"]].astype(object).fillna(UNKNOWN)
    lowest, mean = float(with_others[outlier]), with_others.mean()
    headline = f"On {quoted(prompt)}, {tables.labels[outlier]} agrees least with the others: "
    headline += f"mean τ = {lowest:.2f}, against {mean:.2f} over all pairs."
    data = table.join(descriptors, on="model")
    plot = Scatter(data=data, equal=True, axes=False, x="x", y="y", name="model", group="developer")
    estimate = Estimate("mean τ with the others", lowest, len(tau) - 1, "models")
    weight = weight_of(mean - lowest, share=1 / 2)
    return [Result("mds", table, headline, plot, "mds", weight, estimate)]
