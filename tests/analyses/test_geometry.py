"""Maps: known configurations, and pictures that do not depend on how models are listed."""

import pandas as pd
import pytest
from scipy.spatial.distance import pdist, squareform

from pessimal.analyses.rsa import mds


def planar(points: list[tuple[float, float]]) -> pd.DataFrame:
    names = [f"m{place}" for place in range(len(points))]
    return pd.DataFrame(squareform(pdist(points)), index=names, columns=names)


RECTANGLE = planar([(0, 0), (4, 0), (4, 1), (0, 1), (7, 0.3)])


def test_points_of_a_plane_are_found_again_without_stress():
    places, stress = mds(RECTANGLE)
    assert stress < 0.01
    assert squareform(pdist(places[["x", "y"]])) == pytest.approx(RECTANGLE.to_numpy(), abs=0.05)


# the analysis
