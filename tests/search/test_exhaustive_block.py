"""Blocks of pairs and what they give together, against one table of all pairs taken apart by plain means."""

import numpy as np
import pytest

from pessimal.errors import ConfigError
from pessimal.search.exhaustive_block import BINS, Bins, Block, summarise
from pessimal.search.exhaustive_merge import merge
from pessimal.search.exhaustive_plan import PairPlan

TOKENS = np.array([3, 5, 8, 9, 11, 20, 21, 30, 31, 32, 40])


@pytest.fixture(params=["distinct", "tied", "equal"])
def rewards(request):
    """Rewards (n, n) float32: all different, a few values many times, or one value throughout."""
    n, random = len(TOKENS), np.random.default_rng(0)
    return {
        "distinct": random.normal(size=(n, n)),
        "tied": random.integers(-2, 3, size=(n, n)),
        "equal": np.full((n, n), 0.25),
    }[request.param].astype(np.float32)


def tables(rewards, *, keep, firsts_per_block, bins=None):
    plan = PairPlan.of(TOKENS, keep=keep, firsts_per_block=firsts_per_block)
    bins = bins or Bins.around(rewards.ravel())
    blocks = []
    for number in range(plan.blocks):
        rows = np.searchsorted(TOKENS, plan.firsts(number))
        made = summarise(rewards[rows], firsts=plan.firsts(number), seconds=plan.tokens, keep=keep, bins=bins)
        blocks.append(Block.unpack(made.pack()))
    return merge(plan, bins, blocks)


def ordered(rewards, sign):
    """All pairs as (reward, first, second), outermost first, by Python's own sort."""
    pairs = [
        (float(rewards[i, j]), int(a), int(b)) for i, a in enumerate(TOKENS) for j, b in enumerate(TOKENS)
    ]
    return sorted(pairs, key=lambda pair: (-sign * pair[0], pair[1], pair[2]))


@pytest.mark.parametrize("keep", [1, 7, 50, 121, 500])
@pytest.mark.parametrize("firsts_per_block", [1, 4, 11])
def test_ends_are_those_of_all_pairs_sorted_and_ties_go_by_ids(rewards, keep, firsts_per_block):
    made = tables(rewards, keep=keep, firsts_per_block=firsts_per_block)
    for frame, sign in ((made.top, 1), (made.bottom, -1)):
        expected = ordered(rewards, sign)[:keep]
        assert list(zip(frame["reward"], frame["first"], frame["second"], strict=True)) == expected
        further = [int((sign * rewards > sign * reward).sum()) for reward, _, _ in expected]
        assert frame["rank"].tolist() == [1 + count for count in further]


