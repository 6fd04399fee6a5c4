"""Where restarts begin."""

import logging

import pytest
import torch

from pessimal.errors import ConfigError
from pessimal.search.starts import starts

WINNERS = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1], [2, 2, 2], [3, 3, 3]])
ALLOWED = torch.arange(100) < 60


def begun(n, *, seed=0, **options):
    options = {"length": 3, "allowed": ALLOWED, **options}
    return starts(n, generator=torch.Generator().manual_seed(seed), **options)


def labels(found):
    return [label for label, _ in found]


def test_winners_first_up_to_half_then_the_best_token_repeated_then_chance():
    found = begun(8, winners=WINNERS, best_token=42)
    assert labels(found) == ["beam"] * 4 + ["repeat"] + ["random"] * 3
    assert torch.equal(torch.stack([start for _, start in found[:4]]), WINNERS[:4])
    assert found[4][1].tolist() == [42, 42, 42]
    random = torch.stack([start for _, start in found[5:]])
    assert ALLOWED[random].all()
    assert random.dtype == torch.int64


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (1, ["beam"]),
        (2, ["beam", "repeat"]),
        (3, ["beam", "repeat", "random"]),
        (4, ["beam"] * 2 + ["repeat", "random"]),
    ],
)
def test_few_starts(n, expected):
    assert labels(begun(n, winners=WINNERS, best_token=42)) == expected


def test_without_winners_and_best_token_all_are_random():
    assert labels(begun(5)) == ["random"] * 5


def test_starts_are_distinct():
    winners = torch.tensor([[5, 5, 5], [5, 5, 5], [6, 6, 6]])
    found = begun(12, winners=winners, best_token=6, allowed=torch.arange(100) < 3)
    assert labels(found) == ["beam"] * 2 + ["random"] * 10
    assert len({tuple(start.tolist()) for _, start in found}) == 12


def test_the_same_seed_gives_the_same_starts():
    one, same, other = ([start.tolist() for _, start in begun(6, seed=seed)] for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_every_start_retokenizes():
    def even(responses):
        return responses.sum(dim=1) % 2 == 0

    found = begun(8, winners=WINNERS, best_token=41, retokenizes=even)
    assert labels(found) == ["beam"] * 3 + ["random"] * 5  # 41 three times is odd
    assert even(torch.stack([start for _, start in found])).all()
    assert [start.tolist() for _, start in found[:3]] == [[1, 2, 3], [7, 8, 9], [2, 2, 2]]


def test_rare_retokenizing_responses_are_found():
    def rare(responses):
        return (responses[:, 0] == 7) & (responses[:, 1] < 1)  # one of 3,600

    assert rare(torch.stack([start for _, start in begun(3, retokenizes=rare)])).all()


def test_fewer_starts_where_there_are_no_more_and_that_is_said(caplog):
    with caplog.at_level(logging.WARNING):
        found = begun(8, allowed=torch.arange(100) == 9)
    assert [start.tolist() for _, start in found] == [[9, 9, 9]]
    assert "only 1 of 8" in caplog.text


def test_no_retokenizing_start_is_a_mistake_that_can_be_mended():
    with pytest.raises(ConfigError, match="mode=ids"):
        begun(2, best_token=3, retokenizes=lambda responses: torch.zeros(len(responses), dtype=torch.bool))


def test_no_allowed_token_is_a_mistake_that_can_be_mended():
    with pytest.raises(ConfigError, match=r"search.allowed=\[\]"):
        begun(2, best_token=3, allowed=torch.zeros(100, dtype=torch.bool))
