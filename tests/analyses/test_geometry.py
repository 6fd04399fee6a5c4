"""Maps: known configurations, and pictures that do not depend on how models are listed."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import pdist, squareform

from pessimal.analyses.analysis import Options
from pessimal.analyses.rsa import analyse_map, mds


def planar(points: list[tuple[float, float]]) -> pd.DataFrame:
    names = [f"m{place}" for place in range(len(points))]
    return pd.DataFrame(squareform(pdist(points)), index=names, columns=names)


RECTANGLE = planar([(0, 0), (4, 0), (4, 1), (0, 1), (7, 0.3)])


def test_points_of_a_plane_are_found_again_without_stress():
    places, stress = mds(RECTANGLE)
    assert stress < 0.01
    assert squareform(pdist(places[["x", "y"]])) == pytest.approx(RECTANGLE.to_numpy(), abs=0.05)


# the analysis


def test_the_model_that_agrees_least_is_named_and_lies_far_out(table_set):
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(300, 1))
    values = shared + rng.normal(size=(300, 4)) * [0.3, 0.3, 0.3, 5]
    tables = table_set({"greatest": pd.DataFrame(values, columns=["a", "b", "c", "odd"])})
    (result,) = analyse_map(tables, Options())
    taus = [stats.kendalltau(values[:, 3], values[:, k]).statistic for k in range(3)]
    assert result.estimate.value == pytest.approx(np.mean(taus))
    assert list(result.table) == ["model", "x", "y", "stress", "prompt", "candidates"]
    places = result.table.set_index("model")[["x", "y"]]
    assert (places**2).sum(axis=1).idxmax() == "odd"


def test_a_prompt_of_two_models_has_no_map(table_set):
    rewards = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=list("abc"))
    (result,) = analyse_map(
        table_set({"greatest": rewards, "best": rewards[["a", "b"]]}), Options()
    )
    assert result.table["prompt"].unique().tolist() == ["greatest"]
