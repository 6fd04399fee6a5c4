"""Maps and orders: known configurations, and pictures that do not depend on how models are listed."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist, squareform

from pessimal.analysis.geometry import dissimilarity, mds, order
from pessimal.errors import TableError


def planar(points: list[tuple[float, float]]) -> pd.DataFrame:
    names = [f"m{place}" for place in range(len(points))]
    return pd.DataFrame(squareform(pdist(points)), index=names, columns=names)


RECTANGLE = planar([(0, 0), (4, 0), (4, 1), (0, 1), (7, 0.3)])


def test_points_of_a_plane_are_found_again_without_stress():
    places, stress = mds(RECTANGLE)
    assert stress < 0.01
    assert squareform(pdist(places[["x", "y"]])) == pytest.approx(RECTANGLE.to_numpy(), abs=0.05)


def test_the_map_is_centred_and_lies_on_its_principal_axes():
    places, _ = mds(RECTANGLE)
    x, y = places["x"].to_numpy(), places["y"].to_numpy()
    assert [x.mean(), y.mean(), x @ y] == pytest.approx([0, 0, 0], abs=1e-9)
    assert x.var() > y.var()
    assert x[np.abs(x).argmax()] > 0
    assert y[np.abs(y).argmax()] > 0


def test_the_picture_does_not_depend_on_the_order_of_the_models():
    shuffled = ["m3", "m0", "m4", "m1", "m2"]
    one = mds(RECTANGLE)[0].set_index("model")
    other = mds(RECTANGLE.loc[shuffled, shuffled])[0].set_index("model")
    assert other.loc[one.index].to_numpy() == pytest.approx(one.to_numpy(), abs=0.05)


def test_points_that_need_more_dimensions_have_stress():
    corners = pd.DataFrame(1 - np.eye(6))
    assert mds(corners)[1] > 0.1


def test_the_input_is_left_alone():
    before = RECTANGLE.copy()
    mds(RECTANGLE)
    pd.testing.assert_frame_equal(RECTANGLE, before)


def test_order_keeps_two_blocks_apart_and_begins_with_the_end_given_first():
    names = ["a1", "b1", "a2", "b2", "a3"]
    same = np.array([[x[0] == y[0] for y in names] for x in names])
    similarity = pd.DataFrame(np.where(np.eye(5), 1.0, np.where(same, 0.8, 0.1)), index=names, columns=names)
    ordered = order(similarity)
    assert "".join(name[0] for name in ordered) in ("aaabb", "bbaaa")
    assert names.index(ordered[0]) < names.index(ordered[-1])
    assert sorted(ordered) == sorted(names)


def test_dissimilarity_is_one_minus_similarity():
    similarity = pd.DataFrame([[1.0, -0.5], [-0.5, 1.0]])
    assert dissimilarity(similarity).to_numpy().tolist() == [[0, 1.5], [1.5, 0]]


def test_matrices_that_are_no_similarities_are_refused():
    with pytest.raises(TableError, match="symmetric"):
        dissimilarity(pd.DataFrame([[1.0, 0.2], [0.3, 1.0]]))
    with pytest.raises(TableError, match="rows and columns"):
        order(RECTANGLE.iloc[:, ::-1])
    with pytest.raises(TableError, match="at least 3"):
        mds(planar([(0, 0), (1, 1)]))
