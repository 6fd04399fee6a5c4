"""Where models lie with respect to one another: a map in the plane on which near means alike."""

import numpy as np
import pandas as pd

from pessimal.analyses.agreement import tau_matrix
from pessimal.analyses.analysis import Needs, Options, analysis, by_prompt
from pessimal.plots import Scatter
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.tables.table_set import TableSet

STARTS = 64
"""On the paper's ten models a single start ends up to 16 % above the least stress and finds it 3
times in 20."""
UNKNOWN = "not stated"


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
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """A map of the models for each prompt, of 1 − Kendall's tau-b."""
    table = by_prompt(tables, lambda prompt: _map(tables, prompt, options))
    if table.empty:
        return []
    prompt = table["prompt"].iloc[0]
    tau = tau_matrix(tables, prompt)
    with_others = (tau.sum() - 1) / (len(tau) - 1)
    outlier = with_others.idxmin()
    descriptors = tables.descriptors[["developer", "base"]].astype(object).fillna(UNKNOWN)
    return [
        Result(
            "mds",
            table,
            headline=f"On {prompt}, {tables.labels[outlier]} agrees least with the other models: "
            f"mean τ = {with_others[outlier]:.2f}, against {with_others.mean():.2f} over all "
            "pairs.",
            plot=Scatter(
                x="x",
                y="y",
                name="model",
                group="developer",
                equal=True,
                axes=False,
                data=table.join(descriptors, on="model"),
            ),
            method="mds",
            weight=weight_of(with_others.mean() - with_others[outlier], share=1 / 2),
            estimate=Estimate(
                "mean τ with the others", float(with_others[outlier]), len(tau) - 1, "models"
            ),
        )
    ]


def _map(tables: TableSet, prompt: str, options: Options) -> pd.DataFrame | None:
    if len(tables.by_prompt[prompt]) < 3:
        return None
    places, stress = mds(1 - tau_matrix(tables, prompt), seed=options.seed)
    return places.assign(stress=stress)
