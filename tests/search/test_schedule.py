"""The step size over a search."""

import pytest

from pessimal.search.schedule import StepSize


@pytest.mark.parametrize(("share", "size"), [(0.0, 3), (0.79, 3), (0.8, 1), (1.0, 1)])
def test_several_positions_until_a_share_of_the_budget_is_used(share, size):
    assert StepSize(first=3, until=0.8).at(share) == size


@pytest.mark.parametrize(("until", "sizes"), [(0.0, [1, 1]), (1.0, [2, 2])])
def test_never_and_until_the_end(until, sizes):
    assert [StepSize(first=2, until=until).at(share) for share in (0.0, 0.999)] == sizes