@pytest.mark.parametrize("firsts_per_block", [1, 4, 11])
def test_each_tokens_own_numbers_are_those_of_its_row_and_of_its_column(rewards, firsts_per_block):
    made = tables(rewards, keep=5, firsts_per_block=firsts_per_block)
    for frame, matrix, other in ((made.per_first, rewards, "second"), (made.per_second, rewards.T, "first")):
        assert frame.iloc[:, 0].tolist() == TOKENS.tolist()
        assert frame["best"].tolist() == matrix.max(axis=1).tolist()
        assert frame["worst"].tolist() == matrix.min(axis=1).tolist()
        # numpy's arg-max is the first: the lowest id
        assert frame[f"best_{other}"].tolist() == TOKENS[matrix.argmax(axis=1)].tolist()
        assert frame[f"worst_{other}"].tolist() == TOKENS[matrix.argmin(axis=1)].tolist()
        np.testing.assert_allclose(frame["mean"], matrix.astype(float).mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(made.per_first["sd"], rewards.astype(float).std(axis=1), atol=1e-12)


def test_variance_falls_into_first_second_and_the_two_together():
    random = np.random.default_rng(1)
    first, second = random.normal(size=11), random.normal(size=11)
    additive = (first[:, None] + second[None]).astype(np.float32)
    moments = tables(additive, keep=1, firsts_per_block=4).moments
    assert moments.mean == pytest.approx(additive.astype(float).mean())
    assert moments.sd == pytest.approx(additive.astype(float).std())
    assert moments.first == pytest.approx(first.var() / (first.var() + second.var()), rel=1e-5)
    assert moments.together == pytest.approx(0, abs=1e-6)
    # The product of two centred factors has no means at all.
    product = ((first - first.mean())[:, None] * (second - second.mean())[None]).astype(np.float32)
    assert tables(product, keep=1, firsts_per_block=4).moments.together == pytest.approx(1, abs=1e-6)
    assert np.isnan(tables(np.ones((11, 11), dtype=np.float32), keep=1, firsts_per_block=4).moments.first)


def test_every_reward_is_counted_in_the_bin_whose_edges_hold_it(rewards):
    bins = Bins.around(rewards.ravel())
    histogram = tables(rewards, keep=1, firsts_per_block=4, bins=bins).histogram
    assert len(histogram) == BINS + 2
    assert histogram["low"].tolist()[1:] == histogram["high"].tolist()[:-1]
    inside = (rewards.ravel() >= histogram["low"].to_numpy()[:, None]) & (
        rewards.ravel() < histogram["high"].to_numpy()[:, None]
    )
    assert histogram["pairs"].tolist() == inside.sum(axis=1).tolist()
    assert histogram["pairs"].iloc[[0, -1]].sum() == 0, "bins reach further than their sample"


def test_rewards_at_an_edge_lie_above_it_and_those_outside_are_counted_outside():
    bins = Bins(exponent=-3, lowest=-4)
    edges = bins.edges
    assert edges[0] == -0.5
    counts = bins.count(np.array([-9, -0.50000006, -0.5, -0.375, edges[-1], 1e30], dtype=np.float32))
    assert counts[[0, 1, 2, -1]].tolist() == [2, 1, 1, 2]
    assert counts.sum() == 6


@pytest.mark.parametrize("sample", [[3.5], [0.0, 0.0], [-1e30, 1e30], [1e6, 1e6 + 0.0625], [-2.0, 1.0]])
def test_bins_are_laid_around_any_sample(sample):
    sample = np.array(sample, dtype=np.float32)
    bins = Bins.around(sample)
    spread = float(sample.max()) - float(sample.min())
    assert (np.diff(bins.edges) == 2.0**bins.exponent).all()
    assert bins.edges[0] <= sample.min() - 0.99 * spread
    assert bins.edges[-1] >= sample.max() + 0.99 * spread
    assert bins.count(sample)[1:-1].sum() == len(sample)
    assert spread == 0 or 2.0**bins.exponent < spread / 600, "fine enough to be of use"


def test_plan_covers_every_pair_once_whatever_the_order_of_ids():
    plan = PairPlan.of(np.array([9, 3, 3, 7, 1, 5, 2]), keep=2, firsts_per_block=4)
    assert plan.tokens.tolist() == [1, 2, 3, 5, 7, 9]
    assert [plan.firsts(number).tolist() for number in range(plan.blocks)] == [[1, 2, 3, 5], [7, 9]]
    assert sum(plan.pairs_of(number) for number in range(plan.blocks)) == plan.pairs == 36


def test_plans_of_other_tokens_keep_or_blocks_have_other_digests():
    def digest(tokens, keep=2, firsts_per_block=4, more=()):
        return PairPlan.of(np.array(tokens), keep=keep, firsts_per_block=firsts_per_block).digest(*more)

    base = digest([1, 2, 3])
    assert digest([3, 2, 1, 1]) == base
    others = [
        digest([1, 2]),
        digest([1, 2, 3], 3),
        digest([1, 2, 3], 2, 5),
        digest([1, 2, 3], more=("bfloat16",)),
    ]
    assert len({base, *others}) == 5


def test_no_allowed_token_is_refused():
    with pytest.raises(ConfigError, match=r"search\.allowed"):
        PairPlan.of(np.array([], dtype=int), keep=1)
