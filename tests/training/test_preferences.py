"""Items, their split, and the share of pairs in people's order."""

import numpy as np
import pytest
import torch
from scipy import stats

from pessimal.errors import InputError
from pessimal.training.bradley_terry import soft_bradley_terry
from pessimal.training.preferences import Items, agreement, digest_of, read_preferences, split


def write(path, rows):
    path.write_text(
        "name,elo_score,elo_matches\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n"
    )
    return path


def test_items_are_read_with_elo_in_nats(tmp_path):
    file = write(tmp_path / "elo.csv", [(f"Item {i} ", 1000 + 4 * i, i % 7) for i in range(200)])
    items = read_preferences(file, without=frozenset({"item 1"}))
    names = [name.strip().lower() for name in items.names]
    assert "item 1" not in names
    assert "item 7" not in names  # no matches, no rating
    two, four = (names.index(name) for name in ("item 2", "item 4"))
    assert items.utility[four] - items.utility[two] == pytest.approx(8 * np.log(10) / 400)
    assert items.precision[two] == 2


def test_a_digest_of_items_tells_names_ratings_and_matches():
    one = Items(("a", "b"), np.arange(2.0), np.ones(2))
    others = [
        Items(("a", "c"), one.utility, one.precision),
        Items(one.names, one.utility + 1, one.precision),
        Items(one.names, one.utility, one.precision + 1),
    ]
    assert len({digest_of(items) for items in (one, *others)}) == 4


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_a_pair_weighs_as_the_variances_of_both_items_say(scale):
    rewards, utility = torch.tensor([[0.3, -0.2, 1.0]]), torch.tensor([[1.0, 0.0, -2.0]])
    precision = scale * torch.tensor([[1.0, 4.0, 2.0]])
    sizes = [soft_bradley_terry(rewards[:, p], utility[:, p]) for p in ([0, 1], [0, 2], [1, 2])]
    weights = [1 / (1 + 1 / 4), 1 / (1 + 1 / 2), 1 / (1 / 4 + 1 / 2)]
    loss = soft_bradley_terry(rewards, utility, precision).item()
    assert loss == pytest.approx(np.average([float(size) for size in sizes], weights=weights))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", 1, 1)] * 2, "twice"),
        ([("a", "high", 1)], "is not a number"),
        ([("a", 1, 1)], "at least 100"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read_preferences(write(tmp_path / "elo.csv", rows))


def test_a_file_without_elo_is_refused(tmp_path):
    (tmp_path / "elo.csv").write_text("name,score\na,1\n")
    with pytest.raises(InputError, match="lacks the column elo_matches and elo_score"):
        read_preferences(tmp_path / "elo.csv")


def test_the_split_is_the_same_for_every_call_and_shares_nothing():
    items = Items(tuple(map(str, range(400))), np.arange(400.0), np.ones(400))
    trained, held = split(items, held_out=0.2, seed=0)
    assert (len(trained.names), len(held.names)) == (320, 80)
    assert not set(trained.names) & set(held.names)
    assert split(items, held_out=0.2, seed=0)[1].names == held.names
    assert split(items, held_out=0.2, seed=1)[1].names != held.names
    for share in (0.1, 0.9):
        with pytest.raises(InputError, match="held_out"):
            split(items, held_out=share, seed=0)


def test_agreement_is_the_share_of_pairs_in_order():
    rng = np.random.default_rng(0)
    utility = rng.normal(size=300)
    rewards = utility + rng.normal(size=300)
    found = agreement(rewards, Items(("x",) * 300, utility, np.ones(300)))
    kendall = stats.kendalltau(utility, rewards).statistic
    assert found["accuracy"] == pytest.approx((1 + kendall) / 2)
    assert found["pairs"] == 300 * 299 / 2


def test_the_interval_covers_what_the_population_has():
    rng, inside = np.random.default_rng(1), 0
    truth = (
        1 + 2 / np.pi * np.arcsin(np.sqrt(0.5))
    ) / 2  # of two normals with correlation sqrt(.5)
    for _ in range(300):
        utility = rng.normal(size=80)
        found = agreement(utility + rng.normal(size=80), Items(("x",) * 80, utility, np.ones(80)))
        inside += found["low"] < truth < found["high"]
    assert 0.91 < inside / 300 < 0.985
