"""The observed matrix and each factor's, cell by cell in one order."""

import numpy as np
import pandas as pd
import pytest

from pessimal.analysis import geometry
from pessimal.analysis.agreement import agreement, as_matrix
from pessimal.analysis.descriptors import model_matrices as matrices_of
from pessimal.analysis.rsa import rsa
from pessimal.errors import TableError
from pessimal.figures.model_matrices import model_matrices


@pytest.fixture
def similarity(rewards) -> pd.DataFrame:
    return as_matrix(agreement(rewards, replicates=100), "kendall")


def panel(figure, heading: str):
    (found,) = [axes for axes in figure.axes if heading in (axes.get_title(), axes.get_title("left"))]
    return found


def test_every_matrix_has_the_order_of_the_observed_one(similarity, descriptors):
    matrices = matrices_of(descriptors.assign(rank=[3.0, 1, 2, 9, 7, 8]))
    figure = model_matrices(similarity, matrices)
    models = geometry.order(similarity)
    off = ~np.eye(6, dtype=bool)
    headings = dict(
        zip(matrices, ("same base", "same developer", "similar size", "similar rank"), strict=True)
    )
    for heading, matrix in {
        "Kendall's τ": similarity,
        **{headings[f]: m for f, m in matrices.items()},
    }.items():
        cells = panel(figure, heading).images[0].get_array()
        assert np.asarray(cells)[off] == pytest.approx(matrix.loc[models, models].to_numpy()[off])
    names = [label.get_text() for label in panel(figure, "Kendall's τ").get_yticklabels()]
    assert names == [model.removeprefix("lab/") for model in models]


def test_factors_are_coloured_from_nothing_in_common_to_the_same(similarity, descriptors):
    """A base that all models share must not look like one that none share."""
    figure = model_matrices(similarity, matrices_of(descriptors.assign(base="one")))
    assert panel(figure, "same base").images[0].get_clim() == (0, 1)
    assert panel(figure, "Kendall's τ").images[0].get_clim()[0] > 0


def test_beta_and_p_stand_under_each_factor_and_a_reason_where_there_are_none(similarity, descriptors, texts):
    table = rsa(similarity, descriptors, permutations=200)
    figure = model_matrices(similarity, matrices_of(descriptors), table=table)
    for factor in table.itertuples():
        if factor.status == "estimated":
            beta = f"β = {factor.beta:z.2f}".replace("-", "−")
            assert any(text.startswith(beta) and "p" in text for text in texts(figure))
    assert "left out:\nnot known for every model" in texts(figure)
    assert any("6 models" in text for text in texts(figure))


def test_two_models_can_be_drawn_and_missing_ones_are_named(similarity, descriptors):
    matrices = matrices_of(descriptors)
    assert len(model_matrices(similarity.iloc[:2, :2], matrices).axes) == 4
    with pytest.raises(TableError, match="lacks lab/alder-large"):
        model_matrices(similarity, matrices_of(descriptors.drop("lab/alder-large")))
    with pytest.raises(TableError, match="No factor's matrix"):
        model_matrices(similarity, {})
